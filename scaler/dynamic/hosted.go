package dynamic

import "github.com/slurmtide/slurmtide/powersave"

// Hosted are the nodes whose pods have a host, by what they are at. stale is as for Counts.
func (p *Planner) Hosted(stale string) []powersave.Hosted {
	return powersave.SumHosted(func(yield func(powersave.NodeSet) bool) {
		for _, s := range p.sets {
			if !yield(s.NodeSet) {
				return
			}
		}
	}, func(yield func(powersave.HostedNode) bool) {
		for _, n := range p.nodes {
			if p.sets[n.set] != nil && n.pod != nil && n.pod.Host != "" && !yield(powersave.HostedNode{NodeSet: n.set, Offering: n.pod.Offering, As: p.hostedAs(n, stale)}) {
				return
			}
		}
	})
}

func (p *Planner) hostedAs(n *node, stale string) powersave.HostedAs {
	switch {
	case n.pod.Phase == powersave.PodTerminating:
		return powersave.HostedLeaving
	case p.reading == 0: // since this bridge leads: which of them have joined is not known either
		return powersave.HostedUnknown
	case n.joined != n.pod.UID && n.pod.Phase != powersave.PodFailed:
		return powersave.HostedBooting
	case stale != "":
		return powersave.HostedUnknown
	case n.rec == nil, n.pod.Phase == powersave.PodFailed:
		return powersave.HostedUnavailable
	case n.rec.State.Any(inUse):
		return powersave.HostedAllocated
	case n.rec.State.Any(powered), p.drained(n), p.downed(n):
		return powersave.HostedLeaving
	case n.rec.State.Any(notServing | judged):
		return powersave.HostedUnavailable
	}
	return powersave.HostedIdle
}
