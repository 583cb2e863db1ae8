package scaler

import (
	"cmp"
	"slices"
)

// Choosing nodes for a job as slurmctld does: topology/common/eval_nodes.c _eval_nodes_consec, common_topo.c
// common_topo_choose_nodes, and job_test.c _get_one_res of 26.05. Every node is looked at for every job, so placer does it only
// as long as its budget of looks lasts.

// chance is a node that has room for a share of a job.
type chance struct {
	bin    int32
	f      *fitting
	room   int64 // CPUs for its tasks, as many as the node could run; 0: taken, or left out
	weight int64 // sched_weight: lower ones first
}

// stretch is several chances side by side in slurmctld's table of nodes, of one weight.
type stretch struct {
	first, last int // in placer.chances
	room        int64
	weight      int64
	nodes       int64
	required    int // the first chance after a node that the job names or has already; -1: none
}

// wish is what nodes are to be chosen for.
type wish struct {
	least, most int64 // nodes
	wanted      int64 // if there are as many
	cpus        int64
	gres        bool // what is asked for the job as a whole
}

// CPUs a task takes, and 1 if tasks share what there are.
func (n *need) perTask() int64 { return max(1, n.cpusPerTask) }

// room is how many tasks like the job's the bin can run, whatever the number of its tasks; 0 if less than it must.
func (f *fitting) room(b *bin) int64 {
	if f.cores > f.free(b) || f.mem > b.mem || !f.admits(b) {
		return 0
	}
	gpus := f.leastGPUs()
	if !f.fits(b, f.least, gpus) {
		return 0
	}
	most := f.free(b) * f.usable / f.n.perTask()
	if f.n.cpusPerTask == 0 {
		most = f.n.tasks
	}
	return f.largest(b, gpus, min(most, f.n.mostTasks))
}

// weight is the bin's sched_weight for the job: powered-down nodes last, then by Weight, then by GPUs that it could use
// (node_scheduler.c _set_sched_weight, gres_select_filter.c near_gpus).
func (f *fitting) weight(b *bin, gpus bool) int64 {
	power := int64(0)
	switch {
	case b.state == NodeBooting || b.boots:
		power = 2
	case b.state == NodeOff:
		power = 3
	}
	near := int64(0)
	if gpus {
		for _, a := range f.asks {
			if a.name == "gpu" {
				near += f.near(b, a)
			}
		}
	}
	return power<<40 | int64(f.c.shape.Weight)<<8 | (0xff - min(near, 0xff))
}

func (f *fitting) near(b *bin, a ask) int64 {
	have := left(b, a)
	if f.exclusive == ExclusiveNode {
		return have
	}
	if limit := cmp.Or(a.perNode, a.perJob); limit > 0 {
		have = min(have, limit)
	}
	if f.n.cpusPerGPU > 0 {
		have = min(have, f.free(b)*f.c.threads/f.n.cpusPerGPU)
	}
	return have
}

// exactly chooses nodes for a variant of a job.
func (p *placer) exactly(v *variant) bool {
	n := v.n
	p.spots, p.tasks = p.spots[:0], 0
	for _, r := range v.required {
		b := &p.w.bins[r.bin]
		room := int64(0)
		if b.state != NodeUnusable && b.mark != p.gen && !b.kept {
			room = r.f.room(b)
		}
		if room == 0 {
			return false
		}
		p.add(v, r.f, r.bin, room)
	}
	for i, g := range v.groups {
		count := int64(v.counts[i])
		p.look(g, !p.strict)
		if !p.among(v, wish{least: count, most: count}) {
			return false
		}
	}
	w := wish{least: v.least, most: v.most, cpus: mul(n.tasks, n.perTask()), gres: true}
	if p.enough(v, w) {
		return true
	}
	if had := len(p.spots); n.spreads() || p.only != nil {
		// Of a range it takes the larger number of what there is, and no node is powered up for that.
		p.look(v.rest, false)
		wide := w
		if n.spreads() {
			wide.wanted = v.most
		}
		if p.oneOrSome(v, wide) {
			return true
		}
		if p.strict {
			return false
		}
		p.dropTo(had)
	}
	p.look(v.rest, true)
	return p.oneOrSome(v, w)
}

