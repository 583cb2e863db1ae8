package bridge

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// A floor that is not reached says so everywhere; one that is held is renewed as SuspendTime wants it.
func TestFloor(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		registry := prometheus.NewPedanticRegistry()
		b, stop := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Engine: powersave.Config{Alone: true}, Metrics: NewMetrics(registry)})
		defer stop()
		names := func(nodes ...string) slurmconf.Hostlist { return slurmconf.NewHostlist(nodes...) }
		b.NodeSets([]powersave.NodeSet{{Name: "cpu", Nodes: names("cpu-0", "cpu-1"), Floor: 3}})
		pass(2500 * time.Millisecond)
		updates := func(state powersave.StateChange) (all []string) {
			w.look(func() {
				for _, u := range w.updates {
					if u.State == state {
						all = append(all, strings.Join(u.Nodes, ","))
					}
				}
			})
			return all
		}
		require.Equal(t, []string{"cpu-0,cpu-1"}, updates(powersave.StatePowerUp))
		assert.Equal(t, []string{"cpu  FloorNotReached MoreThanNodeNames: 3 nodes are wanted, the NodeSet has 2"}, w.warnings)

		_, err := spool.Submit(dir, spool.Request{Kind: spool.KindResume, Nodes: "cpu-[0-1]", Started: time.Now(), SuspendTime: 20})
		require.NoError(t, err)
		w.set(powersave.NodeIdle|powersave.NodeCloud|powersave.NodePoweringUp, "cpu-0", "cpu-1")
		pass(3 * time.Second)
		w.set(powersave.NodeIdle|powersave.NodeCloud, "cpu-0", "cpu-1")
		pass(50 * time.Second)
		renewals := updates(powersave.StateRenew)
		assert.GreaterOrEqual(t, len(renewals), 9, "every 5 s")
		assert.LessOrEqual(t, len(renewals), 12)
		assert.Equal(t, []string{"cpu-0,cpu-1"}, slices.Compact(renewals))
		w.look(func() {
			assert.Equal(t, &powersave.FloorCounts{Wanted: 3, Held: 2, Why: powersave.FloorTooFew, Text: "3 nodes are wanted, the NodeSet has 2", SuspendTimeSeconds: 20}, w.statuses["cpu"].Floor)
		})
		families, err := registry.Gather()
		require.NoError(t, err)
		figures := map[string]float64{}
		for _, f := range families {
			if f.GetName() == "slurmtide_floor_nodes" {
				for _, m := range f.GetMetric() {
					figures[m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		assert.Equal(t, map[string]float64{"wanted": 3, "held": 2}, figures)

		b.NodeSets([]powersave.NodeSet{{Name: "cpu", Nodes: names("cpu-0", "cpu-1")}})
		pass(2 * time.Second)
		assert.Equal(t, []string{"cpu-0,cpu-1"}, slices.Compact(updates(powersave.StatePowerDown)), "which this slurmctld is slow to show")
	})
}
