package powersave

import (
	"cmp"
	"strings"
	"time"
)

// heal says what brings a node back that slurmctld has set DOWN and nobody has spoken on, StateNone if nothing does or it
// is not time yet; two complete reads must show it. slurmctld itself leaves such a node to people, to SuspendTime, or
// to the next registration of its slurmd, which it asks for with every 20th ping only (ping_nodes.c, MAX_REG_FREQUENCY).
// reachable says that Kubernetes can end the node's pod, and tell.
func (e *Engine) heal(n *node, reachable bool) StateChange {
	c := &n.care
	change, after := StateNone, e.cfg.Sightings
	switch state := n.slurm.State; {
	case !state.Any(NodeDown) || state.Any(NodeFail|NodeInvalidReg|NodePowerDown|turning):
	case n.pod == nil && state.Any(NodePoweredDown) && !state.Any(NodeDrain|NodePowerUp|inUse) && gaveUp(n.slurm.Reason):
		// It rests as long as a NodeSet that has failed once. The breaker knows whether boots fail again and again.
		change, after = StateResume, max(after, cmp.Or(e.sets[n.set].BackoffInitial, DefaultBackoffInitial))
	case reachable && serving(state) && n.pod != nil && (n.pod.Phase == PodRunning || n.pod.Phase == PodReady || n.pod.Lingers(e.now)) && n.silenced():
		// Its jobs are requeued; what is left of them must not run on, and a new pod is sure to register.
		change = StatePowerDown
	}
	switch {
	case change == StateNone, e.blind:
		c.downAt = time.Time{}
		return StateNone
	case c.downAt.IsZero():
		c.downAt = n.readAt
	}
	if due := c.downAt.Add(after); n.readAt.Before(due) || !n.readAt.Equal(e.reads.complete) {
		e.reads.wantComplete(due)
		return StateNone
	}
	if change == StatePowerDown {
		return change
	}
	set := e.sets[n.set]
	choice := e.breakers.Look(e.now, set, nil)
	if !choice.OK || set.Problem != "" {
		if choice.Until.After(e.now) {
			e.wakeAt(n, choice.Until)
		}
		return StateNone
	}
	return change
}

// gaveUp says that a node is DOWN only because a boot took longer than ResumeTimeout.
func gaveUp(reason string) bool { return reason != "" && mayWrite(reason) }

// silenced says that slurmctld has set the node DOWN only because its slurmd did not answer. It adds that to a reason the node has
// already (node_mgr.c set_node_reason), as one that was drained here, or powered up by hand though its NodeSet was closed. A drain
// for its host may also have been written over it.
func (n *node) silenced() bool {
	said, added, _ := strings.Cut(n.slurm.Reason, addedAfter)
	return strings.HasPrefix(n.slurm.Reason, notResponding) || n.drainedHere() && n.slurm.State.Any(NodeNotResponding) ||
		added == notResponding && mayWrite(said) && (!n.slurm.State.Any(NodeDrain) || n.drainedHere() || strings.HasPrefix(said, closedPrefix))
}
