package powersave

import (
	"cmp"
	"slices"
	"time"
)

// gate is a start-gate that waits for the nodes of its job. It is let go when a read of Slurm
// later than its arrival shows that all of them serve: PrologSlurmctld starts before
// ResumeProgram, so that no boot in hand does not mean that the nodes are up.
type gate struct {
	id       uint64
	job      uint32
	het      uint32    // leader of its het job; 0: none
	nodes    []*node   // those not seen serving yet
	up       []*node   // those that are
	read     int       // reads asked for before it came
	asked    time.Time // when it came
	attempt  int       // of the job; 0: unknown
	deadline time.Time
}

// heldGate is a gate that came before the NodeSets were known.
type heldGate struct {
	GateOpened
	asked time.Time
}

// gateBlind is how long a gate waits while Slurm, or the NodeSets, cannot be read. Its nodes may be up long since, and
// slurmctld's own scan, every 30 s, would have started the job: to wait longer would hold it up.
const gateBlind = 20 * time.Second

// A slurmctld that is to read its configuration anew first ends what starts ResumeProgram, and then waits for the programs that run (controller.c,
// slurmscriptd.c _wait_for_all_scripts). A gate that began in between would wait for a boot that nobody asks for, and slurmctld for the gate. Since 25.11.7
// srun and salloc have such gates, also for nodes that boot already: when it is seen not to ask for nodes, slurmctld is kept waiting for none of them.
const (
	gateUnasked = 10 * time.Second // ResumeProgram comes within a second or two, unless slurmctld is busy
	gateRated   = 65 * time.Second // with a ResumeRate it may come for others first, and for these in the next minute
)

// unaskedUntil is when the gate is let go if ResumeProgram has not come by then; zero: it has come for its nodes, as far as is known.
func (e *Engine) unaskedUntil(g *gate) time.Time {
	switch {
	case e.unasked && g.asked.After(e.resumedAt):
		return g.asked // slurmctld may wait for it, whatever its nodes do
	case !slices.ContainsFunc(g.nodes, func(n *node) bool { return n.boot == nil && n.readSince(g.read) && n.allocatedAnew() }):
		return time.Time{}
	case e.unasked:
		return g.asked
	case e.allAtOnce || e.resumedAt.IsZero():
		return g.asked.Add(gateUnasked)
	}
	return later(g.asked.Add(gateUnasked), e.resumedAt.Add(gateRated))
}

// unaskedFor says that a read later than that shows its nodes still not up.
func (e *Engine) unaskedFor(g *gate) bool {
	until := e.unaskedUntil(g)
	return !until.IsZero() && !slices.ContainsFunc(g.nodes, func(n *node) bool { return n.readAt.Before(until) })
}

func (e *Engine) openGate(ev GateOpened) {
	if e.hets.add(ev.JobID, ev.HetJob) {
		e.goAlong(e.hets.of(ev.JobID))
	}
	if held := (heldGate{ev, e.now}); e.setsRead {
		e.admitGate(held)
	} else {
		e.heldGates = append(e.heldGates, held)
	}
}

// admitGate lets a gate wait once the NodeSets are known.
func (e *Engine) admitGate(ev heldGate) {
	g := &gate{id: ev.ID, job: ev.JobID, het: ev.HetJob, read: e.reads.count, asked: ev.asked, attempt: ev.Attempt, deadline: ev.Deadline}
	e.leaveBefore(ev)
	for name := range ev.Nodes.All() {
		n := e.nodes[name]
		if n == nil || n.set == "" && n.was == "" {
			continue // not ours: never a reason to wait
		}
		g.nodes = append(g.nodes, n)
		n.gated, n.gatedAt = g.read, e.now
		if !slices.Contains(n.gatedBy, g.job) {
			n.gatedBy = append(n.gatedBy, g.job)
		}
	}
	if len(g.nodes) == 0 {
		e.do(AnswerGate{ID: g.id, Ready: true})
		return
	}
	e.gates = append(e.gates, g)
	e.reads.want(e.now)
}

