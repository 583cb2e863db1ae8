package bridge

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// What the engine is not told of is asked of those who are.
func TestExplainDynamic(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		engine := w.engine
		engine.Alone = true
		b, stop := w.startWith(t, dir, Config{
			Slurm: w, Kubernetes: w, Engine: engine,
			Others: func() []powersave.NodeSetCounts {
				return []powersave.NodeSetCounts{{Name: "dyn", Nodes: 10}, {Name: "other"}}
			},
			OthersBoots: func() []powersave.Boot {
				return []powersave.Boot{{Node: "dyn-0", NodeSet: "dyn", Phase: powersave.PhaseRegistered}, {Node: "dyn-1", NodeSet: "dyn", Phase: powersave.PhasePending}, {Node: "o-1", NodeSet: "other"}}
			},
		})
		defer stop()
		pass(time.Second)
		for s, want := range map[history.Subject]struct {
			boots   int
			sets    int
			dynamic bool
		}{
			{Node: "dyn-1"}:    {1, 1, true},
			{NodeSet: "dyn"}:   {2, 1, true},
			{NodeSet: "other"}: {1, 1, true},
			{NodeSet: "cpu"}:   {0, 1, false},
			{Node: "cpu-0"}:    {0, 0, false},
			{Job: 7}:           {0, 0, false},
		} {
			a := explain(t, b, s)
			assert.Len(t, a.Boots, want.boots, s)
			assert.Len(t, a.NodeSets, want.sets, s)
			assert.Equal(t, want.dynamic, a.Dynamic, s)
		}
	})
}
