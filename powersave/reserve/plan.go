// Package reserve keeps the reservations that updates of NodeSets want in Slurm: what is outdated is to be free of jobs when the window
// begins (spec.updateStrategy, type Scheduled). The engine of package powersave says what to reserve; nothing it does depends on it.
package reserve

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// shortest is how long a reservation has to last for it to be made.
const shortest = time.Minute

// wish is what is known of a NodeSet: what to reserve, nil if nothing is to be.
type wish struct {
	reserve *powersave.Reserve
	known   bool // else what there is stays as it is
}

// Step makes a reservation, changes it, or drops it.
type Step struct {
	NodeSet string
	Drop    bool
	Made    bool      // there is one of that name
	Begin   time.Time // zero: as it is, for it has begun
	End     time.Time
	Nodes   []string
}

// Plan says what to do for the reservations that Slurm has of our NodeSets, by their names, to be as the engine's figures want them.
func Plan(now time.Time, have map[string]powersave.Reserve, counts []powersave.NodeSetCounts) []Step {
	return plan(now, have, wishesOf(counts))
}

// plan says what to do for the reservations of our NodeSets to be as wished; have are those of Slurm by the name of the NodeSet. What is of a
// NodeSet that is gone is dropped; with wishes nil it is not known which there are.
func plan(now time.Time, have map[string]powersave.Reserve, wishes map[string]wish) (steps []Step) {
	names := map[string]bool{}
	for name := range have {
		names[name] = wishes != nil
	}
	for name := range wishes {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w, ours := wishes[name]
		is, there := have[name]
		switch {
		case !names[name], ours && !w.known:
		case w.reserve == nil && there:
			steps = append(steps, Step{NodeSet: name, Drop: true, Made: true})
		case w.reserve == nil, !there && w.reserve.End.Sub(now) < shortest:
		default:
			steps = append(steps, toward(now, name, is, there, *w.reserve)...)
		}
	}
	return steps
}

// toward makes the reservation of a NodeSet what it is to be. slurmctld does not move the beginning of one that has begun
// (reservation.c update_resv).
func toward(now time.Time, name string, is powersave.Reserve, there bool, want powersave.Reserve) []Step {
	begun, begins := there && !is.Begin.After(now), !want.Begin.After(now)
	s := Step{NodeSet: name, Made: there, Begin: want.Begin, End: want.End, Nodes: nodesOf(want.Nodes)}
	if begins {
		s.Begin = now
	}
	switch {
	case !there:
		return []Step{s}
	case begun && !begins:
		s.Made = false
		return []Step{{NodeSet: name, Drop: true, Made: true}, s}
	case is.End.Unix() == want.End.Unix() && (begun || is.Begin.Unix() == want.Begin.Unix()) && slices.Equal(nodesOf(is.Nodes), s.Nodes):
		return nil
	case begun:
		s.Begin = time.Time{}
	}
	return []Step{s}
}

// nodesOf gives the names in a hostlist, sorted; none of one that cannot be read.
func nodesOf(hostlist string) []string {
	list, err := slurmconf.ParseHostlist(hostlist)
	if err != nil {
		return nil
	}
	return slices.Sorted(list.All())
}

// wishesOf reads what the engine says; nil: which NodeSets there are has not been read.
func wishesOf(counts []powersave.NodeSetCounts) map[string]wish {
	if counts == nil {
		return nil
	}
	wishes := make(map[string]wish, len(counts))
	for _, c := range counts {
		w := wish{}
		if u := c.Update; u != nil && u.Why != powersave.UpdateUnread {
			w = wish{u.Reserve, true}
		}
		wishes[c.Name] = w
	}
	return wishes
}

// own gives the reservations whose names begin so, by the rest of the name.
func own(all map[string]powersave.Reserve, prefix string) map[string]powersave.Reserve {
	ours := map[string]powersave.Reserve{}
	for name, r := range all {
		if nodeSet, is := strings.CutPrefix(name, prefix); is && nodeSet != "" {
			ours[nodeSet] = r
		}
	}
	return ours
}