// look collects the nodes that could take a share, in slurmctld's order: also those that would have to be powered up, or not.
func (p *placer) look(cs candidates, fresh bool) {
	p.chances = p.chances[:0]
	if p.fitOf == nil {
		p.fitOf = make([]*fitting, len(p.w.classes))
	}
	gpus := false
	for _, f := range cs {
		p.fitOf[f.c.at] = f
		gpus = gpus || slices.ContainsFunc(f.asks, func(a ask) bool { return a.name == "gpu" })
	}
	p.looks -= len(p.w.bins)
	for at := range p.w.bins {
		b := &p.w.bins[at]
		f := p.fitOf[b.class]
		if f == nil || b.state == NodeUnusable || b.mark == p.gen || b.kept || f.barred != nil && f.barred[int32(at)] || !fresh && b.state == NodeOff && !b.opened && f.c.set != foreign && !p.only[int32(at)] {
			continue
		}
		if room := f.room(b); room > 0 {
			p.chances = append(p.chances, chance{bin: int32(at), f: f, room: room * f.n.perTask(), weight: f.weight(b, gpus)})
		}
	}
	for _, f := range cs {
		p.fitOf[f.c.at] = nil
	}
}

func (p *placer) oneOrSome(v *variant, w wish) bool {
	if v.most == 1 && p.w.snap.Select.OneNodeFirstFit && (v.n.tasks > 1 || len(v.n.gresNode) == 0) { // one task with GPUs of its node is packed tightly
		return p.first(v, w)
	}
	return p.among(v, w)
}

// first takes the first node with room for the whole job, by weight and name.
func (p *placer) first(v *variant, w wish) bool {
	best := -1
	for i := range p.chances {
		c := &p.chances[i]
		if c.room < w.cpus || !p.suffices(v, c.bin, c.f) {
			continue
		}
		if best < 0 || c.weight>>8 < p.chances[best].weight>>8 { // not yet sorted by GPUs
			best = i
		}
	}
	if best >= 0 {
		p.add(v, p.chances[best].f, p.chances[best].bin, p.chances[best].room/v.n.perTask())
	}
	return best >= 0
}

// among chooses from all chances, and again from fewer: those with the least room are left out one by one.
func (p *placer) among(v *variant, w wish) bool {
	had := len(p.spots)
	if p.gather(v, w) {
		return true
	}
	if !p.possible(v, w, had) {
		return false
	}
	order := make([]int, len(p.chances))
	for i := range order {
		order[i] = i
	}
	product := func(i int) int64 {
		c := &p.chances[i]
		if v.n.wantsGPU() {
			gpus := int64(0)
			for _, a := range c.f.asks {
				if a.name == "gpu" {
					gpus = max(gpus, left(&p.w.bins[c.bin], a))
				}
			}
			return c.room * gpus
		}
		return c.room
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(product(a), product(b)) })
	for k, i := range order {
		if int64(len(order)-k) <= w.least {
			break
		}
		p.chances[i].room = 0
		p.looks -= len(p.chances)
		p.dropTo(had)
		if p.gather(v, w) {
			return true
		}
	}
	return false
}

func (p *placer) dropTo(had int) {
	for _, s := range p.spots[had:] {
		p.w.bins[s.bin].mark = 0
		p.tasks -= s.room
	}
	p.spots = p.spots[:had]
}

// possible reports whether any choice of as many chances as allowed has room for the job.
func (p *placer) possible(v *variant, w wish, had int) bool {
	p.dropTo(had)
	rooms := make([]int64, len(p.chances))
	for i, c := range p.chances {
		rooms[i] = c.room
	}
	slices.Sort(rooms)
	free := w.most - int64(had)
	cpus := w.cpus - p.given(v)
	if int64(len(rooms)+had) < w.least {
		return false
	}
	for i := len(rooms) - 1; i >= 0 && free > 0; i-- {
		cpus -= rooms[i]
		free--
	}
	return cpus <= 0
}

// gather takes stretch after stretch: of the lowest weight the tightest that is enough, or the largest.
func (p *placer) gather(v *variant, w wish) bool {
	stretches := p.stretches()
	for int64(len(p.spots)) < w.most {
		best, bestEnough := -1, false
		for i := range stretches {
			s := &stretches[i]
			if s.nodes == 0 {
				continue
			}
			enough := s.room >= w.cpus-p.given(v) && s.nodes >= w.least-int64(len(p.spots)) && p.sufficeAll(v, w, s)
			better := best < 0 || stretches[best].required < 0 && s.required >= 0 || s.weight < stretches[best].weight
			if !better && s.weight == stretches[best].weight {
				better = enough && (!bestEnough || s.room < stretches[best].room) || !enough && s.room > stretches[best].room
			}
			if better {
				best, bestEnough = i, enough
			}
		}
		if best < 0 {
			break
		}
		if p.fill(v, w, &stretches[best]) {
			return true
		}
		stretches[best].nodes = 0
	}
	w.wanted = 0 // less will do
	return p.enough(v, w)
}

