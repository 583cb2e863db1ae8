package powersave

import (
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

// lostFor is how long the request of a job may be under way. One that was held off starts no sooner again.
const lostFor = holdFirst

// loses notes that slurmctld has taken the job off its nodes.
func (e *Engine) loses(job uint32, reason string) {
	if len(e.losses) >= manyJobs {
		clear(e.losses)
	}
	e.losses[job] = loss{reason: reason, at: e.now}
}

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

// part notes that slurmctld has taken n, which has not come up, from the jobs that wait for it. They have left their other nodes, too:
// those that are idle are let go, and the rest when Slurm shows that nobody else has them. That is how the work of a bridge is finished that ended while it
// gave a job back.
func (e *Engine) part(n *node) {
	for _, id := range n.jobs {
		g := e.gangs[id]
		if g == nil || e.sets[n.set].Strategy == BestEffort {
			continue
		}
		g.parted = fmt.Sprintf("job %d given back: %s did not boot", id, n.name)
		g.up = slices.DeleteFunc(g.up, func(name string) bool { return !e.nodes[name].slurm.State.Any(NodeIdle) })
		e.powerDown(g, g.parted)
	}
}

// parted says that n, idle as Slurm shows it, is powered up, or has just come up, only for jobs that have parted, and why.
func (e *Engine) parted(n *node) (reason string, parted bool) {
	if n.set == "" || !n.slurm.State.Any(NodeIdle) || e.sets[n.set].Strategy == BestEffort {
		return "", false
	}
	if b := n.boot; b != nil && len(n.jobs) == 0 {
		return b.parted, b.parted != "" && b.requests[len(b.requests)-1].names(n.name) // else it was powered up by hand since
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
