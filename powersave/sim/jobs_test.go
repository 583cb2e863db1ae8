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
	id          uint32
	parts       []*slurmJob // components of the het job, the leader first; else itself alone
	state       jobState
	nodes       []*node // while it has some
	completing  bool
	gate        uint64 // waiting start gate, 0: none
	prolog      int    // counts start gates
	waits       bool   // the newest is on its way to the bridge, or waits there
	again       int    // attempt for which it is to be run once more
	gateAt      time.Time
	gateLife    int // of the bridge, when it opened
	gateBefore  int // the same of the attempt before that
	gateAttempt int
	failedAt    time.Time
	gateUntil   time.Time
	begin       time.Time
	asked       time.Time // when it got its nodes, or a program was last called for it
	reported    time.Time // when it last stood in a resume file
	first       time.Time // when it first did, since it got its nodes
	known       time.Time // when the bridge was first told of its present nodes
	unheard     bool      // the program that was called for some of them was killed
	upSince     time.Time
	gateSince   time.Time // requeued, and its gate still runs
	restarts    int

	comment    string
	times      int // how often it was given back in a row, as its record says
	hetLife    int // of the bridge that last heard, of the leader's components, which they are
	toldRun    int // restarts+1 when its record last said why it is given back
	tellErrs   int // for the present run
	heardRun   int // restarts+1 when the bridge last heard that it knows
	heardLife  int
	heardAt    time.Time
	tellRun    int // restarts+1 when the bridge last asked for it to be told, for the first time
	tellFailed int // the bridge's life in which it heard that this failed
	backAt     time.Time
	backLife   int // the bridge's life that gave it back; 0: none
	requeued   time.Time
	lateRun    int // restarts when slurmctld last requeued it at ResumeTimeout of a node that the bridge, in its life lateLife, boots for it
	lateLife   int
	heldRun    int // restarts when it was last held
	holds      int // it was held without having started since, in the bridge's life holdLife
	holdLife   int
}

func (j *slurmJob) slots() int {
	if j.opts&exclusive != 0 {
		return 2
	}
	return 1
}

// submit returns the first job of the step.
func (w *world) submit(st step) *slurmJob {
	first := len(w.jobs)
	for i := range max(1, st.many) {
		j := &slurmJob{step: st, id: uint32(len(w.jobs) + 1)}
		j.node = (st.node + i*st.n) % nodeCount
		j.parts = []*slurmJob{j}
		w.jobs = append(w.jobs, j)
	}
	if st.opts&het != 0 {
		for _, j := range w.jobs[first:] {
			j.parts = w.jobs[first:len(w.jobs):len(w.jobs)]
		}
	}
	return w.jobs[first]
}

// shown is the state that slurmrestd shows.
func (j *slurmJob) shown() powersave.JobState {
	s := [...]powersave.JobState{powersave.JobPending, powersave.JobRunning | powersave.JobConfiguring, powersave.JobRunning, powersave.JobCompleted}[j.state]
	if j.completing {
		s |= powersave.JobCompleting
	}
	return s
}

// leader is what the gates of a het job know it by.
func (j *slurmJob) leader() uint32 {
	if j.opts&het != 0 {
		return j.parts[0].id
	}
	return 0
}

// bound says that the bridge knew that both are of one het job when it gave j up: their gates had told, or a record.
func (w *world) bound(j, o *slurmJob) bool {
	return j == o || j.parts[0].hetLife == w.life || j.gateLife == w.life && o.gateLife == w.life && j.failedAt.After(latest(j.gateAt, o.gateAt))
}

// startedLast is when the job has started, as far as the bridge can tell. A power-up by hand of a node that boots for it already looks like another
// start: requests of the model name the job then, too, where slurmctld's would not (power_save.c, resume_job_list).
func (w *world) startedLast(j *slurmJob) time.Time {
	last := j.first
	for _, n := range j.nodes {
		last = latest(last, w.endOf(powerUp, n.index))
	}
	return last
}

func (w *world) job(id uint32) *slurmJob {
	if id == 0 || int(id) > len(w.jobs) {
		return nil
	}
	return w.jobs[id-1]
}

// schedJobs starts and ends jobs, het jobs as one.
func (w *world) schedJobs() {
	for _, j := range w.jobs {
		if j.parts[0] != j {
			continue
		}
		switch j.state {
		case pending:
			if slices.ContainsFunc(j.parts, func(p *slurmJob) bool { return p.completing || p.gate != 0 }) { // Cleaning
				continue
			}
			begin := j.begin
			for _, p := range j.parts {
				begin = latest(begin, p.begin)
			}
			if !w.faulty() && begin.After(w.now) { // users do not wait for so long
				for _, p := range j.parts {
					p.state = over
				}
				continue
			}
			if !begin.After(w.now) {
				w.allocateAll(j)
			}
		case configuring:
			if !slices.ContainsFunc(j.parts, func(p *slurmJob) bool { return !p.up() }) {
				w.runs(j)
			}
		default:
		}
	}
}

// up says that nothing keeps the job from starting.
func (j *slurmJob) up() bool {
	return j.gate == 0 && !slices.ContainsFunc(j.nodes, func(n *node) bool { return !n.serves() })
}

func (w *world) runs(j *slurmJob) {
	for _, p := range j.parts {
		w.logf("job %d runs", p.id)
		p.state, p.holds = running, 0
		run := p.restarts
		w.after(p.long, func() {
			if p.state == running && p.restarts == run {
				w.leave(p, over)
			}
		})
	}
}

// allocateAll gives all components their nodes, if enough are free.
func (w *world) allocateAll(leader *slurmJob) {
	var taken [nodeCount]int
	chosen := make([][]*node, 0, 1)
	for _, j := range leader.parts {
		nodes := w.choose(j, &taken)
		if len(nodes) < j.n {
			return
		}
		chosen = append(chosen, nodes)
	}
	for i, j := range leader.parts {
		w.allocate(j, chosen[i])
	}
}

