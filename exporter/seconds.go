package exporter

import (
	"maps"
	"slices"
	"time"
)

// GPUSeconds sums up how long GPUs were used how. What a read showed counts until the next one.
type GPUSeconds struct {
	at     time.Time
	have   map[string]Amount
	totals map[string]*[uses]float64
}

// Read takes what a read showed that began at a time. If the one before is more than most ago, nobody knows what was between, and it counts nothing.
func (s *GPUSeconds) Read(at time.Time, gpus map[string]Amount, most time.Duration) {
	if s.totals == nil {
		s.totals = map[string]*[uses]float64{}
	}
	if passed := at.Sub(s.at); passed > 0 && passed <= most {
		for kind, amount := range s.have {
			for use, n := range amount {
				s.totals[kind][use] += float64(n) * passed.Seconds()
			}
		}
	}
	s.at, s.have = at, gpus
	for kind := range gpus {
		if s.totals[kind] == nil {
			s.totals[kind] = &[uses]float64{}
		}
	}
}

// Samples are the sums, also of types that are there no more.
func (s *GPUSeconds) Samples() []Sample {
	var out samples
	for _, kind := range slices.Sorted(maps.Keys(s.totals)) {
		for use, word := range useWords {
			out.value(mGPUSeconds, s.totals[kind][use], kind, word)
		}
	}
	return out.list
}

// NodeGPUSeconds does the same for each node. A node that is there no more is forgotten: names of nodes may be as many as pods ever had.
type NodeGPUSeconds struct {
	at     time.Time
	have   []NodeGPUs
	totals map[nodeType]*nodeSeconds
}

type nodeType struct{ node, kind string }

type nodeSeconds struct {
	sums [uses]float64
	seen [uses]bool // the others have no series: a node has but two or three uses
}

// Read is as that of GPUSeconds.
func (s *NodeGPUSeconds) Read(at time.Time, gpus []NodeGPUs, most time.Duration) {
	if passed := at.Sub(s.at); passed > 0 && passed <= most {
		for i := range s.have {
			total := s.totals[nodeType{s.have[i].Node, s.have[i].Type}]
			for use, n := range s.have[i].Amount {
				total.sums[use] += float64(n) * passed.Seconds()
			}
		}
	}
	totals := make(map[nodeType]*nodeSeconds, len(gpus))
	for i := range gpus {
		key := nodeType{gpus[i].Node, gpus[i].Type}
		total := s.totals[key]
		if total == nil {
			total = &nodeSeconds{}
		}
		for use, n := range gpus[i].Amount {
			total.seen[use] = total.seen[use] || n > 0
		}
		totals[key] = total
	}
	s.at, s.have, s.totals = at, gpus, totals
}

// Samples are the sums of the nodes that the newest read showed.
func (s *NodeGPUSeconds) Samples() []Sample {
	var out samples
	for i := range s.have {
		total := s.totals[nodeType{s.have[i].Node, s.have[i].Type}]
		for use, word := range useWords {
			if total.seen[use] {
				out.value(mNodeGPUSeconds, total.sums[use], s.have[i].Node, s.have[i].Type, word)
			}
		}
	}
	return out.list
}
