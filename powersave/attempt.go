package powersave

import (
	"cmp"
	"fmt"
	"slices"
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
	for _, job := range slices.Clone(n.jobs) {
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
	choice := e.breakers.Pick(e.now, e.choices(n.set, n.jobs), e.inUse(n.set))
	switch {
	case choice.OK:
		b.attempt, b.blamed = &choice.Attempt, false
		if c := e.counted[n.set]; c != nil {
			c[choice.Offering]++
		}
		b.problem = ""
		if b.queued {
			b.queued, b.clearAt = false, e.now
		}
		return true
	case choice.Soon:
		b.waits, b.queued = choice.Why, true
		e.wakeAt(n, e.now.Add(time.Second))
	default:
		e.condemn(n, Verdict{Trouble: choice.Class, Reason: strings.TrimPrefix(choice.Why, string(choice.Class)+": ")})
	}
	return false
}

// tooMany says why the job can never have all its nodes of n's NodeSet at once: there are more than the limits of the offerings
// allow. Those that serve without an offering, or on one that is there no longer, take no place.
func (e *Engine) tooMany(n *node, job uint32) string {
	set, atMost := e.sets[n.set], 0
	var limits []string
	for _, o := range set.Offerings {
		if o.Limit == 0 {
			return ""
		}
		atMost += o.Limit
		limits = append(limits, fmt.Sprintf("%s %d", o.Name, o.Limit))
	}
	gangs, most := e.roomGangs(job), 0
	for _, g := range gangs {
		most += max(g.whole.Len(), len(g.nodes))
	}
	if len(set.Offerings) == 0 || most <= atMost {
		return ""
	}
	places := map[string]bool{}
	count := func(name string) {
		m := e.nodes[name]
		if m == nil || cmp.Or(m.set, e.setOf(name)) != n.set {
			return
		}
		listed := slices.ContainsFunc(set.Offerings, func(o Offering) bool { return o.Name == e.offeringOf(m) })
		if listed || m.pod == nil && (m.boot != nil || m.slurm.State.Any(NodePoweredDown)) {
			places[name] = true
		}
	}
	for _, g := range gangs {
		if g.whole.Len() == 0 { // no request has named them
			for _, name := range g.nodes {
				count(name)
			}
		}
		for name := range g.whole.All() {
			count(name)
		}
	}
	if len(places) <= atMost {
		return ""
	}
	return fmt.Sprintf("job %d needs %d nodes of NodeSet %s at once, more than the limits of its offerings allow (%s)",
		job, len(places), n.set, strings.Join(limits, ", "))
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
		return e.sets[n.set].AttemptOf(*n.pod), true
	}
	return Attempt{}, false
}

// failed tells the breakers that the attempt came to nothing.
func (e *Engine) failed(n *node, v Verdict) {
	switch a, ok := e.attemptOf(n); {
	case !ok || n.boot.blamed:
	case e.gangsRoom(n, v) != nil, // there may be room for fewer
		n.pod == nil && e.sets[n.set].Problem != "": // nothing was tried, and what ends it need not be a change of this NodeSet
		e.breakers.ProbeGone(a)
	case n.boot.alone && n.boot.everywhere:
		e.breakers.Refused(e.now, a, v.Reason)
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
