package dynamic

import (
	"testing"

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
