package scaler

import (
	"math"
	"time"
)

// Reservation is one of Slurm's, as far as it decides when jobs start where.
type Reservation struct {
	Nodes string // hostlist
	Start time.Time
}

// Placing is where a job that does not count yet would run.
type Placing struct {
	ID    uint32
	Tasks int          // that found a place; 0: none did, and Nodes is empty
	Nodes []PlacedNode // in the order in which it took them
}

// PlacedNode is a node that no job of before uses or needs.
type PlacedNode struct {
	NodeSet string
	Name    string // empty: it has no record yet
	Off     bool   // powered down
}

// Later is a pending job, and when it will start.
type Later struct {
	ID    uint32
	Start time.Time
}

// PlaceAfter places these jobs, in this order, after all that count: as if nothing stood against them any more. Nodes whose
// jobs have left by the job's start are free for it, and so are those whose jobs leave now. Components of a het job that stand side by side in
// list get different nodes, all of them or none.
//
// Nodes in use now, and those that jobs of before take, are not told. The answer has the order of list; IDs that are not pending are left out.
//
// grant is asked for each job, or task of an array, which of the nodes it may have. Those that it may not are there for the jobs after it, and
// are not told; an array that gets none for a task gets no more. nil grants all.
func PlaceAfter(now time.Time, s Snapshot, list []Later, grant func(id uint32, nodes []PlacedNode) []bool) []Placing {
	if len(list) == 0 {
		return nil
	}
	d := newDemand(now, &s)
	wanted := make(map[uint32]bool, len(list))
	for _, l := range list {
		wanted[l.ID] = true
	}
	jobs := make(map[uint32]*Job, len(list))
	arrays := arraysOf(s.Jobs)
	rest := make([]Job, 0, len(s.Jobs))
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.State == JobPending && wanted[j.ID] {
			jobs[j.ID] = j
			continue
		}
		rest = append(rest, s.Jobs[i])
	}
	s.Jobs = rest
	d.place(nil, false)
	for id, a := range arrays {
		if before := d.arrays[id]; before != nil {
			a.placed = before.placed
		}
	}
	d.arrays = arrays
	a := after{demand: d, grant: grant, used: make([]bool, len(d.world.bins))}
	for i := range d.world.bins {
		a.used[i] = d.world.bins[i].busy || d.world.bins[i].taken
	}
	var all []Placing
	freed := now.Add(max(0, s.FreeWithin))
	d.free(freed)
	for i := 0; i < len(list); {
		var parts []*Job
		for ; i < len(list); i++ {
			j := jobs[list[i].ID]
			if j == nil {
				continue
			}
			if len(parts) > 0 && (j.HetJobID == 0 || j.HetJobID != parts[0].HetJobID) {
				break
			}
			delete(jobs, j.ID)
			parts = append(parts, j)
			if list[i].Start.After(freed) {
				freed = list[i].Start
				d.free(freed)
			}
		}
		if len(parts) > 0 {
			all = append(all, a.place(parts)...)
		}
	}
	return all
}

// free gives nodes back whose jobs have left by then, unless somebody was placed beside them.
func (d *demand) free(until time.Time) {
	some := false
	for i := range d.world.bins {
		b := &d.world.bins[i]
		if b.busy && !b.taken && b.freeAt != 0 && b.freeAt <= until.Unix() {
			d.world.empty(b)
			b.busy, some = false, true
		}
	}
	if !some {
		return
	}
	clear(d.needs) // they remember where there was no room, and so do classes
	for _, c := range d.world.classes {
		c.full, c.lack = [2]int{}, [2]int64{math.MaxInt64, math.MaxInt64}
	}
}

// after places jobs after those that count.
type after struct {
	*demand
	grant func(id uint32, nodes []PlacedNode) []bool
	used  []bool // by place in world.bins: somebody has it already
}

// place places a job, or all components of a het job.
func (a *after) place(parts []*Job) []Placing {
	out := make([]Placing, len(parts))
	needs := make([]*need, len(parts))
	tasks, can := 0, true
	for i, j := range parts {
		out[i].ID = j.ID
		free := *j
		free.Reason, free.Begin, free.Dependent, free.Completing = "", time.Time{}, false, false
		v, n := a.look(&free)
		needs[i], tasks = a.need(&free), n
		can = can && v.Why == whyAsk && needs[i].verdict == nil
	}
	p := &a.placer
	switch {
	case !can:
	case len(parts) > 1:
		placed := make([][]spot, len(parts))
		if !p.all(needs, func(i int, spots []spot) { placed[i] = spots }) {
			break
		}
		back := map[int32]bool{}
		for i, spots := range placed {
			a.take(&out[i], spots, back)
		}
		p.giveBack(back)
	default:
		array := a.arrays[parts[0].ArrayJobID]
		for more := true; more && tasks > 0; tasks-- {
			p.trial, p.undo = true, p.undo[:0]
			spots := p.place(needs[0])
			p.trial = false
			if spots == nil {
				break
			}
			array.take()
			back := map[int32]bool{}
			more = a.take(&out[0], spots, back)
			p.giveBack(back)
		}
	}
	return out
}

// take asks which nodes a job, or task, may have, and notes what it may not in back. It is false if it gets none of what it asks for.
func (a *after) take(out *Placing, spots []spot, back map[int32]bool) bool {
	var nodes []PlacedNode
	var at []int32
	for i := range spots {
		s := &spots[i]
		if a.used[s.bin] || s.f.c.set == foreign {
			a.used[s.bin] = true
			continue
		}
		nodes = append(nodes, PlacedNode{NodeSet: a.snap.NodeSets[s.f.c.set].Name, Name: a.world.bins[s.bin].name, Off: s.off})
		at = append(at, s.bin)
	}
	out.Tasks++
	if len(nodes) == 0 {
		return true
	}
	var may []bool
	if a.grant != nil {
		may = a.grant(out.ID, nodes)
	}
	some := false
	for i, n := range nodes {
		if may != nil && !may[i] {
			back[at[i]] = true
			continue
		}
		a.used[at[i]], some = true, true
		out.Nodes = append(out.Nodes, n)
	}
	return some
}
