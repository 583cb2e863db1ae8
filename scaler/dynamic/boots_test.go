package dynamic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestBoots(t *testing.T) {
	w := newWorld("dyn-[0-9]", 4, func(s *powersave.NodeSet) { s.Offerings = []powersave.Offering{{Name: "spot"}} })
	assert.Empty(t, w.planner.Boots(), "nothing is read yet")
	for range 3 {
		w.second(false)
	}
	require.Len(t, w.planner.Boots(), 4)
	w.seconds(8)
	phases := func() (list []powersave.Phase) {
		for _, b := range w.planner.Boots() {
			list = append(list, b.Phase)
		}
		return list
	}
	assert.Equal(t, []powersave.Phase{powersave.PhaseRegistered, powersave.PhaseRegistered, powersave.PhaseRegistered, powersave.PhaseRegistered}, phases())
	n := w.planner.nodes
	n["dyn-0"].joined, n["dyn-0"].pod.Phase, n["dyn-0"].trouble = "", powersave.PodPending, powersave.TroubleCapacity
	n["dyn-0"].pod.Reason, n["dyn-0"].pod.Message = "Unschedulable", "0/5 nodes are available"
	n["dyn-1"].pod.Phase = powersave.PodTerminating
	n["dyn-2"].joined, n["dyn-2"].pod.Phase = "of another pod", powersave.PodRunning
	n["dyn-3"].pod, n["dyn-3"].creating = nil, true
	assert.Equal(t, []powersave.Phase{powersave.PhasePending, powersave.PhaseRemoving, powersave.PhaseRunning, powersave.PhaseCreating}, phases())
	first := w.planner.Boots()[0]
	at := first.Times
	assert.True(t, !at.Created.Before(at.Requested) && !at.Scheduled.Before(at.Created) && !at.Running.Before(at.Scheduled) && !at.Registered.Before(at.Running), "%+v", at)
	assert.Equal(t, "capacity: Unschedulable: 0/5 nodes are available", first.Problem)
	assert.Equal(t, []string{"dyn-0", "dyn", "spot", n["dyn-0"].pod.UID}, []string{first.Node, first.NodeSet, first.Offering, first.UID})
	assert.False(t, first.Times.Requested.IsZero())
	n["dyn-2"].joined, n["dyn-2"].trouble = n["dyn-2"].pod.UID, powersave.TroubleCrash
	assert.Empty(t, w.planner.Boots()[2].Problem, "it has registered")
	n["dyn-0"].pod.Phase = powersave.PodScheduled
	assert.Equal(t, powersave.PhaseStarting, phases()[0])
	n["dyn-3"].creating = false
	assert.Len(t, phases(), 3)
}

// Of pods that are found it is known since when they are, and what they reach from then on.
func TestTimesOfPods(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 5, 1, 12, 0, s, 0, time.UTC) }
	for name, test := range map[string]struct {
		made bool
		want powersave.Timeline
	}{
		"made":  {true, powersave.Timeline{Requested: at(1), Created: at(3), Scheduled: at(3), Running: at(5)}},
		"found": {false, powersave.Timeline{Requested: at(2), Created: at(2), Running: at(5)}},
	} {
		n := &node{creating: test.made, times: powersave.Timeline{Requested: at(1)}}
		pod := powersave.Pod{UID: "u", Phase: powersave.PodScheduled, Created: at(2)}
		n.seenFirst(&pod, at(3))
		for i, phase := range []powersave.PodPhase{powersave.PodScheduled, powersave.PodScheduled, powersave.PodRunning, powersave.PodReady, powersave.PodTerminating} {
			next := pod
			next.Phase = phase
			n.reach(&next, at(3+i))
			n.pod = &next
		}
		assert.Equal(t, test.want, n.times, name)
	}
}
