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
