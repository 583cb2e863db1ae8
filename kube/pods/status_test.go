package pods

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/powersave"
)

// versions lets every patch make a new version of the object, as the API server does.
func versions(t *testing.T, tide *tidefake.Clientset) (patches func() int) {
	t.Helper()
	count := 0
	tide.PrependReactor("patch", "nodesets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		count++
		tracker := clienttesting.ObjectReaction(tide.Tracker())
		_, obj, err := tracker(a)
		if err != nil {
			return true, nil, err
		}
		ns := obj.(*v1alpha1.NodeSet).DeepCopy()
		ns.ResourceVersion = strconv.Itoa(100 + 10*count)
		return true, ns, tide.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("nodesets"), ns, ns.Namespace)
	})
	return func() int { return count }
}

func stored(t *testing.T, tide *tidefake.Clientset) *v1alpha1.NodeSet {
	t.Helper()
	ns, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(t.Context(), "cpu", metav1.GetOptions{})
	require.NoError(t, err)
	return ns
}

// A status that goes back to what it was is written, too, though the watch has not told yet that it was something else.
func TestStatusBehindTheWatch(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.ResourceVersion = "100"
	c, _, tide := testClient(t, ns)
	patches := versions(t, tide)
	put := func(up int) {
		require.NoError(t, c.UpdateStatus(t.Context(), powersave.NodeSetCounts{Name: "cpu", PoweredUp: up}))
		assert.EqualValues(t, up, stored(t, tide).Status.Replicas)
	}
	put(3)
	require.NoError(t, c.nodeSets.Update(stored(t, tide)))
	put(4)
	put(3)
	put(3)
	require.Equal(t, 3, patches())

	// Nor does what the watch tells late make it write again.
	late := stored(t, tide).DeepCopy()
	late.ResourceVersion, late.Status.Replicas = "120", 4
	require.NoError(t, c.nodeSets.Update(late))
	put(3)
	require.Equal(t, 3, patches())
	require.NoError(t, c.nodeSets.Update(stored(t, tide)))
	put(3)
	require.Equal(t, 3, patches())

	// Nor does it count as told when other figures have come to the same status meanwhile.
	between := stored(t, tide).DeepCopy()
	between.ResourceVersion = "135" // a change of the spec
	put(4)
	require.NoError(t, c.UpdateStatus(t.Context(), powersave.NodeSetCounts{Name: "cpu", PoweredUp: 4, InUse: map[string]int{"x": 1}}))
	require.Equal(t, 4, patches())
	require.NoError(t, c.nodeSets.Update(between))
	put(3)
}

// What another bridge wrote while it led is put right, though our own figures are those of before.
func TestStatusOfAnotherLeader(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.ResourceVersion = "100"
	c, _, tide := testClient(t, ns)
	patches := versions(t, tide)
	counts := powersave.NodeSetCounts{Name: "cpu", PoweredUp: 3}
	require.NoError(t, c.UpdateStatus(t.Context(), counts))
	theirs := stored(t, tide).DeepCopy()
	theirs.ResourceVersion, theirs.Status.Replicas = "200", 7
	require.NoError(t, tide.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("nodesets"), theirs, "slurm"))
	require.NoError(t, c.nodeSets.Update(theirs))
	require.NoError(t, c.UpdateStatus(t.Context(), counts))
	assert.EqualValues(t, 3, stored(t, tide).Status.Replicas)
	assert.Equal(t, 2, patches())
}

// Figures of an older spec do not pass for those of the newest, which the engine has yet to hear of.
func TestStatusOfAnOlderSpec(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.Generation = 7
	c, _, tide := testClient(t, ns)
	counts := powersave.NodeSetCounts{Name: "cpu", Generation: 6, Floor: &powersave.FloorCounts{Wanted: 2, Held: 2}}
	require.NoError(t, c.UpdateStatus(t.Context(), counts))
	s := stored(t, tide).Status
	assert.EqualValues(t, 6, s.ObservedGeneration)
	assert.EqualValues(t, 6, meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFloorReached).ObservedGeneration)
	counts.Generation = 7
	require.NoError(t, c.UpdateStatus(t.Context(), counts))
	assert.EqualValues(t, 7, stored(t, tide).Status.ObservedGeneration)

	counts.Generation, counts.PoweredUp = 8, 5 // of a NodeSet that had the name before
	require.NoError(t, c.UpdateStatus(t.Context(), counts))
	assert.Zero(t, stored(t, tide).Status.PoweredUp)
}

