package loop

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/scaler/ahead"
)

// Metrics are the loop's Prometheus metrics. A nil *Metrics counts nothing.
type Metrics struct {
	nodes   *prometheus.GaugeVec
	lead    *prometheus.GaugeVec
	results *prometheus.CounterVec
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slurmtide_look_ahead_nodes", Help: "Nodes of a NodeSet for jobs that are yet to start: wished for, and cut for a limit of spec.lookAhead."}, []string{"nodeset", "what"}),
		lead: prometheus.NewGaugeVec(prometheus.GaugeOpts{
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
	m.nodes.Reset()
	m.lead.Reset()
	for _, s := range settings {
		m.lead.WithLabelValues(s.NodeSet).Set(s.Lead.Seconds())
		m.nodes.WithLabelValues(s.NodeSet, "wished").Set(0)
		m.nodes.WithLabelValues(s.NodeSet, "cut").Set(0)
		for _, result := range []ahead.Result{ahead.Hit, ahead.Late, ahead.Miss} { // a counter that begins with its first nodes hides those from increase()
			m.results.WithLabelValues(s.NodeSet, string(result))
		}
	}
	for _, w := range p.Wishes {
		m.nodes.WithLabelValues(w.NodeSet, "wished").Set(float64(w.Nodes))
		for _, j := range w.Jobs {
			m.nodes.WithLabelValues(w.NodeSet, "cut").Add(float64(j.Cut))
		}
	}
}
