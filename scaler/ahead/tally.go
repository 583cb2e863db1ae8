package ahead

import (
	"cmp"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Result is what became of nodes that were wished for.
type Result string

// Results.
const (
	Hit  Result = "hit"  // the job was seen on them, and they were up
	Late Result = "late" // the job was seen on them, and they still booted
	Miss Result = "miss" // the job did not take them: it was cancelled, or put off, or runs elsewhere, or came and went between two looks
)

// Outcome tells of some of a job's nodes.
type Outcome struct {
	NodeSet string
	Job     uint32
	Result  Result
	Nodes   int
}

// Tally follows the jobs for which nodes were wished for. The zero value is ready.
type Tally struct {
	jobs map[wished]*Job
}

type wished struct {
	set string
	job uint32
}

// overdue is how long a job may take to start after its time, until its nodes are a miss.
const overdue = 2 * time.Minute

// Take takes in a new plan and the snapshot it was made of, and returns what is settled by it, ordered by NodeSet and job.
func (t *Tally) Take(now time.Time, p Plan, s scaler.Snapshot) []Outcome {
	if t.jobs == nil {
		t.jobs = map[wished]*Job{}
	}
	planned := map[wished]bool{}
	for _, w := range p.Wishes {
		for _, j := range w.Jobs {
			if j.Nodes == 0 {
				continue
			}
			key := wished{w.NodeSet, j.ID}
			planned[key] = true
			if known := t.jobs[key]; known != nil {
				j.Nodes = max(j.Nodes, known.Nodes)
				j.Names = union(j.Names, known.Names) // those of before have been powered up for it, too
			}
			t.jobs[key] = &j
		}
	}
	if len(t.jobs) == 0 {
		return nil
	}
	state := make(map[uint32]*seen, len(t.jobs))
	for key := range t.jobs {
		state[key.job] = &seen{}
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		state[j.ID].see(j)
		if j.ArrayJobID != j.ID {
			state[j.ArrayJobID].see(j)
		}
	}
	var nodes map[string]*scaler.Node
	var out []Outcome
	for key, j := range t.jobs {
		at := state[key.job]
		settle := func(r Result, n int) {
			if n > 0 {
				out = append(out, Outcome{NodeSet: key.set, Job: key.job, Result: r, Nodes: n})
			}
		}
		switch {
		case at.started:
			if nodes == nil {
				nodes = make(map[string]*scaler.Node, len(s.Nodes))
				for i := range s.Nodes {
					nodes[s.Nodes[i].Name] = &s.Nodes[i]
				}
			}
			warm, cold := at.on(key.set, nodes, j)
			hit := min(warm, j.Nodes)
			late := min(cold, j.Nodes-hit)
			settle(Hit, hit)
			settle(Late, late)
			if !at.array { // its other tasks may take the rest
				settle(Miss, j.Nodes-hit-late)
			}
		case planned[key]:
			continue
		case at.there && now.Before(j.Start):
			settle(Miss, j.Nodes)
		case at.there:
			if now.Sub(j.Start) <= overdue {
				continue
			}
			settle(Miss, j.Nodes)
		default: // it is gone, and nobody saw it run
			settle(Miss, j.Nodes)
		}
		delete(t.jobs, key)
	}
	slices.SortFunc(out, compareOutcomes)
	return out
}

// Wished are the jobs that are followed.
func (t *Tally) Wished() map[uint32]Job {
	all := make(map[uint32]Job, len(t.jobs))
	for key, j := range t.jobs {
		if other, twice := all[key.job]; !twice || j.Start.After(other.Start) {
			all[key.job] = *j
		}
	}
	return all
}

// seen is what the snapshot shows of a job.
type seen struct {
	there, started, array bool
	nodes                 []string // hostlists
}

// see takes in a record of the job; nil: it is none.
func (s *seen) see(j *scaler.Job) {
	if s == nil {
		return
	}
	s.there = true
	if j.State != scaler.JobPending {
		s.started, s.array = true, s.array || j.ArrayJobID != 0
		s.nodes = append(s.nodes, j.Nodes)
	}
}

// on counts the nodes wished for that the job has: those that are up, and those that boot. For nodes that had no record any of the NodeSet will do.
func (s *seen) on(set string, nodes map[string]*scaler.Node, j *Job) (warm, cold int) {
	nameless := max(0, j.Nodes-len(j.Names))
	var otherWarm, otherCold int
	for _, text := range s.nodes {
		list, err := slurmconf.ParseHostlist(text)
		if err != nil {
			continue
		}
		for name := range list.All() {
			wished := slices.Contains(j.Names, name)
			switch n := nodes[name]; {
			case n == nil || n.NodeSet != set:
			case n.State == scaler.NodeUp && wished:
				warm++
			case n.State == scaler.NodeUp:
				otherWarm++
			case wished:
				cold++
			default:
				otherCold++
			}
		}
	}
	otherWarm = min(otherWarm, nameless)
	return warm + otherWarm, cold + min(otherCold, nameless-otherWarm)
}

// union returns a with those of b that are not in it.
func union(a, b []string) []string {
	a = slices.Clone(a)
	for _, name := range b {
		if !slices.Contains(a, name) {
			a = append(a, name)
		}
	}
	return a
}

func compareOutcomes(a, b Outcome) int {
	return cmp.Or(cmp.Compare(a.NodeSet, b.NodeSet), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Result, b.Result))
}
