package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

func TestFloorStatus(t *testing.T) {
	c, _, tide := testClient(t)
	status := func(f *powersave.FloorCounts) (v1alpha1.NodeSetStatus, *metav1.Condition) {
		require.NoError(t, c.UpdateStatus(t.Context(), powersave.NodeSetCounts{Name: "cpu", Nodes: 10, Floor: f}))
		ns, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(t.Context(), "cpu", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, c.nodeSets.Update(ns))
		return ns.Status, meta.FindStatusCondition(ns.Status.Conditions, v1alpha1.ConditionFloorReached)
	}
	s, reached := status(nil)
	assert.Nil(t, s.Floor)
	assert.Nil(t, reached, "nothing is to be said of a floor that never was")

	s, reached = status(&powersave.FloorCounts{Wanted: 3, Held: 1, Why: powersave.FloorBooting})
	assert.Equal(t, &v1alpha1.FloorStatus{Wanted: 3, Held: 1, Reason: "Booting"}, s.Floor)
	assert.Equal(t, metav1.ConditionFalse, reached.Status)
	assert.Equal(t, "1 of 3 nodes serve: others are booting", reached.Message)

	_, reached = status(&powersave.FloorCounts{Wanted: 3, Held: 1, Why: powersave.FloorCapped, Text: "spec.maxPoweredUp is 1, and 1 nodes are up"})
	assert.Equal(t, "MaxPoweredUp", reached.Reason)
	assert.Equal(t, "1 of 3 nodes serve: spec.maxPoweredUp is 1, and 1 nodes are up", reached.Message)

	s, reached = status(&powersave.FloorCounts{Wanted: 3, Held: 3})
	assert.Equal(t, &v1alpha1.FloorStatus{Wanted: 3, Held: 3}, s.Floor)
	assert.Equal(t, metav1.ConditionTrue, reached.Status)
	assert.Equal(t, "Held", reached.Reason)

	s, reached = status(&powersave.FloorCounts{Wanted: 3, Held: 3, SuspendTimeSeconds: 29})
	assert.Equal(t, &v1alpha1.FloorStatus{Wanted: 3, Held: 3, SuspendTimeSeconds: 29}, s.Floor)
	assert.Equal(t, metav1.ConditionTrue, reached.Status)
	assert.Equal(t, "3 of 3 nodes serve; SuspendTime is 29 s: below 30 s Slurm's power saving may take nodes of the floor now and then, when slurmctld or slurmrestd is slow. "+
		"Set SuspendTime=30 or more (a partition's too), or SuspendExcNodes=", reached.Message)
	_, reached = status(&powersave.FloorCounts{Wanted: 3, Held: 3, SuspendTimeSeconds: 30})
	assert.Equal(t, "3 of 3 nodes serve", reached.Message)

	s, reached = status(nil)
	assert.Nil(t, s.Floor, "it is taken out of the status, too")
	assert.Equal(t, metav1.ConditionTrue, reached.Status)
	assert.Equal(t, "NoFloor", reached.Reason)
}

func TestFloorOfNodeSet(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	got := Validate([]*v1alpha1.NodeSet{ns})[0]
	assert.Zero(t, got.Floor+got.FloorWas+got.MaxPoweredUp)
	ns.Spec.Replicas, ns.Spec.MaxPoweredUp = new(int32(3)), new(int32(5))
	ns.Status.Floor = &v1alpha1.FloorStatus{Wanted: 2, SuspendTimeSeconds: 9}
	got = Validate([]*v1alpha1.NodeSet{ns})[0]
	assert.Equal(t, []int{3, 2, 5}, []int{got.Floor, got.FloorWas, got.MaxPoweredUp})
	assert.Equal(t, 9*time.Second, got.SuspendTimeWas)
	assert.Empty(t, got.Problem)
}

// Windows are open when the clock on the wall of their time zone says so, also when that is put forward or back.
func TestWindowsOfNodeSet(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.Spec.ReplicaWindows = []v1alpha1.ReplicaWindow{
		{Start: "30 7 * * MON-FRI", Duration: *hours(10), TimeZone: "Europe/Berlin", Replicas: 3}, {Start: "0 8 * * *", Duration: *hours(1), Replicas: 4},
	}
	windows := Validate([]*v1alpha1.NodeSet{ns})[0].Windows
	require.Len(t, windows, 2)
	assert.Equal(t, 10*time.Hour, windows[0].Duration)
	assert.Equal(t, 3, windows[0].Replicas)
	for after, want := range map[string]string{
		"2026-03-27T00:00:00Z": "2026-03-27T06:30:00Z", // Friday, winter
		"2026-03-27T06:30:00Z": "2026-03-30T05:30:00Z", // Monday, summer
		"2026-10-23T05:30:00Z": "2026-10-26T06:30:00Z",
	} {
		at, err := time.Parse(time.RFC3339, after)
		require.NoError(t, err)
		assert.Equal(t, want, windows[0].Schedule.Next(at).UTC().Format(time.RFC3339), "after %s", after)
	}
	assert.Equal(t, "1970-01-01T08:00:00Z", windows[1].Schedule.Next(time.Unix(0, 0)).UTC().Format(time.RFC3339), "UTC unless it says otherwise")
}

// A window is open on the day on which clocks are put forward over its start.
func TestWindowOverDaylightSaving(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.Spec.ReplicaWindows = []v1alpha1.ReplicaWindow{{Start: "0 2 * * *", Duration: *hours(1), TimeZone: "Europe/Berlin", Replicas: 3}}
	set := Validate([]*v1alpha1.NodeSet{ns})[0]
	require.Empty(t, set.Problem)
	for at, want := range map[string]int{
		"2026-03-28T00:59:00Z": 0, "2026-03-28T01:00:00Z": 3, "2026-03-28T01:59:00Z": 3, "2026-03-28T02:00:00Z": 0,
		"2026-03-29T00:59:00Z": 0, "2026-03-29T01:00:00Z": 3, "2026-03-29T01:59:00Z": 3, "2026-03-29T02:00:00Z": 0,
		"2026-10-24T23:59:00Z": 0, "2026-10-25T00:00:00Z": 3, "2026-10-25T00:59:00Z": 3, "2026-10-25T01:00:00Z": 0, "2026-10-25T01:30:00Z": 0,
	} {
		now, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		e := powersave.New(powersave.Config{Alone: true})
		e.Step(now, powersave.PodsRead{})
		e.Step(now, powersave.NodeSetsRead{NodeSets: []powersave.NodeSet{set}})
		got := 0
		if f := e.Counts()[0].Floor; f != nil {
			got = f.Wanted
		}
		assert.Equal(t, want, got, at)
	}
}

func TestFloorUnread(t *testing.T) {
	var s v1alpha1.NodeSetStatus
	reached := floorStatus(&s, &powersave.FloorCounts{Wanted: 3, Held: 3, Why: powersave.FloorUnread, Text: "Slurm cannot be read"})[0]
	assert.Equal(t, metav1.ConditionUnknown, reached.Status, "what was so is not said to be so")
	assert.Equal(t, "NotRead", reached.Reason)
	assert.Equal(t, "3 of 3 nodes serve, as far as is known: Slurm cannot be read", reached.Message)
	assert.Equal(t, &v1alpha1.FloorStatus{Wanted: 3, Held: 3, Reason: "NotRead"}, s.Floor)
}
