package powersave

import (
	"cmp"
	"slices"
	"time"
)

// Waiting is a job whose nodes boot.
type Waiting struct {
	Job     uint32
	Since   time.Time // when the first of its boots was asked for
	Boots   int       // under way
	Phases  []int     // of them, by BootPhases
	Last    Phase     // of the boot that is furthest behind
	Problem string    // of the first that has one; empty: none has
}

// Waiting are the jobs whose nodes boot, those that wait longest first.
func (s Status) Waiting() []Waiting {
	jobs := map[uint32]*Waiting{}
	for _, b := range s.Boots {
		at := slices.Index(BootPhases, b.Phase)
		if at < 0 {
			continue
		}
		for _, id := range b.Jobs {
			w := jobs[id]
			if w == nil {
				w = &Waiting{Job: id, Since: b.Began(), Phases: make([]int, len(BootPhases))}
				jobs[id] = w
			}
			w.Boots++
			w.Phases[at]++
			w.Problem = cmp.Or(w.Problem, b.Problem)
			if b.Began().Before(w.Since) {
				w.Since = b.Began()
			}
		}
	}
	all := make([]Waiting, 0, len(jobs))
	for _, w := range jobs {
		w.Last = BootPhases[slices.IndexFunc(w.Phases, func(n int) bool { return n > 0 })]
		all = append(all, *w)
	}
	slices.SortFunc(all, func(a, b Waiting) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Job, b.Job)) })
	return all
}

// Began is when the boot, or the power-down, was asked for, or else heard of.
func (b Boot) Began() time.Time {
	if b.Times.Requested.IsZero() {
		return b.Times.Accepted
	}
	return b.Times.Requested
}
