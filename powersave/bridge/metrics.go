package bridge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

// Metrics are the bridge's Prometheus metrics. A nil *Metrics counts nothing. Their methods belong to the goroutine of Run, except those that say otherwise.
type Metrics struct {
	requests   *prometheus.CounterVec
	phases     *prometheus.HistogramVec
	boots      *prometheus.CounterVec
	slow       *prometheus.CounterVec
	verdicts   *prometheus.CounterVec
	gateWait   *prometheus.HistogramVec
	podCalls   *prometheus.CounterVec
	slurmCalls *prometheus.CounterVec
	nodes      *measure.Gauges
	floor      *measure.Gauges
	breakers   *measure.Gauges
	inHand     *prometheus.GaugeVec
	oldest     *measure.Gauges
	givenBack  *prometheus.CounterVec
	timeout    prometheus.Gauge
	gates      prometheus.Gauge
	readable   *prometheus.GaugeVec
	slurmRead  prometheus.Gauge
	hostMarks  *prometheus.CounterVec
	leads      prometheus.Gauge
	lost       prometheus.Counter
	noSpans    prometheus.Counter
	gangs      *prometheus.CounterVec
	started    *prometheus.CounterVec
	changes    *prometheus.CounterVec
	seconds    *nodeSeconds

	resumeTimeout time.Duration // as the newest request has it; 0: not known yet

	known   map[string]bool // NodeSets that have series
	strays  map[string]bool // others that have got some since: they are gone, or not known yet
	states  map[powersave.BreakerKey]powersave.BreakerState
	arrived map[uint32][]*arrival // by job that waits for others
}

// arrival is a boot that has registered and that no job is seen to use yet.
type arrival struct {
	powersave.Boot
	used bool
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	seconds := []float64{.05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 450, 600, 900, 1800}
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_requests_total", Help: "Requests read from the spool, by the program that wrote them."}, []string{"kind"}),
		phases: prometheus.NewHistogramVec(measure.Times("slurmtide_boot_phase_seconds",
			"Time from ResumeProgram's start until a boot that ended well was accepted by the bridge, its pod created, scheduled and running, its slurmd registered, and all nodes of a job that waits for it ready.", seconds...), []string{"nodeset", "offering", "phase"}),
		boots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_boots_total", Help: "Boots whose slurmd has registered."}, []string{"nodeset"}),
		slow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_slow_boots_total", Help: "Those of slurmtide_boots_total that took longer than four fifths of ResumeTimeout, from ResumeProgram's start on. At nine tenths they would be given back."}, []string{"nodeset"}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_boot_failures_total", Help: "Verdicts: boots that came to nothing, by the class of the reason."}, []string{"nodeset", "class"}),
		gateWait: prometheus.NewHistogramVec(measure.Times("slurmtide_gate_wait_seconds", "Time that start-gates waited until they were answered, by whether the job's nodes were ready.", seconds...), []string{"ready"}),
		podCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_pod_calls_total", Help: "Calls to create, delete or mark pods, by how they ended."}, []string{"verb", "result"}),
		slurmCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_slurm_calls_total", Help: "Calls for Slurm, each of one or more requests to slurmrestd, by what for: read or update nodes; tell, hold or find jobs that are given back; explain how jobs and nodes are, for the history and for people."}, []string{"verb", "result"}),
		nodes: measure.NewGauges(prometheus.GaugeOpts{
			Name: "slurmtide_nodes", Help: "Nodes of a NodeSet by what they are at; total counts all names."}, []string{"nodeset", "state"}),
		floor: measure.NewGauges(prometheus.GaugeOpts{
			Name: "slurmtide_floor_nodes", Help: "Floor of a NodeSet: nodes that are wanted up (spec.replicas, or an open window), and those of them that serve."}, []string{"nodeset", "what"}),
		breakers: measure.NewGauges(prometheus.GaugeOpts{
			Name: "slurmtide_breaker_open", Help: "1 while nothing, or one probe alone, is tried on a NodeSet or its offering, by the class of the failure; there is no series while all is tried."}, []string{"nodeset", "offering", "class"}),
		inHand: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slurmtide_in_hand", Help: "Requests, boots and power-downs that are under way."}, []string{"what"}),
		oldest: measure.NewGauges(prometheus.GaugeOpts{
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
		Name: "slurmtide_history_lost_total", Help: "Entries of the history that could not be kept, because the disk is full or slow: slurmtide explain will not know of them."})
	m.noSpans = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "slurmtide_trace_spans_dropped_total", Help: "Spans of traces that no OpenTelemetry collector has taken, since it is away, too slow, or refuses them."})
	m.gangs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slurmtide_gangs_total",
		Help: "Jobs that nodes were powered up for, when they no longer waited for any, by the NodeSet of the first one and the outcome: ready (all have registered), given_back (one could not boot), left (the job has ended, or slurmctld took it off its nodes). Each start of a job counts, and each component of a het job.",
	}, []string{"nodeset", "outcome"})
	m.started = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slurmtide_jobs_started_total",
		Help: "Jobs that their start-gate let start since all their nodes served, whether those had to boot or not, by the NodeSet of the first one. A slurmctld that is started anew runs gates once more.",
	}, []string{"nodeset"})
	m.changes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slurmtide_breaker_changes_total",
		Help: "Times that the breaker of a NodeSet, or of one of its offerings, went into a state: open (nothing is tried), half-open (one probe is), closed (all is tried).",
	}, []string{"nodeset", "offering", "state"})
	m.seconds = newNodeSeconds()
	m.strays = map[string]bool{}
	m.known, m.states, m.arrived = map[string]bool{}, map[powersave.BreakerKey]powersave.BreakerState{}, map[uint32][]*arrival{}
	m.reads(powersave.Reads{})
	m.fromTheStart()
	r.MustRegister(m.gangs, m.started, m.changes, m.seconds)
	r.MustRegister(m.breakers, m.inHand, m.oldest, m.givenBack, m.timeout)
	r.MustRegister(m.readable, m.slurmRead, m.hostMarks, m.leads, m.lost, m.noSpans)
	r.MustRegister(m.requests, m.phases, m.boots, m.slow, m.verdicts, m.gateWait, m.podCalls, m.slurmCalls, m.nodes, m.floor, m.gates)
	return m
}

