package history

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
)

const kept = "no history is kept of mode Dynamic"

// dyn is a NodeSet of mode Dynamic, of which one node serves, one cannot boot, and one is being made.
func dyn(s Subject) Answer {
	boots := []powersave.Boot{
		{Node: "dyn-0", NodeSet: "dyn", Offering: "spot", Phase: powersave.PhaseRegistered, Host: "host-a"},
		{Node: "dyn-1", NodeSet: "dyn", Phase: powersave.PhasePending, Problem: "capacity: Unschedulable: 0/5 nodes are available: 5 Insufficient cpu"},
		{Node: "dyn-2", NodeSet: "dyn", Phase: powersave.PhaseCreating},
	}
	a := Answer{Subject: s, Time: ms(90_000), Dynamic: true, NodeSets: []powersave.NodeSetCounts{{
		Name: "dyn", Nodes: 10, PoweredUp: 3, Booting: 1, Ready: 1, Failed: 1, Floor: &powersave.FloorCounts{Wanted: 2, Held: 1, Why: "Booting", Text: "1 boots"},
		Breakers: []powersave.BreakerRecord{{
			Key: powersave.BreakerKey{NodeSet: "dyn"}, State: powersave.BreakerOpen, Class: powersave.TroubleCapacity, Reason: "0/5 nodes are available", Until: ms(120_000),
		}},
	}}}
	for _, b := range boots {
		if s.NodeSet != "" || b.Node == s.Node {
			a.Boots = append(a.Boots, b)
		}
	}
	return a
}

func TestDynamicNodeSet(t *testing.T) {
	var b strings.Builder
	story := Tell(dyn(Subject{NodeSet: "dyn"}))
	require.NoError(t, story.WriteText(&b))
	golden.Compare(t, "testdata/dynamic.txt", b.String())
	assert.Contains(t, story.Notes[0], kept)
}

func TestDynamicNode(t *testing.T) {
	a := dyn(Subject{Node: "dyn-0"})
	a.NodeSets, a.Slurm = nil, []Shown{{Name: "node dyn-0", State: "IDLE+DRAIN+DYNAMIC_NORM", Reason: "slurmtide: idle for 5m0s"}}
	story := Tell(a)
	assert.Equal(t, []string{
		"Slurm shows node dyn-0 as IDLE+DRAIN+DYNAMIC_NORM: slurmtide: idle for 5m0s", "dyn-0: slurmd of NodeSet dyn runs in a pod on host-a (offering spot)",
	}, story.Now)
	assert.Empty(t, story.Why)
	// Advice of mode Cloud speaks of power_up, which no record is there for.
	a = dyn(Subject{Node: "dyn-1"})
	a.NodeSets, a.Boots[0].Problem = nil, "crash: CrashLoopBackOff: exit code 1"
	story = Tell(a)
	assert.Equal(t, "crash: CrashLoopBackOff: exit code 1", story.Why)
	assert.Equal(t, "read slurmd's log: kubectl logs -f of the next pod, while the NodeSet tries again", story.Do)
	a.Boots[0].Problem = "image: ErrImagePull: not found"
	assert.Equal(t, advice["image"], Tell(a).Do)
	a.Dynamic = false
	assert.Empty(t, Tell(a).Notes)
	assert.Empty(t, Tell(a).Why, "of mode Cloud the history says it")
}
