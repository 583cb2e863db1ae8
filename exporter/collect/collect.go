// Package collect reads Slurm at its own pace, and answers scrapes from what was read last.
//
//	c := collect.New(collect.Config{Slurm: slurmrestClient})
//	registry.MustRegister(c)
//	go c.Run(ctx)
//
// # What it costs slurmctld
//
// As much with a hundred scrapes as with none. Nodes, jobs and statistics are read every Interval, partitions once a minute, one after the other. After each read
// Slurm is left alone for twice as long as that took (Rest), and what cannot be read is tried after 15, 30, then 60 seconds. slurmctld is asked for jobs only if any has changed since, which costs it next to nothing while none
// has; now and then all are read in any case, since slurmctld may set its time of the last change back. Nodes cannot be asked for like that (see slurmrest's QueueNodes).
//
// # Old figures vanish
//
// What could not be read for MaxAge is not shown, or, when reads take long, for twice as long as all of them take with their rests: a series that ends is seen, and one that stays as it was is not. When each kind was last read is a metric of its own.
package collect

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/exporter"
)

// Defaults of Config.
const (
	DefaultInterval = 15 * time.Second
	DefaultMaxAge   = time.Minute
	DefaultRest     = 2

	partitionsEvery = time.Minute // they change when somebody changes them
	longestBackOff  = time.Minute

	// All jobs are read as often as this, or ten times as long as it takes, but every ten minutes at the least.
	allJobsEvery, allJobsAtLeast = time.Minute, 10 * time.Minute
)

// Slurm reads facts. A func that is given is called with each fact of a read; begin is called before the first, and again if a read starts anew.
type Slurm interface {
	EachNode(ctx context.Context, begin func() func(exporter.Node)) error
	// EachJob returns slurmctld's clock, or the zero time if no job has changed since.
	EachJob(ctx context.Context, since time.Time, begin func() func(exporter.Job)) (time.Time, error)
	PartitionFacts(ctx context.Context) ([]exporter.Partition, error)
	Diag(ctx context.Context) (exporter.Diag, error)
}

// Config of a Collector.
type Config struct {
	Slurm    Slurm
	Options  exporter.Options
	Interval time.Duration // DefaultInterval if 0
	MaxAge   time.Duration // DefaultMaxAge if 0
	Rest     float64       // as a multiple of what a read took; DefaultRest if 0
	Labels   prometheus.Labels
	// Why puts an error into one of a few words, for a metric; nil: "error".
	Why func(error) string
	// Version names slurmrestd's data_parser and Slurm's release, each empty while unknown; may be nil.
	Version func() (dataParser, release string)
	Log     *slog.Logger // slog.Default() if nil
}

// Collector keeps the newest figures as metrics.
type Collector struct {
	cfg   Config
	descs map[*exporter.Metric]*prometheus.Desc
	own   own
	parts []*part

	// Only Run's goroutine uses these.
	names    []string // of partitions
	seconds  exporter.GPUSeconds
	gpus     exporter.NodeGPUSeconds
	sums     exporter.NodeSums
	jobs     time.Time     // slurmctld's clock at the newest jobs
	allJobs  time.Time     // when all were last read
	jobsTook time.Duration // for that

	mu sync.Mutex // guards what parts share with scrapes
}

// part is one kind of read.
type part struct {
	source exporter.Source
	every  time.Duration
	// read gives new samples, or none and true if nothing has changed.
	read func(ctx context.Context, now time.Time) (list []exporter.Sample, unchanged bool, err error)

	due  time.Time // only Run's goroutine uses these two
	said string    // the failure that the log has

	// Collector.mu guards these. Run's goroutine alone changes them, but for old.
	metrics  []prometheus.Metric
	at       time.Time // when the newest read that succeeded began
	old      bool      // it was too long ago when somebody looked
	failures int       // reads that failed since
	tried    bool
	took     time.Duration // the newest read that succeeded
	lost     time.Duration // the newest read, if it failed
}

// New makes a Collector that has read nothing yet.
func New(cfg Config) *Collector {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.MaxAge <= 0 {
		cfg.MaxAge = DefaultMaxAge
	}
	if cfg.Rest <= 0 {
		cfg.Rest = DefaultRest
	}
	if cfg.Why == nil {
		cfg.Why = func(error) string { return "error" }
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &Collector{cfg: cfg, descs: map[*exporter.Metric]*prometheus.Desc{}, own: newOwn(cfg.Labels)}
	for _, m := range exporter.Catalogue {
		c.descs[m] = prometheus.NewDesc(m.Name, m.Help, m.Labels, cfg.Labels)
	}
	reads := map[exporter.Source]func(context.Context, time.Time) ([]exporter.Sample, bool, error){
		exporter.FromPartitions: c.readPartitions, exporter.FromNodes: c.readNodes, exporter.FromJobs: c.readJobs, exporter.FromDiag: c.readDiag,
	}
	for _, s := range exporter.Sources {
		p := &part{source: s, every: cfg.Interval, read: reads[s]}
		if s == exporter.FromPartitions {
			p.every = max(p.every, partitionsEvery)
		}
		c.parts = append(c.parts, p)
	}
	return c
}

// Run reads Slurm until ctx is done.
func (c *Collector) Run(ctx context.Context) error {
	var rested time.Time
	for {
		next := c.parts[0]
		for _, p := range c.parts {
			if p.due.Before(next.due) {
				next = p
			}
		}
		due := next.due
		if rested.After(due) {
			due = rested
		}
		wait := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		case <-wait.C:
		}
		rested = c.step(ctx, next)
	}
}

