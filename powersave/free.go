package powersave

import (
	"strings"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// timedOut is slurmctld's own reason (power_save.c).
const timedOut = "ResumeTimeout reached"

// needsUpdate says whether Slurm has to be told something once the pod is gone.
func (o *off) needsUpdate(n *node) bool {
	if n.missing || n.set == "" { // never touch what is not ours
		return false
	}
	if o.kind == spool.KindResumeFail {
		// Anything else was written by someone who knows more.
		return tookTooLong(n.slurm.Reason)
	}
	// SuspendTimeout frees the name as well; better that than to take back what somebody decided, or to have slurmctld give a node to a job whose own
	// host is in trouble: until then closeSets has drained it.
	return n.slurm.State.Any(NodePoweringDown) &&
		(!n.slurm.State.Any(judged) || n.drainedHere() && !n.slurm.State.Any(NodeFail)) && n.badHome == ""
}

// free sends the batched updates when their time has come.
func (e *Engine) free() {
	if len(e.freeable) == 0 || e.freeAt.After(e.now) {
		return
	}
	var updates []NodeUpdate
	for _, n := range e.freeable {
		u := NodeUpdate{State: StateResume}
		if n.off.kind == spool.KindResumeFail {
			u = NodeUpdate{Reason: ReasonPrefix + undivided(n.off.why)}
		}
		updates = merge(updates, u, n.name)
	}
	for _, u := range updates {
		e.do(UpdateNodes{u})
	}
	e.freeable = nil
}

// LooksFirst says that nodes are to be looked at right before the update, and those left alone that MayReach does not find ours: slurmctld
// takes no condition with it (node_mgr.c update_node). It ends what keeps them out of use, whoever has said so, or, as a reason alone, makes a node
// that a person has set DOWN one that is put back after a rest. A drain of closeSets would make that of a person one of ours, or take a node that
// a job has just got.
func (u NodeUpdate) LooksFirst() bool { return u.putsBack() || u.State == StateNone || u.closes() }

func (u NodeUpdate) putsBack() bool { return u.State == StateResume || u.State == StateUndrain }

// closes says that the update is one of closeSets that takes nodes out of Slurm's choice.
func (u NodeUpdate) closes() bool {
	return u.State == StateDrain && strings.HasPrefix(u.Reason, closedPrefix)
}

// MayReach says that no person has a say in the node that the update would take back, or write over.
func (u NodeUpdate) MayReach(n SlurmNode) bool {
	if u.closes() && !n.drainedFor(closedPrefix) {
		return !n.State.Any(judged|inUse) && mayWrite(n.Reason)
	}
	return u.putsBack() && !n.State.Any(judged) || mayWrite(n.Reason)
}

// ReasonPrefix marks every node reason that Slurmtide writes; others are never overwritten.
const ReasonPrefix = "slurmtide: "

func (e *Engine) nodesUpdated(ev NodesUpdated) {
	if e.floorUpdated(ev.Update, ev.Err) {
		return
	}
	for _, name := range ev.Update.Nodes {
		n := e.nodes[name]
		switch {
		case n != nil && (e.dismissalTaken(n, ev.Update, ev.Err) || e.tended(n, ev.Update, ev.Err)):
			continue
		case ev.Update.State == StatePowerDown, ev.Update.State == StatePowerUp, ev.Update.State == StateRenew: // nothing waits for it
			continue
		case n != nil && ev.Update.State == StatePowerDownForce:
			e.released(n, ev.Err)
			continue
		case n != nil && n.closing:
			e.closedUpdated(n, ev.Update, ev.Err)
			continue
		}
		if n == nil || n.off == nil || !n.off.updating {
			continue
		}
		o := n.off
		o.updating = false
		if ev.Err == "" {
			o.updated = true
			if ev.Update.State == StateResume {
				o.times.Freed = e.now
			}
			if _, closed := e.closed[n.set]; closed { // else Slurm would choose it until the next complete read
				e.reads.wantComplete(e.now.Add(e.cfg.PollSlow))
			}
			e.reads.want(e.now.Add(e.cfg.PollSlow))
		} else {
			// Not vital: SuspendTimeout frees the name as well. Look at Slurm again, then retry.
			e.note(Warn, n, o.request(), ev.Update.String()+" failed: "+ev.Err)
			o.retryAt = e.now.Add(pause(o.tries))
			o.tries++
			o.updated = o.tries >= 5
			o.read = e.reads.count
		}
		e.decide(n)
	}
}
