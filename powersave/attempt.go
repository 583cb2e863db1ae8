package powersave

import (
	"strings"
	"time"
)

// attempt asks the breakers for leave to make the pod of the boot in hand. Without it the boot waits, or is given back
// when waiting is pointless.
func (e *Engine) attempt(n *node) bool {
	b := n.boot
	if b.attempt != nil {
		return true
	}
	choice := e.breakers.Pick(e.now, e.choices(n.set, n.jobs), e.inUse(n.set))
	switch {
	case choice.OK:
		b.attempt, b.blamed = &choice.Attempt, false
		if c := e.counted[n.set]; c != nil {
			c[choice.Offering]++
		}
		b.problem = ""
		return true
	case choice.Soon:
		b.waits = choice.Why
		e.wakeAt(n, e.now.Add(time.Second))
	default:
		e.condemn(n, Verdict{Trouble: choice.Class, Reason: strings.TrimPrefix(choice.Why, string(choice.Class)+": ")})
	}
	return false
}

// inUse counts the nodes on each offering of a NodeSet that has limits; nil if it has none.
func (e *Engine) inUse(set string) map[string]int {
	limited := false
	for _, o := range e.sets[set].Offerings {
		limited = limited || o.Limit > 0
	}
	if !limited {
		return nil
	}
	count := e.counted[set]
	if count != nil { // thousands of nodes may ask in one step
		return count
	}
	count = map[string]int{}
	for _, n := range e.nodes {
		if n.set == set {
			count[e.offeringOf(n)]++
		}
	}
	if e.counted == nil {
		e.counted = map[string]map[string]int{}
	}
	e.counted[set] = count
	return count
}

// offeringOf is the offering whose host the node takes up, or is about to.
func (e *Engine) offeringOf(n *node) string {
	switch {
	case n.boot != nil && n.boot.attempt != nil:
		return n.boot.attempt.Offering
	case n.creating: // for a boot that has ended
		return n.making
	case n.pod != nil:
		return n.pod.Offering
	}
	return ""
}

// attemptOf is the attempt that the boot in hand of n stands for; one that an earlier bridge began is made up from its pod.
func (e *Engine) attemptOf(n *node) (Attempt, bool) {
	switch {
	case n.boot.attempt != nil:
		return *n.boot.attempt, true
	case n.pod != nil && n.set != "":
		return Attempt{NodeSet: n.set, Offering: n.pod.Offering, Spec: e.sets[n.set].SpecGeneration}, true
	}
	return Attempt{}, false
}

// failed tells the breakers that the attempt came to nothing.
func (e *Engine) failed(n *node, v Verdict) {
	switch a, ok := e.attemptOf(n); {
	case !ok || n.boot.blamed:
	case e.gangsRoom(n, v) != nil: // there may be room for fewer
		e.breakers.ProbeGone(a)
	case n.boot.alone:
		e.breakers.ProbeGone(a)
		e.closeNode(n, v)
	default:
		e.breakers.Failed(e.now, a, v.Trouble, v.Reason)
	}
	n.boot.attempt, n.boot.blamed = nil, true
}

func (e *Engine) succeeded(n *node) {
	if a, ok := e.attemptOf(n); ok && !n.boot.blamed {
		e.breakers.Succeeded(a)
	}
	n.closed = closing{}
	n.boot.attempt = nil
}

// elsewhere goes on with another offering of the NodeSet, if one has not failed lately and there is time.
func (e *Engine) elsewhere(n *node, v Verdict) bool {
	set := e.sets[n.set]
	if len(set.Offerings) == 0 || v.Trouble != TroubleCapacity && v.Trouble != TroubleQuota {
		return false
	}
	if c := e.breakers.Look(e.now, e.choices(n.set, n.jobs), e.inUse(n.set)); !c.OK && !c.Soon { // else attempt would come back here
		return false
	}
	e.note(Info, n, n.boot.request(), v.String()+": trying another offering")
	e.serve(n)
	n.boot.movesOn(e.now)
	e.move(n)
	return true
}

// movesOn makes the boot ready for another offering.
func (b *boot) movesOn(now time.Time) {
	b.moving, b.blamed, b.room = true, false, ""
	b.trouble, b.troubleAt, b.createTrouble, b.problem = TroubleNone, now, TroubleNone, ""
}

// move has the pod deleted that found no host on its offering; the next is made when it is gone.
func (e *Engine) move(n *node) {
	switch {
	case n.pod == nil:
		e.create(n)
	case !n.booting(e.now):
		e.lookAgain(n)
	default:
		e.delete(n, "no room on its offering")
	}
}
