package powersave

import (
	"maps"
	"slices"
)

// Room that was asked for several pods together, and is not there, says little about fewer, and not which of its places lacks it. So
// it is not held against a NodeSet, or an offering: only the job that asked goes elsewhere, or rests.

// gangsRoom is the request for several pods that n waits for, if that is what the verdict is about.
func (e *Engine) gangsRoom(n *node, v Verdict) *room {
	b := n.boot
	if v.Trouble != TroubleCapacity || n.pod != nil || b.room != "" || b.attempt == nil || len(n.jobs) == 0 || !e.sets[n.set].AskForRoom {
		return nil
	}
	r, g := e.rooms.jobs[e.roomJob(n)], e.gangs[n.jobs[0]]
	if r == nil || r.problem.text != "" || max(len(r.nodes), len(g.nodes)) < 2 {
		return nil
	}
	return r
}

// choices is the NodeSet less the offerings that the first of the jobs was denied, if any is left: one without offerings is another thing.
func (e *Engine) choices(name string, jobs []uint32) NodeSet {
	if set := e.undenied(name, jobs); len(set.Offerings) > 0 {
		return set
	}
	return e.sets[name]
}

func (e *Engine) undenied(name string, jobs []uint32) NodeSet {
	set := e.sets[name]
	if e.rooms.used && len(jobs) > 0 && len(set.Offerings) > 0 {
		set.Offerings = slices.DeleteFunc(slices.Clone(set.Offerings), func(o Offering) bool { return e.denied(jobs[0], BreakerKey{name, o.Name}) })
	}
	return set
}

// denied says whether there was no room for all of the job on the offering.
func (e *Engine) denied(job uint32, where BreakerKey) bool {
	return slices.ContainsFunc(e.roomGangs(job), func(g *gang) bool { return slices.Contains(g.denied, where) })
}

// roomElsewhere has the job of n, for which there is no room, ask again with another offering in the place of one. Which one lacked
// room nobody tells: of each NodeSet it is taken to be the last in order, for the others were preferred, and are used up to their limits.
func (e *Engine) roomElsewhere(n *node, r *room, v Verdict) bool {
	g := e.gangs[n.jobs[0]]
	used := map[string][]string{} // offerings by NodeSet
	for name, offering := range r.nodes {
		set := e.nodes[name].set
		used[set] = append(used[set], offering)
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		last := BreakerKey{NodeSet: name}
		for _, o := range e.sets[name].Offerings {
			if slices.Contains(used[name], o.Name) {
				last.Offering = o.Name
			}
		}
		g.denied = append(g.denied, last)
		left := e.undenied(name, []uint32{g.job})
		if c := e.breakers.Look(e.now, left, e.use(name)); !left.holds(len(used[name])) || !c.OK && !e.worthWaiting(c, left) {
			g.denied = g.denied[:len(g.denied)-1]
			continue
		}
		r.spent = true
		e.note(Info, n, n.boot.request(), v.String()+": trying another offering than "+last.Offering)
		e.leaveOffering(r, last)
		e.movesOn(n)
		e.move(n)
		return true
	}
	return false
}

// holds says whether the limits of the offerings leave so many nodes a place.
func (s NodeSet) holds(nodes int) bool {
	for _, o := range s.Offerings {
		if nodes -= o.Limit; o.Limit == 0 || nodes <= 0 {
			return true
		}
	}
	return false
}

// leaveOffering takes the offering from the nodes that the request counts on it.
func (e *Engine) leaveOffering(r *room, from BreakerKey) {
	for name, offering := range r.nodes {
		if m := e.nodes[name]; m.set == from.NodeSet && offering == from.Offering && m.boot != nil && m.boot.attempt != nil {
			e.breakers.ProbeGone(*m.boot.attempt)
			m.boot.attempt = nil
			e.movesOn(m)
		}
	}
	e.counted = nil
}
