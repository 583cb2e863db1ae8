package dynamic

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slurmtide/slurmtide/powersave"
)

// A node whose pod is of another revision than its NodeSet is outdated. With RollingUpdate it is drained, as many at once as may be, idle ones first,
// and goes when no job is on it; where demand or the floor want another, that is made of the newest template at once, under another name if
// there is one. The reason in Slurm tells which were chosen, so that nothing has to be remembered.

// progress is how far the update of a NodeSet is, as of the newest reading.
type progress struct {
	held bool // what is drained for it is put back
	why  powersave.UpdateWait
	text string
}

// outdated reports that the node's pod is of another revision than its NodeSet.
func (p *Planner) outdated(n *node) bool {
	s := p.sets[n.set]
	return s != nil && s.Revision != "" && n.pod != nil && n.pod.Revision != s.Revision && n.pod.Phase != powersave.PodTerminating && n.pod.Phase != powersave.PodFailed
}

// forUpdate reports that the node is drained for its pod to be replaced.
func (p *Planner) forUpdate(n *node) bool {
	return p.drained(n) && strings.HasPrefix(n.rec.Reason, powersave.UpdatePrefix)
}

// replaces reports that what is drained for an update is to stay so.
func (p *Planner) replaces(n *node) bool {
	s := p.sets[n.set]
	return s != nil && s.Rolling != nil && s.Problem == "" && !s.update.held && p.outdated(n)
}

// settling reports that the node boots, goes, has been changed since it was read, or is to be left alone for a while, since that failed.
func (p *Planner) settling(n *node) bool {
	return !live(n) || n.retryAt.After(p.now) || n.joined != n.pod.UID || n.rec == nil || !p.told(n) || n.change != powersave.StateNone || !p.welcomed(n)
}

// replaceable reports that nothing but jobs keeps the node's pod from being replaced. One that somebody names stays as it is meanwhile.
func (p *Planner) replaceable(n *node) bool {
	trouble, _ := p.host(n)
	state, grip := n.rec.State, p.claims[n.name].grip
	return n.listed && trouble == "" && n.rec.Unspoken() && !state.Any(judged|notServing|powered|rebooting) &&
		(p.busy(n) || grip < gripNode && !state.Any(spoken))
}

// replace drains nodes with outdated pods, as many as may be out at once.
func (p *Planner) replace() {
	for _, name := range slices.Sorted(maps.Keys(p.sets)) {
		s := p.sets[name]
		if s.Rolling == nil {
			s.update = progress{}
			continue
		}
		var idle, busy, outs []*node
		out, up, left, soon := 0, 0, 0, 0
		for _, n := range p.nodes {
			if n.set != name {
				continue
			}
			if p.up(n) {
				up++
			}
			switch {
			// A record that stays since somebody names it keeps nobody waiting.
			case p.forUpdate(n) && (n.pod != nil || p.claims[n.name].grip == gripNone), n.pod != nil && n.replace == n.pod.UID && n.change == powersave.StateDrain:
				out++
				if n.pod != nil {
					outs = append(outs, n)
				}
			case !p.outdated(n):
			case p.settling(n):
				soon++
			case !p.replaceable(n):
				left++
			case p.busy(n):
				busy = append(busy, n)
			default:
				idle = append(idle, n)
			}
		}
		byName := func(a, b *node) int { return compareNames(a.name, b.name) }
		slices.SortFunc(idle, byName)
		slices.SortFunc(busy, byName)
		limit, lacks := s.Rolling.Limit(up), p.lacks(name, s)
		all, choice := p.havePlace(s, outs, append(idle, busy...))
		s.update = progress{}
		switch {
		case s.Problem != "":
			limit, s.update = 0, progress{true, powersave.UpdateHeld, s.Problem}
		case p.unclear != "":
			limit, s.update = 0, progress{false, powersave.UpdateHeld, "nothing is taken down: " + p.unclear}
		case !choice.OK:
			limit, s.update = 0, progress{!choice.Soon, powersave.UpdateBackingOff, choice.Why}
		case slices.ContainsFunc(p.breakers.Snapshot(name), func(b powersave.BreakerRecord) bool { return b.State != powersave.BreakerClosed }):
			limit = 1 // the next pod decides for all
		}
		take := all[:min(len(all), max(limit-max(out, lacks), 0))]
		switch {
		case s.update.why != powersave.UpdateDone:
		case out+len(all) > 0:
			s.update.why, s.update.text = powersave.UpdateReplacing, fmt.Sprintf("%d of at most %d nodes are out for it", out+len(take), limit)
			if lacks > out {
				s.update.text += fmt.Sprintf(", and the floor lacks %d", lacks)
			}
		case left > 0:
			s.update.why, s.update.text = powersave.UpdateHeld, "the nodes left are drained by others, down, named by a job or a reservation, or bear somebody's reason"
		case soon > 0:
			s.update.why, s.update.text = powersave.UpdateReplacing, fmt.Sprintf("%d nodes boot, go, or could not be drained just now: their turn comes when that is over", soon)
		}
		for _, n := range take {
			n.replace = n.pod.UID
			revision := cmp.Or(n.pod.Revision, "unknown")
			p.say(false, n, "update: revision "+revision+" is replaced when idle: draining the node")
			p.drain(n, strings.TrimPrefix(powersave.UpdatePrefix, powersave.ReasonPrefix)+"revision "+revision+" is replaced when idle")
		}
	}
}

