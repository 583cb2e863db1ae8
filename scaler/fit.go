package scaler

import (
	"math"
	"slices"
	"strings"
)

// fitting is how a job's tasks fit on the nodes of a class.
type fitting struct {
	n         *need
	c         *class
	exclusive Exclusive
	part      string
	share     int64 // jobs that may use one core
	row       int   // 0: it is to have cores that are nobody's; else those that are nobody's in this row, counted from 1
	perSocket int64 // cores handed out at once; 1 unless whole sockets are
	usable    int64 // CPUs of a core that the job's tasks use
	charged   int64 // CPUs of a core that memory per CPU is charged for
	maxCores  int64 // of one node, for all jobs of the partition
	asks      []ask
	jobAsks   int            // as many at the end of asks are per job
	barred    map[int32]bool // nodes of the class that the job excludes
	noMemory  bool

	least  int64 // tasks on a node, at least
	whole  int64 // tasks an empty node runs; 0: less than least
	cores  int64 // what least takes
	mem    int64
	cursor [2]int // as many at the start of class.lists have no room for least
}

// ask is an amount of a generic resource.
type ask struct {
	name, kind       string
	dim              int   // of name in world.gres
	kinds            []int // of class.kinds, that serve
	perNode, perTask int64
	perJob           int64
}

// newFitting works out how the job fits on the class's nodes in a partition, nil for none in particular.
func (w *world) newFitting(n *need, c *class, part *Partition) (*fitting, lacks) {
	sel, r := w.snap.Select, n.req
	f := w.blank()
	*f = fitting{n: n, c: c, exclusive: r.Exclusive, share: 1, perSocket: 1, usable: c.threads, maxCores: math.MaxInt32, least: n.leastTasks, noMemory: sel.NoMemory}
	if part != nil {
		f.exclusive = max(f.exclusive, part.Exclusive)
		if r.Exclusive == ExclusiveNode || part.Exclusive == ExclusiveNode {
			f.exclusive = ExclusiveNode // _resolve_shared_status
		}
		f.part = part.Name
		if part.shares(f.exclusive, r.Oversubscribe) {
			f.share = int64(part.Share)
		}
		if part.MaxCPUsPerNode > 0 {
			f.maxCores = int64(part.MaxCPUsPerNode) / c.threads
		}
	}
	if sel.Sockets {
		f.perSocket = max(1, c.cores/c.sockets)
	}
	f.charged = c.threads
	var miss lacks
	if t := int64(r.ThreadsPerCore); t > 0 {
		f.usable = min(f.usable, t)
		f.charged = f.usable
		if t > max(1, int64(c.shape.Threads)) {
			miss |= lacksSockets
		}
	}
	if t := int64(r.TasksPerCore); t > 0 {
		f.usable = min(f.usable, mul(t, max(1, n.cpusPerTask)))
	}
	if int64(r.SocketsPerNode) > c.sockets || int64(r.CoresPerSocket) > max(c.cores/c.sockets, int64(c.shape.Cores)) {
		miss |= lacksSockets
	}
	if r.TmpDisk > c.shape.TmpDisk {
		miss |= lacksDisk
	}
	if !f.addAsks(w) {
		miss |= lacksGres
	}
	if n.maxNodes == 1 {
		f.least = n.tasks
	}
	empty := bin{cores: c.cores, mem: c.mem, empty: true, gres: c.counts}
	f.cores, f.mem = f.claim(f.least, f.leastGPUs())
	if f.cores > min(c.cores, f.maxCores) {
		miss |= lacksCPUs
	}
	if f.mem > c.mem {
		miss |= lacksMemory
	}
	for _, a := range f.asks {
		if a.amount(f.least)+f.jobShare(a) > left(&empty, a) {
			miss |= lacksGres
		}
	}
	if r.Memory > c.shape.Memory && sel.NoMemory { // not handed out, and yet looked at: _build_node_list
		miss |= lacksMemory
	}
	if miss == 0 {
		f.whole = f.tasks(&empty)
	}
	return f, miss
}

// blank is room for one more fitting. There may be hundreds of thousands, so they are made many at a time.
func (w *world) blank() *fitting {
	if len(w.slab) == cap(w.slab) {
		w.slab = make([]fitting, 0, 256)
	}
	w.slab = append(w.slab, fitting{})
	return &w.slab[len(w.slab)-1]
}

// addAsks finds what of the class's generic resources serves. It is false when one is not there at all.
func (f *fitting) addAsks(w *world) bool {
	n, ok := f.n, f.c.problem == nil
	add := func(name, kind string, a ask) {
		for i := range f.asks {
			if o := &f.asks[i]; o.name == name && o.kind == kind {
				o.perNode, o.perTask = max(o.perNode, a.perNode), max(o.perTask, a.perTask)
				return
			}
		}
		a.name, a.kind, a.dim = name, kind, slices.Index(w.gres, name)
		for k, g := range f.c.kinds {
			if g.Name == name && (kind == "" || strings.EqualFold(kind, g.Type)) {
				a.kinds = append(a.kinds, k)
			}
		}
		ok = ok && len(a.kinds) > 0
		f.asks = append(f.asks, a)
	}
	for _, g := range n.gresNode {
		add(g.Name, g.Type, ask{perNode: g.Count})
	}
	for _, g := range n.gresSocket {
		add(g.Name, g.Type, ask{perNode: mul(g.Count, max(1, int64(n.req.SocketsPerNode)))})
	}
	for _, g := range n.gresTask {
		add(g.Name, g.Type, ask{perTask: g.Count})
	}
	for _, g := range n.gresJob {
		add(g.Name, g.Type, ask{perJob: g.Count})
	}
	f.jobAsks = len(n.gresJob)
	return ok
}

