package collect

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/internal/measure"
)

// own are the metrics of the exporter itself.
type own struct {
	reads    *prometheus.HistogramVec
	failures *prometheus.CounterVec
	shown    *prometheus.Desc
	series   *prometheus.Desc
	at       *prometheus.Desc
	version  *prometheus.Desc
}

func newOwn(labels prometheus.Labels) own {
	reads := measure.Times("slurmtide_exporter_read_seconds", "Time of reads of Slurm by what was read; unchanged: jobs, none of which had changed.",
		.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	reads.ConstLabels = labels
	o := own{
		reads: prometheus.NewHistogramVec(reads, []string{"what"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slurmtide_exporter_read_failures_total", Help: "Reads of Slurm that failed, by what was read and why: token, unreachable, error.", ConstLabels: labels}, []string{"what", "why"}),
		shown:   prometheus.NewDesc("slurmtide_exporter_readable", "1 while the figures of a kind are good; 0: they could not be read, or not lately, and are not shown.", []string{"what"}, labels),
		series:  prometheus.NewDesc("slurmtide_exporter_series", "Series of Slurm on the page, by what was read.", []string{"what"}, labels),
		at:      prometheus.NewDesc("slurmtide_exporter_last_success_timestamp_seconds", "When the newest read that succeeded began, in seconds since 1970.", []string{"what"}, labels),
		version: prometheus.NewDesc("slurmtide_exporter_slurm_info", "1, with the release of Slurm and the data_parser of slurmrestd in use.", []string{"slurm", "data_parser"}, labels),
	}
	for _, what := range exporter.Sources {
		for _, why := range []string{"token", "unreachable", "error"} { // a counter that begins with its first failure hides that one from increase()
			o.failures.WithLabelValues(string(what), why)
		}
	}
	return o
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	c.own.reads.Describe(ch)
	c.own.failures.Describe(ch)
	ch <- c.own.shown
	ch <- c.own.series
	ch <- c.own.at
	ch <- c.own.version
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector: it hands out what was read, and reads nothing.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.own.reads.Collect(ch)
	c.own.failures.Collect(ch)
	if c.cfg.Version != nil {
		if dataParser, release := c.cfg.Version(); dataParser != "" {
			ch <- prometheus.MustNewConstMetric(c.own.version, prometheus.GaugeValue, 1, release, dataParser)
		}
	}
	for _, p := range c.parts {
		c.mu.Lock()
		p.old = p.old || time.Since(p.at) > c.good(p) // and stays so: what is good grows with the time for which others have been waited for
		metrics, at, old := p.metrics, p.at, p.old
		c.mu.Unlock()
		shown := 0.0
		if !at.IsZero() {
			ch <- prometheus.MustNewConstMetric(c.own.at, prometheus.GaugeValue, float64(at.UnixMilli())/1000, string(p.source))
			if !old {
				shown = 1
			}
		}
		ch <- prometheus.MustNewConstMetric(c.own.shown, prometheus.GaugeValue, shown, string(p.source))
		if shown == 0 {
			metrics = nil
		}
		ch <- prometheus.MustNewConstMetric(c.own.series, prometheus.GaugeValue, float64(len(metrics)), string(p.source))
		for _, m := range metrics {
			ch <- m
		}
	}
}

// Tried reports whether everything has been read once, or has failed to be: from then on what is missing says so.
func (c *Collector) Tried() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(c.parts, func(p *part) bool { return !p.tried })
}
