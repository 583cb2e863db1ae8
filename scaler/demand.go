package scaler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is what Demand finds.
type Report struct {
	NodeSets []NodeSetDemand // in the order of Snapshot.NodeSets
	// New is the number of nodes to power up in all NodeSets. Its lower bound may be more than the sum of the
	// NodeSets' own, for a job that may run in two of them counts in neither.
	New Estimate
	// Jobs has one entry for each pending record, in the order of Snapshot.Jobs.
	Jobs []JobDemand
}

// Estimate is a number of nodes between a bound that no placing of the jobs can go below, and what placing them
// one by one as Slurm does takes.
type Estimate struct{ Lower, Greedy int }

// NodeSetDemand is what the queue means for one NodeSet.
type NodeSetDemand struct {
	Name string
	// New is the number of nodes to power up now, so that all jobs that count start.
	New Estimate
	// PowerUp names New.Greedy nodes that would do: those that were reckoned with, in the order in which jobs took them. Nodes that
	// have no record yet are missing.
	PowerUp []string
	// Ready are nodes up or booting, not in use, that jobs which count will take. With InUse and New.Greedy it
	// makes the number of nodes the NodeSet needs.
	Ready int
	// InUse are nodes with jobs on them. FreeingSoon are those of them whose jobs are leaving, or all end within a minute by their
	// time limits, or within Options.FreeWithin if that is longer.
	InUse, FreeingSoon int
	// Up, Booting, Off and Unusable make all nodes of the NodeSet.
	Up, Booting, Off, Unusable int
	// Jobs, CPUs and GPUs are what counts and was placed here; a job on several NodeSets is one of the first's.
	Jobs, CPUs, GPUs int64
}

// Nodes is the number of nodes the NodeSet needs: those in use, and those for the jobs that count.
func (d NodeSetDemand) Nodes() int { return d.InUse + d.Ready + d.New.Greedy }

// JobDemand is why a pending job counts, or does not.
type JobDemand struct {
	ID     uint32
	Why    Why
	Detail string // Slurm's reason, or in words what stands against it; empty when it counts
	// Tasks is 1, or the pending tasks in the record of an array; at least as many if More. Counted of them count.
	Tasks, Counted int
	More           bool
	New            int // nodes to be powered up that no job before it needs
}

// String is used in logs and by explain.
func (j JobDemand) String() string {
	s := fmt.Sprintf("job %d: %s", j.ID, j.Why)
	if j.Tasks > 1 {
		s += fmt.Sprintf(" (%d of %d tasks count)", j.Counted, j.Tasks)
	}
	if j.New > 0 {
		s += fmt.Sprintf(", powers up %d", j.New)
	}
	if j.Detail != "" {
		s += ": " + j.Detail
	}
	return s
}

// Demand works out what the pending jobs need. It is pure: the same snapshot and time give the same report,
// in whatever order jobs and nodes stand in it.
func Demand(now time.Time, s Snapshot) Report {
	return newDemand(now, &s).reckon()
}

func newDemand(now time.Time, s *Snapshot) *demand {
	return &demand{now: now, snap: s, needs: map[needKey]*need{}, looks: exactLooks, rounds: true}
}

func (d *demand) reckon() Report {
	d.place(nil, false)
	if d.rounds && d.placer.looks > 0 {
		d = d.refine()
	}
	d.countNodes()
	sets, total := d.world.lowerBounds(d.pools, d.inOrder)
	for i := range sets {
		d.report.NodeSets[i].New.Lower = sets[i]
		d.report.New.Greedy += d.report.NodeSets[i].New.Greedy
	}
	d.report.New.Lower = total
	return d.report
}

// place gives each job its nodes. With a choice, nodes of NodeSets outside of it are powered up for jobs that find no room otherwise, or,
// if strict, not at all.
func (d *demand) place(only nodeChoice, strict bool) {
	d.world = newWorld(d.now, d.snap)
	d.placer = placer{w: d.world, looks: d.looks, only: only, strict: strict}
	d.report.NodeSets = make([]NodeSetDemand, len(d.snap.NodeSets))
	d.pools = d.world.pools()
	d.classify()
	d.inTurn()
}

// demand is the state of one call of Demand.
type demand struct {
	now     time.Time
	snap    *Snapshot
	world   *world
	placer  placer
	needs   map[needKey]*need
	inOrder []*need
	arrays  map[uint32]*arrayUse // by ID of the array
	byUser  bool                 // users matter
	queue   []entry
	started int // jobs, or tasks, or components
	report  Report
	pools   []pool
	looks   int                           // of placer
	rounds  bool                          // refine
	tell    func(id uint32, spots []spot) // for tests: where a job, or a task of an array, was placed
}

type needKey struct {
	Request
	user uint32
}

// entry is a job that waits for nodes, or a het job with its components.
type entry struct {
	tier     int
	priority uint32
	id       uint32
	count    int       // tasks of an array
	done     int       // of them have nodes
	array    *arrayUse // nil outside arrays
	parts    []component
	first    component // the only one, if parts is nil
}

type component struct {
	at     int32 // in report.Jobs
	offset int   // of a het job
	need   *need
}

