package scaler

import (
	"cmp"
	"math"
	"slices"
)

// spot is a node for a share of a job.
type spot struct {
	bin   int32
	f     *fitting
	room  int64 // tasks it could run
	tasks int64 // tasks it gets
	gpus  int64 // of those asked for the job as a whole
	job   []int64
	off   bool // the node is powered down
	opens bool // and this job is the first to need it
}

// placer puts jobs on nodes the way select/cons_tres does, one after the other, and never moves one: nodes that
// are up come first, then those that boot or are powered up for a job already, then powered-down ones
// (node_scheduler.c _build_node_list, _set_sched_weight), each time by weight and name. A job takes nodes in that order until it
// has enough (eval_nodes.c); its tasks are dealt out one by one (dist_tasks.c).
//
// As long as looks lasts it chooses exactly as slurmctld (eval.go). Then it takes the first with room, and what is left of nodes that
// a job of this queue opened before a whole one.
type placer struct {
	w     *world
	spots []spot
	tasks int64  // the spots have room for
	gen   uint32 // of bin.mark
	trial bool   // what is placed may be taken back
	undo  []undo
	kept  []int32 // bins that are

	only    nodeChoice // nil: all nodes; see demand.place
	strict  bool
	opened  bool // only nodes that need not be powered up, or will be for other jobs
	looks   int  // at nodes, before it takes the first with room
	chances []chance
	room    []stretch
	fitOf   []*fitting // by class
}

// exactLooks is how many times a node is looked at for a job at the most: some 50 ms.
const exactLooks = 500_000

// undo is a node as it was.
type undo struct {
	at     int32
	b      bin
	gres   []int64
	opened int
	full   [2]int
}

// place finds room for one job and takes it. The spots are valid until the next call.
func (p *placer) place(n *need) []spot {
	p.gen++
	return p.placeBeside(n)
}

// placeBeside does the same, on other nodes than since the last call of place.
func (p *placer) placeBeside(n *need) []spot {
	for _, v := range n.variants {
		if v.dead {
			continue
		}
		if p.find(v) {
			p.take()
			return p.spots
		}
		v.dead = !p.trial && len(p.kept) == 0
	}
	return nil
}

// all places the components of a het job, each on nodes of its own (backfill.c _het_job_start_now), or none of them.
func (p *placer) all(needs []*need, each func(component int, spots []spot)) bool {
	p.gen++
	p.trial, p.undo = true, p.undo[:0]
	defer func() { p.trial = false }()
	placed := make([][]spot, len(needs))
	for i, n := range needs {
		spots := p.placeBeside(n)
		if spots == nil {
			p.takeBack()
			return false
		}
		placed[i] = append([]spot(nil), spots...)
	}
	for i, spots := range placed {
		each(i, spots)
	}
	return true
}

// find chooses nodes. If as many nodes as the job may have are not enough, those with little room are left
// out (job_test.c _choose_nodes does it in steps).
func (p *placer) find(v *variant) bool {
	if v.rows == 0 {
		return p.findOne(v)
	}
	// Cores that are nobody's come first, on any node, then those of other jobs (job_test.c _job_test, steps 1 and 4): on the nodes chosen
	// before others are powered up. Of a long queue, whose estimate is not refined, it is on the nodes that are powered up already.
	defer func(strict bool) { p.strict, p.opened = strict, false }(p.strict)
	for _, all := range []bool{false, true} {
		if all && p.strict && p.only != nil || !all && p.only == nil && p.looks > 0 {
			continue
		}
		strict := p.strict
		p.strict, p.opened = strict || !all && p.only != nil, !all
		for row := range v.rows + 1 {
			v.each(func(f *fitting) { f.row = row })
			if p.findOne(v) {
				return true
			}
		}
		p.strict = strict
	}
	return false
}

func (p *placer) findOne(v *variant) bool {
	if p.looks > 0 {
		if p.exactly(v) && p.deal(v.n) {
			return true
		}
		p.forget()
		return false
	}
	if p.choose(v, false) && p.deal(v.n) {
		return true
	}
	p.forget()
	if p.choose(v, true) && p.deal(v.n) {
		return true
	}
	p.forget()
	return false
}

func (p *placer) forget() {
	for i := range p.spots {
		p.w.bins[p.spots[i].bin].mark = 0
	}
	p.spots, p.tasks = p.spots[:0], 0
}

