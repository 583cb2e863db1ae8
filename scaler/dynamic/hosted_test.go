package dynamic

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestHosted(t *testing.T) {
	w := newWorld("dyn-[0-9]", 4, func(s *powersave.NodeSet) { s.Offerings = []powersave.Offering{{Name: "spot"}, {Name: "plain"}} })
	hosted := func(stale string) (spot map[powersave.HostedAs]int) {
		list := w.planner.Hosted(stale)
		require.Len(t, list, 2, "each offering")
		assert.Equal(t, powersave.Hosted{NodeSet: "dyn", Offering: "plain", Nodes: map[powersave.HostedAs]int{}}, list[0])
		require.Equal(t, "spot", list[1].Offering)
		return list[1].Nodes
	}
	for range 3 {
		w.second(false)
	}
	require.Len(t, w.pods, 4)
	assert.Empty(t, hosted(""), "nothing has a host")
	for _, p := range w.pods {
		p.Host = "host-1"
	}
	w.second(false)
	assert.Equal(t, map[powersave.HostedAs]int{powersave.HostedBooting: 4}, hosted(""))
	w.seconds(8)
	assert.Equal(t, map[powersave.HostedAs]int{powersave.HostedIdle: 4}, hosted(""))
	assert.Equal(t, map[powersave.HostedAs]int{powersave.HostedUnknown: 4}, hosted("Slurm cannot be read"))

	w.submit(1)
	w.seconds(2)
	assert.Equal(t, map[powersave.HostedAs]int{powersave.HostedIdle: 3, powersave.HostedAllocated: 1}, hosted(""))
	set := func(name string, state powersave.NodeState, reason string) {
		n := w.planner.nodes[name]
		rec := *n.rec
		rec.State, rec.Reason = state, reason
		n.rec = &rec
	}
	set("dyn-1", powersave.NodeIdle|powersave.NodeDrain, "ECC errors")
	set("dyn-2", powersave.NodeIdle|powersave.NodeDrain, "slurmtide: idle")
	set("dyn-3", powersave.NodeDown, "slurmtide: idle")
	assert.Equal(t, map[powersave.HostedAs]int{powersave.HostedAllocated: 1, powersave.HostedUnavailable: 1, powersave.HostedLeaving: 2}, hosted(""))
	set("dyn-2", powersave.NodeIdle|powersave.NodeNotResponding, "")
	w.planner.nodes["dyn-3"].pod.Phase = powersave.PodTerminating
	w.planner.nodes["dyn-0"].joined = "of another pod"
	assert.Equal(t, map[powersave.HostedAs]int{powersave.HostedBooting: 1, powersave.HostedUnavailable: 2, powersave.HostedLeaving: 1}, hosted(""))
}

// While Slurm has not been read since the bridge leads, nobody knows what the pods that are there are at: those that serve do not boot again.
func TestHostedBeforeSlurmIsRead(t *testing.T) {
	w := newWorld("dyn-[0-9]", 4)
	w.seconds(10)
	require.Len(t, w.pods, 4)
	for _, p := range w.pods {
		p.Host = "host-1"
	}
	w.planner, w.reading = New(Config{Owner: owner}), nil
	w.step()
	never := "Slurm cannot be read, and could not since this bridge leads"
	assert.Equal(t, []powersave.Hosted{{NodeSet: "dyn", Nodes: map[powersave.HostedAs]int{powersave.HostedUnknown: 4}}}, w.planner.Hosted(never))
}