// choose finds nodes for a job; taken counts what is not free though nobody has it yet.
func (w *world) choose(j *slurmJob, taken *[nodeCount]int) (nodes []*node) {
	const hinder = powersave.NodePoweringDown | powersave.NodePowerDown | powersave.NodeDrain | powersave.NodePowerUp
	for i := range nodeCount {
		n := w.nodes[(j.node+i)%nodeCount]
		switch {
		case len(nodes) == j.n, n.forgotten, n.down, n.flags.Any(hinder), n.slots()+taken[n.index]+j.slots() > 2, !n.ours() && j.opts&far == 0:
		case n.flags.Any(powersave.NodeNotResponding) && !n.flags.Any(powersave.NodePoweringUp), w.keptFree(n, j):
		default:
			nodes = append(nodes, n)
			taken[n.index] += j.slots()
		}
	}
	return nodes
}

func (w *world) allocate(j *slurmJob, nodes []*node) {
	j.nodes, j.state, j.asked, j.tellErrs, j.backLife = nodes, configuring, w.now, 0, 0
	j.reported, j.first, j.known, j.unheard = time.Time{}, time.Time{}, time.Time{}, false
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
	if !w.noGates {
		w.startGate(j)
	}
}

// killAll is kill_running_job_by_node_ptr.
func (w *world) killAll(n *node, byUs bool) {
	for _, j := range slices.Clone(n.jobs) {
		w.kill(j, byUs)
	}
}

// kill requeues a job, or ends it; a het job as a whole (job_mgr.c _het_job_on_node).
func (w *world) kill(j *slurmJob, byUs bool) {
	var ours [4]bool
	for i, p := range j.parts {
		ours[i] = byUs && (p == j || w.bound(j, p) && w.knows(j))
	}
	for i, p := range j.parts {
		w.killOne(p, ours[i])
	}
}

func (w *world) killOne(j *slurmJob, byUs bool) {
	if j.state != configuring && j.state != running {
		return
	}
	if j.opts&stays != 0 {
		w.leave(j, over)
		return
	}
	w.leave(j, pending)
	j.restarts++
	j.requeued = w.now
	if !j.begin.After(w.now) {
		j.begin = w.now.Add(121 * time.Second)
		if w.soon {
			j.begin = w.now.Add(6 * time.Second)
		}
	}
	if byUs && w.knows(j) && w.now.Sub(j.asked) > stale {
		j.backAt, j.backLife = w.now, w.life
	}
}

// end takes all components off their nodes.
func (w *world) end(j *slurmJob) {
	for _, p := range j.parts {
		switch p.state {
		case configuring, running:
			w.leave(p, over)
		case pending:
			p.state = over
		default:
		}
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
		j.gate, j.waits = 0, false
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

func (w *world) tellJob(a powersave.TellJob, life int) {
	j := w.job(a.Job)
	answer := powersave.JobTold{Job: a.Job, Serial: a.Serial}
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
		for _, p := range j.parts { // as the bridge does it
			if p.state != over {
				record := powersave.SlurmJob{AdminComment: p.comment, Restarts: p.restarts, State: p.shown()}
				p.comment, p.toldRun, p.times = powersave.BackComment(record, a.Reason, a.Taken)
			}
			if p == j {
				answer.Attempt = p.toldRun
			}
			if j.opts&het != 0 {
				answer.Parts = append(answer.Parts, powersave.JobPart{Job: p.id, Nodes: slices.Collect(hostlist(p.nodes).All())})
			}
		}
		answer.Interactive, answer.Times = j.opts&stays != 0, j.times
	}
	w.answerJob(life, tellSlow, answer)
}

// readBacks is what the bridge finds when it looks for jobs that were given back before.
func (w *world) readBacks(life int) {
	if w.slurmFails() || w.any(readFails) {
		w.tellLife(life, w.some(5*time.Second, readFails, 1), powersave.BacksRead{Err: "slurmrestd is away"})
		return
	}
	w.after(w.delay(20*time.Millisecond, readSlow, 2, 4*time.Second), func() {
		var jobs []powersave.SlurmJob
		for _, j := range w.jobs {
			o := powersave.SlurmJob{ID: j.id, AdminComment: j.comment, Restarts: j.restarts, Submitted: j.requeued, Begin: j.begin}
			if o.State = j.shown(); o.State.Any(powersave.JobPending | powersave.JobConfiguring) {
				jobs = append(jobs, o)
			}
		}
		w.tellLife(life, w.delay(5*time.Millisecond, readSlow, 3, 4*time.Second), powersave.BacksRead{Jobs: powersave.JobsBack(jobs, w.now)})
	})
}

func (w *world) holdJob(a powersave.HoldJob, begin time.Time, life int) {
	j := w.job(a.Job)
	answer := powersave.JobHeld{Job: a.Job, Serial: a.Serial}
	fails := w.any(holdFails) || w.slurmFails()
	switch {
	case j == nil:
		w.breaks("holds a job that is not", "%d", a.Job)
		return
	case fails:
		answer.Err = "timeout"
	case j.state == over:
	case j.state != pending:
		answer.Again = true
	default:
		if j.holds > 0 && j.holdLife == w.life && j.heldRun == j.restarts { // an answer that came late or twice let it be asked again
			j.holds--
		}
		w.mayHold(j, a, begin)
		j.begin, j.heldRun = begin, j.restarts
		j.comment, _ = powersave.RestComment(powersave.SlurmJob{AdminComment: j.comment, Restarts: j.restarts}, begin)
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
