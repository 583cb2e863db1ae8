package scaler

import (
	"cmp"
	"slices"
)

// variant is one way to run a job: in one of its partitions, with one Alternative of its constraint.
type variant struct {
	n        *need
	part     *Partition
	required []spot // nodes the job names
	groups   []candidates
	counts   []int // nodes of each group
	rest     candidates
	least    int64 // nodes
	most     int64
	rows     int  // of cores that jobs share; 0: the job shares with none
	dead     bool // found no room: there will be none later, as room only shrinks
}

// candidates are the classes that may be used, in the order in which slurmctld fills them: by weight
// (node_scheduler.c _set_sched_weight), then by the name of their first node.
type candidates []*fitting

// prepare works out how the job could run, or why it never can.
func (w *world) prepare(n *need) {
	w.prepareWith(n)
	if n.req.MaxNodesGuessed && n.verdict != nil && (n.verdict.why == WhyImpossible || n.verdict.why == WhyReservation) && n.maxNodes < n.tasks {
		n.maxNodes = n.tasks
		n.verdict, n.variants = nil, nil
		w.prepareWith(n)
	}
}

func (w *world) prepareWith(n *need) {
	parts := n.partitions(w.partitions)
	var down, limit *Partition
	for _, p := range parts {
		switch {
		case p.Down:
			down = p
		case n.tooWide(p):
			limit = p
		}
	}
	n.variants = w.variants(n, parts, false)
	switch {
	case len(n.variants) == 0 && len(parts) == 0:
		n.verdict = &verdict{WhyImpossible, "no partition " + n.req.Partitions}
	case len(n.variants) == 0 && down != nil && len(parts) == 1:
		n.verdict = &verdict{WhyPartition, "partition " + down.Name + " is down"}
	case len(n.variants) == 0 && limit != nil && len(parts) == 1:
		n.verdict = &verdict{WhyPartition, tooManyNodes(n, limit)}
	case len(n.variants) == 0 && len(w.variants(n, parts, true)) > 0: // reservations begin and end
		n.verdict = &verdict{WhyReservation, w.nearestMiss(n, parts)}
	case len(n.variants) == 0:
		n.verdict = &verdict{WhyImpossible, w.nearestMiss(n, parts)}
	case !slices.ContainsFunc(n.variants, func(v *variant) bool { return v.inNodeSets() }):
		n.verdict = &verdict{WhyElsewhere, "runs only on nodes that belong to no NodeSet"}
	}
}

// tooWide reports whether the partition never gives a job so many nodes.
func (n *need) tooWide(p *Partition) bool {
	return p.MaxNodes > 0 && max(n.minNodes, int64(p.MinNodes), int64(len(n.required))) > int64(p.MaxNodes)
}

// variants are the ways to run the job; with reserved also on nodes that it must leave to reservations, or that its own does not hold yet.
func (w *world) variants(n *need, parts []*Partition, reserved bool) []*variant {
	var list []*variant
	barred := w.barred(n)
	for _, p := range parts {
		if p.Down || n.tooWide(p) {
			continue
		}
		least, most := max(n.minNodes, int64(p.MinNodes), int64(len(n.required))), n.maxNodes
		if p.MaxNodes > 0 {
			most = min(most, int64(p.MaxNodes))
		}
		all := w.candidates(n, p, barred, reserved)
		for _, a := range n.alternatives {
			v := &variant{n: n, part: p, least: least, most: max(least, most)}
			v.rest = all.that(a.Admits)
			var counted int64
			for _, g := range a.Groups {
				v.groups = append(v.groups, all.that(g.Admits))
				v.counts = append(v.counts, g.Count)
				counted += int64(g.Count)
			}
			v.least = max(v.least, counted)
			v.most = max(v.most, v.least)
			if len(all) > 0 && all[0].share > 1 {
				v.rows = int(all[0].share)
			}
			if w.require(v, all) && w.ever(v) {
				list = append(list, v)
			}
		}
	}
	return list
}

