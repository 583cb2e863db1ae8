package watch

import (
	"maps"
	"slices"

	"github.com/slurmtide/slurmtide/scaler"
)

const (
	// mostLate is how many jobs that came late are looked after; no more are looked for when there are so many.
	mostLate = 256
	// mostAgain is how many of them are read again because slurmctld had not looked at them yet.
	mostAgain = 32
)

// lateJobs are pending jobs that came after a read of all jobs, and so are known in more detail: slurmctld is asked for each by its ID, again
// and again. It is pure: whoever has one asks.
type lateJobs struct {
	next   nextIDs
	listed map[uint32]bool // by the last read of all
	jobs   map[uint32]lateJob
	gone   map[uint32]bool // waited once, and do not any more; a read of all that began before may say otherwise
	marked map[uint32]bool // slurmctld had them when they were looked at; with the next read of all they are nothing new
	had    lateHad
	reads  int // of all, that have begun
	taken  int // what reads was when the last one began that was taken in
}

type lateJob struct {
	scaler.Job
	mark string // as PeekJobs tells
}

// lateHad is what there was when the read of all that is under way began, and has not changed since; and the jobs of which PeekJobs has told since, though it
// was asked before: either may be newer.
type lateHad struct{ jobs, gone, marked, unsure map[uint32]bool }

// question is what PeekJobs is asked.
type question struct {
	ids   []uint32
	known map[uint32]string
	ahead [][]uint32 // those of ids that are to come, by front
	reads int        // of all, that had begun
}

func newLateJobs() lateJobs {
	return lateJobs{listed: map[uint32]bool{}, jobs: map[uint32]lateJob{}, gone: map[uint32]bool{}, marked: map[uint32]bool{}, had: newLateHad()}
}

func newLateHad() lateHad {
	return lateHad{map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}}
}

// ask returns the IDs to be looked at: of late jobs, which may have started, and of those to come; and the marks of the former, but for
// some that slurmctld had not looked at: they may come to wait for something else. Arrays are not looked at again: slurmctld would tell of each of their tasks.
func (l *lateJobs) ask() question {
	q := question{known: map[uint32]string{}, reads: l.reads}
	again := 0
	for _, id := range slices.Sorted(maps.Keys(l.jobs)) {
		j := l.jobs[id]
		if j.ArrayTasks != "" {
			continue
		}
		q.ids = append(q.ids, id)
		if j.Reason != "None" || again >= mostAgain {
			q.known[id] = j.mark
		} else {
			again++
		}
	}
	if len(l.jobs) < mostLate {
		q.ahead = l.next.ask(func(id uint32) bool {
			_, late := l.jobs[id]
			return late || l.listed[id] || l.marked[id] || l.had.marked[id]
		})
		q.ids = append(q.ids, slices.Concat(q.ahead...)...)
	}
	return q
}

// take takes in what PeekJobs has answered: whether late jobs came or changed, whether some wait no more, and whether there may be more than were looked at.
// An answer to a question that is older than what all were read to be is worth nothing.
func (l *lateJobs) take(q question, jobs []scaler.Job, marks map[uint32]string) (came, went, more bool) {
	if q.reads < l.taken {
		return false, false, true
	}
	read := make(map[uint32]bool, len(jobs))
	for _, j := range jobs {
		read[j.ID] = true
		if late := (lateJob{j, marks[j.ID]}); l.jobs[j.ID] != late {
			came = true
			l.jobs[j.ID] = late
			delete(l.had.jobs, j.ID)
			l.had.unsure[j.ID] = q.reads < l.reads
		}
		delete(l.gone, j.ID)
	}
	for id, j := range l.jobs {
		if !read[id] && j.ArrayTasks == "" && marks[id] != j.mark {
			delete(l.jobs, id)
			delete(l.had.jobs, id)
			l.gone[id], went = true, true
			delete(l.had.gone, id)
		}
	}
	for id := range marks {
		l.marked[id] = true
	}
	return came, went, l.next.seen(q.ahead, marks)
}

// begin notes that a read of all jobs begins: what is found from now on may be missing in it, or otherwise.
func (l *lateJobs) begin() {
	maps.Copy(l.had.marked, l.marked)
	l.had = lateHad{map[uint32]bool{}, maps.Clone(l.gone), l.had.marked, map[uint32]bool{}}
	for id := range l.jobs {
		l.had.jobs[id] = true
	}
	l.marked = map[uint32]bool{}
	l.reads++
}

// all takes in a read of all jobs.
func (l *lateJobs) all(jobs []scaler.Job) {
	var fresh []uint32
	listed := make(map[uint32]bool, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		listed[j.ID] = true
		if !l.listed[j.ID] && !l.had.marked[j.ID] && !l.marked[j.ID] {
			fresh = append(fresh, j.ID)
		}
		late, ok := l.jobs[j.ID]
		switch {
		case !ok:
		case !l.had.jobs[j.ID] && !l.had.unsure[j.ID] && late.ArrayTasks == "": // what was found since the read began is newer
		case j.State != scaler.JobPending:
			delete(l.jobs, j.ID)
		default: // of an array's tasks those that have started are in this read, too
			late.Job = *j
			l.jobs[j.ID] = late
		}
	}
	for id := range l.had.gone {
		delete(l.gone, id)
	}
	ids := slices.Sorted(maps.Keys(l.jobs))
	for i, id := range ids {
		forgotten := l.had.jobs[id] && !listed[id]              // by slurmctld
		if forgotten || listed[id] && i < len(ids)-mostLate/2 { // make place: from now on the reads of all tell of it
			delete(l.jobs, id)
		}
	}
	l.next.all(fresh)
	l.listed, l.had, l.taken = listed, newLateHad(), l.reads
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
