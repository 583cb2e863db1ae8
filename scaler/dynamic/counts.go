package dynamic

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// Counts are the figures of every NodeSet of mode Dynamic, by name. stale says why they are old; empty: they are not.
func (p *Planner) Counts(stale string) []powersave.NodeSetCounts {
	counts := map[string]*powersave.NodeSetCounts{}
	list := make([]powersave.NodeSetCounts, 0, len(p.sets))
	for name, s := range p.sets {
		c := &powersave.NodeSetCounts{Name: name, Generation: s.SpecGeneration, Nodes: s.Nodes.Len(), Problem: s.Problem, Stale: stale, Breakers: p.breakers.Snapshot(name)}
		if p.reading == 0 {
			c.Unread = c.Nodes
		} else if s.Dynamic != nil && p.facts.Slurm != nil {
			c.Partitions = partitionsOf(name, s.Dynamic, p.facts.Slurm.Queue.Partitions)
		}
		counts[name] = c
	}
	for _, n := range p.nodes {
		c := counts[n.set]
		if c == nil {
			continue
		}
		if n.pod != nil && n.pod.Offering != "" {
			if c.InUse == nil {
				c.InUse = map[string]int{}
			}
			c.InUse[n.pod.Offering]++
		}
		if p.exists(n) {
			c.PoweredUp++
		}
		switch {
		case n.creating, live(n) && n.joined != n.pod.UID:
			if c.Booting++; n.trouble != powersave.TroubleNone {
				c.Booting--
				c.Failed++
			}
		case n.pod == nil:
		case n.rec == nil || n.rec.State.Any(notServing) || n.rec.State.Any(powersave.NodeDrain) && !p.drained(n) || n.pod.Phase == powersave.PodFailed:
			c.Failed++
		case live(n) && !n.rec.State.Any(powersave.NodeDrain):
			c.Ready++
		}
	}
	p.updateCounts(counts)
	for _, c := range counts {
		c.Floor = p.sets[c.Name].floorCounts(p.now, c)
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b powersave.NodeSetCounts) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// floorCounts says how the floor is held; nil if there is none.
func (s *set) floorCounts(now time.Time, c *powersave.NodeSetCounts) *powersave.FloorCounts {
	want, _ := s.FloorAt(now)
	if want == 0 {
		return nil
	}
	f := &powersave.FloorCounts{Wanted: want, Held: min(want, c.Ready)}
	switch {
	case c.Stale != "":
		f.Why, f.Text = powersave.FloorUnread, c.Stale
	case f.Held == f.Wanted:
	case s.Problem != "":
		f.Why, f.Text = powersave.FloorProblem, s.Problem
	case s.refuse != "":
		f.Why, f.Text = powersave.FloorBackingOff, s.refuse
	case s.capped, s.floor(now) < want:
		f.Why, f.Text = powersave.FloorCapped, fmt.Sprintf("spec.maxPoweredUp is %d", s.MaxPoweredUp)
	case want > c.Nodes:
		f.Why, f.Text = powersave.FloorTooFew, fmt.Sprintf("spec.nodeNames has %d", c.Nodes)
	case s.full && c.Booting == 0:
		f.Why, f.Text = powersave.FloorNoNodes, "slurmctld takes no more nodes: MaxNodeCount of slurm.conf is reached"
	case s.out && c.Booting == 0:
		f.Why, f.Text = powersave.FloorNoNodes, "all other names of spec.nodeNames are in use, drained, down, or somebody else's"
	default:
		f.Why = powersave.FloorBooting
	}
	return f
}
