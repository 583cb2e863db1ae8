package dynamic

import (
	"maps"
	"slices"

	"github.com/slurmtide/slurmtide/powersave"
)

// Boots are the nodes that have a pod, or are about to, by name: how far each is, and why not further. Those whose slurmd has registered are in phase
// registered, while those whose pod ends are being removed. There are none before Slurm has been read: which have joined is not known then.
func (p *Planner) Boots() []powersave.Boot {
	if p.reading == 0 {
		return nil
	}
	var all []powersave.Boot
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		n := p.nodes[name]
		if p.sets[n.set] == nil || n.pod == nil && !n.creating {
			continue
		}
		b := powersave.Boot{Node: name, NodeSet: n.set, Phase: powersave.PhaseCreating}
		if n.pod == nil {
			b.Times.Requested = n.bootAt
			all = append(all, b)
			continue
		}
		b.Offering, b.UID, b.Host, b.Phase = n.pod.Offering, n.pod.UID, n.pod.Host, powersave.PhaseRunning
		b.Times.Requested, b.Times.Created = n.bootAt, n.pod.Created
		if n.trouble != powersave.TroubleNone {
			b.Problem = string(n.trouble) + ": " + why(n.pod)
		}
		switch {
		case !live(n):
			b.Phase = powersave.PhaseRemoving
		case n.joined == n.pod.UID:
			b.Phase, b.Problem = powersave.PhaseRegistered, ""
		case n.pod.Phase == powersave.PodPending:
			b.Phase = powersave.PhasePending
		case n.pod.Phase == powersave.PodScheduled:
			b.Phase = powersave.PhaseStarting
		}
		all = append(all, b)
	}
	return all
}