// stretches cuts the chances where a node between them is none, or the weight changes. A node the job has already does not cut.
func (p *placer) stretches() []stretch {
	list := p.room[:0]
	had := func(at int32) bool { return slices.ContainsFunc(p.spots, func(s spot) bool { return s.bin == at }) }
	last := int32(-2)
	for i := range p.chances {
		c := &p.chances[i]
		if c.room == 0 {
			continue
		}
		required := -1
		for last >= 0 && last+1 < c.bin && had(last+1) {
			required = i
			last++
		}
		if len(list) == 0 || last+1 != c.bin || list[len(list)-1].weight != c.weight {
			if required < 0 && c.bin > 0 && had(c.bin-1) {
				required = i
			}
			list = append(list, stretch{first: i, weight: c.weight, required: -1})
		}
		s := &list[len(list)-1]
		if s.required < 0 {
			s.required = required
		}
		s.last, s.room, s.nodes, last = i, s.room+c.room, s.nodes+1, c.bin
	}
	p.room = list
	return list
}

// fill takes nodes of a stretch until they are enough.
func (p *placer) fill(v *variant, w wish, s *stretch) bool {
	if s.required >= 0 {
		for i := s.required; i <= s.last; i++ {
			if p.enough(v, w) || p.takeChance(v, w, i) {
				return true
			}
		}
		for i := s.required - 1; i >= s.first; i-- {
			if p.enough(v, w) || p.takeChance(v, w, i) {
				return true
			}
		}
		return p.enough(v, w)
	}
	if p.missing(w) <= 1 { // the tightest node that is enough alone
		best := -1
		for i := s.first; i <= s.last; i++ {
			c := &p.chances[i]
			if c.room == 0 || c.room < w.cpus-p.given(v) || w.gres && !p.suffices(v, c.bin, c.f) {
				continue
			}
			if best < 0 || c.room < p.chances[best].room {
				best = i
			}
		}
		if best >= 0 {
			return p.takeChance(v, w, best)
		}
	}
	for i := s.first; i <= s.last; i++ {
		if p.enough(v, w) || int64(len(p.spots)) >= w.most {
			break
		}
		if w.most-int64(len(p.spots)) == 1 && p.chances[i].room < w.cpus-p.given(v) {
			continue
		}
		p.takeChance(v, w, i)
	}
	return p.enough(v, w)
}

func (p *placer) takeChance(v *variant, w wish, i int) bool {
	c := &p.chances[i]
	if c.room > 0 && int64(len(p.spots)) < w.most {
		p.add(v, c.f, c.bin, c.room/v.n.perTask())
		c.room = 0
	}
	return p.enough(v, w)
}

// missing is how many more nodes the job is to get.
func (p *placer) missing(w wish) int64 { return max(w.least, w.wanted) - int64(len(p.spots)) }

// given is the CPUs that the nodes chosen have for the job.
func (p *placer) given(v *variant) int64 { return p.tasks * v.n.perTask() }

func (p *placer) enough(v *variant, w wish) bool {
	return p.missing(w) <= 0 && p.given(v) >= w.cpus && p.gresMet(v, w)
}

// gresMet reports whether the nodes chosen have what is asked for the job as a whole.
func (p *placer) gresMet(v *variant, w wish) bool {
	if !w.gres {
		return true
	}
	for g, want := range v.n.gresJob {
		if p.gresGiven(g) < want.Count {
			return false
		}
	}
	return true
}

func (p *placer) gresGiven(g int) int64 {
	have := int64(0)
	for i := range p.spots {
		s := &p.spots[i]
		have += left(&p.w.bins[s.bin], s.f.asks[len(s.f.asks)-s.f.jobAsks+g])
	}
	return have
}

// suffices reports whether one more node is enough for what is asked for the job as a whole.
func (p *placer) suffices(v *variant, at int32, f *fitting) bool {
	for g, want := range v.n.gresJob {
		if p.gresGiven(g)+left(&p.w.bins[at], f.asks[len(f.asks)-f.jobAsks+g]) < want.Count {
			return false
		}
	}
	return true
}

func (p *placer) sufficeAll(v *variant, w wish, s *stretch) bool {
	if !w.gres {
		return true
	}
	for g, want := range v.n.gresJob {
		have := p.gresGiven(g)
		for i := s.first; i <= s.last; i++ {
			if c := &p.chances[i]; c.room > 0 {
				have += left(&p.w.bins[c.bin], c.f.asks[len(c.f.asks)-c.f.jobAsks+g])
			}
		}
		if have < want.Count {
			return false
		}
	}
	return true
}
