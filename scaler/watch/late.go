package watch

import (
	"maps"
	"slices"

	"github.com/slurmtide/slurmtide/scaler"
)

const (
	// window is how many IDs beyond the last one known are looked at. slurmctld gives them out in turn, one for each job, component of a
	// het job and array, and one for each task of an array when it starts.
	window = 64
	// mostLate is how many jobs that came late are looked after; no more are looked for when there are so many.
	mostLate = 256
	// mostAgain is how many of them are read again because slurmctld had not looked at them yet.
	mostAgain = 32
)

// lateJobs are pending jobs that came after a read of all jobs, and so are known in more detail: slurmctld is asked for each by its ID, again
// and again. It is pure: whoever has one asks.
type lateJobs struct {
	last uint32 // the highest ID that slurmctld is known to have given out; 0: none is known
	jobs map[uint32]lateJob
	gone map[uint32]bool // waited once, and do not any more; a read of all that began before may say otherwise
	had  lateHad
}

type lateJob struct {
	scaler.Job
	mark string // as PeekJobs tells
}

// lateHad is what there was when the read of all that is under way began.
type lateHad struct{ jobs, gone map[uint32]bool }

func newLateJobs() lateJobs { return lateJobs{jobs: map[uint32]lateJob{}, gone: map[uint32]bool{}} }

// ask returns the IDs to be looked at, in order: of late jobs, which may have started, and of those to come; and the marks of the former, but for
// some that slurmctld had not looked at: they may come to wait for something else. Arrays are not looked at again: slurmctld would tell of each of their tasks.
func (l *lateJobs) ask() (ids []uint32, known map[uint32]string) {
	known = map[uint32]string{}
	again := 0
	for _, id := range slices.Sorted(maps.Keys(l.jobs)) {
		j := l.jobs[id]
		if j.ArrayTasks != "" {
			continue
		}
		ids = append(ids, id)
		if j.Reason != "None" || again >= mostAgain {
			known[id] = j.mark
		} else {
			again++
		}
	}
	if l.last > 0 && len(l.jobs) < mostLate {
		for i := range uint32(window) {
			ids = append(ids, l.last+1+i)
		}
	}
	return ids, known
}

// take takes in what PeekJobs has answered: whether late jobs came or changed, whether some wait no more, and whether there may be more than were looked at.
func (l *lateJobs) take(jobs []scaler.Job, marks map[uint32]string) (came, went, more bool) {
	read := make(map[uint32]bool, len(jobs))
	for _, j := range jobs {
		read[j.ID] = true
		late := lateJob{j, marks[j.ID]}
		came = came || l.jobs[j.ID] != late
		l.jobs[j.ID] = late
		delete(l.gone, j.ID)
	}
	for id, j := range l.jobs {
		if !read[id] && j.ArrayTasks == "" && marks[id] != j.mark {
			delete(l.jobs, id)
			l.gone[id], went = true, true
		}
	}
	_, more = marks[l.last+window]
	for id := range marks {
		l.last = max(l.last, id)
	}
	return came, went, more
}

// begin notes that a read of all jobs begins: what is found from now on may be missing in it, or otherwise.
func (l *lateJobs) begin() {
	l.had = lateHad{map[uint32]bool{}, maps.Clone(l.gone)}
	for id := range l.jobs {
		l.had.jobs[id] = true
	}
}

// all takes in a read of all jobs. before is the one before it.
func (l *lateJobs) all(before, jobs []scaler.Job) {
	newest, listed := uint32(0), map[uint32]bool{}
	for i := range jobs {
		j := &jobs[i]
		newest = max(newest, j.ID)
		if late, ok := l.jobs[j.ID]; ok {
			listed[j.ID] = true
			if l.had.jobs[j.ID] && j.State == scaler.JobPending {
				late.Job = *j
				l.jobs[j.ID] = late
			}
		}
	}
	if newest < l.last { // the newest has ended; or slurmctld has begun again with small numbers, which jobs that nobody knew tell
		known := make(map[uint32]bool, len(before))
		for i := range before {
			known[before[i].ID] = true
		}
		newest = 0
		for i := range jobs {
			if id := jobs[i].ID; !known[id] && !l.had.jobs[id] && !l.had.gone[id] {
				newest = max(newest, id)
			}
		}
	}
	if newest > 0 {
		l.last = newest
	}
	for id := range l.had.gone {
		delete(l.gone, id)
	}
	ids := slices.Sorted(maps.Keys(l.jobs))
	for i, id := range ids {
		l.last = max(l.last, id)
		forgotten := l.had.jobs[id] && !listed[id]              // by slurmctld
		if forgotten || listed[id] && i < len(ids)-mostLate/2 { // make place: from now on the reads of all tell of it
			delete(l.jobs, id)
		}
	}
	l.had = lateHad{}
}

// with returns the jobs of the last read of all, as far as nothing newer is known, and the late ones. It leaves jobs alone.
func (l *lateJobs) with(jobs []scaler.Job) []scaler.Job {
	if len(l.jobs)+len(l.gone) == 0 {
		return jobs
	}
	all := make([]scaler.Job, 0, len(jobs)+len(l.jobs))
	for i := range jobs {
		id := jobs[i].ID
		if _, late := l.jobs[id]; !late && (!l.gone[id] || jobs[i].State != scaler.JobPending) {
			all = append(all, jobs[i])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.jobs)) {
		all = append(all, l.jobs[id].Job)
	}
	return all
}
