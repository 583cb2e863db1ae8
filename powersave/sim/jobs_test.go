package sim_test

import (
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of slurmctld's jobs: job_mgr.c, job_scheduler.c, prep_slurmctld.c.

type jobState uint8

const (
	pending jobState = iota
	configuring
	running
	over
)

var jobStates = [...]string{"PENDING", "CONFIGURING", "RUNNING", "ended"}

type slurmJob struct {
	step
	id         uint32
	state      jobState
	nodes      []*node // while it has some
	completing bool
	gate       uint64 // waiting start gate, 0: none
	begin      time.Time
	asked      time.Time // when it got its nodes, or a program was last called for it
	reported   time.Time // when it last stood in a resume file
	known      time.Time // when the bridge was first told of its present nodes
	upSince    time.Time
	gateSince  time.Time // requeued, and its gate still runs
	restarts   int

	comment  string
	toldRun  int // restarts+1 when its record last said why it is given back
	tellErrs int // for the present run
	backAt   time.Time
	backLife int // the bridge's life that gave it back; 0: none
	heldRun  int // restarts when it was last held
	holds    int // it was held without having started since, in the bridge's life holdLife
	holdLife int
}

func (j *slurmJob) slots() int {
	if j.opts&exclusive != 0 {
		return 2
	}
	return 1
}

func (w *world) submit(st step) *slurmJob {
	j := &slurmJob{step: st, id: uint32(len(w.jobs) + 1)}
	w.jobs = append(w.jobs, j)
	return j
}

func (w *world) job(id uint32) *slurmJob {
	if id == 0 || int(id) > len(w.jobs) {
		return nil
	}
	return w.jobs[id-1]
}

// schedJobs starts and ends jobs.
func (w *world) schedJobs() {
	for _, j := range w.jobs {
		switch j.state {
		case pending:
			if j.completing || j.gate != 0 { // Cleaning
				continue
			}
			if !w.faulty() && j.begin.After(w.now) {
				j.state = over // users do not wait for so long
				continue
			}
			if !j.begin.After(w.now) {
				w.allocate(j)
			}
		case configuring:
			up := j.gate == 0
			for _, n := range j.nodes {
				up = up && n.serves()
			}
			if up {
				w.logf("job %d runs", j.id)
				j.state, j.holds = running, 0
				run := j.restarts
				w.after(j.long, func() {
					if j.state == running && j.restarts == run {
						w.leave(j, over)
					}
				})
			}
		default:
		}
	}
}

// allocate gives a job its nodes, if enough are free.
func (w *world) allocate(j *slurmJob) {
	const hinder = powersave.NodePoweringDown | powersave.NodePowerDown | powersave.NodeDrain | powersave.NodePowerUp
	var nodes []*node
	for i := range nodeCount {
		n := w.nodes[(j.node+i)%nodeCount]
		switch {
		case len(nodes) == j.n, n.forgotten, n.down, n.flags.Any(hinder), n.slots()+j.slots() > 2, !n.ours() && j.opts&far == 0:
		case n.flags.Any(powersave.NodeNotResponding) && !n.flags.Any(powersave.NodePoweringUp):
		default:
			nodes = append(nodes, n)
		}
	}
	if len(nodes) < j.n {
		return
	}
	j.nodes, j.state, j.asked, j.tellErrs, j.backLife = nodes, configuring, w.now, 0, 0
	j.reported, j.known = time.Time{}, time.Time{}
	down := false
	for _, n := range nodes {
		n.jobs = append(n.jobs, j)
		n.changed, n.half = w.now, nil
		n.users++
		if j.opts&powerDownOnIdle != 0 {
			n.flags |= powersave.NodePowerDown
		}
		down = down || n.flags.Any(powersave.NodePoweredDown)
	}
	w.logf("job %d on %v", j.id, hostlist(nodes))
	if down {
		w.toResume = append(w.toResume, j)
	}
	run := j.restarts
	w.after(w.delay(20*time.Millisecond, gateLate, nodes[0].index, 5*time.Second), func() { // start-gate
		if w.engine == nil || j.state != configuring || j.restarts != run {
			return
		}
		w.gates++
		j.gate, j.upSince, j.known = uint64(w.gates), w.now, w.now
		w.step(powersave.GateOpened{
			ID: j.gate, JobID: j.id, Nodes: hostlist(j.nodes), Deadline: w.now.Add(15*time.Second + w.some(60*time.Second, gateLate, nodes[0].index)),
		})
	})
}

// killAll is kill_running_job_by_node_ptr.
func (w *world) killAll(n *node, byUs bool) {
	for _, j := range slices.Clone(n.jobs) {
		w.kill(j, byUs)
	}
}

// kill requeues a job, or ends it.
func (w *world) kill(j *slurmJob, byUs bool) {
	if j.state != configuring && j.state != running {
		return
	}
	if j.opts&stays != 0 {
		w.leave(j, over)
		return
	}
	w.leave(j, pending)
	j.restarts++
	if !j.begin.After(w.now) {
		j.begin = w.now.Add(121 * time.Second)
	}
	if byUs && w.knows(j) && w.now.Sub(j.asked) > stale {
		j.backAt, j.backLife = w.now, w.life
	}
}

// leave takes a job off its nodes. Those that serve see the job out, unless PrologSlurmctld still runs.
func (w *world) leave(j *slurmJob, to jobState) {
	w.logf("job %d is %s", j.id, jobStates[to])
	var stay []*node
	for _, n := range j.nodes {
		n.changed = w.now
		if j.gate == 0 && n.serves() && !n.down && n.uid != "" {
			stay = append(stay, n)
			continue
		}
		n.drop(j, w.now)
	}
	j.nodes, j.state, j.completing, j.gateSince = stay, to, len(stay) > 0, w.now
	if to == over && j.gate != 0 { // slurmctld kills it
		w.tell(w.some(500*time.Millisecond, gateLate, 0), powersave.GateClosed{ID: j.gate})
		j.gate = 0
	}
	if !j.completing {
		return
	}
	w.after(w.delay(time.Second, slowEpilog, 0, 8*time.Second), func() {
		for _, n := range j.nodes {
			n.drop(j, w.now)
		}
		j.nodes, j.completing = nil, false
	})
}

func (n *node) drop(j *slurmJob, now time.Time) {
	n.jobs = slices.DeleteFunc(n.jobs, func(o *slurmJob) bool { return o == j })
	n.idle, n.changed = now, now
	n.flags &^= powersave.NodeCompleting
}

func (w *world) answerGate(a powersave.AnswerGate) {
	for _, j := range w.jobs {
		if j.gate != a.ID {
			continue
		}
		j.gate = 0
		if a.Ready {
			w.mayStart(j)
		}
	}
}

func (w *world) tellJob(a powersave.TellJob, life int) {
	j := w.job(a.Job)
	answer := powersave.JobTold{Job: a.Job}
	fails := w.any(tellFails) || w.slurmFails()
	if fails || w.any(tellLost) {
		answer.Err = "timeout"
	}
	switch {
	case j == nil:
		w.breaks("tells a job that is not", "%d", a.Job)
		return
	case !strings.HasPrefix(a.Reason, powersave.ReasonPrefix) || len(a.Reason) < len(powersave.ReasonPrefix)+5:
		w.breaks("tells no reason", "job %d: %q", a.Job, a.Reason)
	case fails:
		j.tellErrs++
	case j.state != over:
		j.comment, j.toldRun = a.Reason, j.restarts+1
		answer.Interactive = j.opts&stays != 0
	}
	w.answerJob(life, tellSlow, answer)
}

func (w *world) holdJob(a powersave.HoldJob, begin time.Time, life int) {
	j := w.job(a.Job)
	answer := powersave.JobHeld{Job: a.Job}
	fails := w.any(holdFails) || w.slurmFails()
	switch {
	case j == nil:
		w.breaks("holds a job that is not", "%d", a.Job)
		return
	case fails:
		answer.Err = "timeout"
	case j.state == over:
	case j.state != pending:
		answer.Err = "job is " + jobStates[j.state]
	default:
		w.mayHold(j, a)
		j.begin, j.heldRun = begin, j.restarts
		if w.any(holdLost) {
			answer.Err = "timeout"
			j.holds--
		}
	}
	w.answerJob(life, holdSlow, answer)
}

func (w *world) answerJob(life int, slow kind, answer powersave.Event) {
	w.tellLife(life, w.delay(5*time.Millisecond, slow, 0, 8*time.Second), answer)
	if w.any(tellTwice) {
		w.tellLife(life, w.some(5*time.Second, tellTwice, 0), answer)
	}
}
