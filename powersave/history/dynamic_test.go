package history

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
)

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
	assert.Empty(t, Tell(a).Why, "of mode Cloud the history says it")
}

// A job that waits has the NodeSets that make nodes for jobs of its partitions, with those nodes and what keeps them.
func TestDynamicJob(t *testing.T) {
	answer := func() Answer {
		a := dyn(Subject{NodeSet: "dyn"})
		a.Subject, a.Making, a.Boots = Subject{Job: 7}, a.Boots[1:], nil
		a.Making[0].Times.Requested, a.Making[1].Times.Created = ms(30_000), ms(60_000)
		a.NodeSets[0].Partitions = []string{"dyn", "gpu", "all"}
		a.Slurm = []Shown{{Name: "job 7", State: "PENDING", Reason: "Resources", Partition: "metal,gpu,dyn"}}
		return a
	}
	var b strings.Builder
	story := Tell(answer())
	require.NoError(t, story.WriteText(&b))
	golden.Compare(t, "testdata/dynamicjob.txt", b.String())

	a := answer()
	a.NodeSets[0].Breakers = nil
	assert.Equal(t, a.Making[0].Problem, Tell(a).Why, "without a back-off what keeps a node")
	a.NodeSets[0].Problem, a.NodeSets[0].Stale = "spec.shape", "Slurm cannot be read"
	assert.Contains(t, Tell(a).Now[1], "1 failed; it cannot be used: spec.shape; that is old: Slurm cannot be read")

	a = answer()
	a.NodeSets = append(a.NodeSets, powersave.NodeSetCounts{Name: "big", Nodes: 2, Partitions: []string{"dyn"}})
	a.Making = append(a.Making, powersave.Boot{Node: "big-0", NodeSet: "big", Phase: powersave.PhaseStarting})
	assert.Equal(t, []string{
		"jobs of partition dyn get nodes of NodeSet big: 0 of 2 are powered up, 0 boot, 0 failed", "big-0: starting, waits for image and volumes",
	}, Tell(a).Now[4:], "each with its own nodes")

	for what, change := range map[string]func(a *Answer){
		"it runs":                 func(a *Answer) { a.Slurm[0].State = "RUNNING" },
		"it is held":              func(a *Answer) { a.Slurm[0].Reason = "JobHeldUser" },
		"of another partition":    func(a *Answer) { a.Slurm[0].Partition = "metal" },
		"partition not known":     func(a *Answer) { a.Slurm[0].Partition = "" },
		"a NodeSet of mode Cloud": func(a *Answer) { a.NodeSets[0].Partitions = nil },
	} {
		a := answer()
		change(&a)
		assert.Empty(t, a.Serves(a.NodeSets[0]), what)
		assert.Len(t, Tell(a).Now, 1, what)
	}
}