// amount is what so many tasks on a node have of it, but for the job's own.
func (a ask) amount(tasks int64) int64 { return max(a.perNode, mul(a.perTask, tasks)) }

// jobShare is what a node must have of a resource that is asked for the job as a whole.
func (f *fitting) jobShare(a ask) int64 {
	if f.n.maxNodes == 1 {
		return a.perJob
	}
	return min(1, a.perJob)
}

// leastGPUs is what of a job's GPUs a node must have at the least, besides those per task and node.
func (f *fitting) leastGPUs() int64 {
	for _, g := range f.n.gresJob {
		if g.Name == "gpu" {
			if f.n.maxNodes == 1 {
				return g.Count
			}
			return divUp(g.Count, f.n.maxNodes)
		}
	}
	return 0
}

// claim is what so many tasks on one node take of it, with so many of the GPUs the job asks for as a whole.
func (f *fitting) claim(tasks, jobGPUs int64) (cores, mem int64) {
	n := f.n
	gpus := jobGPUs
	if n.cpusPerGPU > 0 || n.memPerGPU > 0 {
		for _, a := range f.asks {
			if a.name == "gpu" {
				gpus += a.amount(tasks)
			}
		}
	}
	cpus := max(mul(tasks, n.cpusPerTask), int64(n.req.CPUsPerNode), mul(gpus, n.cpusPerGPU), 1)
	switch t := int64(n.req.TasksPerCore); {
	case t == 1 && n.cpusPerTask > f.usable:
		cores = mul(tasks, divUp(n.cpusPerTask, f.usable))
	case t > 0:
		cores = max(divUp(cpus, f.usable), divUp(tasks, t))
	default:
		cores = divUp(cpus, f.usable)
	}
	cores = divUp(cores, f.perSocket) * f.perSocket
	r := n.req
	switch {
	case f.noMemory:
	case n.memPerGPU > 0:
		mem = mul(gpus, n.memPerGPU)
	case r.MemoryPerCPU:
		mem = mul(cores*f.charged, n.mem)
	case r.Memory == 0:
		mem = f.c.mem // all of it: _verify_node_state
	default:
		mem = n.mem
	}
	return cores, mem
}

// left is how much of what is asked for the bin has.
func left(b *bin, a ask) int64 {
	var n int64
	for _, k := range a.kinds {
		n += b.gres[k]
	}
	return n
}

// free is how many cores of the bin the job could have.
func (f *fitting) free(b *bin) int64 {
	limit := b.cores
	if f.row > 0 {
		limit = f.c.cores - b.inRow(f.row-1)
	}
	if f.maxCores < f.c.cores {
		limit = min(limit, f.maxCores-(f.c.cores-limit))
	}
	return limit
}

// plain reports whether free is what the bin has left.
func (f *fitting) plain() bool { return f.share == 1 && f.maxCores >= f.c.cores }

// admits reports whether the job may share the bin with those on it.
func (f *fitting) admits(b *bin) bool {
	switch {
	case f.share > 1 && (b.plain || f.row > 0 && b.sharedBy != "" && b.sharedBy != f.part):
		return false // job_test.c _verify_node_state, NODE_CR_ONE_ROW; and rows are a partition's
	case f.share == 1 && b.sharedBy != "" && b.sharedBy != f.part: // _is_node_busy
		return false
	case f.exclusive == ExclusiveNode:
		return b.empty
	case f.exclusive == ExclusiveUser:
		return b.empty || !b.mixed && b.user == f.n.user
	}
	return !b.owned || b.user == f.n.user // filter_by_node_owner
}

// fits reports whether the bin has room for so many tasks and job GPUs.
func (f *fitting) fits(b *bin, tasks, jobGPUs int64) bool {
	cores, mem := f.claim(tasks, jobGPUs)
	if cores > f.free(b) || mem > b.mem {
		return false
	}
	for _, a := range f.asks {
		if a.amount(tasks)+f.jobShare(a) > left(b, a) {
			return false
		}
	}
	return true
}

// tasks is how many tasks of the job the bin can run, 0 if less than it must.
func (f *fitting) tasks(b *bin) int64 {
	if f.cores > f.free(b) || f.mem > b.mem || !f.admits(b) {
		return 0
	}
	gpus := f.leastGPUs()
	if !f.fits(b, f.least, gpus) {
		return 0
	}
	return f.largest(b, gpus, min(f.n.tasks, f.n.mostTasks))
}

// largest is the largest number of tasks up to hi that fits, no less than the least.
func (f *fitting) largest(b *bin, gpus, hi int64) int64 {
	lo := f.least
	if s := int64(f.n.req.TasksPerSocket); s > 0 {
		hi = min(hi, max(lo, s*f.c.sockets))
	}
	for lo < hi { // the largest that fits; claim grows with it
		mid := (lo + hi + 1) / 2
		if f.fits(b, mid, gpus) {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}
