package watch

import (
	"cmp"
	"slices"
)

const (
	// window is how many IDs beyond the last one known are looked at. slurmctld gives them out in turn, one for each job, component of a
	// het job and array, and one for each task of an array when it starts.
	window = 64
	// gap is how many IDs may lie between two that were given out one after the other: those between have come and gone.
	gap = 1024
	// fronts is how many places are looked at.
	fronts = 4
	// federated is the bit of an ID from which on it tells the cluster of a federation (fed_mgr.c FED_MGR_CLUSTER_ID_BEGIN).
	federated = 26
)

// nextIDs tells where slurmctld gives out IDs: each is the highest that it is known to have given out in turn, that of the latest find first.
// There are several since an ID that is lower than others may be a job that is queued once more, or mean that slurmctld has come to MaxJobId, or lost its
// state, and begun again with FirstJobId (job_mgr.c get_next_job_id); and since jobs of other clusters of a federation have theirs.
type nextIDs []uint32

// ask returns the IDs that come next, by front, without those that are known to be taken: slurmctld passes over them, too.
func (n nextIDs) ask(taken func(uint32) bool) (ahead [][]uint32) {
	asked := map[uint32]bool{}
	for _, front := range n {
		var ids []uint32
		for id := front + 1; id > front && len(ids) < window; id++ { // no ID is higher than the highest number
			if !taken(id) && !asked[id] {
				asked[id] = true
				ids = append(ids, id)
			}
		}
		ahead = append(ahead, ids)
	}
	return ahead
}

// seen takes in which of those that were asked slurmctld has, and tells whether there may be more.
func (n *nextIDs) seen(ahead [][]uint32, marks map[uint32]string) (more bool) {
	var moved, still nextIDs
	for i, ids := range ahead {
		front, found := uint32(0), false
		for at, id := range ids {
			if _, ok := marks[id]; ok {
				front, found = id, true
				more = more || at == len(ids)-1
			}
		}
		switch {
		case found:
			moved = append(moved, front)
		case i < len(*n):
			still = append(still, (*n)[i])
		}
	}
	if len(moved) > 0 {
		*n = slices.Compact(append(moved, still...))
	}
	return more
}

// all takes in the IDs that a read of all jobs was the first to show.
func (n *nextIDs) all(fresh []uint32) {
	slices.Sort(fresh)
	if len(*n) == 0 {
		for i, id := range fresh {
			if i == len(fresh)-1 || fresh[i+1]>>federated != id>>federated {
				*n = append(*n, id)
			}
		}
		*n = (*n)[:min(len(*n), fronts)]
		return
	}
	type run struct {
		last  uint32
		count int
	}
	var runs []run // of IDs that were given out in turn
	moved := map[int]uint32{}
	for at := 0; at < len(fresh); {
		end := at + 1
		for end < len(fresh) && fresh[end]-fresh[end-1] <= gap {
			end++
		}
		first, last := fresh[at], fresh[end-1]
		i := slices.IndexFunc(*n, func(front uint32) bool { return front < last && first <= front+min(gap, ^uint32(0)-front) })
		if i >= 0 {
			moved[i] = max(moved[i], last)
		} else {
			runs = append(runs, run{last, end - at})
		}
		at = end
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(b.count, a.count) })
	var next nextIDs
	add := func(front uint32) {
		if len(next) < fronts && !slices.Contains(next, front) {
			next = append(next, front)
		}
	}
	for i := range *n {
		if last, ok := moved[i]; ok {
			add(last)
		}
	}
	if _, ok := moved[0]; !ok {
		add((*n)[0])
	}
	for _, r := range runs {
		add(r.last)
	}
	for i, front := range *n {
		if _, ok := moved[i]; !ok {
			add(front)
		}
	}
	*n = next
}
