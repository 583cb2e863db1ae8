package exporter

import (
	"maps"
	"slices"
	"time"
)

// faults are states of nodes that something is wrong with, which nobody has asked for.
var faults = []string{"down", "not_responding", "invalid"}

// spellOf is the metric of how long nodes are in such a state; nil: there is none. What power saving does to a node is none.
func spellOf(state string) *Metric {
	switch state {
	case "draining":
		return mDraining
	case "down", "not_responding", "invalid", "drained", "rebooting":
		return mUnavailable
	}
	return nil
}

// began is since when a node has been what it is.
type began struct {
	what *Metric
	at   time.Time // zero: nobody knows
}

// NodeSums sums up how long nodes were in which state, and how often they failed. What a read showed counts until the next one.
type NodeSums struct {
	at      time.Time
	states  map[string]int64  // nodes
	faulty  map[string]string // state by node
	seconds map[string]float64
	failed  map[string]float64 // by state
	nodes   map[string]float64 // how often each failed that the newest read showed, if somebody has asked for nodes
	since   map[string]began   // by node
	spells  map[*Metric]*Histogram
}

// Read takes what a read showed that began at a time. If the one before is more than most ago, nobody knows what was between, and it counts nothing.
func (s *NodeSums) Read(at time.Time, t *NodeTally, most time.Duration) {
	if s.seconds == nil {
		s.seconds, s.failed = map[string]float64{}, map[string]float64{}
	}
	passed := at.Sub(s.at)
	s.spell(at, t, passed > 0 && passed <= most)
	if passed > 0 && passed <= most {
		for state, n := range s.states {
			s.seconds[state] += float64(n) * passed.Seconds()
		}
	}
	nodes := make(map[string]float64, len(t.nodes))
	for i := range t.nodes { // also those that never failed: a counter that begins with its first failure hides that one from increase()
		nodes[t.nodes[i].Name] = s.nodes[t.nodes[i].Name]
	}
	if s.faulty != nil { // what is wrong at the first read may have been so for weeks
		for node, state := range t.faulty {
			if s.faulty[node] == "" {
				s.failed[state]++
				if _, told := nodes[node]; told {
					nodes[node]++
				}
			}
		}
	}
	s.at, s.states, s.faulty, s.nodes = at, t.all.states, t.faulty, nodes
}

// spell takes down what has ended. If nobody knows what was since the last read, nobody knows when it began.
func (s *NodeSums) spell(at time.Time, t *NodeTally, known bool) {
	if s.spells == nil {
		s.spells = map[*Metric]*Histogram{mUnavailable: {}, mDraining: {}}
	}
	since := make(map[string]began, len(t.spells))
	for node, what := range t.spells {
		switch old := s.since[node]; {
		case !known:
			since[node] = began{what: what}
		case old.what == what:
			since[node] = old
		default:
			since[node] = began{what, at}
		}
	}
	for node, old := range s.since {
		if known && !old.at.IsZero() && t.spells[node] != old.what {
			s.spells[old.what].observe(old.what, at.Sub(old.at).Seconds())
		}
	}
	s.since = since
}

// Samples are the sums, also of nodes that are there no more; those of single nodes go with these, whose names may be as many as pods ever had.
func (s *NodeSums) Samples(o Options) []Sample {
	var out samples
	for _, word := range nodeWords {
		out.value(mNodeSeconds, s.seconds[word], word)
	}
	for _, word := range faults {
		out.value(mNodesFailed, s.failed[word], word)
	}
	for _, m := range []*Metric{mUnavailable, mDraining} {
		h := Histogram{Below: make([]uint64, len(m.Buckets))}
		if have := s.spells[m]; have != nil && have.Count > 0 {
			h = Histogram{have.Count, have.Sum, slices.Clone(have.Below)}
		}
		out.list = append(out.list, Sample{Metric: m, Counts: &h})
	}
	if o.PerNode {
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			out.value(mNodeFailed, s.nodes[name], name)
		}
	}
	return out.list
}
