package powersave

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// slurmctld takes a job off all its nodes when one of them is powered down by force. Those that are up for it, or come up, are idle then.

// loss is that a job has lost the nodes it waited for. What a request of before powers up for it is idle.
type loss struct {
	reason string
	at     time.Time
}

// lostFor is how much later than a job has lost its nodes a request for it may have been started.
const lostFor = 10 * time.Second

// loses notes that slurmctld has taken the job off its nodes.
func (e *Engine) loses(job uint32, reason string) {
	if len(e.losses) >= manyJobs {
		clear(e.losses)
	}
	e.losses[job] = loss{reason: reason, at: e.now}
}

// lossOf says why the job that a request names may have lost its nodes before the request could be written, "" if nothing is known of that:
// it was given back, or it was on a node that was given back for another.
func (e *Engine) lossOf(j Job, started time.Time) string {
	if l, ok := e.losses[j.ID]; ok && started.Before(l.at.Add(lostFor)) {
		return l.reason
	}
	for name := range j.Nodes.All() {
		if n := e.nodes[name]; n != nil && n.boot == nil && !n.forcedAt.IsZero() && started.Before(n.forcedAt.Add(lostFor)) {
			return fmt.Sprintf("job %d has lost %s", j.ID, name)
		}
	}
	return ""
}

// drainedByPeople says that somebody keeps the node out of use, and why stands on it: slurmctld would forget that with a power-down
// (power_save.c _do_power_work).
func (n *node) drainedByPeople() bool { return n.slurm.State.Any(judged) && !mayWrite(n.slurm.Reason) }

// leave makes the job wait no longer for the node, whose boot goes on.
func (e *Engine) leave(n *node, job uint32) {
	n.jobs = slices.DeleteFunc(n.jobs, func(id uint32) bool { return id == job })
	g := e.gangs[job]
	if b := n.boot; b != nil {
		if b.left == nil {
			b.left = map[uint32]time.Time{}
		}
		if b.left[job] = e.now; g != nil && g.parted != "" {
			b.parted = g.parted
		}
	}
	if g != nil {
		g.missed, g.set = true, cmp.Or(g.set, n.set)
		g.nodes = slices.DeleteFunc(g.nodes, func(name string) bool { return name == n.name })
		if len(g.nodes) == 0 {
			e.dropGang(job)
		}
	}
}

// hasLeft says that the job, which was given back and has lost its nodes, has left the boot of n since it was asked for.
func (e *Engine) hasLeft(n *node, job uint32, asked time.Time) bool {
	b := e.backOf(job)
	return (b == nil || b.freed) && n.boot.parted != "" && n.boot.left[job].After(asked)
}

// poweredUpSince says that n was powered up again, for other jobs: that is not before those that had it have left it.
func (n *node) poweredUpSince(job uint32, asked time.Time) bool {
	return slices.ContainsFunc(n.boot.requests, func(r *request) bool {
		return r.Started.After(asked) && r.names(n.name) && !slices.ContainsFunc(r.Jobs, func(j Job) bool { return j.ID == job && j.Nodes.Contains(n.name) })
	})
}

// part notes that slurmctld has taken a node, which has not come up, from the jobs that waited for it, and why. They have left their other nodes, too:
// those that are idle are let go, and the rest as Slurm shows that nobody has it. That is how the work of a bridge is finished that ended
// while it gave a job back.
func (e *Engine) part(n *node, jobs []uint32, why string) {
	if e.sets[n.set].Strategy == BestEffort {
		return
	}
	for _, id := range e.withSiblings(jobs) {
		if g := e.gangs[id]; g != nil {
			g.parted = fmt.Sprintf("job %d given back: %s", id, why)
			g.up = slices.DeleteFunc(g.up, func(name string) bool { return !e.nodes[name].slurm.State.Any(NodeIdle) })
			e.powerDown(g, g.parted)
		}
	}
}

// missesMembers notes that Slurm no longer shows a job on n, which had come up for it while others of its nodes boot: slurmctld takes a job off all
// its nodes when one fails. Unlike one that was given back it may start again at once, on what boots.
func (e *Engine) missesMembers(n *node) {
	if n.slurm.State.Any(inUse) {
		return
	}
	for _, id := range n.upFor {
		if g := e.gangs[id]; g != nil && slices.Contains(g.up, n.name) {
			g.lost = true
		}
	}
}

// losesAll makes the job of a gate wait for nothing any more: Slurm shows that it has lost a node, and slurmctld takes a job off all its nodes at once,
// also off those that others have got since. What it has when it starts again its next gate tells, or its next request.
func (e *Engine) losesAll(g *gate, lost *node) {
	e.loses(g.job, fmt.Sprintf("job %d has lost %s", g.job, lost.name))
	o := e.gangs[g.job]
	if o == nil || o.attempt > g.attempt || o.newest.After(lost.readAt) || o.whole.Len() > 0 && !o.whole.Contains(lost.name) {
		return
	}
	o.lost = true
	for _, name := range slices.Clone(o.nodes) {
		n := e.nodes[name]
		if n.boot.release == nil && !n.refuted() && (n.off == nil || !n.off.unbooted) { // else who ends its boot, or finds it up too late, tells the job why
			e.leave(n, g.job)
		}
	}
}

// parted says that n, idle as Slurm shows it, is powered up, or has just come up, only for jobs that have parted, and why.
func (e *Engine) parted(n *node) (reason string, parted bool) {
	b := n.boot
	if n.set == "" || !n.slurm.State.Any(NodeIdle) || n.drainedByPeople() || e.sets[n.set].Strategy == BestEffort {
		return "", false
	}
	if last := len(b.requests) - 1; last >= 0 && !b.requests[last].names(n.name) {
		return "", false // it was powered up for nobody since
	}
	if len(n.jobs) == 0 {
		return b.parted, b.parted != ""
	}
	for _, id := range n.jobs {
		g := e.gangs[id]
		if g == nil || g.parted == "" {
			return "", false
		}
		reason = g.parted
	}
	return reason, reason != ""
}

// callOff ends a boot that is for nobody any more. slurmctld may be giving the node to somebody just now: it is told first to give it to
// nobody, and only when it shows that nobody has got it before that, the node is given back.
func (e *Engine) callOff(n *node, reason string) {
	switch {
	case !n.slurm.State.Any(NodePowerDown):
		switch b := n.boot; {
		case n.dismissal != nil: // it is being asked
		case b.callAt.After(e.now):
			e.wakeAt(n, b.callAt)
		default:
			b.callAt = e.now.Add(pause(b.calls)) // should it not show that it has taken it
			b.calls++
			e.letGo(n, reason)
		}
	case n.readSince(n.believe):
		e.release(n, Verdict{Trouble: TroubleLost, Reason: reason}, reason, slices.Clone(n.jobs))
	}
}