// step makes one read, and says until when Slurm is left alone.
func (c *Collector) step(ctx context.Context, p *part) time.Time {
	start := time.Now()
	list, unchanged, err := p.read(ctx, start)
	end := time.Now()
	took := end.Sub(start)
	rested := end.Add(time.Duration(float64(took) * c.cfg.Rest))
	if ctx.Err() != nil {
		return rested
	}
	if err != nil {
		c.tell(p, err)
		c.mu.Lock()
		defer c.mu.Unlock()
		p.failures, p.lost, p.tried = p.failures+1, took, true
		p.due = end.Add(backOff(c.cfg.Interval, p.failures))
		return rested
	}
	if p.said != "" {
		c.cfg.Log.Info("Slurm is read again", "what", p.source)
	}
	p.said, p.due = "", start.Add(p.every)
	metrics, what := p.metrics, "unchanged"
	if !unchanged {
		metrics, what = c.metricsOf(list), string(p.source)
	}
	c.own.reads.WithLabelValues(what).Observe(took.Seconds())
	c.mu.Lock()
	defer c.mu.Unlock()
	p.metrics, p.at, p.old, p.failures, p.lost, p.tried = metrics, start, false, 0, 0, true
	if !unchanged { // the time that all jobs took is the one that counts
		p.took = took
	}
	return rested
}

// tell says that a read failed.
func (c *Collector) tell(p *part, err error) {
	c.own.failures.WithLabelValues(string(p.source), c.cfg.Why(err)).Inc()
	if text := err.Error(); text != p.said {
		c.cfg.Log.Warn("reading Slurm failed", "what", p.source, "error", err)
		p.said = text
	}
}

// good is how old a part's figures may be. Reads of others that fail, after a minute perhaps, are time for which it has to wait; its own are none. It needs c.mu, or Run's goroutine.
func (c *Collector) good(p *part) time.Duration {
	var all time.Duration
	for _, o := range c.parts {
		took := o.took
		if p.failures == 0 {
			took = max(took, o.lost)
		}
		all += time.Duration(float64(took) * (1 + c.cfg.Rest))
	}
	return max(c.cfg.MaxAge, 2*all) + p.every - c.cfg.Interval
}

// backOff is twice as long after each failure.
func backOff(interval time.Duration, failures int) time.Duration {
	return min(interval<<min(failures-1, 10), max(interval, longestBackOff))
}

func (c *Collector) metricsOf(list []exporter.Sample) []prometheus.Metric {
	metrics := make([]prometheus.Metric, len(list))
	for i, s := range list {
		if s.Counts != nil {
			below := make(map[float64]uint64, len(s.Counts.Below))
			for at, n := range s.Counts.Below {
				below[s.Metric.Buckets[at]] = n
			}
			metrics[i] = prometheus.MustNewConstHistogram(c.descs[s.Metric], s.Counts.Count, s.Counts.Sum, below, s.Labels...)
			continue
		}
		kind := prometheus.GaugeValue
		if s.Metric.Counter {
			kind = prometheus.CounterValue
		}
		metrics[i] = prometheus.MustNewConstMetric(c.descs[s.Metric], kind, s.Value, s.Labels...)
	}
	return metrics
}

func (c *Collector) readPartitions(ctx context.Context, _ time.Time) ([]exporter.Sample, bool, error) {
	list, err := c.cfg.Slurm.PartitionFacts(ctx)
	if err != nil {
		return nil, false, err
	}
	c.names = c.names[:0]
	for _, p := range list {
		c.names = append(c.names, p.Name)
	}
	return exporter.PartitionSamples(list), false, nil
}

func (c *Collector) readNodes(ctx context.Context, now time.Time) ([]exporter.Sample, bool, error) {
	var t *exporter.NodeTally
	err := c.cfg.Slurm.EachNode(ctx, func() func(exporter.Node) {
		t = exporter.NewNodeTally(c.cfg.Options)
		return t.Add
	})
	if err != nil {
		return nil, false, err
	}
	most := c.good(&part{every: c.cfg.Interval})
	c.seconds.Read(now, t.GPUs(), most)
	c.gpus.Read(now, t.NodeGPUs(), most)
	c.sums.Read(now, t, most)
	return slices.Concat(t.Samples(), c.seconds.Samples(), c.gpus.Samples(), c.sums.Samples(c.cfg.Options)), false, nil
}

func (c *Collector) readJobs(ctx context.Context, now time.Time) ([]exporter.Sample, bool, error) {
	since := c.jobs
	if now.Sub(c.allJobs) >= min(max(allJobsEvery, 10*c.jobsTook), allJobsAtLeast) {
		since = time.Time{}
	}
	var t *exporter.JobTally
	at, err := c.cfg.Slurm.EachJob(ctx, since, func() func(exporter.Job) {
		t = exporter.NewJobTally(now, c.cfg.Options, c.names...)
		return t.Add
	})
	if err != nil {
		c.jobs = time.Time{} // whatever was cut short is read whole
		return nil, false, err
	}
	if at.IsZero() && !since.IsZero() {
		return nil, true, nil
	}
	if t == nil {
		return nil, false, errors.New("jobs were asked for, and no list came")
	}
	c.jobs, c.allJobs, c.jobsTook = at, now, time.Since(now)
	return t.Samples(), false, nil
}

func (c *Collector) readDiag(ctx context.Context, _ time.Time) ([]exporter.Sample, bool, error) {
	d, err := c.cfg.Slurm.Diag(ctx)
	if err != nil {
		return nil, false, err
	}
	return d.Samples(c.cfg.Options), false, nil
}
