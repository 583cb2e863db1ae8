package dynamic

import (
	"maps"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// Boots are the nodes that have a pod, or are about to, by name: how far each is, and why not further. Those whose slurmd has registered are in phase
// registered, while those whose pod ends are being removed. Nil before Slurm has been read: which have joined is not known then.
func (p *Planner) Boots() []powersave.Boot {
	if p.reading == 0 {
		return nil
	}
	all := []powersave.Boot{}
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		n := p.nodes[name]
		if n.pod == nil && (!n.creating || p.sets[n.set] == nil) {
			continue
		}
		b := powersave.Boot{Node: name, NodeSet: n.set, Offering: n.attempt.Offering, Phase: powersave.PhaseCreating, Times: n.times}
		if n.pod == nil {
			all = append(all, b)
			continue
		}
		b.Offering, b.UID, b.Host, b.Phase = n.pod.Offering, n.pod.UID, n.pod.Host, powersave.PhaseRunning
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

// seenFirst begins the times of a pod. One that this planner has not made was asked for when it was created, as far as anybody knows.
func (n *node) seenFirst(pod *powersave.Pod, now time.Time) {
	n.made = n.creating
	if n.times.Created = now; !n.made {
		at := pod.Created
		if at.IsZero() || at.After(now) {
			at = now
		}
		n.times = powersave.Timeline{Requested: at, Created: at}
	}
}

// reach notes how far the pod has come since it was seen last. When one that was found so far came there nobody knows.
func (n *node) reach(pod *powersave.Pod, now time.Time) {
	was := pod.Phase
	switch {
	case n.pod != nil && n.pod.UID == pod.UID:
		was = n.pod.Phase
	case n.made:
		was = powersave.PodPending
	}
	if far(was) < 1 && far(pod.Phase) >= 1 {
		n.times.Scheduled = now
	}
	if far(was) < 2 && far(pod.Phase) == 2 {
		n.times.Running = now
	}
}

func far(phase powersave.PodPhase) int {
	switch phase {
	case powersave.PodScheduled:
		return 1
	case powersave.PodRunning, powersave.PodReady:
		return 2
	default:
		return 0
	}
}
