package ahead

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// ends knows when jobs end.
type ends struct {
	jobs map[uint32]end // by job ID, and arrays by that of the array
}

type end struct {
	at    time.Time
	known bool
	how   how
}

// how a job ends.
type how int

const (
	either how = iota // nobody knows yet
	well
	failed
)

func newEnds(now time.Time, f *Facts) *ends {
	e := &ends{jobs: make(map[uint32]end, len(f.Snapshot.Jobs))}
	for i := range f.Snapshot.Jobs {
		j := &f.Snapshot.Jobs[i]
		this := end{}
		switch j.State {
		case scaler.JobPending: // nobody knows
		case scaler.JobRunning:
			this = end{at: j.End, known: !j.End.IsZero()}
		case scaler.JobLeaving, scaler.JobEnded:
			this = left(now, j)
		}
		e.add(j.ID, this)
		for _, group := range groups(j) {
			if group != 0 && group != j.ID {
				e.add(group, this)
			}
		}
	}
	for id, g := range f.Gone {
		if _, there := e.jobs[id]; !there {
			e.jobs[id] = end{at: g.At, known: true, how: ended(g.Failed)}
		}
	}
	return e
}

// left is the end of a job that has none of its work left to do.
func left(now time.Time, j *scaler.Job) end {
	at := now
	if !j.End.IsZero() && j.End.Before(now) {
		at = j.End
	}
	return end{at: at, known: true, how: ended(j.Failed)}
}

func ended(bad bool) how {
	if bad {
		return failed
	}
	return well
}

// groups are the array and the het job that the job is one of; 0: none.
func groups(j *scaler.Job) [2]uint32 { return [2]uint32{j.ArrayJobID, j.HetJobID} }

// add joins what is known of a group's members: it ends with the last of them, and well if all do.
func (e *ends) add(id uint32, this end) {
	if other, ok := e.jobs[id]; ok {
		this.known = this.known && other.known
		if other.at.After(this.at) {
			this.at = other.at
		}
		switch {
		case this.how == failed || other.how == failed:
			this.how = failed
		case this.how == either || other.how == either:
			this.how = either
		}
	}
	e.jobs[id] = this
}

// Gone is a job that has left slurmctld's list of those that run.
type Gone struct {
	At     time.Time // when it was first missed
	Failed bool      // it was seen to end badly
}

// Leavers remembers jobs that have ended: a snapshot does not have them any more, while those that depend on them may still have to be
// looked at. The zero value is ready.
type Leavers struct {
	there map[uint32]bool // by ID of jobs and groups that had started; whether they were seen to fail
	gone  map[uint32]Gone
}

// See takes in a snapshot's jobs, and returns those that have gone within the last Grace. It is good until the next call.
func (l *Leavers) See(now time.Time, jobs []scaler.Job) map[uint32]Gone {
	there, pending := make(map[uint32]bool, len(l.there)), map[uint32]bool{}
	for i := range jobs {
		j := &jobs[i]
		of := groups(j)
		for _, id := range [3]uint32{j.ID, of[0], of[1]} {
			switch {
			case id == 0:
			case j.State == scaler.JobPending:
				pending[id] = true
			default:
				there[id] = there[id] || j.Failed || l.there[id]
			}
		}
	}
	if l.gone == nil {
		l.gone = map[uint32]Gone{}
	}
	for id, bad := range l.there {
		if _, still := there[id]; !still && !pending[id] {
			l.gone[id] = Gone{At: now, Failed: bad}
		}
	}
	maps.DeleteFunc(l.gone, func(_ uint32, g Gone) bool { return g.At.Add(Grace).Before(now) })
	l.there = there
	return l.gone
}

// of tells when the dependencies of a job will be over, as Slurm words them: "afterok:7(unfulfilled),afterany:9_*(unfulfilled)",
// with "?" between alternatives (job_scheduler.c _depend_list2str). It is not known for those that do not end with a job's end.
func (e *ends) of(text string) (time.Time, bool) {
	if text == "" {
		return time.Time{}, false
	}
	any := strings.Contains(text, "?")
	var at time.Time
	have := false
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '?' }) {
		t, known := e.one(part)
		switch {
		case !known && !any:
			return time.Time{}, false
		case !known:
		case !have, any && t.Before(at), !any && t.After(at):
			at, have = t, true
		}
	}
	return at, have
}

// ways are the dependencies on a job's end, with how it must end (job_scheduler.c _test_job_dependency_common). A job that Slurm ends at its
// time limit has not ended well; but those whose limit is near are mostly about to end.
var ways = map[string]how{"afterany": either, "afterburstbuffer": either, "afterok": well, "aftercorr": well, "afternotok": failed}

// one is a single dependency: type:job[_task][+minutes][(state)].
func (e *ends) one(part string) (time.Time, bool) {
	part, state, _ := strings.Cut(part, "(")
	if strings.HasPrefix(state, "failed") {
		return time.Time{}, false
	}
	kind, job, ok := strings.Cut(part, ":")
	way, known := ways[kind]
	if !ok || !known {
		return time.Time{}, false
	}
	job, task, single := strings.Cut(job, "_")
	id, err := strconv.ParseUint(job, 10, 32)
	if err != nil || single && task != "*" { // which record a task has is not told
		return time.Time{}, false
	}
	end := e.jobs[uint32(id)]
	if way != either && end.how != either && end.how != way { // it never will be
		return time.Time{}, false
	}
	return end.at, end.known
}

// reserve enters the reservations that jobs wait for: by their start the nodes are theirs alone.
func reserve(nodes []scaler.Node, f *Facts, due []candidate) []scaler.Node {
	owner := map[string]string{}
	for _, c := range due {
		for r := range reservationsOf(c.job) {
			if f.Reservations[r].Start.After(c.start) { // another one begins sooner
				continue
			}
			list, err := slurmconf.ParseHostlist(f.Reservations[r].Nodes)
			if err != nil {
				continue // Slurm's own lists are well-formed
			}
			for name := range list.All() {
				owner[name] = r
			}
		}
	}
	if len(owner) == 0 {
		return nodes
	}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		if r := owner[nodes[i].Name]; r != "" && nodes[i].Reservation == "" {
			nodes[i].Reservation = r
		}
	}
	return nodes
}

// reservationsOf are those that the job names; any will do.
func reservationsOf(j *scaler.Job) iter.Seq[string] {
	return strings.FieldsFuncSeq(j.Reservation, func(r rune) bool { return r == ',' })
}

// soonest is when the first of the job's reservations begins.
func soonest(j *scaler.Job, all map[string]scaler.Reservation) (at time.Time, known bool) {
	for name := range reservationsOf(j) {
		if r, ok := all[name]; ok && !r.Start.IsZero() && (!known || r.Start.Before(at)) {
			at, known = r.Start, true
		}
	}
	return at, known
}