// havePlace are those of these nodes whose successors have a place: each leaves its own, but that may be on an offering that is not tried. If none
// has, the choice says why. Those that are out for the update already, with their pods, come first.
func (p *Planner) havePlace(s *set, outs, nodes []*node) (can []*node, choice powersave.Choice) {
	if len(outs)+len(nodes) == 0 {
		return nil, p.breakers.Look(p.now, s.NodeSet, nil)
	}
	use := maps.Clone(p.offerings(s.Name))
	choice = p.breakers.Look(p.now, s.NodeSet, use)
	for i, n := range slices.Concat(outs, nodes) {
		use.Remove(n.pod.Offering)
		c := p.breakers.Look(p.now, s.NodeSet, use)
		if !c.OK {
			use.Add(n.pod.Offering, false)
			continue
		}
		use.Add(c.Offering, false)
		choice = c
		if i >= len(outs) {
			can = append(can, n)
		}
	}
	return can, choice
}

// up reports that the node is there, also while it is drained for an update: jobs may still be on it.
func (p *Planner) up(n *node) bool { return p.exists(n) || n.pod != nil && p.forUpdate(n) }

// lacks is how many nodes of the floor do not serve, and are about to.
func (p *Planner) lacks(name string, s *set) int {
	want := s.floor(p.now)
	if s.capped || s.out || s.full || want > s.Nodes.Len() { // more cannot be made for now
		return 0
	}
	return want - p.count(name, func(n *node) bool { return n.pod != nil && n.joined == n.pod.UID && p.counts(n) })
}

// updateCounts says how far updates are.
func (p *Planner) updateCounts(counts map[string]*powersave.NodeSetCounts) {
	old := map[string]map[string]int{}
	for name, s := range p.sets {
		if s.Revision != "" && p.facts != nil {
			counts[name].Update, old[name] = &powersave.UpdateCounts{Revision: s.Revision, Current: s.Revision}, map[string]int{}
		}
	}
	for _, n := range p.nodes {
		switch c := counts[n.set]; {
		case c == nil || c.Update == nil || !live(n) && n.deleting == "" || n.pod == nil || n.pod.Phase == powersave.PodTerminating:
		case !p.outdated(n):
			c.Update.Updated++
		default:
			c.Update.Outdated++
			old[n.set][n.pod.Revision]++
			if p.forUpdate(n) {
				c.Update.Replacing++
			}
		}
	}
	for name, revisions := range old {
		c, s := counts[name], p.sets[name]
		u, most := c.Update, 0
		for _, r := range slices.Sorted(maps.Keys(revisions)) {
			if revisions[r] > most {
				u.Current, most = r, revisions[r]
			}
		}
		switch {
		case u.Outdated == 0:
		case s.Rolling == nil:
			u.Why, u.Text = powersave.UpdateOnDelete, "they are replaced when they have been idle for a while, or somebody deletes them"
		case c.Stale != "" || s.update.why == powersave.UpdateDone:
			u.Why, u.Text = powersave.UpdateUnread, cmp.Or(c.Stale, "Slurm has not been read since")
		default:
			u.Why, u.Text = s.update.why, s.update.text
		}
	}
}
