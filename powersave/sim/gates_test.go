package sim_test

import (
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of PrologSlurmctld, which is the start-gate: prep_slurmctld.c, slurmscriptd.c, read_config.c.

// startGate runs it for a job that has its nodes.
func (w *world) startGate(j *slurmJob) {
	j.prolog++
	run, prolog := j.restarts, j.prolog
	j.waits = true
	where := j.nodes[0].index
	w.after(w.delay(20*time.Millisecond, gateLate, where, 5*time.Second), func() {
		if j.prolog != prolog {
			return
		}
		if j.waits = w.engine != nil && j.state == configuring && j.restarts == run; !j.waits {
			return
		}
		w.gates++
		if attempt := run + 1; j.gateAttempt != attempt {
			j.gateAttempt, j.gateBefore, j.gateAt = attempt, j.gateLife, w.now
		} else if j.gateLife != w.life {
			j.gateAt = w.now
		}
		if j.known.IsZero() {
			j.known = w.now
		}
		j.gate, j.upSince, j.gateLife = uint64(w.gates), w.now, w.life
		j.gateUntil = w.now.Add(15*time.Second + w.some(60*time.Second, gateLate, where))
		w.step(powersave.GateOpened{
			ID: j.gate, JobID: j.id, HetJob: j.leader(), Nodes: hostlist(j.nodes), Deadline: j.gateUntil, Attempt: j.gateAttempt,
		})
	})
}

// endGates is what becomes of start-gates when slurmctld ends, or reads its configuration anew: slurmscriptd kills them. Those of jobs that
// are configuring are run once more for the same attempt, if the state that was saved says so (_sync_nodes_to_jobs). What is told to end
// saves it when they have ended, but for 24.11; what is killed has saved it before, and may leave some of them running on.
func (w *world) endGates(killed bool) {
	for _, j := range w.jobs {
		if !j.waits {
			continue
		}
		if killed || w.old {
			j.again = j.restarts + 1
		}
		if runsOn := killed && w.some(4*time.Millisecond, slurmctldRestart, int(j.id)) == 0; j.gate != 0 && !runsOn {
			w.tell(w.some(500*time.Millisecond, gateLate, int(j.id)), powersave.GateClosed{ID: j.gate})
		}
		j.prolog++
		j.gate, j.waits = 0, false
	}
}

// gatesAgain runs them once more.
func (w *world) gatesAgain() {
	for _, j := range w.jobs {
		if j.again == j.restarts+1 && j.state == configuring && !j.waits {
			w.startGate(j)
		}
		j.again = 0
	}
}

func (w *world) answerGate(a powersave.AnswerGate) {
	for _, j := range w.jobs {
		if j.gate != a.ID {
			continue
		}
		j.gate, j.waits = 0, false
		if a.Ready {
			w.mayStart(j)
		}
	}
}

// heard takes in what the bridge hears of a job that it has told why it is given back.
func (w *world) heard(told powersave.JobTold) {
	j := w.job(told.Job)
	if len(told.Parts) > 1 {
		j.parts[0].hetLife = w.life
	}
	if j.tellFailed = 0; told.Err != "" {
		j.tellFailed = w.life
	}
	if told.Err == "" && j.state == configuring && j.tellRun == told.Attempt {
		j.heardRun, j.heardLife, j.heardAt = told.Attempt, w.life, w.now
	}
}

// mayTell looks whether a job is told again what it knows of the same attempt. It is told anew when what it was given back for has come up
// before it was off its nodes; and a power-up by hand looks like another start. Without gates the bridge may not know what
// the job has.
func (w *world) mayTell(a powersave.TellJob) {
	j := w.job(a.Job)
	if j != nil && j.tellFailed != w.life { // else it is asked for once more
		if j.tellRun = 0; j.state == configuring {
			j.tellRun = j.restarts + 1
		}
	}
	if j == nil || j.state != configuring || j.heardRun != j.restarts+1 || j.heardLife != w.life || j.gateAttempt != j.heardRun || j.gateLife != w.life {
		return
	}
	for _, p := range j.parts {
		if slices.ContainsFunc(p.nodes, func(n *node) bool { return n.since.After(j.heardAt.Add(-stale)) || !w.endOf(powerUp, n.index).IsZero() }) {
			return
		}
	}
	w.breaks("tells a job again", "%d: %s", j.id, a.Reason)
}
