package powersave

import (
	"slices"
	"time"
)

// attempt asks the breakers for leave to make the pod of the boot in hand. Without it the boot waits, or is given back
// when waiting is pointless.
func (e *Engine) attempt(n *node) bool {
	b := n.boot
	if a := b.attempt; a != nil {
		if e.sets[n.set].offers(a) {
			return true
		}
		e.breakers.ProbeGone(*a)
		b.attempt, e.counted = nil, nil
	}
	var few [8]uint32
	for _, job := range append(few[:0], n.jobs...) {
		if why := e.tooMany(n, job); why != "" {
			if e.blind { // which nodes take up a place is known only from before
				return false
			}
			e.giveBack(n, []uint32{job}, Verdict{Trouble: TroubleConfig, Reason: why})
		}
	}
	if b.release != nil {
		return false
	}
	set := e.choices(n.set, n.jobs)
	choice := e.breakers.Pick(e.now, set, e.use(n.set))
	switch {
	case choice.OK:
		b.attempt, b.blamed = &choice.Attempt, false
		e.counted[n.set].Add(choice.Offering, false)
		b.problem = ""
		if b.queued {
			b.queued, b.clearAt = false, e.now
		}
		return true
	case e.worthWaiting(choice, set):
		b.waits, b.queued = choice.Why, true
		e.wakeAt(n, e.now.Add(time.Second))
	default:
		e.condemn(n, choice.verdict())
		e.closedAgain = e.closedAgain || set.limited() // the last place may have been taken since
	}
	return false
}

// offers says that an attempt that was begun can go on: the NodeSet may have been changed, or be another one by now.
func (s NodeSet) offers(a *Attempt) bool {
	if s.Name != a.NodeSet || len(s.Offerings) == 0 {
		return s.Name == a.NodeSet && a.Offering == ""
	}
	return slices.ContainsFunc(s.Offerings, func(o Offering) bool { return o.Name == a.Offering })
}

// attemptOf is the attempt that the boot in hand of n stands for; one that an earlier bridge began is made up from its pod.
func (e *Engine) attemptOf(n *node) (Attempt, bool) {
	switch {
	case n.boot.attempt != nil:
		return *n.boot.attempt, true
	case n.pod != nil && n.set != "":
		return e.sets[n.set].AttemptOf(*n.pod), true
	}
	return Attempt{}, false
}

// failed tells the breakers that the attempt came to nothing.
func (e *Engine) failed(n *node, v Verdict) {
	switch a, ok := e.attemptOf(n); {
	case !ok || n.boot.blamed:
	case e.gangsRoom(n, v) != nil, // there may be room for fewer
		n.was != "", n.pod == nil && e.sets[n.set].Problem != "": // nothing was tried, and what ends it need not be a change of this NodeSet
		e.breakers.ProbeGone(a)
	case n.boot.alone && n.boot.everywhere:
		e.breakers.Refused(e.now, a, v.Reason)
	case n.boot.alone, v.Trouble == TroubleCapacity && e.sets[n.set].Pinned:
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
	if len(set.Offerings) == 0 || n.was != "" || v.Trouble != TroubleCapacity && v.Trouble != TroubleQuota {
		return false
	}
	left := e.choices(n.set, n.jobs)
	if c := e.breakers.Look(e.now, left, e.use(n.set)); !c.OK && !e.worthWaiting(c, left) { // else attempt would come back here
		return false
	}
	e.note(Info, n, n.boot.request(), v.String()+": trying another offering")
	e.serve(n)
	e.movesOn(n)
	e.move(n)
	return true
}

// movesOn makes the boot ready for another offering. The next pod is of a generation of its own: whatever comes late of the one before
// is not taken for it, nor what Slurm has shown until now: its slurmd may just be registering.
func (e *Engine) movesOn(n *node) {
	b := n.boot
	if n.pod != nil {
		b.generation, b.read = max(b.generation, n.pod.Generation), e.reads.count
	}
	b.generation++
	b.moving, b.blamed, b.room = true, false, ""
	b.trouble, b.troubleAt, b.createTrouble, b.problem = TroubleNone, e.now, TroubleNone, ""
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
