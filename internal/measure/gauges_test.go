package measure

import (
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGaugesAreReplacedWhole: whoever scrapes while they are replaced sees all of one time.
func TestGaugesAreReplacedWhole(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	g := NewGauges(prometheus.GaugeOpts{Name: "nodes", Help: "Nodes."}, []string{"nodeset", "state"})
	registry.MustRegister(g)
	const sets = 50
	fill := func(value float64) {
		g.Replace(func(set func(float64, ...string)) {
			for i := range sets {
				set(value, fmt.Sprint(i), "ready")
			}
		})
	}
	fill(0)
	var replacing sync.WaitGroup
	replacing.Go(func() {
		for i := range 2000 {
			fill(float64(i))
		}
	})
	for range 500 {
		families, err := registry.Gather()
		require.NoError(t, err)
		require.Len(t, families, 1)
		require.Len(t, families[0].GetMetric(), sets)
		for _, m := range families[0].GetMetric() {
			require.InDelta(t, families[0].GetMetric()[0].GetGauge().GetValue(), m.GetGauge().GetValue(), 0)
		}
	}
	replacing.Wait()

	g.Replace(func(set func(float64, ...string)) { set(1, "cpu", "ready"); set(2, "cpu", "ready") })
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families[0].GetMetric(), 1)
	assert.InDelta(t, 2, families[0].GetMetric()[0].GetGauge().GetValue(), 0)

	g.Replace(func(func(float64, ...string)) {})
	families, err = registry.Gather()
	require.NoError(t, err)
	assert.Empty(t, families)
}