// leaveBefore makes the job of a gate wait no longer for what it had in an attempt before, as leaveFormer does by a request: there is none when
// all that it has been given is up. A bridge that has just started may not know which attempt its request was of: one has the same nodes in both.
func (e *Engine) leaveBefore(ev heldGate) {
	g := e.gangs[ev.JobID]
	switch {
	case g == nil, g.attempt > 0 && ev.Attempt <= g.attempt:
		return
	case g.attempt == 0 && (g.whole.Len() == 0 || same(g.whole, ev.Nodes) || !ev.asked.After(g.newest.Add(gateSlack))):
		return // it may be of the same start
	}
	g.attempt = ev.Attempt
	for _, name := range slices.Clone(g.nodes) {
		if n := e.nodes[name]; !ev.Nodes.Contains(name) {
			e.leave(n, ev.JobID)
		}
	}
	g.missed = false // what it left was of its start before
}

// gatedBeyond says that a gate has named n whose job is none of those of the release, or may be of another start of one: it came later.
func (n *node) gatedBeyond(r *release) bool {
	return n.gatedAt.After(r.at) || slices.ContainsFunc(n.gatedBy, func(id uint32) bool { return !slices.Contains(r.jobs, id) })
}

// closeGate takes in that a start-gate went away: slurmctld kills it when its job ends.
func (e *Engine) closeGate(id uint64) {
	e.gates = slices.DeleteFunc(e.gates, func(g *gate) bool {
		if g.id == id {
			e.loseRest(g.job)
		}
		return g.id == id
	})
	e.heldGates = slices.DeleteFunc(e.heldGates, func(g heldGate) bool { return g.ID == id })
}

// pollForGate is when the gate wants Slurm to be read next.
func (e *Engine) pollForGate(g *gate) time.Time {
	for _, n := range g.nodes {
		if !n.readSince(g.read) && n.unknown != e.reads.count {
			return e.reads.ended
		}
	}
	slow := e.reads.ended.Add(e.cfg.PollSlow) // boots in hand poll faster by themselves
	if until := e.unaskedUntil(g); !until.IsZero() && until.Before(slow) {
		return later(until, e.reads.ended)
	}
	return slow
}

// joinGates notes which jobs wait for boots in hand, as far as their gates and the newest read tell: no resume file names a
// job whose nodes boot already.
func (e *Engine) joinGates() {
	given := make(map[uint32]bool, len(e.backs))
	for _, b := range e.backs {
		given[b.job] = true
	}
	for _, g := range e.gates {
		if given[g.job] {
			e.gatedAnew(g)
		}
		for _, n := range g.nodes {
			if n.boot != nil && n.readSince(g.read) && n.slurm.State.Any(NodePoweringUp) && e.backOf(g.job) == nil {
				e.hasAgain(n, g.job, g.asked)
				e.join(n, g.job, g.asked, n.boot.resumeTimeout)
			}
		}
		if o := e.gangs[g.job]; o != nil {
			o.attempt = max(o.attempt, g.attempt)
		}
	}
}

func (e *Engine) checkGates() {
	e.gates = slices.DeleteFunc(e.gates, func(g *gate) bool {
		var down string
		var lost *node
		g.nodes = slices.DeleteFunc(g.nodes, func(n *node) bool {
			if !n.readSince(g.read) {
				return false
			}
			if n.missing || n.slurm.State.Any(NodeDown) {
				down = n.name
			}
			if n.slurm.State.Any(NodeIdle) { // its job was requeued, or has ended
				lost = n
			}
			if !n.missing && serving(n.slurm.State) {
				g.up = append(g.up, n)
			}
			return n.missing || serving(n.slurm.State)
		})
		for _, n := range g.up {
			if n.slurm.State.Any(NodeIdle | NodeDown) {
				lost = n
			}
		}
		switch {
		case down != "":
			e.do(AnswerGate{ID: g.id, Reason: "node " + down + " is down"})
		case len(g.nodes) == 0:
			e.do(AnswerGate{ID: g.id, Ready: true})
		case lost != nil:
			e.losesAll(g, lost)
			e.do(AnswerGate{ID: g.id, Reason: "node " + lost.name + " is the job's no longer"})
		case e.unaskedFor(g):
			e.unasked = true // until ResumeProgram comes again, none has to wait that comes after it
			e.do(AnswerGate{ID: g.id, Reason: "slurmctld powers up no more nodes now, or waits for this program to read its configuration"})
		default:
			return false
		}
		return true
	})
}

