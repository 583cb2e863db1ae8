package bridge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// Metrics are the bridge's Prometheus metrics. A nil *Metrics counts nothing.
type Metrics struct {
	requests   *prometheus.CounterVec
	phases     *prometheus.HistogramVec
	boots      *prometheus.CounterVec
	verdicts   *prometheus.CounterVec
	gateWait   *prometheus.HistogramVec
	podCalls   *prometheus.CounterVec
	slurmCalls *prometheus.CounterVec
	nodes      *prometheus.GaugeVec
	floor      *prometheus.GaugeVec
	breakers   *prometheus.GaugeVec
	pending    prometheus.Gauge
	inHand     *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
	givenBack  *prometheus.CounterVec
	timeout    prometheus.Gauge
	gates      prometheus.Gauge
	readable   *prometheus.GaugeVec
	slurmRead  prometheus.Gauge
	hostMarks  *prometheus.CounterVec
	leads      prometheus.Gauge
	lost       prometheus.Counter
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	seconds := []float64{.05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 450, 600, 900, 1800}
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_requests_total", Help: "Requests read from the spool, by the program that wrote them."}, []string{"kind"}),
		phases: prometheus.NewHistogramVec(measure.Times("slurmtide_boot_phase_seconds", "Time from ResumeProgram's start until a boot reached the phase.", seconds...), []string{"nodeset", "phase"}),
		boots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_boots_total", Help: "Boots whose slurmd registered."}, []string{"nodeset"}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_boot_failures_total", Help: "Boots that came to nothing, by the class of the reason."}, []string{"nodeset", "class"}),
		gateWait: prometheus.NewHistogramVec(measure.Times("slurmtide_gate_wait_seconds", "Time a start-gate waited.", seconds...), []string{"ready"}),
		podCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_pod_calls_total", Help: "Calls to create, delete or mark pods, by how they ended."}, []string{"verb", "result"}),
		slurmCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_slurm_calls_total", Help: "Calls for Slurm, each of one or more requests to slurmrestd, by what for: read or update nodes; tell, hold or find jobs that are given back; explain how jobs and nodes are, for the history and for people."}, []string{"verb", "result"}),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slurmtide_nodes", Help: "Nodes of a NodeSet by what they are at; total counts all names."}, []string{"nodeset", "state"}),
		floor: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slurmtide_floor_nodes", Help: "Floor of a NodeSet: nodes that are wanted up (spec.replicas, or an open window), and those of them that serve."}, []string{"nodeset", "what"}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slurmtide_spool_requests", Help: "Requests in the spool that are not finished."}),
		breakers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slurmtide_breaker_open", Help: "1 while nothing, or one probe alone, is tried on a NodeSet or its offering, by the class of the failure; there is no series while all is tried."}, []string{"nodeset", "offering", "class"}),
		inHand: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slurmtide_in_hand", Help: "Requests, boots and power-downs that are under way."}, []string{"what"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slurmtide_in_hand_oldest_timestamp_seconds", Help: "Since when the oldest request, boot or power-down is under way, in seconds since 1970; there is no series while there is none."}, []string{"what"}),
		givenBack: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_jobs_given_back_total", Help: "Jobs given back because a node of them could not boot, by that node's NodeSet and the class of the reason; a job counts each time, and each component of a het job."}, []string{"nodeset", "class"}),
		timeout: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slurmtide_resume_timeout_seconds", Help: "ResumeTimeout of slurm.conf, as the newest request has it; 0: not known yet."}),
		gates: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slurmtide_gates_waiting", Help: "Start-gates that wait for nodes."}),
		readable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slurmtide_readable", Help: "1 while slurmrestd, or the Kubernetes API, can be read; while it is 0 for either nothing is taken down."}, []string{"api"}),
		slurmRead: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slurmtide_slurm_complete_read_timestamp_seconds", Help: "When the newest complete read of Slurm's nodes was asked for, in seconds since 1970; there is one a minute at least. 0: none yet."}),
		hostMarks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_host_marks_total", Help: "Calls to mark hosts because a node on them was drained for bad hardware, by how they ended."}, []string{"result"}),
		leads: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slurmtide_bridge_leading", Help: "1 while this bridge holds the lease of its cluster, and reconciles; else 0."}),
	}
	m.lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "slurmtide_history_lost_total", Help: "Entries of the history that could not be kept, since the disk is full or slow: slurmtide explain will not know of them."})
	m.reads(powersave.Reads{})
	for _, result := range []string{"ok", "error"} { // a counter that begins with its first mark hides that one from increase()
		m.hostMarks.WithLabelValues(result)
	}
	r.MustRegister(m.breakers, m.inHand, m.oldest, m.givenBack, m.timeout)
	r.MustRegister(m.readable, m.slurmRead, m.hostMarks, m.leads, m.lost)
	r.MustRegister(m.requests, m.phases, m.boots, m.verdicts, m.gateWait, m.podCalls, m.slurmCalls, m.nodes, m.floor, m.pending, m.gates)
	return m
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