// classify says of each pending job whether it waits for nodes, and queues those that do in the order in which
// slurmctld looks at them (job_scheduler.c sort_job_queue2): partition tier, priority, age.
func (d *demand) classify() {
	pending := 0
	for i := range d.snap.Jobs {
		j := &d.snap.Jobs[i]
		d.byUser = d.byUser || j.Exclusive == ExclusiveUser
		if j.State == JobPending {
			pending++
		}
	}
	d.arrays = arraysOf(d.snap.Jobs)
	for _, p := range d.snap.Partitions {
		d.byUser = d.byUser || p.Exclusive == ExclusiveUser
	}
	d.report.Jobs = make([]JobDemand, 0, pending)
	hets := map[uint32][]*Job{}
	d.queue = make([]entry, 0, pending)
	for i := range d.snap.Jobs {
		j := &d.snap.Jobs[i]
		if j.State != JobPending {
			continue
		}
		at := int32(len(d.report.Jobs))
		v, tasks := d.look(j)
		d.report.Jobs = append(d.report.Jobs, v)
		if j.HetJobID != 0 {
			hets[j.HetJobID] = append(hets[j.HetJobID], j)
		}
		if v.Why != whyAsk {
			continue
		}
		n := d.need(j)
		e := entry{priority: j.Priority, id: j.ID, count: tasks, array: d.arrays[j.ArrayJobID], first: component{at, j.HetOffset, n}}
		for _, p := range n.partitions(d.world.partitions) {
			e.tier = max(e.tier, p.Tier)
		}
		if j.HetJobID != 0 {
			e.id = j.HetJobID
			e.parts = []component{e.first}
		}
		d.queue = append(d.queue, e)
	}
	if len(hets) > 0 {
		d.joinHets(hets)
	}
	slices.SortStableFunc(d.queue, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.tier, a.tier), cmp.Compare(b.priority, a.priority), cmp.Compare(a.id, b.id), cmp.Compare(a.first.id(d), b.first.id(d)))
	})
}

func (c component) id(d *demand) uint32 { return d.report.Jobs[c.at].ID }

// look gives a pending job its class, as far as it can be told from the job alone, and how many of its tasks may run.
func (d *demand) look(j *Job) (JobDemand, int) {
	v := JobDemand{ID: j.ID, Tasks: 1}
	tasks := 1
	if j.ArrayTasks != "" {
		tasks, v.More = ArrayTasks(j.ArrayTasks)
		v.Tasks = tasks
	}
	v.Why, v.Detail = reasonWhy(j.Reason)
	switch {
	case j.Completing:
		v.Why, v.Detail = WhyCleaning, "still leaves the nodes it had"
	case j.Reason == "BadConstraints": // also held, and the near miss says more
		if n := d.need(j); n.verdict != nil {
			v.Why, v.Detail = n.verdict.why, n.verdict.detail
		} else {
			v.Detail = "held as BadConstraints, although a NodeSet could run it: scontrol release it"
		}
	case v.Why == WhyHeld:
	case j.Priority == 0:
		v.Why, v.Detail = WhyHeld, "its priority is 0"
	case j.Begin.After(d.now):
		v.Why, v.Detail = WhyBeginTime, "not before "+j.Begin.UTC().Format(time.RFC3339)
	case j.Dependent:
		v.Why, v.Detail = WhyDependency, "Dependency"
	case v.Why == WhyBeginTime: // Slurm has not looked since
		v.Why = whyAsk
	case v.Why == WhyArrayLimit || v.Why == whyAsk:
		a := d.arrays[j.ArrayJobID]
		if a == nil || a.limit == 0 {
			break
		}
		tasks = min(tasks, a.left())
		if v.Why = whyAsk; tasks == 0 {
			v.Why, v.Detail = WhyArrayLimit, a.full()
		}
	}
	return v, tasks
}

// need finds the worked-out request of a job.
func (d *demand) need(j *Job) *need {
	key := needKey{Request: j.Request}
	if d.snap.Select.OneTaskPerCore && key.TasksPerCore == 0 {
		key.TasksPerCore = 1
	}
	if d.byUser {
		key.user = j.UserID
	}
	n, ok := d.needs[key]
	if !ok {
		n = newNeed(key.Request, key.user)
		if n.problem != "" {
			n.verdict = &verdict{WhyUnknown, "cannot read its request: " + n.problem}
		} else {
			d.world.prepare(n)
		}
		d.needs[key] = n
		d.inOrder = append(d.inOrder, n)
	}
	return n
}