// fromTheStart makes the series that are known before anything happens: a counter that begins with its first event hides that one from increase().
func (m *Metrics) fromTheStart() {
	for _, kind := range []spool.Kind{spool.KindResume, spool.KindSuspend, spool.KindResumeFail} {
		m.requests.WithLabelValues(string(kind))
	}
	for _, ready := range []string{"yes", "no"} {
		m.gateWait.WithLabelValues(ready)
	}
	for _, result := range []string{"ok", "error"} {
		m.hostMarks.WithLabelValues(result)
		for _, verb := range []string{"create", "delete", "mark"} {
			m.podCalls.WithLabelValues(verb, result)
		}
		for _, verb := range []string{"read", "update", "tell", "hold", "find", "explain"} {
			m.slurmCalls.WithLabelValues(verb, result)
		}
	}
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
		m.resumeTimeout = resumeTimeout
		m.timeout.Set(resumeTimeout.Seconds())
	}
}

func (m *Metrics) boot(b powersave.Boot) {
	if m == nil {
		return
	}
	m.touch(b.NodeSet)
	m.boots.WithLabelValues(b.NodeSet).Inc()
	if took := b.Times.Registered.Sub(b.Times.Requested); m.resumeTimeout > 0 && !b.Times.Requested.IsZero() && took > m.resumeTimeout/5*4 {
		m.slow.WithLabelValues(b.NodeSet).Inc()
	}
	for i, at := range []time.Time{b.Times.Accepted, b.Times.Created, b.Times.Scheduled, b.Times.Running, b.Times.Registered} {
		if !at.IsZero() {
			m.phase(b, bootPhases[i], at)
		}
	}
	if len(b.Jobs) == 0 {
		m.phase(b, phaseReady, b.Times.Registered)
		return
	}
	a := &arrival{Boot: b}
	if len(m.arrived) >= mostArrived {
		clear(m.arrived)
	}
	for _, job := range b.Jobs {
		m.arrived[job] = append(m.arrived[job], a)
	}
}

// touch has series of a NodeSet that nobody knows go with the next figures, unless it is known by then.
func (m *Metrics) touch(nodeSet string) {
	if !m.known[nodeSet] {
		m.strays[nodeSet] = true
	}
}

const phaseReady = "ready"

var bootPhases = []string{"accepted", "created", "scheduled", "running", "registered", phaseReady}

// mostArrived bounds the memory of jobs that wait for others of their nodes.
const mostArrived = 100_000

func (m *Metrics) phase(b powersave.Boot, phase string, at time.Time) {
	m.touch(b.NodeSet)
	measure.Observe(m.phases.WithLabelValues(b.NodeSet, b.Offering, phase), max(at.Sub(b.Times.Requested), 0), b.Request)
}

// gang takes in that a job waits no longer.
func (m *Metrics) gang(now time.Time, g powersave.GangDone) {
	if m == nil {
		return
	}
	if g.NodeSet != "" { // otherwise nobody knows any more whose nodes they were
		m.touch(g.NodeSet)
		m.gangs.WithLabelValues(g.NodeSet, string(g.Outcome)).Inc()
	}
	for _, a := range m.arrived[g.Job] {
		if g.Outcome == powersave.GangReady && !a.used {
			a.used = true
			m.phase(a.Boot, phaseReady, now)
		}
	}
	delete(m.arrived, g.Job)
}

// start takes in that a job starts whose first node is of the NodeSet.
func (m *Metrics) start(nodeSet string) {
	if m != nil {
		m.touch(nodeSet)
		m.started.WithLabelValues(nodeSet).Inc()
	}
}

func (m *Metrics) verdict(f powersave.BootFailed) {
	if m == nil {
		return
	}
	m.touch(f.NodeSet)
	m.verdicts.WithLabelValues(f.NodeSet, string(f.Verdict.Trouble)).Inc()
	m.givenBack.WithLabelValues(f.NodeSet, string(f.Verdict.Trouble)).Add(float64(len(f.Jobs)))
}

// gate may be called from any goroutine.
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

// SpansDropped counts spans that nobody will see. It may be called from any goroutine.
func (m *Metrics) SpansDropped(n int) {
	if m != nil {
		m.noSpans.Add(float64(n))
	}
}

// podCall may be called from any goroutine, and so may slurmCall and hostMark.
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

// underWay shows what the engine has in hand.
func (m *Metrics) underWay(requests, boots, powerDowns powersave.InHand) {
	if m == nil {
		return
	}
	m.oldest.Replace(func(set func(float64, ...string)) {
		for what, in := range map[string]powersave.InHand{"request": requests, "boot": boots, "power_down": powerDowns} {
			m.inHand.WithLabelValues(what).Set(float64(in.Number))
			if !in.Oldest.IsZero() {
				set(float64(in.Oldest.UnixMilli())/1000, what)
			}
		}
	})
}