// failGates lets the gates go that wait for a boot of n that has ended. jobs are those the boot
// was requested for. A read that began before a gate came says nothing about the gate's job, and
// a job that has got the node since then waits for a boot that is still to be requested.
func (e *Engine) failGates(n *node, jobs []uint32) {
	e.gates = slices.DeleteFunc(e.gates, func(g *gate) bool {
		if !slices.Contains(g.nodes, n) || !n.readSince(g.read) || !slices.Contains(jobs, g.job) && n.allocatedAnew() {
			return false
		}
		e.do(AnswerGate{ID: g.id, Reason: "node " + n.name + " did not boot"})
		return true
	})
}

// endGates lets the gates of jobs that were given back go: a requeued job does not start again while its PrologSlurmctld
// runs (job_scheduler.c). A gate that came after a job had left its nodes is of its next start.
func (e *Engine) endGates(jobs []uint32, reason string) {
	e.gates = slices.DeleteFunc(e.gates, func(g *gate) bool {
		if b := e.backOf(g.job); !slices.Contains(jobs, g.job) || b != nil && b.freed && g.asked.After(b.freedAt) {
			return false
		}
		e.do(AnswerGate{ID: g.id, Reason: reason})
		return true
	})
}

// notifyUser has the gate of a job tell its user why the job is given back, while slurmctld still knows where he sits.
func (e *Engine) notifyUser(job uint32, reason string) (told bool) {
	e.gates = slices.DeleteFunc(e.gates, func(g *gate) bool {
		if g.job != job {
			return false
		}
		e.do(AnswerGate{ID: g.id, Reason: reason, Notify: true})
		told = true
		return true
	})
	return told
}

// allocatedAnew reports that Slurm may have given a node whose boot has ended to a newer job. A node
// in POWERING_DOWN gets none, and one that missed ResumeTimeout is DOWN, which the job that is being
// requeued can hide.
func (n *node) allocatedAnew() bool {
	s := n.slurm.State
	return s.Has(NodePoweredDown) && s.Any(NodeAllocated|NodeMixed) && !s.Any(NodePoweringDown|NodeCompleting|NodeDown) &&
		!tookTooLong(n.slurm.Reason)
}

func (e *Engine) expireGates() {
	e.heldGates = slices.DeleteFunc(e.heldGates, func(g heldGate) bool {
		if g.until().After(e.now) {
			return false
		}
		e.do(AnswerGate{ID: g.ID, Reason: "the NodeSets could not be read in time"})
		return true
	})
	e.gates = slices.DeleteFunc(e.gates, func(g *gate) bool {
		switch {
		case !g.deadline.IsZero() && !g.deadline.After(e.now):
			e.do(AnswerGate{ID: g.id, Reason: "the nodes were not up in time"})
		case e.blindFor(g):
			e.do(AnswerGate{ID: g.id, Reason: "Slurm cannot be read: " + cmp.Or(e.reads.lastErr, "no answer yet")})
		default:
			return false
		}
		return true
	})
}

// until is when the gate is let go if the NodeSets are not known by then.
func (g heldGate) until() time.Time {
	if t := g.asked.Add(gateBlind); g.Deadline.IsZero() || t.Before(g.Deadline) {
		return t
	}
	return g.Deadline
}

// blindAt is when the gate is let go if Slurm does not answer until then; zero: it answers.
func (e *Engine) blindAt(g *gate) time.Time {
	since, blind := e.reads.blind()
	if !blind {
		return time.Time{}
	}
	return later(g.asked, since).Add(gateBlind)
}

// blindFor says that the gate has waited long enough for Slurm to answer.
func (e *Engine) blindFor(g *gate) bool {
	t := e.blindAt(g)
	return !t.IsZero() && !t.After(e.now)
}