// candidates are the classes whose empty nodes can run a share of the job in the partition; see variants.
func (w *world) candidates(n *need, p *Partition, barred map[int32]bool, reserved bool) candidates {
	all := make(candidates, 0, len(w.classes))
	clear(w.fits)
	for _, c := range w.classes {
		if !reserved && !n.mayUse(c.reservation) || !slices.Contains(c.partitions, p.Name) {
			continue
		}
		known := &w.fits[c.kind]
		if !known.known {
			*known = kindFit{known: true}
			known.f, known.miss = w.newFitting(n, c, p)
		}
		if known.miss != 0 || known.f.whole == 0 {
			continue
		}
		f := known.f
		if f.c != c {
			f = w.blank()
			*f = *known.f
			f.c, f.barred = c, nil
		}
		if len(barred) > 0 && slices.ContainsFunc(c.bins, func(at int32) bool { return barred[at] }) {
			f.barred = barred
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b *fitting) int { return cmp.Compare(a.c.shape.Weight, b.c.shape.Weight) })
	return all
}

// kindFit is how a request fits on nodes of one kind.
type kindFit struct {
	known bool
	f     *fitting
	miss  lacks
}

func (cs candidates) that(admits func([]string) bool) candidates {
	if !slices.ContainsFunc(cs, func(f *fitting) bool { return !admits(f.c.shape.Features) }) {
		return cs
	}
	var some candidates
	for _, f := range cs {
		if admits(f.c.shape.Features) {
			some = append(some, f)
		}
	}
	return some
}

// barred are the nodes the job excludes.
func (w *world) barred(n *need) map[int32]bool {
	if len(n.excluded) == 0 {
		return nil
	}
	barred := make(map[int32]bool, len(n.excluded))
	for _, name := range n.excluded {
		if at, ok := w.byName[name]; ok {
			barred[at] = true
		}
	}
	return barred
}

// require finds the nodes that the job names. It is false if one of them cannot run a share of it.
func (w *world) require(v *variant, all candidates) bool {
	for _, name := range v.n.required {
		at, ok := w.byName[name]
		if !ok {
			return false
		}
		i := slices.IndexFunc(all, func(f *fitting) bool { return f.c == w.classes[w.bins[at].class] })
		if i < 0 || all[i].barred[at] {
			return false
		}
		v.required = append(v.required, spot{bin: at, f: all[i]})
	}
	return true
}

// ever reports whether the variant would have room if all nodes were empty and in order.
func (w *world) ever(v *variant) bool {
	for i, g := range v.groups {
		if g.nodes() < v.counts[i] {
			return false
		}
	}
	sorted := slices.Clone(v.rest)
	for _, g := range v.groups {
		for _, f := range g {
			if !slices.Contains(sorted, f) {
				sorted = append(sorted, f)
			}
		}
	}
	slices.SortStableFunc(sorted, func(a, b *fitting) int { return cmp.Compare(b.whole, a.whole) })
	nodes, tasks := int64(0), int64(0)
	job := make([]int64, len(v.n.gresJob))
	for _, f := range sorted {
		k := min(int64(f.nodes()), v.most-nodes)
		nodes += k
		tasks += k * f.whole
		for i := range job {
			for _, kind := range f.asks[len(f.asks)-f.jobAsks+i].kinds {
				job[i] += k * f.c.kinds[kind].Count
			}
		}
	}
	for i, g := range v.n.gresJob {
		if job[i] < g.Count {
			return false
		}
	}
	return nodes >= v.least && tasks >= v.n.tasks
}

func (cs candidates) nodes() int {
	n := 0
	for _, f := range cs {
		n += f.nodes()
	}
	return n
}

// nodes is how many nodes of the class the job may use, whatever their state.
func (f *fitting) nodes() int {
	n := len(f.c.bins)
	if f.barred != nil {
		for _, at := range f.c.bins {
			if f.barred[at] {
				n--
			}
		}
	}
	return n
}

// inNodeSets reports whether nodes of a NodeSet would help.
func (v *variant) inNodeSets() bool {
	in := func(cs candidates) bool {
		return slices.ContainsFunc(cs, func(f *fitting) bool { return f.c.set != foreign })
	}
	return in(v.rest) || slices.ContainsFunc(v.groups, in)
}

// each calls do with every class the variant may use.
func (v *variant) each(do func(*fitting)) {
	for _, f := range v.rest {
		do(f)
	}
	for _, g := range v.groups {
		for _, f := range g {
			do(f)
		}
	}
	for i := range v.required {
		do(v.required[i].f)
	}
}
