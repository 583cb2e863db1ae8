package bridge

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/powersave"
)

// nodeSeconds sums up how long nodes had a host, by what they were at. What they were at last counts until it is told otherwise, and up to each scrape.
type nodeSeconds struct {
	desc *prometheus.Desc

	mu      sync.Mutex
	at      time.Time
	nodes   []powersave.Hosted
	seconds map[hostedKey]float64
}

type hostedKey struct {
	nodeSet, offering string
	as                powersave.HostedAs
}

var hostedAs = []powersave.HostedAs{
	powersave.HostedBooting, powersave.HostedAllocated, powersave.HostedIdle, powersave.HostedUnavailable, powersave.HostedLeaving, powersave.HostedUnknown,
}

func newNodeSeconds() *nodeSeconds {
	return &nodeSeconds{
		desc: prometheus.NewDesc("slurmtide_node_seconds_total",
			"Seconds that pods of nodes had a host, which is what they cost, by NodeSet, offering and what the nodes were at: booting, allocated to jobs, idle, unavailable to jobs (down or drained), leaving (powered down, until the pod is gone), or unknown, while Slurm cannot be read. Those of NodeSets of mode Dynamic the bridge that leads counts.",
			[]string{"nodeset", "offering", "use"}, nil),
		seconds: map[hostedKey]float64{},
	}
}

// set takes in what nodes are at from now on. NodeSets that are not there any more are forgotten.
func (s *nodeSeconds) set(now time.Time, nodes []powersave.Hosted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(now)
	there := map[string]bool{}
	for _, h := range nodes {
		there[h.NodeSet] = true
		for _, as := range hostedAs {
			s.seconds[hostedKey{h.NodeSet, h.Offering, as}] += 0
		}
	}
	for k := range s.seconds {
		if !there[k.nodeSet] {
			delete(s.seconds, k)
		}
	}
	s.nodes = nodes
}

// pass counts the time until now.
func (s *nodeSeconds) pass(now time.Time) {
	passed := now.Sub(s.at).Seconds()
	if passed <= 0 { // a scrape was quicker: what it has counted must not count again
		return
	}
	s.at = now
	for _, h := range s.nodes {
		for as, n := range h.Nodes {
			s.seconds[hostedKey{h.NodeSet, h.Offering, as}] += float64(n) * passed
		}
	}
}

// Describe implements prometheus.Collector.
func (s *nodeSeconds) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

// Collect implements prometheus.Collector.
func (s *nodeSeconds) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(time.Now())
	for k, seconds := range s.seconds {
		ch <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, seconds, k.nodeSet, k.offering, string(k.as))
	}
}
