package external

import (
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/scaler"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
	"github.com/slurmtide/slurmtide/scaler/watch"
)

// Metrics are the Prometheus metrics of the scaler: the same figures that KEDA gets, and how it came by them.
type Metrics struct {
	requests *prometheus.CounterVec
	times    *prometheus.HistogramVec
	reads    *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

// NewMetrics registers the metrics. Figures are those at the moment they are asked for; while Slurm cannot be read
// there are none.
func NewMetrics(r prometheus.Registerer, clusters map[string]Source) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_scaler_requests_total", Help: "Requests of KEDA, by method and gRPC code. Streams count when they end."}, []string{"method", "code"}),
		times: prometheus.NewHistogramVec(measure.Times(
			"slurmtide_scaler_request_seconds", "Time it took to answer a request of KEDA, without streams.",
			.0001, .00025, .0005, .001, .0025, .005, .01, .025, .1, .5, 1), []string{"method"}),
		reads: prometheus.NewHistogramVec(measure.Times(
			"slurmtide_scaler_read_seconds", "Time of reads of Slurm by what was read; unchanged: jobs, none of which had changed; new jobs: single ones, while reads of all take long; demand: reckoning it.",
			.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30), []string{"cluster", "what"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_scaler_read_failures_total", Help: "Reads of Slurm that failed, by what was read."}, []string{"cluster", "what"}),
	}
	r.MustRegister(m.requests, m.times, m.reads, m.failures, newFigureCollector(clusters))
	return m
}

// Read is for watch.Config.OnRead of a cluster.
func (m *Metrics) Read(cluster string) func(what string, took time.Duration, err error) {
	for _, what := range watch.Reads { // a counter that begins with its first failure hides that one from increase()
		m.failures.WithLabelValues(cluster, what)
	}
	return func(what string, took time.Duration, err error) {
		if err != nil {
			m.failures.WithLabelValues(cluster, what).Inc()
			return
		}
		m.reads.WithLabelValues(cluster, what).Observe(took.Seconds())
	}
}

// done counts a request. The service's own methods are known; others, of health and reflection, are not counted.
func (o Options) done(method string, start time.Time, err error) {
	name, ok := strings.CutPrefix(method, "/"+pb.ExternalScaler_ServiceDesc.ServiceName+"/")
	if !ok {
		return
	}
	name = path.Base(name)
	if err != nil {
		o.Log.Debug("request refused", "method", name, "error", err)
	}
	if o.Metrics == nil {
		return
	}
	o.Metrics.requests.WithLabelValues(name, status.Code(err).String()).Inc()
	if !start.IsZero() {
		o.Metrics.times.WithLabelValues(name).Observe(time.Since(start).Seconds())
	}
}

// figureCollector turns the newest figures into metrics when they are asked for.
type figureCollector struct {
	clusters                                               map[string]Source
	readable, readAt                                       *prometheus.Desc
	needed, fresh, nodes, demand, running, classes, misses *prometheus.Desc
	cut                                                    *prometheus.Desc
}

func newFigureCollector(clusters map[string]Source) *figureCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("slurmtide_scaler_"+name, help, append([]string{"cluster"}, labels...), nil)
	}
	return &figureCollector{
		clusters: clusters,
		readable: desc("readable", "1 while the cluster's figures are good; 0 while Slurm cannot be read, or was last read too long ago."),
		readAt:   desc("read_timestamp_seconds", "When Slurm was last known to be as the figures say."),
		needed:   desc("nodes_needed", "Nodes a NodeSet needs: in use, and for pending jobs that count.", "nodeset"),
		fresh:    desc("nodes_to_power_up", "Nodes of a NodeSet that pending jobs need and that are powered down.", "nodeset", "estimate"),
		nodes:    desc("nodes", "Nodes of a NodeSet by state; in_use, ready and freeing_soon are among those that are up or booting.", "nodeset", "state"),
		demand:   desc("pending_demand", "What pending jobs that count ask of a NodeSet.", "nodeset", "resource"),
		running:  desc("running", "What runs on a NodeSet.", "nodeset", "resource"),
		classes:  desc("pending_jobs", "Pending jobs by why they count, or do not; an array's tasks that slurmctld has not looked at are one.", "why"),
		cut:      desc("cut_arrays", "Pending arrays whose task list slurmrestd has cut, so that more tasks wait than count: it lacks SLURM_BITSTR_LEN=0 in its environment."),
		misses:   desc("impossible_jobs", "Pending jobs that no NodeSet can ever run, by what comes nearest; more than 20 different misses are others.", "miss"),
	}
}

func (c *figureCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.readable, c.readAt, c.needed, c.fresh, c.nodes, c.demand, c.running, c.classes, c.cut, c.misses} {
		ch <- d
	}
}

func (c *figureCollector) Collect(ch chan<- prometheus.Metric) {
	for cluster, source := range c.clusters {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{cluster}, labels...)...)
		}
		f, err := source.Latest()
		if err != nil {
			gauge(c.readable, 0)
			continue
		}
		gauge(c.readable, 1)
		gauge(c.readAt, float64(f.Read.UnixMilli())/1000)
		c.collect(f, gauge)
	}
}

func (c *figureCollector) collect(f watch.Figures, gauge func(*prometheus.Desc, float64, ...string)) {
	for _, set := range f.Snapshot.NodeSets {
		d, ok := f.NodeSet(set.Name)
		if !ok {
			continue
		}
		gauge(c.needed, float64(d.Nodes()), d.Name)
		gauge(c.fresh, float64(d.New.Lower), d.Name, "lower")
		gauge(c.fresh, float64(d.New.Greedy), d.Name, "greedy")
		for state, n := range map[string]int{
			"up": d.Up, "booting": d.Booting, "off": d.Off, "unusable": d.Unusable, "in_use": d.InUse, "ready": d.Ready, "freeing_soon": d.FreeingSoon,
		} {
			gauge(c.nodes, float64(n), d.Name, state)
		}
		for resource, n := range map[string]int64{"jobs": d.Jobs, "cpus": d.CPUs, "gpus": d.GPUs} {
			gauge(c.demand, float64(n), d.Name, resource)
		}
		for resource, n := range map[string]int64{"jobs": d.Running.Jobs, "cpus": d.Running.CPUs, "gpus": d.Running.GPUs} {
			gauge(c.running, float64(n), d.Name, resource)
		}
	}
	why, cut := map[string]int{}, 0
	for _, j := range f.Report.Jobs {
		why[string(j.Why)]++
		if j.More {
			cut++
		}
	}
	gauge(c.cut, float64(cut))
	for class, n := range why {
		gauge(c.classes, float64(n), class)
	}
	for miss, n := range scaler.MissesOf(f.Report).Count() {
		gauge(c.misses, float64(n), miss)
	}
}
