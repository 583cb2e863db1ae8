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
// jobs have left by the job's start are free for it. A job finds its place alone, also if it is a component of a het job.
//
// Nodes in use now, and those that jobs of before take, are not told. The answer has the order of list; IDs that are not pending are left out.
func PlaceAfter(now time.Time, s Snapshot, list []Later) []Placing {
	if len(list) == 0 {
		return nil
	}
	d := newDemand(now, &s)
	wanted := make(map[uint32]bool, len(list))
	for _, l := range list {
		wanted[l.ID] = true
	}
	jobs := make(map[uint32]*Job, len(list))
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
	used := make([]bool, len(d.world.bins))
	for i := range d.world.bins {
		used[i] = d.world.bins[i].busy || d.world.bins[i].taken
	}
	running := map[uint32]int{}
	for i := range rest {
		if j := &rest[i]; j.State == JobRunning && j.ArrayJobID != 0 {
			running[j.ArrayJobID]++
		}
	}
	var all []Placing
	freed := now.Add(s.FreeWithin)
	for _, l := range list {
		if j := jobs[l.ID]; j != nil {
			delete(jobs, l.ID)
			if l.Start.After(freed) {
				freed = l.Start
				d.free(freed)
			}
			all = append(all, d.placeAfter(j, running, used))
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

func (d *demand) placeAfter(j *Job, running map[uint32]int, used []bool) Placing {
	out := Placing{ID: j.ID}
	free := *j
	free.Reason, free.Begin, free.Dependent, free.Completing = "", time.Time{}, false, false
	v, tasks := d.look(&free, running)
	n := d.need(&free)
	if v.Why != whyAsk || n.verdict != nil {
		return out
	}
	for range tasks {
		spots := d.placer.place(n)
		if spots == nil {
			break
		}
		out.Tasks++
		for i := range spots {
			at := spots[i].bin
			before := used[at]
			used[at] = true
			if before || spots[i].f.c.set == foreign {
				continue
			}
			b := &d.world.bins[at]
			out.Nodes = append(out.Nodes, PlacedNode{NodeSet: d.snap.NodeSets[spots[i].f.c.set].Name, Name: b.name, Off: spots[i].off})
		}
	}
	return out
}
