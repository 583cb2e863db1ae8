package loop

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/scaler"
)

// Metrics are the loop's Prometheus metrics. A nil *Metrics counts nothing.
type Metrics struct{ impossible *measure.Gauges }

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{impossible: measure.NewGauges(prometheus.GaugeOpts{
		Name: "slurmtide_dynamic_impossible_jobs",
		Help: "Pending jobs that no NodeSet can ever run, by what comes nearest; more than 20 different misses are others. Only with NodeSets of mode Dynamic.",
	}, []string{"miss"})}
	r.MustRegister(m.impossible)
	return m
}

func (m *Metrics) misses(misses scaler.Misses) {
	if m == nil {
		return
	}
	m.impossible.Replace(func(set func(float64, ...string)) {
		for miss, jobs := range misses.Count() {
			set(float64(jobs), miss)
		}
	})
}