// choose collects nodes until they are enough: any that can run a task, or, if even, only those that can run as
// large a part of the job as each must when it gets the most nodes it may have.
func (p *placer) choose(v *variant, even bool) bool {
	n := v.n
	p.spots, p.tasks = p.spots[:0], 0
	share := int64(1)
	if even {
		share = divUp(n.tasks, v.most)
	}
	var tasks int64
	var gresArray [4]int64
	gres := append(gresArray[:0], make([]int64, len(n.gresJob))...)
	add := func(f *fitting, at int32, room int64) {
		b := &p.w.bins[at]
		tasks += p.add(v, f, at, room)
		for i := range gres {
			gres[i] += left(b, f.asks[len(f.asks)-f.jobAsks+i])
		}
	}
	enough := func() bool {
		for i, g := range n.gresJob {
			if gres[i] < g.Count {
				return false
			}
		}
		return tasks >= n.tasks && int64(len(p.spots)) >= v.least
	}
	for _, r := range v.required {
		b := &p.w.bins[r.bin]
		room := int64(0)
		if b.state != NodeUnusable && b.mark != p.gen && !b.kept {
			room = r.f.tasks(b)
		}
		if room == 0 {
			return false
		}
		add(r.f, r.bin, room)
	}
	tooLittle := func(f *fitting, at int32) bool {
		for i, g := range n.gresJob {
			if even && left(&p.w.bins[at], f.asks[len(f.asks)-f.jobAsks+i]) < divUp(g.Count, v.most) {
				return true
			}
		}
		return false
	}
	for i, g := range v.groups {
		missing := v.counts[i]
		p.scan(g, share, func(f *fitting, at int32, room int64) bool {
			if tooLittle(f, at) {
				return true
			}
			add(f, at, room)
			missing--
			return missing > 0
		})
		if missing > 0 {
			return false
		}
	}
	if enough() {
		return true
	}
	done := false
	p.scan(v.rest, share, func(f *fitting, at int32, room int64) bool {
		if int64(len(p.spots)) >= v.most {
			return false
		}
		if tooLittle(f, at) {
			return true
		}
		add(f, at, room)
		done = enough()
		return !done
	})
	return done
}

// add chooses a node, with as much of its room as the job can use if each node it still needs gets a core
// (eval_nodes.c eval_nodes_cpus_to_use).
func (p *placer) add(v *variant, f *fitting, at int32, room int64) int64 {
	n, each := v.n, v.n.perTask()
	if f.exclusive != ExclusiveNode && n.cpusPerTask > 0 {
		cpus := (n.tasks-p.tasks)*each - max(0, v.least-int64(len(p.spots))-1)*f.usable
		room = min(room, max(f.least, cpus/each))
	}
	p.w.bins[at].mark = p.gen
	p.spots = append(p.spots, spot{bin: at, f: f, room: room})
	p.tasks += room
	return room
}

// scan yields nodes with room for share tasks, until yield is false.
func (p *placer) scan(cs candidates, share int64, yield func(f *fitting, at int32, room int64) bool) {
	bins := p.w.bins
	for tier := up; tier <= booting; tier++ {
		for _, f := range cs {
			list, full := f.c.lists[tier], &f.c.full[tier]
			for *full < len(list) && bins[list[*full]].cores == 0 && bins[list[*full]].rows == nil {
				*full++
			}
			if f.cores >= f.c.lack[tier] && f.plain() {
				continue
			}
			i := max(f.cursor[tier], *full)
			leading, poor := !p.trial && f.share == 1, !p.trial && f.plain() && i == *full
			for ; i < len(list); i++ {
				at := list[i]
				b := &bins[at]
				room := int64(0)
				if f.barred == nil || !f.barred[at] {
					room = f.tasks(b)
				}
				poor = poor && b.cores < f.cores
				if room == 0 {
					if leading {
						f.cursor[tier] = i + 1
					}
					continue
				}
				leading = false
				if room >= share && b.mark != p.gen && !b.kept && !yield(f, at, room) {
					return
				}
			}
			if poor { // and will be
				f.c.lack[tier] = f.cores
			}
		}
	}
	for _, f := range cs {
		if f.whole < share || p.opened {
			continue
		}
		c := f.c
		for c.opened < len(c.off) && bins[c.off[c.opened]].opened {
			c.opened++
		}
		for _, at := range c.off[c.opened:] {
			b := &bins[at]
			if b.opened || b.mark == p.gen || b.kept || f.barred != nil && f.barred[at] {
				continue
			}
			if !yield(f, at, f.whole) {
				return
			}
		}
	}
}

// deal gives each chosen node its tasks, core by core in turns (dist_tasks.c _dist_tasks_compute_c_b), and its part of what is asked
// for the job as a whole.
func (p *placer) deal(n *need) bool {
	slices.SortFunc(p.spots, func(a, b spot) int { return cmp.Compare(a.bin, b.bin) })
	given := int64(0)
	give := func(s *spot, tasks int64) {
		tasks = max(0, min(tasks, s.room-s.tasks, n.tasks-given))
		s.tasks += tasks
		given += tasks
	}
	for i := range p.spots {
		s := &p.spots[i]
		s.tasks = max(1, min(s.f.least, n.tasks-given-int64(len(p.spots)-1-i)))
		given += s.tasks
	}
	for i := range p.spots {
		give(&p.spots[i], p.spots[i].step()-p.spots[i].tasks)
	}
	for given < n.tasks {
		turn := int64(0)
		for i := range p.spots {
			if s := &p.spots[i]; s.tasks < s.room {
				turn += s.step()
			}
		}
		if turn == 0 {
			return false
		}
		turns := max(1, (n.tasks-given)/turn)
		for i := range p.spots {
			give(&p.spots[i], turns*p.spots[i].step())
		}
	}
	if len(n.gresJob) > 0 && !p.dealGres(n) {
		return false
	}
	return true
}

