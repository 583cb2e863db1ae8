package scaler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// foreign stands for the nodes outside of all NodeSets, in the place of a NodeSet's index.
const foreign = -1

// class is a kind of nodes: any job that fits one of them fits all, as long as they are empty.
type class struct {
	at          int32 // in world.classes
	kind        int32 // the same for classes whose nodes are of one size
	set         int   // NodeSet, or foreign
	shape       *Shape
	partitions  []string
	reservation string

	cores, threads int64 // whole cores jobs may use; CPUs of a core
	sockets        int64
	mem            int64
	kinds          []slurmconf.Gres // summed up by name and type
	counts         []int64          // of kinds
	dims           []int            // where the kind's name is in world.gres
	problem        error            // the Gres cannot be read: nothing is known of such nodes

	bins   []int32    // all of its nodes
	usable int        // of them can run jobs, now or once powered up
	lists  [2][]int32 // those up; those that boot, and then those that are powered up here
	full   [2]int     // as many at the start of each list have no core left
	lack   [2]int64   // no node of the list has as many cores left
	off    []int32    // powered down
	opened int        // as many at the start of off are powered up here
}

// Indices of class.lists.
const (
	up      = 0
	booting = 1
)

// bin is one node, and what is left of it.
type bin struct {
	class      int32
	name       string
	cores, mem int64
	rows       []int64 // cores that jobs which share them have, by row: those of one row share with none of it; see fitting.row
	sharedBy   string  // partition of theirs
	plain      bool    // with jobs on it that share their cores with none
	gres       []int64 // left, by class.kinds
	state      NodeState
	busy       bool   // jobs are on it now
	freeAt     int64  // Unix time at which they will all have left; 0: not known
	empty      bool   // of jobs, real ones and those placed here
	user       uint32 // whose jobs are on it; with mixed: several
	mixed      bool
	owned      bool   // with jobs on it that admit none of other users
	kept       bool   // for a het job that is planned: nobody may have it
	mark       uint32 // chosen for the job that is being placed
	opened     bool   // powered down, and to be powered up for a pending job
	boots      bool   // and so early that it boots by now, see order.go
	taken      bool   // a pending job was placed on it
}

// world is the snapshot, sorted for placing jobs.
type world struct {
	now        time.Time
	snap       *Snapshot
	partitions map[string]*Partition
	classes    []*class
	bins       []bin
	byName     map[string]int32
	sets       map[string]int
	gres       []string // names of all generic resources
	slab       []fitting
	kinds      map[string]int32 // of classes, see class.kind
	fits       []kindFit        // of one request in one partition, by kind
}

func newWorld(now time.Time, s *Snapshot) *world {
	w := &world{
		now:        now,
		snap:       s,
		partitions: make(map[string]*Partition, len(s.Partitions)),
		kinds:      map[string]int32{},
		byName:     make(map[string]int32, len(s.Nodes)),
		sets:       make(map[string]int, len(s.NodeSets)),
	}
	for i := range s.Partitions {
		w.partitions[s.Partitions[i].Name] = &s.Partitions[i]
	}
	for i := range s.NodeSets {
		w.sets[s.NodeSets[i].Name] = i
	}
	w.addNodes()
	w.addMissing()
	w.addJobs()
	w.sortBins()
	return w
}

// addNodes makes classes and bins of the node records.
func (w *world) addNodes() {
	nodes := w.snap.Nodes
	// slurmctld keeps its nodes sorted by name (read_config.c _reorder_nodes_by_name), and takes them in that order.
	order := make([]int32, len(nodes))
	for i := range order {
		order[i] = int32(i)
	}
	byName := func(a, b int32) int { return compareNames(nodes[a].Name, nodes[b].Name) }
	if !slices.IsSortedFunc(order, byName) {
		slices.SortFunc(order, byName)
	}
	w.bins = make([]bin, 0, len(nodes))
	reader := classReader{w: w, shapes: map[*Shape]int{}, texts: map[string]int{}, classes: map[string]int32{}}
	for _, i := range order {
		node := &nodes[i]
		set, ok := w.sets[node.NodeSet]
		if !ok {
			set = foreign
		}
		at := reader.class(set, node.Shape, node.Partitions, node.Reservation)
		w.addBin(at, node.Name, node.State)
		b, c := &w.bins[len(w.bins)-1], w.classes[at]
		b.cores = max(0, c.cores-divUp(int64(node.AllocCPUs), c.threads))
		b.mem = max(0, c.mem-clamp(node.AllocMemory))
		b.busy = node.AllocCPUs > 0
		b.empty = !b.busy
		used, err := slurmconf.ParseGres(node.GresUsed)
		for _, g := range used {
			b.useGres(c, g)
		}
		if err != nil {
			clear(b.gres)
		}
	}
}