// What keeps a NodeSet from being used is told by an Event, too: once, and again when it is something else.
func TestEventOfProblem(t *testing.T) {
	c, _, tide := testClient(t)
	recorder := &eventsTaken{}
	c.recorder = recorder
	for _, step := range []struct {
		counts powersave.NodeSetCounts
		want   []string
	}{
		{powersave.NodeSetCounts{Nodes: 2}, nil},
		{powersave.NodeSetCounts{Nodes: 2, Problem: "it has names of NodeSet old"}, []string{"NotAccepted"}},
		{powersave.NodeSetCounts{Nodes: 2, PoweredUp: 1, Problem: "it has names of NodeSet old"}, nil},
		{powersave.NodeSetCounts{Nodes: 2, Problem: "it has names of NodeSet older"}, []string{"NotAccepted"}},
		{powersave.NodeSetCounts{Nodes: 2, Unknown: 1}, nil},
		{powersave.NodeSetCounts{Nodes: 2}, nil},
	} {
		recorder.reasons = nil
		step.counts.Name = "cpu"
		require.NoError(t, c.UpdateStatus(t.Context(), step.counts))
		require.NoError(t, c.nodeSets.Update(stored(t, tide)))
		assert.Equal(t, step.want, recorder.reasons, "%+v", step.counts)
	}
}

// What is left out of a status is not there any more, at any depth.
func TestStatusWithLess(t *testing.T) {
	c, _, tide := testClient(t)
	put := func(counts powersave.NodeSetCounts) v1alpha1.NodeSetStatus {
		counts.Name = "cpu"
		require.NoError(t, c.UpdateStatus(t.Context(), counts))
		require.NoError(t, c.nodeSets.Update(stored(t, tide)))
		return stored(t, tide).Status
	}
	breaker := powersave.BreakerRecord{
		Key: powersave.BreakerKey{NodeSet: "cpu"}, State: powersave.BreakerOpen, Class: powersave.TroubleCapacity, Reason: "no room", Failures: 2, Tries: 1,
		Until: time.Unix(1e9, 0), Spec: 7,
	}
	times := powersave.BootTimes{time.Second, time.Second, time.Second, time.Second, time.Second}
	full := put(powersave.NodeSetCounts{Floor: &powersave.FloorCounts{Wanted: 2, Ahead: 3}, Breakers: []powersave.BreakerRecord{breaker}, BootTimes: times})
	require.EqualValues(t, 3, full.Floor.Ahead)
	require.EqualValues(t, 7, full.Breaker.SpecGeneration)
	require.NotEmpty(t, full.Boots.P95Seconds)

	less := put(powersave.NodeSetCounts{
		Floor: &powersave.FloorCounts{Wanted: 2}, BootTimes: times[:1],
		Breakers: []powersave.BreakerRecord{{Key: breaker.Key, State: powersave.BreakerClosed, Class: powersave.TroubleCrash, Failures: 1}},
	})
	assert.Equal(t, &v1alpha1.FloorStatus{Wanted: 2}, less.Floor)
	assert.Equal(t, &v1alpha1.BreakerStatus{State: v1alpha1.BreakerAvailable, Class: "crash", Failures: 1}, less.Breaker)
	assert.Equal(t, &v1alpha1.BootStatus{RecentMilliseconds: []int64{1000}}, less.Boots)

	none := put(powersave.NodeSetCounts{Breakers: []powersave.BreakerRecord{}})
	assert.Nil(t, none.Floor)
	assert.Nil(t, none.Breaker)
	assert.Nil(t, none.Boots)
}

