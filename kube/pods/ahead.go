package pods

import (
	"strconv"
	"time"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// lookAhead is what the spec says of jobs that have not started; nil: nothing.
func lookAhead(spec *v1alpha1.NodeSetSpec) *powersave.LookAhead {
	s := spec.LookAhead
	if s == nil || s.MaxNodes < 1 || spec.Mode == v1alpha1.ModeDynamic {
		return nil
	}
	l := &powersave.LookAhead{MaxNodes: int(s.MaxNodes), MaxPerAccount: int(value(s.MaxNodesPerAccount)), Lead: duration(s.LeadTime)}
	for _, a := range s.Accounts {
		if l.PerAccount == nil {
			l.PerAccount = map[string]int{}
		}
		l.PerAccount[a.Name] = int(a.MaxNodes)
	}
	for _, source := range s.Sources {
		l.Sources = append(l.Sources, string(source))
	}
	return l
}

// bootStatus keeps how long boots took; nil: none was seen.
func bootStatus(times powersave.BootTimes) *v1alpha1.BootStatus {
	if len(times) == 0 {
		return nil
	}
	s := &v1alpha1.BootStatus{}
	for _, t := range times {
		s.RecentMilliseconds = append(s.RecentMilliseconds, t.Milliseconds())
	}
	if p95, known := times.P95(); known {
		s.P95Seconds = strconv.FormatFloat(p95.Seconds(), 'f', 1, 64)
	}
	return s
}

// savedBoots reads bootStatus back.
func savedBoots(ns *v1alpha1.NodeSet) powersave.BootTimes {
	if ns.Status.Boots == nil {
		return nil
	}
	var times powersave.BootTimes
	for _, ms := range ns.Status.Boots.RecentMilliseconds {
		if ms > 0 {
			times = times.With(time.Duration(ms) * time.Millisecond)
		}
	}
	return times
}