// step is how many tasks fill a core.
func (s *spot) step() int64 { return max(1, s.f.c.threads/s.f.n.perTask()) }

// dealGres spreads the job's resources over its nodes, at least one to each where there are enough.
func (p *placer) dealGres(n *need) bool {
	for i := range p.spots {
		p.spots[i].job, p.spots[i].gpus = make([]int64, len(n.gresJob)), 0
	}
	for g, want := range n.gresJob {
		rest := want.Count
		for round := range 2 {
			for i := range p.spots {
				s := &p.spots[i]
				have := left(&p.w.bins[s.bin], s.f.asks[len(s.f.asks)-s.f.jobAsks+g]) - s.job[g]
				take := min(have, rest)
				if round == 0 {
					take = min(take, 1)
				}
				s.job[g] += take
				rest -= take
			}
		}
		if rest > 0 {
			return false
		}
	}
	for i := range p.spots {
		s := &p.spots[i]
		for g, want := range n.gresJob {
			if want.Name == "gpu" {
				s.gpus += s.job[g]
			}
		}
		if !s.f.fits(&p.w.bins[s.bin], s.tasks, s.gpus) {
			return false
		}
	}
	return true
}

// take uses the chosen nodes up.
func (p *placer) take() {
	for i := range p.spots {
		s := &p.spots[i]
		b := &p.w.bins[s.bin]
		c := s.f.c
		if p.trial {
			p.undo = append(p.undo, undo{at: s.bin, b: *b, gres: append([]int64(nil), b.gres...), opened: c.opened, full: c.full})
		}
		s.off = b.state == NodeOff
		if s.off && !b.opened {
			b.opened, s.opens = true, true
			c.lists[booting], c.lack[booting] = append(c.lists[booting], s.bin), math.MaxInt64
		}
		s.f.use(b, s)
	}
}

// takeBack undoes everything since the trial began.
func (p *placer) takeBack() {
	for i := len(p.undo) - 1; i >= 0; i-- {
		u := &p.undo[i]
		b, c := &p.w.bins[u.at], p.w.classes[u.b.class]
		if b.opened && !u.b.opened {
			c.lists[booting] = c.lists[booting][:len(c.lists[booting])-1] // opened last
		}
		copy(b.gres, u.gres)
		*b = u.b
		c.opened, c.full = u.opened, u.full
	}
	p.undo = p.undo[:0]
}

// giveBack undoes what was done to these nodes since the trial began.
func (p *placer) giveBack(bins map[int32]bool) {
	if len(bins) == 0 {
		return
	}
	for i := len(p.undo) - 1; i >= 0; i-- {
		u := &p.undo[i]
		if !bins[u.at] {
			continue
		}
		b, c := &p.w.bins[u.at], p.w.classes[u.b.class]
		if b.opened && !u.b.opened {
			c.lists[booting] = slices.DeleteFunc(c.lists[booting], func(at int32) bool { return at == u.at })
		}
		copy(b.gres, u.gres)
		*b = u.b
		c.opened, c.full, c.lack = 0, [2]int{}, [2]int64{math.MaxInt64, math.MaxInt64}
	}
	p.undo = p.undo[:0]
}

// use takes a job's share from the node.
func (f *fitting) use(b *bin, s *spot) {
	cores, mem := f.claim(s.tasks, s.gpus)
	b.mixed = b.mixed || !b.empty && b.user != f.n.user
	b.owned = b.owned || f.exclusive == ExclusiveUser
	b.user, b.empty, b.taken = f.n.user, false, true
	if f.exclusive == ExclusiveNode {
		b.cores, b.mem, b.plain = 0, 0, true
		clear(b.gres)
		return
	}
	if f.share > 1 {
		cores = f.useRow(b, cores)
	} else {
		b.plain = true
	}
	b.cores -= cores
	b.mem -= mem
	for i, a := range f.asks {
		want := a.amount(s.tasks)
		if g := i - (len(f.asks) - f.jobAsks); g >= 0 && s.job != nil {
			want += s.job[g]
		}
		for _, k := range a.kinds {
			n := min(want, b.gres[k])
			b.gres[k] -= n
			want -= n
		}
	}
}

// useRow puts a job's cores into its row, and tells how many of them were nobody's. Each row is filled from the first core on.
func (f *fitting) useRow(b *bin, cores int64) int64 {
	rows := make([]int64, max(len(b.rows), f.row, 1)) // the old ones may be put back
	copy(rows, b.rows)
	b.rows, b.sharedBy = rows, cmp.Or(b.sharedBy, f.part)
	if f.row == 0 {
		rows[0] += cores
		return cores
	}
	rows[f.row-1] += cores
	return max(0, rows[f.row-1]-(f.c.cores-b.cores))
}

// gpuCount is how many GPUs the job gets here.
func (s *spot) gpuCount() int64 {
	n := int64(0)
	for i, a := range s.f.asks {
		if a.name != "gpu" {
			continue
		}
		n += a.amount(s.tasks)
		if g := i - (len(s.f.asks) - s.f.jobAsks); g >= 0 && s.job != nil {
			n += s.job[g]
		}
	}
	return n
}