// useGres takes what is in use of a resource. Where the node's own list has no such type, for slurm.conf gives none and gres.conf does, it is
// taken of any.
func (b *bin) useGres(c *class, g slurmconf.Gres) {
	exact := slices.ContainsFunc(c.kinds, func(o slurmconf.Gres) bool { return o.Name == g.Name && o.Type == g.Type })
	for k, o := range c.kinds {
		if o.Name == g.Name && (o.Type == g.Type || !exact) {
			n := min(g.Count, b.gres[k])
			b.gres[k] -= n
			g.Count -= n
		}
	}
}

// addMissing makes bins for the nodes that a NodeSet may still get.
func (w *world) addMissing() {
	have := make([]int, len(w.snap.NodeSets))
	for _, c := range w.classes {
		if c.set != foreign {
			have[c.set] += len(c.bins)
		}
	}
	reader := classReader{w: w, shapes: map[*Shape]int{}, texts: map[string]int{}, classes: map[string]int32{}}
	for i, set := range w.snap.NodeSets {
		if set.Shape == nil || set.Max <= have[i] {
			continue
		}
		at := reader.class(i, set.Shape, set.Partitions, "")
		for range set.Max - have[i] {
			w.addBin(at, "", NodeOff)
			w.bins[len(w.bins)-1].empty = true
		}
	}
}

func (w *world) addBin(at int32, name string, state NodeState) {
	c := w.classes[at]
	b := bin{class: at, name: name, state: state, cores: c.cores, mem: c.mem}
	if len(c.kinds) > 0 {
		b.gres = slices.Clone(c.counts)
	}
	if name != "" {
		w.byName[name] = int32(len(w.bins))
	}
	c.bins = append(c.bins, int32(len(w.bins)))
	w.bins = append(w.bins, b)
}

// addJobs notes whose jobs are on the nodes, and until when.
func (w *world) addJobs() {
	const never = int64(1)<<62 - 1
	sharers := map[int32]int{}
	for i := range w.snap.Jobs {
		j := &w.snap.Jobs[i]
		if j.Nodes == "" || j.State != JobRunning && j.State != JobLeaving && !j.Completing {
			continue
		}
		end := never
		switch {
		case j.State == JobLeaving || j.Completing:
			end = w.now.Unix()
		case !j.End.IsZero():
			end = j.End.Unix()
		}
		nodes, err := slurmconf.ParseHostlist(j.Nodes)
		if err != nil {
			continue // the nodes' own records say that they are in use
		}
		for name := range nodes.All() {
			at, ok := w.byName[name]
			if !ok {
				continue
			}
			b := &w.bins[at]
			b.mixed = b.mixed || b.freeAt != 0 && b.user != j.UserID
			b.user, b.freeAt = j.UserID, max(b.freeAt, end)
			b.busy, b.empty = true, false
			b.owned = b.owned || j.Exclusive == ExclusiveUser
			if part := w.sharedBy(j); part != "" {
				b.sharedBy = part
				sharers[at]++
			} else {
				b.plain = true
			}
		}
	}
	for i := range w.bins {
		if b := &w.bins[i]; !b.empty && b.sharedBy == "" {
			b.plain = true
		}
	}
	for at, jobs := range sharers { // each may be in a row of its own
		b := &w.bins[at]
		for range min(jobs, w.partitions[b.sharedBy].Share) {
			b.rows = append(b.rows, w.classes[b.class].cores-b.cores)
		}
	}
	if w.snap.FreeWithin <= 0 {
		return
	}
	until := w.now.Add(w.snap.FreeWithin).Unix()
	for i := range w.bins {
		b := &w.bins[i]
		if b.busy && b.freeAt != 0 && b.freeAt <= until {
			w.empty(b)
		}
	}
}

// sharedBy is the partition of a running job that shares its cores with others, "" if it does not (job_test.c _get_job_node_req).
func (w *world) sharedBy(j *Job) string {
	name, _, _ := strings.Cut(j.Partitions, ",")
	if p := w.partitions[name]; p != nil && p.shares(j.Exclusive, j.Oversubscribe) {
		return name
	}
	return ""
}

// shares reports whether jobs of the partition share their cores.
func (p *Partition) shares(exclusive Exclusive, oversubscribe bool) bool {
	return p.Share > 1 && exclusive == ExclusiveNo && p.Exclusive == ExclusiveNo && (p.ForceShare || oversubscribe)
}

// inRow is how many cores jobs have of one row.
func (b *bin) inRow(row int) int64 {
	if row < len(b.rows) {
		return b.rows[row]
	}
	return 0
}

