package scaler

import (
	"cmp"
	"maps"
	"slices"
)

// Misses are the jobs that no NodeSet can ever run, by number, with the nearest miss. It is how they are reported once.
type Misses map[uint32]string

const (
	// maxTold is how many jobs that can never run are told of in full at a time.
	maxTold = 20
	// maxCounted is how many different misses are counted apart.
	maxCounted = 20
	// OtherMisses stands for those beyond that.
	OtherMisses = "others"
)

// MissesOf are those of a report.
func MissesOf(r Report) Misses {
	m := Misses{}
	for _, j := range r.Jobs {
		if j.Why == WhyImpossible {
			m[j.ID] = j.Detail
		}
	}
	return m
}

// Tell says which of all m does not have, or had for another reason, and returns all. say is a slog.Logger's Warn.
func (m Misses) Tell(all Misses, say func(text string, args ...any)) Misses {
	told := 0
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if m[id] == all[id] {
			continue
		}
		if told++; told <= maxTold {
			say("no NodeSet can ever run a job", "job", id, "miss", all[id])
		}
	}
	if told > maxTold {
		say("more jobs that no NodeSet can ever run", "jobs", told-maxTold)
	}
	return all
}

// Count is how many jobs each miss keeps from running, for a metric: those that keep most, and all others as OtherMisses.
func (m Misses) Count() map[string]int {
	by := map[string]int{}
	for _, miss := range m {
		by[miss]++
	}
	if len(by) <= maxCounted {
		return by
	}
	order := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(by[b]-by[a], cmp.Compare(a, b)) })
	for _, miss := range order[maxCounted:] {
		by[OtherMisses] += by[miss]
		delete(by, miss)
	}
	return by
}
