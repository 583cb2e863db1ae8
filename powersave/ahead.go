package powersave

import (
	"cmp"
	"slices"
	"time"
)

// WarmWished tells which nodes should be up for jobs that are yet to start (package scaler/ahead). It replaces all earlier wishes.
// Only a leader heeds it.
//
// A wish raises the NodeSet's floor: to as many nodes as are in use and Nodes more. Nodes that it brought up are left to Slurm's power
// saving when it ends: lowering takes none of them.
type WarmWished struct{ Wishes []WarmWish }

// WarmWish is one NodeSet's.
type WarmWish struct {
	NodeSet string
	Nodes   int       // beside those in use
	Names   []string  // are taken first, where there is a choice
	Until   time.Time // when it ends; without a later event
}

func (WarmWished) event() {}

// shortOf is what a wish lacks, and why.
type shortOf struct {
	why  Shortfall
	text string
}

func (e *Engine) warmWished(ev WarmWished) {
	if !e.leading || !e.setsRead {
		return
	}
	before := e.floors.wishes
	e.floors.wishes = map[string]WarmWish{}
	for _, w := range ev.Wishes {
		if _, there := e.sets[w.NodeSet]; !there || w.Nodes <= 0 || !w.Until.After(e.now) {
			continue
		}
		e.floors.wishes[w.NodeSet] = w
		if e.floors.of[w.NodeSet] == nil {
			e.floors.of[w.NodeSet] = &floor{}
		}
		if old := before[w.NodeSet]; old.Nodes != w.Nodes || !slices.Equal(old.Names, w.Names) {
			e.reads.wantComplete(e.now)
		}
	}
}

// endWishes drops those whose time is over.
func (e *Engine) endWishes() {
	for name, w := range e.floors.wishes {
		if !w.Until.After(e.now) {
			delete(e.floors.wishes, name)
		}
	}
}

// nameSet are the nodes that a wish names.
type nameSet map[string]bool

func (w WarmWish) names() nameSet {
	set := make(nameSet, len(w.Names))
	for _, name := range w.Names {
		set[name] = true
	}
	return set
}

// first orders the nodes of the set before others.
func (s nameSet) first(a, b *node) int {
	rank := func(n *node) int {
		if s[n.name] {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
}

// holdFor sorts the idle nodes of a NodeSet into those that are held and the rest. idle begins with the floor's own: that many
// are held for spec.replicas, beside them up to most of those that the wish names, and others until all are held.
func holdFor(idle []*node, own, all, most int, names nameSet) (held, rest []*node) {
	own = min(len(idle), max(own, 0))
	if most <= 0 {
		return idle[:own], idle[own:]
	}
	theirs := 0
	for _, n := range idle[own:] {
		if names[n.name] {
			theirs++
		}
	}
	theirs = min(theirs, most)
	others := min(len(idle)-own, max(all-own, theirs)) - theirs
	held = slices.Clone(idle[:own])
	for _, n := range idle[own:] { // in their order: lower takes the last
		switch {
		case names[n.name] && theirs > 0:
			theirs--
			held = append(held, n)
		case !names[n.name] && others > 0:
			others--
			held = append(held, n)
		default:
			rest = append(rest, n)
		}
	}
	return held, rest
}

// BootTimes are how long the newest boots of a NodeSet took, from ResumeProgram's start until slurmd had registered; oldest first.
type BootTimes []time.Duration

const (
	bootTimesKept  = 20
	bootTimesLeast = 5 // fewer say little
)

// With adds a boot, and forgets the oldest of too many.
func (b BootTimes) With(took time.Duration) BootTimes {
	b = append(slices.Clone(b), max(took.Round(100*time.Millisecond), 100*time.Millisecond))
	return b[max(0, len(b)-bootTimesKept):]
}

// P95 is the time within which 19 of 20 boots were over; false: too few were seen.
func (b BootTimes) P95() (time.Duration, bool) {
	if len(b) < bootTimesLeast {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(b))
	return sorted[(len(b)*95+99)/100-1], true
}

// learnBoot takes in a boot that went well.
func (e *Engine) learnBoot(b Boot) {
	if b.NodeSet == "" || b.Request == "" || b.Times.Requested.IsZero() {
		return
	}
	if e.bootTimes == nil {
		e.bootTimes = map[string]BootTimes{}
	}
	e.bootTimes[b.NodeSet] = e.bootTimes[b.NodeSet].With(b.Times.Registered.Sub(b.Times.Requested))
}

// recallBoots takes over the boot times in the NodeSets' status where none are known, or, anew, those that another leader wrote.
func (e *Engine) recallBoots(anew bool) {
	known := e.bootTimes
	e.bootTimes = map[string]BootTimes{}
	for name, set := range e.sets {
		have := known[name]
		if saved := set.BootTimes; len(saved) > 0 && (anew || len(have) == 0) {
			have = saved
		}
		if len(have) > 0 {
			e.bootTimes[name] = have
		}
	}
}

// LookAhead is what a NodeSet says of nodes for jobs that are yet to start. The Engine does not look at it: package scaler/ahead plans.
type LookAhead struct {
	MaxNodes      int // up for such jobs at once
	MaxPerAccount int // 0: no limit
	PerAccount    map[string]int
	Lead          time.Duration // before the start; 0: what boots take
	Sources       []string      // see scaler/ahead; nil: all
}

const (
	leadUnknown = time.Minute
	leadMargin  = 5 * time.Second // a second each for the wish, slurmctld's power saving and its scheduler, and then some
)

// LeadTime is how long before a job's start its nodes are to be powered up.
func (l *LookAhead) LeadTime(boots BootTimes) time.Duration {
	if l.Lead > 0 {
		return l.Lead
	}
	if p95, known := boots.P95(); known {
		return p95 + leadMargin
	}
	return leadUnknown
}
