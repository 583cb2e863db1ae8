package loop

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/scaler/ahead"
)

// Metrics are the loop's Prometheus metrics. A nil *Metrics counts nothing.
type Metrics struct {
	nodes   *measure.Gauges
	lead    *measure.Gauges
	results *prometheus.CounterVec
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		nodes: measure.NewGauges(prometheus.GaugeOpts{
			Name: "slurmtide_look_ahead_nodes", Help: "Nodes of a NodeSet for jobs that are yet to start: wished for, and cut for a limit of spec.lookAhead."}, []string{"nodeset", "what"}),
		lead: measure.NewGauges(prometheus.GaugeOpts{
			Name: "slurmtide_look_ahead_lead_seconds", Help: "Time before a job's start at which its nodes are powered up."}, []string{"nodeset"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_look_ahead_results_total", Help: "Nodes that were wished for, by what became of them: hit (the job was seen on them, and they were up), late (they still booted), miss (it was not seen on them)."}, []string{"nodeset", "result"}),
	}
	r.MustRegister(m.nodes, m.lead, m.results)
	return m
}

func (m *Metrics) outcome(o ahead.Outcome) {
	if m != nil {
		m.results.WithLabelValues(o.NodeSet, string(o.Result)).Add(float64(o.Nodes))
	}
}

func (m *Metrics) plan(settings []ahead.Settings, p ahead.Plan) {
	if m == nil {
		return
	}
	cut, wished := map[string]int{}, map[string]int{}
	for _, w := range p.Wishes {
		wished[w.NodeSet] = w.Nodes
		for _, j := range w.Jobs {
			cut[w.NodeSet] += j.Cut
		}
	}
	m.nodes.Replace(func(set func(float64, ...string)) {
		for _, s := range settings {
			set(float64(wished[s.NodeSet]), s.NodeSet, "wished")
			set(float64(cut[s.NodeSet]), s.NodeSet, "cut")
		}
	})
	m.lead.Replace(func(set func(float64, ...string)) {
		for _, s := range settings {
			set(s.Lead.Seconds(), s.NodeSet)
		}
	})
	for _, s := range settings {
		for _, result := range []ahead.Result{ahead.Hit, ahead.Late, ahead.Miss} { // a counter that begins with its first nodes hides those from increase()
			m.results.WithLabelValues(s.NodeSet, string(result))
		}
	}
}
