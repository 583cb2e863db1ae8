package powersave

import (
	"fmt"
	"slices"
	"time"
)

// dismissal is of a node that is to be let go: it has registered for a job that is given back, or boots for nobody. slurmctld gives an
// idle one no job from now on, and powers it down when it is up and has none. The reason that goes with it stands until the name is
// freed, or until the node has its next job (node_mgr.c update_node, make_node_alloc): it keeps nobody off a node that stays.
type dismissal struct {
	reason  string
	read    int  // only later reads count
	taken   bool // slurmctld has taken its job off it already
	sent    bool
	with    string // the reason that was sent
	tries   int
	retryAt time.Time
}

// backReason is what the nodes of a job say that is given back because another node failed.
func backReason(job uint32, culprit string, v Verdict) string {
	if culprit != "" {
		culprit += ": "
	}
	return fmt.Sprintf("job %d given back: %s%s", job, culprit, v)
}

// powerDown lets go the nodes that registered for a job that was given back.
func (e *Engine) powerDown(g *gang, reason string) {
	for _, name := range g.up {
		e.letGo(e.nodes[name], reason)
	}
	g.up = nil
}

func (e *Engine) letGo(n *node, reason string) {
	if n.dismissal == nil {
		n.dismissal = &dismissal{reason: reason}
		if n.drainedByPeople() { // or was: Slurm is to show it
			n.dismissal.read = e.reads.count
		}
		e.dismissed = append(e.dismissed, n)
	}
}

// sendDismissals asks for the updates of nodes that are let go, those with the same reason together. A reason that is not ours stays, and
// so does one that says why the node is kept out of use: whether it does, Slurm has to have shown just now.
func (e *Engine) sendDismissals() {
	var updates []NodeUpdate
	e.dismissed = slices.DeleteFunc(e.dismissed, func(n *node) bool {
		l, state := n.dismissal, n.slurm.State
		fresh := n.readSince(l.read) && e.now.Sub(n.seenAt) <= actOn
		idles := n.boot != nil && n.booting(e.now) && state.Any(NodeIdle)
		known := state.Any(NodePowerDown) && n.slurm.Reason == ReasonPrefix+l.reason // to slurmctld
		switch {
		case l.sent, e.blind:
			return false
		case n.missing, n.set == "", fresh && (known || !serving(state) && !idles || n.drainedByPeople()), e.putOff(n),
			fresh && l.taken && state.Any(NodeAllocated|NodeMixed) && !state.Any(NodeCompleting):
			n.dismissal, e.tellAgain = nil, true // it goes, or has gone already, or is another's
			return true
		case l.retryAt.After(e.now), n.boot != nil && !idles, n.off != nil:
			return false
		case n.care.update != nil, n.closing, n.warm.ask == StateRenew: // whose reason must not be written over, or which would take ours back
			return false
		case !fresh:
			e.reads.want(e.now)
			return false
		}
		u := NodeUpdate{State: StatePowerDown}
		if mayWrite(n.slurm.Reason) && !state.Any(judged) {
			u.Reason = ReasonPrefix + l.reason
		}
		l.sent, l.with = true, u.Reason
		updates = merge(updates, u, n.name)
		return false
	})
	for _, u := range updates {
		e.do(UpdateNodes{u})
	}
}

// dismissalTaken takes in the answer to an update of sendDismissals; false: it is none.
func (e *Engine) dismissalTaken(n *node, u NodeUpdate, err string) bool {
	l := n.dismissal
	if l == nil || !l.sent || u.State != StatePowerDown || u.Reason != l.with {
		return false
	}
	l.sent = false
	if err == "" {
		n.dismissal, e.tellAgain = nil, true
		e.dismissed = slices.DeleteFunc(e.dismissed, func(o *node) bool { return o == n })
		// What Slurm will show from now on; a read under way may not know it yet.
		n.believe = e.reads.count
		n.slurm.State |= NodePowerDown
		if n.boot != nil {
			e.reads.want(e.now) // callOff goes on when nobody has got it before that
		}
		return true
	}
	e.note(Warn, n, "", u.String()+" failed: "+err)
	l.read, l.retryAt = e.reads.count, e.now.Add(pause(l.tries))
	l.tries++
	return true
}
