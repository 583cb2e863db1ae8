package ahead

import (
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
}

func newEnds(now time.Time, jobs []scaler.Job) *ends {
	e := &ends{jobs: make(map[uint32]end, len(jobs))}
	for i := range jobs {
		j := &jobs[i]
		this := end{}
		switch j.State {
		case scaler.JobPending: // nobody knows
		case scaler.JobRunning:
			this = end{j.End, !j.End.IsZero()}
		case scaler.JobLeaving, scaler.JobEnded:
			this = end{now, true}
		}
		e.add(j.ID, this)
		for _, group := range []uint32{j.ArrayJobID, j.HetJobID} {
			if group != 0 && group != j.ID {
				e.add(group, this)
			}
		}
	}
	return e
}

// add joins what is known of a group's members: it ends with the last of them.
func (e *ends) add(id uint32, this end) {
	if other, ok := e.jobs[id]; ok {
		this.known = this.known && other.known
		if other.at.After(this.at) {
			this.at = other.at
		}
	}
	e.jobs[id] = this
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

// one is a single dependency: type:job[_task][+minutes][(state)].
func (e *ends) one(part string) (time.Time, bool) {
	part, state, _ := strings.Cut(part, "(")
	if strings.HasPrefix(state, "failed") {
		return time.Time{}, false
	}
	kind, job, ok := strings.Cut(part, ":")
	if !ok || !slices.Contains([]string{"afterany", "afterok", "aftercorr", "afterburstbuffer"}, kind) {
		return time.Time{}, false
	}
	job, task, single := strings.Cut(job, "_")
	id, err := strconv.ParseUint(job, 10, 32)
	if err != nil || single && task != "*" { // which record a task has is not told
		return time.Time{}, false
	}
	end := e.jobs[uint32(id)] // one that has ended is in no snapshot: Slurm is about to let the job go, or to hold it
	return end.at, end.known
}

// reserve enters the reservations that jobs wait for: by their start the nodes are theirs alone.
func reserve(nodes []scaler.Node, f *Facts, due []candidate) []scaler.Node {
	owner := map[string]string{}
	for _, c := range due {
		if c.job.Reservation == "" {
			continue
		}
		list, err := slurmconf.ParseHostlist(f.Reservations[c.job.Reservation].Nodes)
		if err != nil {
			continue // Slurm's own lists are well-formed
		}
		for name := range list.All() {
			owner[name] = c.job.Reservation
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
