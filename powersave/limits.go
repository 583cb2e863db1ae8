package powersave

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Use is how many nodes the offerings of a NodeSet have, by name. A nil one counts nothing.
type Use map[string]Places

// Places are those of one offering: how many are taken, and how many of these are about to be free.
type Places struct{ Taken, Ending int }

// Add counts one node on the offering.
func (u Use) Add(offering string, ending bool) {
	if u == nil {
		return
	}
	p := u[offering]
	p.Taken++
	if ending {
		p.Ending++
	}
	u[offering] = p
}

// Remove takes one node off the offering.
func (u Use) Remove(offering string) {
	if p, ok := u[offering]; ok {
		p.Taken--
		u[offering] = p
	}
}

// use counts the places on the offerings of a NodeSet that has limits; nil if it has none.
func (e *Engine) use(set string) Use {
	if !e.sets[set].limited() {
		return nil
	}
	use := e.counted[set]
	if use != nil { // thousands of nodes may ask in one step
		return use
	}
	use = Use{}
	for _, n := range e.all() {
		if n.set == set {
			use.Add(e.offeringOf(n), e.leavesPlace(n))
		}
	}
	if e.counted == nil {
		e.counted = map[string]Use{}
	}
	e.counted[set] = use
	return use
}

// leavesPlace says that n is about to leave its place. A pod that does not end in time, or whose host is silent, may stay for long.
func (e *Engine) leavesPlace(n *node) bool {
	if n.former() {
		return !n.hangs() && (n.pod.Ends.IsZero() || !e.now.After(n.pod.Ends.Add(hangGrace))) && !e.hosts.Silent(n.pod.Host)
	}
	return n.off != nil || n.boot != nil && n.boot.release != nil
}

// placeEnds takes in that n leaves its place, or has left it: its NodeSet, if it is closed, may have lacked nothing but that.
func (e *Engine) placeEnds(n *node) {
	if use := e.counted[n.set]; use != nil { // thousands may end in one step
		offering := e.offeringOf(n)
		p := use[offering]
		p.Ending++
		use[offering] = p
	}
	if _, closed := e.closed[n.set]; closed && e.sets[n.set].limited() {
		e.closedAgain = true
	}
}

func (s NodeSet) limited() bool {
	return slices.ContainsFunc(s.Offerings, func(o Offering) bool { return o.Limit > 0 })
}

// beyond stands for more nodes than any limit allows: what is said then holds whether places are free or not.
const beyond = math.MaxInt

// full is the use of all places that limits leave.
func (s NodeSet) full() Use {
	use := Use{}
	for _, o := range s.Offerings {
		use[o.Name] = Places{Taken: beyond}
	}
	return use
}

// placesLeft counts the free places on the offerings of the NodeSet that have limits, and may be tried.
func (e *Engine) placesLeft(set NodeSet) (free int) {
	use := e.use(set.Name)
	for _, o := range set.Offerings {
		alone := set
		alone.Offerings = []Offering{o}
		if c := e.breakers.Look(e.now, alone, nil); o.Limit > 0 && (c.OK || c.Soon) {
			free += max(0, o.Limit-use[o.Name].Taken)
		}
	}
	return free
}

// worthWaiting says that a boot to which these offerings are left, and refused, may get a place soon. Where nothing but limits stands against
// all there are, others' places come free in time; beside one that fails it could be the job's own nodes that hold them.
func (e *Engine) worthWaiting(c Choice, left NodeSet) bool {
	return c.Soon || c.Full && len(left.Offerings) == len(e.sets[left.Name].Offerings)
}

// below says whether the offering's limit leaves a place.
func (e *Engine) below(set, offering string, use Use) bool {
	return !slices.ContainsFunc(e.sets[set].Offerings, func(o Offering) bool {
		return o.Name == offering && o.Limit > 0 && use[offering].Taken >= o.Limit
	})
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
