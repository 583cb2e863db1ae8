package bridge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// spoolCollector looks into the spool when it is asked.
type spoolCollector struct {
	stats                   func() (spool.Stats, error)
	requests, oldest, aside *prometheus.Desc
}

// ShowSpool registers metrics of the spool, as stats tells of it. While that fails there are none.
func ShowSpool(r prometheus.Registerer, stats func() (spool.Stats, error)) {
	r.MustRegister(&spoolCollector{
		stats:    stats,
		requests: prometheus.NewDesc("slurmtide_spool_requests", "Requests in the spool that are not finished; there is no series while the spool cannot be read.", nil, nil),
		oldest: prometheus.NewDesc("slurmtide_spool_oldest_request_timestamp_seconds",
			"When the oldest request in the spool was accepted, in seconds since 1970; there is no series while there is none.", nil, nil),
		aside: prometheus.NewDesc("slurmtide_spool_set_aside_requests", "Requests that could not be read and were set aside in the spool's directory bad, for somebody to look at; of many the newest are kept.", nil, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *spoolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.requests, c.oldest, c.aside} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *spoolCollector) Collect(ch chan<- prometheus.Metric) {
	st, err := c.stats()
	if err != nil { // the loop has logged it
		return
	}
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(c.requests, float64(st.Depth))
	if !st.Oldest.IsZero() {
		gauge(c.oldest, float64(st.Oldest.UnixMilli())/1000)
	}
	gauge(c.aside, float64(st.Bad))
}