// empty takes all jobs off a node.
func (w *world) empty(b *bin) {
	c := w.classes[b.class]
	b.cores, b.mem, b.empty, b.user, b.mixed, b.owned = c.cores, c.mem, true, 0, false, false
	b.rows, b.sharedBy, b.plain = nil, "", false
	copy(b.gres, c.counts)
}

// sortBins puts the bins into their class's lists.
func (w *world) sortBins() {
	for i := range w.bins {
		b, c := &w.bins[i], w.classes[w.bins[i].class]
		switch b.state {
		case NodeUp:
			c.lists[up] = append(c.lists[up], int32(i))
		case NodeBooting:
			c.lists[booting] = append(c.lists[booting], int32(i))
		case NodeOff:
			c.off = append(c.off, int32(i))
		default:
			continue
		}
		c.usable++
	}
}

// classReader finds a node's class, and makes it if it is new.
type classReader struct {
	w       *world
	shapes  map[*Shape]int // by address, so that nodes that share one are quick
	texts   map[string]int // by content
	classes map[string]int32
	key     []byte
}

func (r *classReader) class(set int, s *Shape, partitions []string, reservation string) int32 {
	if s == nil {
		s = &noShape
	}
	id, ok := r.shapes[s]
	if !ok {
		text := fmt.Sprint(*s)
		if id, ok = r.texts[text]; !ok {
			id = len(r.texts)
			r.texts[text] = id
		}
		r.shapes[s] = id
	}
	r.key = fmt.Appendf(r.key[:0], "%d %d %s ", set, id, reservation)
	for _, p := range partitions {
		r.key = append(append(r.key, p...), ',')
	}
	if at, ok := r.classes[string(r.key)]; ok {
		return at
	}
	c := &class{at: int32(len(r.w.classes)), lack: [2]int64{math.MaxInt64, math.MaxInt64}, set: set, shape: s, partitions: partitions, reservation: reservation}
	c.measure(r.w.snap.Select)
	for _, g := range c.kinds {
		c.counts = append(c.counts, g.Count)
		c.dims = append(c.dims, r.w.gresName(g.Name))
	}
	c.kind = r.w.kindOf(c)
	at := int32(len(r.w.classes))
	r.w.classes = append(r.w.classes, c)
	r.classes[string(r.key)] = at
	return at
}

var noShape Shape

// kindOf gives classes whose nodes have the same to offer, but for features and whose they are, one number.
func (w *world) kindOf(c *class) int32 {
	s := c.shape
	text := fmt.Sprint(c.cores, c.threads, c.sockets, c.mem, c.kinds, c.problem, s.Cores, s.Threads, s.Memory, s.TmpDisk)
	k, ok := w.kinds[text]
	if !ok {
		k = int32(len(w.kinds))
		w.kinds[text] = k
		w.fits = append(w.fits, kindFit{})
	}
	return k
}

// gresName is where a resource's name is in world.gres.
func (w *world) gresName(name string) int {
	at := slices.Index(w.gres, name)
	if at < 0 {
		at = len(w.gres)
		w.gres = append(w.gres, name)
	}
	return at
}

// measure works out what an empty node of the class has.
func (c *class) measure(sel Select) {
	s := c.shape
	c.cores, c.threads, c.sockets, c.mem = int64(s.CPUs), 1, max(1, int64(s.Sockets)), clamp(s.Memory)
	// Where CPUs= counts cores, a core is one CPU whatever its threads (node_conf.c: tpc).
	if s.Sockets > 0 && s.Threads > 1 && !sel.CPUs && s.CPUs > s.Sockets*max(1, s.Cores) {
		c.threads = int64(s.Threads)
		c.cores = int64(s.CPUs) / c.threads
	}
	gres, err := s.offer()
	c.problem = err
	for _, g := range gres {
		g.Count = min(g.Count, plenty)
		if k := slices.IndexFunc(c.kinds, func(o slurmconf.Gres) bool { return o.Name == g.Name && o.Type == g.Type }); k >= 0 {
			c.kinds[k].Count += g.Count
		} else {
			c.kinds = append(c.kinds, g)
		}
	}
}

// compareNames orders n2 before n10.
func compareNames(a, b string) int {
	pa, pb := strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")
	if c := cmp.Compare(pa, pb); c != 0 {
		return c
	}
	na, nb := strings.TrimLeft(a[len(pa):], "0"), strings.TrimLeft(b[len(pb):], "0")
	return cmp.Or(cmp.Compare(len(na), len(nb)), cmp.Compare(na, nb), cmp.Compare(len(a), len(b)))
}
