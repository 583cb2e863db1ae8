package scaler

import "time"

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

// PlaceAfter places the jobs with these IDs, in this order, after all that count: as if nothing stood against them any
// more. A job finds its place alone, also if it is a component of a het job. Nodes that jobs of before use or need are not told, even if
// a job fits beside those. The answer has the order of ids; IDs that are not pending are left out.
func PlaceAfter(now time.Time, s Snapshot, ids []uint32) []Placing {
	if len(ids) == 0 {
		return nil
	}
	d := newDemand(now, &s)
	wanted := make(map[uint32]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	jobs := make(map[uint32]*Job, len(ids))
	rest := make([]Job, 0, len(s.Jobs))
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.State == JobPending && wanted[j.ID] {
			jobs[j.ID] = j
			continue
		}
		rest = append(rest, s.Jobs[i])
	}
	s.Jobs = rest
	d.reckon()
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
	for _, id := range ids {
		if j := jobs[id]; j != nil {
			delete(jobs, id)
			all = append(all, d.placeAfter(j, running, used))
		}
	}
	return all
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