func (m *Metrics) request(k spool.Kind, resumeTimeout time.Duration) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(string(k)).Inc()
	if resumeTimeout > 0 {
		m.timeout.Set(resumeTimeout.Seconds())
	}
}

func (m *Metrics) boot(b powersave.Boot) {
	if m == nil {
		return
	}
	m.boots.WithLabelValues(b.NodeSet).Inc()
	for phase, at := range map[string]time.Time{
		"accepted": b.Times.Accepted, "created": b.Times.Created, "scheduled": b.Times.Scheduled,
		"running": b.Times.Running, "registered": b.Times.Registered,
	} {
		if !at.IsZero() {
			measure.Observe(m.phases.WithLabelValues(b.NodeSet, phase), max(at.Sub(b.Times.Requested), 0), b.Request)
		}
	}
}

func (m *Metrics) verdict(f powersave.BootFailed) {
	if m == nil {
		return
	}
	m.verdicts.WithLabelValues(f.NodeSet, string(f.Verdict.Trouble)).Inc()
	m.givenBack.WithLabelValues(f.NodeSet, string(f.Verdict.Trouble)).Add(float64(len(f.Jobs)))
}

func (m *Metrics) gate(waited time.Duration, ready bool) {
	if m != nil {
		m.gateWait.WithLabelValues(map[bool]string{true: "yes", false: "no"}[ready]).Observe(waited.Seconds())
	}
}

func (m *Metrics) reads(r powersave.Reads) {
	if m == nil {
		return
	}
	for api, ok := range map[string]bool{"slurm": r.Slurm, "kubernetes": r.Kubernetes} {
		value := 0.0
		if ok {
			value = 1
		}
		m.readable.WithLabelValues(api).Set(value)
	}
	if !r.SlurmAt.IsZero() {
		m.slurmRead.Set(float64(r.SlurmAt.UnixMilli()) / 1000)
	}
}

func (m *Metrics) hostMark(err error) {
	if m != nil {
		m.hostMarks.WithLabelValues(result(err)).Inc()
	}
}

// HistoryLost counts entries of the history that could not be kept. It may be called from any goroutine.
func (m *Metrics) HistoryLost(n int) {
	if m != nil {
		m.lost.Add(float64(n))
	}
}

func (m *Metrics) podCall(verb string, err error) {
	if m != nil {
		m.podCalls.WithLabelValues(verb, result(err)).Inc()
	}
}

func (m *Metrics) slurmCall(verb string, err error) {
	if m != nil {
		m.slurmCalls.WithLabelValues(verb, result(err)).Inc()
	}
}

func (m *Metrics) leading(yes bool) {
	switch {
	case m == nil:
	case yes:
		m.leads.Set(1)
	default:
		m.leads.Set(0)
	}
}

func (m *Metrics) counts(counts []powersave.NodeSetCounts, requests, gates int) {
	if m == nil {
		return
	}
	m.nodes.Reset()
	m.floor.Reset()
	m.breakers.Reset()
	for _, c := range counts {
		for state, n := range map[string]int{"total": c.Nodes, "powered_up": c.PoweredUp, "booting": c.Booting, "ready": c.Ready, "failed": c.Failed, "unknown": c.Unknown} {
			m.nodes.WithLabelValues(c.Name, state).Set(float64(n))
		}
		if f := c.Floor; f != nil {
			m.floor.WithLabelValues(c.Name, "wanted").Set(float64(f.Wanted))
			m.floor.WithLabelValues(c.Name, "held").Set(float64(f.Held))
		}
		for _, b := range c.Breakers {
			if b.State != powersave.BreakerClosed {
				m.breakers.WithLabelValues(c.Name, b.Key.Offering, string(b.Class)).Set(1)
			}
		}
	}
	m.pending.Set(float64(requests))
	m.gates.Set(float64(gates))
}

// underWay shows what the engine has in hand.
func (m *Metrics) underWay(requests, boots, powerDowns powersave.InHand) {
	if m == nil {
		return
	}
	m.oldest.Reset()
	for what, in := range map[string]powersave.InHand{"request": requests, "boot": boots, "power_down": powerDowns} {
		m.inHand.WithLabelValues(what).Set(float64(in.Number))
		if !in.Oldest.IsZero() {
			m.oldest.WithLabelValues(what).Set(float64(in.Oldest.UnixMilli()) / 1000)
		}
	}
}
