package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/demo/printed"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

func slurmdPod(name, uid string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}, Status: corev1.PodStatus{Phase: phase}}
}

func slurmNode(name string, states ...string) printed.Node {
	return printed.Node{Name: name, States: states}
}

func TestParseStatus(t *testing.T) {
	text, err := os.ReadFile("testdata/status.json")
	require.NoError(t, err)
	st, err := parseStatus(string(text))
	require.NoError(t, err)
	assert.Equal(t, 1, st.Spool.Depth)
	require.Len(t, st.Engine.Boots, 2)
	assert.Equal(t, powersave.PhaseRunning, st.Engine.Boots[0].Phase)
	require.Len(t, st.Engine.History, 2)
	require.NoError(t, inOrder(bootTimes{Timeline: st.Engine.History[0].Times}.moments()[:6]))

	_, err = parseStatus("asking the bridge: connection refused")
	assert.ErrorContains(t, err, "reading slurmtide status")
}

func TestPowerDown(t *testing.T) {
	var f facts
	f.seePod(slurmdPod("cpu-0", "u1", corev1.PodRunning), at(0))
	assert.Empty(t, f.Downs)
	ending := slurmdPod("cpu-0", "u1", corev1.PodRunning)
	ending.DeletionTimestamp = new(metav1.Time)
	f.seePod(ending, at(1.2))
	f.seePod(ending, at(1.9))
	assert.Equal(t, "Terminating", f.Pods["cpu-0"].Phase)

	resting := printed.Look{Nodes: []printed.Node{slurmNode("cpu-0", "IDLE", "CLOUD", "POWERED_DOWN")}}
	goingDown := printed.Look{Nodes: []printed.Node{slurmNode("cpu-0", "IDLE", "CLOUD", "POWERING_DOWN")}}
	up := printed.Look{Nodes: []printed.Node{slurmNode("cpu-0", "IDLE", "CLOUD")}}
	f.seeSlurm(goingDown, at(2))
	f.losePod("cpu-0", "u1", at(2.5))
	assert.Empty(t, f.Pods)
	f.seeSlurm(up, at(2.6)) // an answer that took its time
	f.seeSlurm(goingDown, at(2.8))
	require.Len(t, f.Downs, 1)
	assert.Zero(t, f.Downs[0].Free)
	f.seeSlurm(resting, at(3))
	f.seeSlurm(resting, at(4.1))

	off := func(uid string, requested float64) powersave.Off {
		return powersave.Off{Node: "cpu-0", UID: uid, Times: powersave.OffTimes{Requested: at(requested), Accepted: at(requested + 0.1)}}
	}
	f.seeOffs([]powersave.Off{off("u0", -1), off("u1", 1), off("u2", 5.5), off("", 0.5)})
	want := []*powerDown{{Node: "cpu-0", UID: "u1", Up: at(0), Requested: at(1), Accepted: at(1.1), Deleting: at(1.2), Gone: at(2.5), Free: at(3)}}
	assert.Equal(t, want, f.Downs)

	// The node's next pod has a record of its own, and the old pod's end does not hide it.
	f.seePod(slurmdPod("cpu-0", "u2", corev1.PodRunning), at(5))
	f.losePod("cpu-0", "u1", at(6))
	assert.Equal(t, "u2", f.Pods["cpu-0"].UID)
	assert.Equal(t, want, f.Downs)
}

func TestAtZero(t *testing.T) {
	rest := func(f *facts) {
		f.Slurm.Nodes = []printed.Node{slurmNode("cpu-0", "IDLE", "CLOUD", "POWERED_DOWN"), slurmNode("cpu-1", "IDLE", "CLOUD", "POWERED_DOWN")}
	}
	for name, tt := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"at zero":         {func(*facts) {}, ""},
		"not read":        {func(f *facts) { f.Slurm = printed.Look{} }, "not read yet"},
		"Slurm away":      {func(f *facts) { f.SlurmErr = errors.New("gone") }, "Slurm cannot be read: gone"},
		"bridge away":     {func(f *facts) { f.BridgeErr = errors.New("gone") }, "the bridge does not answer: gone"},
		"pods":            {func(f *facts) { f.seePod(slurmdPod("cpu-1", "u", corev1.PodRunning), noon) }, "slurmd pods: cpu-1"},
		"spool":           {func(f *facts) { f.Bridge.Spool = spool.Stats{Depth: 1} }, "spool is not empty"},
		"spool, bad":      {func(f *facts) { f.Bridge.Spool = spool.Stats{Bad: 1} }, "spool is not empty"},
		"boot":            {func(f *facts) { f.Bridge.Engine.Boots = make([]powersave.Boot, 1) }, "requests in hand"},
		"power-down":      {func(f *facts) { f.Bridge.Engine.Offs = make([]powersave.Boot, 1) }, "requests in hand"},
		"gate":            {func(f *facts) { f.Bridge.Engine.Gates = 1 }, "requests in hand"},
		"nodes":           {func(f *facts) { f.Slurm.Nodes[1].States = []string{"IDLE", "CLOUD", "POWERING_DOWN"} }, "Slurm shows cpu-1 IDLE+POWERING_DOWN"},
		"look too old":    {func(f *facts) { f.losePod("cpu-1", "u", noon) }, "not read since the pod of cpu-1 went"},
		"node went wrong": {func(f *facts) { f.Slurm.Nodes[0].States = []string{"DOWN", "CLOUD", "POWERED_DOWN"} }, "Slurm shows cpu-0 DOWN+POWERED_DOWN"},
	} {
		t.Run(name, func(t *testing.T) {
			var f facts
			rest(&f)
			tt.change(&f)
			if got := f.atZero(); tt.want == "" {
				assert.Empty(t, got)
			} else {
				assert.Contains(t, got, tt.want)
			}
		})
	}
}

func TestPodPhase(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"pending":   {func(*corev1.Pod) {}, "Pending"},
		"scheduled": {func(p *corev1.Pod) { p.Spec.NodeName = "n" }, "Scheduled"},
		"creating": {func(p *corev1.Pod) {
			p.Spec.NodeName = "n"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
		}, "ContainerCreating"},
		"running": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, "Running"},
		"ending": {func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.DeletionTimestamp = new(metav1.Time)
		}, "Terminating"},
	} {
		t.Run(name, func(t *testing.T) {
			p := slurmdPod("cpu-0", "u", corev1.PodPending)
			tt.change(p)
			assert.Equal(t, tt.want, podPhase(p))
		})
	}
}

func TestPodGPUs(t *testing.T) {
	p := slurmdPod("gpu-0", "u", corev1.PodRunning)
	assert.Zero(t, podGPUs(p))
	p.Spec.Containers = []corev1.Container{{}, {Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}
	assert.EqualValues(t, 2, podGPUs(p))
}

func TestWorldWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		go func() {
			for range 3 {
				time.Sleep(time.Second)
				w.update(func(f *facts) { f.Slurm.Jobs = append(f.Slurm.Jobs, printed.Job{}) })
			}
		}()
		began := time.Now()
		require.NoError(t, w.wait(t.Context(), func(f *facts) (bool, error) { return len(f.Slurm.Jobs) == 2, nil }))
		assert.Equal(t, 2*time.Second, time.Since(began))

		broken := errors.New("broken")
		require.ErrorIs(t, w.wait(t.Context(), func(*facts) (bool, error) { return false, broken }), broken)

		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		require.ErrorIs(t, w.wait(ctx, func(*facts) (bool, error) { return false, nil }), late)
	})
}
