package sim_test

import (
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of offerings, which only NodeSet a has: what has no room, and limits.

var offerings = [...]string{"spot", "own"}

// soldOut says that the pod's offering has no room.
func (w *world) soldOut(p *pod) bool {
	return p.Offering == offerings[0] && w.any(noSpot) || p.Offering == offerings[1] && w.any(noOwn)
}

// takenUp counts the pods on an offering, as far as the bridge can know them.
func (w *world) takenUp(offering string) (count int) {
	for _, p := range w.pods {
		if p != nil && p.Offering == offering && !p.lost && (p.life == w.life || p.born.Before(w.watchFrom)) {
			count++
		}
	}
	return count
}

// beingMade counts those that the bridge is having made there: they have a place, too.
func (w *world) beingMade(offering string) (count int) {
	for i, n := range w.nodes {
		if n.creating > 0 && w.pods[i] == nil && w.tried[i].life == w.life && w.tried[i].offering == offering {
			count++
		}
	}
	return count
}

// mayBeTaken counts both, and pods whose making seemed to fail: they have a place as soon as the watch tells of them.
func (w *world) mayBeTaken(offering string) (count int) {
	count = w.takenUp(offering) + w.beingMade(offering)
	for _, p := range w.pods {
		if p != nil && p.Offering == offering && p.lost {
			count++
		}
	}
	return count
}

// mayTake looks at the limit of the offering that a pod is made on.
func (w *world) mayTake(a powersave.CreatePod, life int) {
	for i, name := range offerings {
		if limit := w.limits[i]; a.Offering == name && life == w.life && limit > 0 && w.takenUp(name) >= limit {
			w.breaks("exceeds a limit", "%s makes %d on %s, whose limit is %d", a.Node, w.takenUp(name)+1, name, limit)
		}
	}
}

// mayGiveUp looks whether a new pod might have done better, or another offering.
func (w *world) mayGiveUp(a powersave.BootFailed) {
	if a.Verdict.Trouble == powersave.TroubleLost && !strings.HasPrefix(a.Verdict.Reason, "not up after") {
		w.breaks("gives a lost boot up early", "%s: %s", a.Node, a.Verdict)
	}
	if a.Verdict.Trouble != powersave.TroubleCapacity || a.Offering == "" || strings.HasPrefix(a.Verdict.Reason, "not up after") || !w.now.After(w.rough) {
		return
	}
	other := 0
	if a.Offering == offerings[0] {
		other = 1
	}
	if limit := w.limits[other]; limit > 0 && (w.mayBeTaken(offerings[other]) >= limit || w.now.Sub(w.leftAt[other]) < time.Second) || // of which it may not be told yet
		w.now.Sub(w.shortAt[other]) < time.Minute {
		return
	}
	for _, n := range w.nodes { // a breaker may be open
		if w.recently(n, time.Minute, lessRoom, quota, noImage, badConfig, badSet, crashing, mute, refused, slowSlurmd, slowHost) {
			return
		}
	}
	for _, r := range w.rooms { // so it is when an autoscaler found none, or the offering is denied to the job; or its places are asked for
		if (!r.troubleAt.IsZero() && w.now.Sub(r.troubleAt) < time.Minute || w.limits[other] > 0) && slices.ContainsFunc(r.sets, func(s powersave.RoomSet) bool { return s.Offering == offerings[other] }) {
			return
		}
	}
	w.breaks("gives up though another offering has room", "%s on %s: %s", a.Node, a.Offering, a.Verdict)
}
