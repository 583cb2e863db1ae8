package scaler

import "slices"

// nodeChoice is a set of powered-down nodes of NodeSets, by their place in world.bins: those that may be powered up.
type nodeChoice map[int32]bool

// refine looks whether slurmctld, given the nodes of the estimate and no others, would start the jobs that count: jobs placed early may
// spread over nodes meant for later ones. If not the estimate grows; then nodes are left out as long as all of them start
// without. It takes as many rounds as the budget of looks lasts, and leaves the estimate as it was if there is none.
func (d *demand) refine() *demand {
	best := d
	looks := d.placer.looks
	// again places everything anew, on the nodes chosen, or if need be on others as well.
	again := func(only nodeChoice, strict bool) *demand {
		if looks <= 0 {
			return nil
		}
		next := newDemand(d.now, d.snap)
		next.looks = looks
		next.place(only, strict)
		looks = next.placer.looks
		if looks <= 0 || !next.startsAll(d) {
			return nil
		}
		return next
	}
	only := d.opened()
	if len(only) == 0 {
		return d
	}
	for range growRounds {
		next := again(only, false)
		if next == nil {
			break
		}
		opened := next.opened()
		if same(opened, only) {
			best = next
			break
		}
		beyond := false
		for at := range opened {
			beyond = beyond || !only[at]
			only[at] = true
		}
		if !beyond { // some are not needed after all
			only = opened
		}
	}
	if best == d { // with het jobs some may only have had to wait for another round of backfill
		if best = again(d.opened(), true); best == nil {
			return d
		}
	}
	for set := range d.snap.NodeSets {
		best = best.shrink(set, again)
	}
	return best
}

// growRounds is how often an estimate that is too small may grow.
const growRounds = 5

// shrink leaves out nodes of a NodeSet, the last ones first, as long as all jobs start without.
func (d *demand) shrink(set int, again func(nodeChoice, bool) *demand) *demand {
	for {
		only := d.opened()
		var mine []int32
		for at := range only {
			if d.world.classes[d.world.bins[at].class].set == set {
				mine = append(mine, at)
			}
		}
		slices.Sort(mine)
		slices.Reverse(mine)
		var less *demand
		for _, at := range mine {
			delete(only, at)
			if next := again(only, true); next != nil && same(next.opened(), only) {
				less = next
				break
			}
			only[at] = true
		}
		if less == nil {
			return d
		}
		d = less
	}
}

func same(a, b nodeChoice) bool {
	if len(a) != len(b) {
		return false
	}
	for at := range a {
		if !b[at] {
			return false
		}
	}
	return true
}

// opened are the nodes of NodeSets that jobs are to be powered up for.
func (d *demand) opened() nodeChoice {
	nodes := nodeChoice{}
	for at := range d.world.bins {
		if b := &d.world.bins[at]; b.opened && d.world.classes[b.class].set != foreign {
			nodes[int32(at)] = true
		}
	}
	return nodes
}

// startsAll reports whether every job counts that counted before.
func (d *demand) startsAll(before *demand) bool {
	for i := range before.report.Jobs {
		if d.report.Jobs[i].Counted < before.report.Jobs[i].Counted {
			return false
		}
	}
	return true
}