// What Slurm has not been asked about, or not for a while, is not said to be so; and figures are not made up meanwhile.
func TestStatusNotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		mode     v1alpha1.NodeSetMode
		counts   powersave.NodeSetCounts
		status   metav1.ConditionStatus
		message  string
		replicas int32
		held     int32
	}{
		"not yet":   {counts: powersave.NodeSetCounts{Nodes: 9, Unread: 9}, status: metav1.ConditionUnknown, message: "slurmctld has not been asked yet whether it knows 9 of 9 nodes", replicas: 3, held: 2},
		"some":      {counts: powersave.NodeSetCounts{Nodes: 9, Unread: 1, PoweredUp: 1}, status: metav1.ConditionUnknown, message: "slurmctld has not been asked yet whether it knows 1 of 9 nodes", replicas: 3},
		"old":       {counts: powersave.NodeSetCounts{Nodes: 9, PoweredUp: 1, Stale: "no answer"}, status: metav1.ConditionUnknown, message: "no answer: the figures are old", replicas: 1},
		"never":     {counts: powersave.NodeSetCounts{Nodes: 9, Unread: 9, Stale: "no answer"}, status: metav1.ConditionUnknown, message: "no answer: the figures are old", replicas: 3, held: 2},
		"missing":   {counts: powersave.NodeSetCounts{Nodes: 9, Unread: 1, Unknown: 2}, status: metav1.ConditionFalse, message: "slurmctld does not know 2 of 9 nodes", replicas: 3},
		"read":      {counts: powersave.NodeSetCounts{Nodes: 9, PoweredUp: 1}, status: metav1.ConditionTrue, message: "slurmctld knows every node", replicas: 1},
		"no record": {mode: v1alpha1.ModeDynamic, counts: powersave.NodeSetCounts{Nodes: 9, PoweredUp: 1}, status: metav1.ConditionTrue, message: "nodes register themselves", replicas: 1},
		"dynamic":   {mode: v1alpha1.ModeDynamic, counts: powersave.NodeSetCounts{Nodes: 9, PoweredUp: 1, Stale: "no answer"}, status: metav1.ConditionUnknown, message: "no answer: the figures are old", replicas: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-[0-8]")
			if tc.mode != "" {
				ns.Spec.Mode = tc.mode
			}
			ns.Status.Replicas, ns.Status.Floor = 3, &v1alpha1.FloorStatus{Wanted: 2, Held: 2}
			c, _, tide := testClient(t, ns)
			tc.counts.Name, tc.counts.Floor = "cpu", &powersave.FloorCounts{Wanted: 1, Why: powersave.FloorUnread}
			require.NoError(t, c.UpdateStatus(t.Context(), tc.counts))
			s := stored(t, tide).Status
			in := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionNodesInSlurm)
			assert.Equal(t, tc.status, in.Status)
			assert.Contains(t, in.Message, tc.message)
			if tc.status == metav1.ConditionUnknown {
				assert.Equal(t, "NotRead", in.Reason)
			}
			assert.Equal(t, tc.replicas, s.Replicas)
			assert.Equal(t, tc.held, s.Floor.Held)
		})
	}
}

// A NodeSet with eachHost may have no nodes yet, which is no mistake; what slurmtide controller says of hosts stays.
func TestStatusWithoutHosts(t *testing.T) {
	ns := newNodeSet("cpu", "")
	ns.Spec.EachHost = &v1alpha1.EachHost{}
	ns.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionHostsFollowed, Status: metav1.ConditionFalse, Reason: "NoHosts"}}
	c, _, tide := testClient(t, ns)
	require.NoError(t, c.UpdateStatus(t.Context(), powersave.NodeSetCounts{Name: "cpu"}))
	conditions := stored(t, tide).Status.Conditions
	accepted := meta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted)
	assert.Equal(t, metav1.ConditionTrue, accepted.Status)
	assert.Contains(t, accepted.Message, "has no nodes yet")
	assert.Equal(t, "NoHosts", meta.FindStatusCondition(conditions, v1alpha1.ConditionHostsFollowed).Reason)
}
