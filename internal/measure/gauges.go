package measure

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauges are the gauges of one name that are known as a whole: a scrape sees those of before or those of after, never some of both.
type Gauges struct {
	desc *prometheus.Desc

	mu  sync.Mutex
	all []prometheus.Metric
}

// NewGauges makes some that have these labels.
func NewGauges(o prometheus.GaugeOpts, labels []string) *Gauges {
	return &Gauges{desc: prometheus.NewDesc(prometheus.BuildFQName(o.Namespace, o.Subsystem, o.Name), o.Help, labels, o.ConstLabels)}
}

// Replace puts those that fill tells of in place of all that there are. Of one that is told of twice the last counts.
func (g *Gauges) Replace(fill func(set func(value float64, labels ...string))) {
	var all []prometheus.Metric
	at := map[string]int{}
	fill(func(value float64, labels ...string) {
		m, key := prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...), strings.Join(labels, "\xff")
		if i, told := at[key]; told {
			all[i] = m
			return
		}
		at[key] = len(all)
		all = append(all, m)
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = all
}

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	all := g.all
	g.mu.Unlock()
	for _, m := range all {
		ch <- m
	}
}
