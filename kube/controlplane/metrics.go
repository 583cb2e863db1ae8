package controlplane

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/internal/measure"
)

// Metrics are those of a Loop. A nil one counts nothing.
type Metrics struct {
	handled  *prometheus.HistogramVec
	failures *prometheus.CounterVec
	writes   *prometheus.CounterVec
}

// NewMetrics makes and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		handled: prometheus.NewHistogramVec(measure.Times(
			"slurmtide_controller_handling_seconds", "Time it took to handle an object, by its kind.", .001, .0025, .005, .01, .02, .03, .04, .05, .1, .25, .5, 1, 2.5, 10), []string{"kind"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_controller_failures_total", Help: "Times that an object could not be handled, and was tried again, by its kind.",
		}, []string{"kind"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_controller_writes_total", Help: "Writing requests to the API server, by what was written.",
		}, []string{"resource"}),
	}
	for _, kind := range append(Kinds(), kindNodeSet) { // a counter that begins with its first failure hides that one from increase()
		m.failures.WithLabelValues(kind)
	}
	registry.MustRegister(m.handled, m.failures, m.writes)
	return m
}

// ShowLeading registers what tells whether this daemon works. Daemons that are limited to a namespace lead each in its own: it becomes a label then.
func ShowLeading(registry prometheus.Registerer, namespace string, leading func() bool) {
	opts := prometheus.GaugeOpts{Name: "slurmtide_controller_leading", Help: "1 while this daemon holds the Lease; works_in: the only namespace that it is for."}
	if namespace != "" {
		opts.ConstLabels = prometheus.Labels{"works_in": namespace}
	}
	registry.MustRegister(prometheus.NewGaugeFunc(opts, func() float64 {
		if leading() {
			return 1
		}
		return 0
	}))
}

func (m *Metrics) took(kind string, d time.Duration, failed bool) {
	if m == nil {
		return
	}
	m.handled.WithLabelValues(kind).Observe(d.Seconds())
	if failed {
		m.failures.WithLabelValues(kind).Inc()
	}
}

// wrote counts a request before it is made.
func (m *Metrics) wrote(resource string) {
	if m != nil {
		m.writes.WithLabelValues(resource).Inc()
	}
}