// joinHets makes one entry of the components of each het job. If one of them does not wait for nodes, none does:
// Slurm starts all or none (backfill.c _het_job_start_test).
func (d *demand) joinHets(hets map[uint32][]*Job) {
	at := map[uint32]int{} // in kept, by het job
	kept := d.queue[:0]
	for _, e := range d.queue {
		if e.parts == nil {
			kept = append(kept, e)
			continue
		}
		k, ok := at[e.id]
		if !ok {
			at[e.id] = len(kept)
			kept = append(kept, e)
			continue
		}
		lead := &kept[k]
		lead.parts = append(lead.parts, e.parts...)
		lead.priority, lead.tier = max(lead.priority, e.priority), max(lead.tier, e.tier)
	}
	d.queue = slices.DeleteFunc(kept, func(e entry) bool {
		if e.parts == nil || len(e.parts) == len(hets[e.id]) {
			return false
		}
		for _, c := range e.parts {
			d.blockHet(c, hets[e.id])
		}
		return true
	})
	for i := range d.queue {
		if parts := d.queue[i].parts; parts != nil {
			slices.SortFunc(parts, func(a, b component) int { return cmp.Compare(a.offset, b.offset) })
			d.queue[i].first = parts[0]
		}
	}
}

// blockHet gives a component the class of the first one that does not wait for nodes.
func (d *demand) blockHet(c component, jobs []*Job) {
	slices.SortFunc(jobs, func(a, b *Job) int { return cmp.Compare(a.HetOffset, b.HetOffset) })
	for _, j := range jobs {
		i := slices.IndexFunc(d.report.Jobs, func(v JobDemand) bool { return v.ID == j.ID })
		if v := d.report.Jobs[i]; v.Why != whyAsk && v.ID != c.id(d) {
			d.settle(c, v.Why, fmt.Sprintf("component %d: %s", j.HetOffset, v.Detail))
			return
		}
	}
}

func (d *demand) settle(c component, why Why, detail string) {
	v := &d.report.Jobs[c.at]
	v.Why, v.Detail = why, detail
}

// run places an entry, as many of its tasks as there is room for.
func (d *demand) run(e *entry) {
	parts := e.parts
	if parts == nil {
		parts = []component{e.first}
	}
	for _, c := range parts {
		if bad := c.need.verdict; bad != nil {
			for _, other := range parts {
				detail := bad.detail
				if len(parts) > 1 {
					detail = fmt.Sprintf("component %d: %s", c.offset, detail)
				}
				d.settle(other, bad.why, detail)
			}
			return
		}
	}
	if len(parts) > 1 {
		if !d.placer.all(e.needs(), func(i int, spots []spot) { d.count(parts[i], spots) }) {
			for _, c := range parts {
				d.settle(c, WhyFull, noRoom(parts))
			}
			return
		}
		e.done++
		return
	}
	for range min(e.count-e.done, e.array.left()) {
		spots := d.placer.place(e.first.need)
		if spots == nil {
			break
		}
		d.count(e.first, spots)
		e.array.take()
		e.done++
	}
	switch {
	case d.report.Jobs[e.first.at].Counted > 0:
	case e.array.left() == 0: // by other records of the array
		d.settle(e.first, WhyArrayLimit, e.array.full())
	default:
		d.settle(e.first, WhyFull, noRoom(parts))
	}
}

func noRoom(parts []component) string {
	var names []string
	for _, c := range parts {
		for name := range strings.SplitSeq(c.need.req.Partitions, ",") {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return "the nodes that could run it are in use or out of order (partition " + strings.Join(names, ",") + ")"
}

// count notes what one job, or task of an array, was given.
func (d *demand) count(c component, spots []spot) {
	v := &d.report.Jobs[c.at]
	if v.Counted == 0 {
		v.Why, v.Detail = WhyRoom, ""
	}
	v.Counted++
	c.need.placed++
	d.started++
	if d.tell != nil {
		d.tell(v.ID, spots)
	}
	for i := range spots {
		s := &spots[i]
		if s.off {
			v.Why = WhyCapacity
		}
		if s.opens {
			v.New++
		}
		if s.f.c.set == foreign {
			continue
		}
		set := &d.report.NodeSets[s.f.c.set]
		if name := d.world.bins[s.bin].name; s.opens && name != "" && !d.world.bins[s.bin].busy {
			set.PowerUp = append(set.PowerUp, name)
		}
		if i == 0 {
			set.Jobs++
		}
		cores, _ := s.f.claim(s.tasks, s.gpus)
		if s.f.exclusive == ExclusiveNode {
			cores = s.f.c.cores
		}
		set.CPUs += cores * s.f.c.threads
		set.GPUs += s.gpuCount()
	}
}

// soonFree is what counts as soon. Powering up another node takes about as long.
const soonFree = time.Minute

// countNodes sums up the nodes of the NodeSets.
func (d *demand) countNodes() {
	soon := d.now.Add(max(soonFree, d.snap.FreeWithin)).Unix()
	for i, set := range d.snap.NodeSets {
		d.report.NodeSets[i].Name = set.Name
	}
	for i := range d.world.bins {
		b := &d.world.bins[i]
		at := d.world.classes[b.class].set
		if at == foreign {
			continue
		}
		set := &d.report.NodeSets[at]
		switch b.state {
		case NodeUp:
			set.Up++
		case NodeBooting:
			set.Booting++
		case NodeOff:
			set.Off++
		default:
			set.Unusable++
		}
		switch {
		case b.busy:
			set.InUse++
			if b.freeAt != 0 && b.freeAt <= soon {
				set.FreeingSoon++
			}
		case b.opened:
			set.New.Greedy++
		case b.taken:
			set.Ready++
		}
	}
}
