package sim_test

import (
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of node_mgr.c update_node, and of the call that the bridge makes.

// updateTakes is how long an update may take until it is done.
const updateTakes = 6 * time.Second

// actOn is how old the engine's sight of Slurm may be where it acts on it, and what the calls of a read take.
const actOn = 6 * time.Second

// update is what the bridge does: before it puts nodes back it looks at them.
func (w *world) update(u powersave.NodeUpdate, life int) {
	if !u.LooksFirst() || w.slurmFails() {
		w.updateNow(u, life)
		return
	}
	ours, kept, where := u, u, w.node(u.Nodes[0]).index
	ours.Nodes, kept.Nodes = nil, nil
	for _, name := range u.Nodes {
		n := w.node(name)
		n.looked = w.now
		if u.MayReach(powersave.SlurmNode{Name: name, State: n.state(), Reason: n.reason}) {
			ours.Nodes = append(ours.Nodes, name)
		} else {
			kept.Nodes = append(kept.Nodes, name)
		}
	}
	if len(kept.Nodes) > 0 {
		w.tellLife(life, w.some(20*time.Millisecond, updateSlow, where), powersave.NodesUpdated{Update: kept, Err: "drained just now"})
	}
	if len(ours.Nodes) > 0 {
		w.after(w.some(20*time.Millisecond, drain, where), func() { w.updateNow(ours, life) })
	}
}

// mayAskBack looks whether the bridge would put back what people keep out of use: right before it does, it looks, but it has to know.
func (w *world) mayAskBack(u powersave.NodeUpdate) {
	for _, name := range u.Nodes {
		n := w.node(name)
		if u.LooksFirst() && w.now.Sub(latest(n.reasonAt, n.changed)) > stale && !u.MayReach(powersave.SlurmNode{Name: name, State: n.state(), Reason: n.reason}) {
			w.breaks("would put back what people keep", "%s: %s", u, w.show(n))
		}
		// What a node says that is let go with its job the bridge has to have read just now.
		if u.State == powersave.StatePowerDown && u.Reason != "" && n.foreign() && n.flags.Any(powersave.NodeDrain) && w.now.Sub(latest(n.reasonAt, n.changed)) > actOn && w.now.After(w.rough) {
			w.breaks("lets go by an old sight", "%s: %s", u, w.show(n))
		}
	}
}

// updateNow is update_node: resume clears DRAIN, takes a node that is DOWN back, and frees the name of one that powers down.
func (w *world) updateNow(u powersave.NodeUpdate, life int) {
	where := w.node(u.Nodes[0]).index
	answer := powersave.NodesUpdated{Update: u}
	fails, lost := w.on(updateFails, where) || w.slurmFails(), w.on(updateLost, where)
	if fails || lost {
		answer.Err = "timeout"
	}
	for _, name := range u.Nodes {
		n := w.node(name)
		switch {
		case fails:
		case n.forgotten:
			answer.Err = "unknown node " + name
		case !n.ours():
			w.breaks("touches a foreign node", "%s", name)
		case !w.updateNode(n, u):
			answer.Err = "invalid transition of " + name + " from " + n.state().String()
		}
	}
	w.tellLife(life, w.delay(5*time.Millisecond, updateSlow, where, updateTakes), answer)
}

func (w *world) updateNode(n *node, u powersave.NodeUpdate) bool {
	w.mayUpdate(n, u)
	if u.Reason != "" {
		if n.foreign() && n.reasonAt.After(n.looked) {
			n.unseen = n.reasonAt
		}
		n.say(u.Reason, w.now)
	}
	switch u.State {
	case powersave.StateResume:
		was, down := n.flags, n.down
		n.flags &^= powersave.NodeDrain
		if was.Any(powersave.NodeDrain|powersave.NodePoweringDown) || down {
			n.say("", w.now)
		}
		switch {
		case n.flags.Any(powersave.NodePoweringDown):
			n.instance = ""
			w.turn(n, powersave.NodePoweringDown|powersave.NodeInvalidReg, powersave.NodePoweredDown)
		case n.down:
			n.down = false
		default:
			return was.Any(powersave.NodeDrain)
		}
	case powersave.StateUndrain: // it leaves a power change alone
		if n.flags.Any(powersave.NodeInvalidReg) {
			return false
		}
		if n.flags.Any(powersave.NodeDrain) && !n.down {
			n.say("", w.now)
		}
		n.flags &^= powersave.NodeDrain
	case powersave.StateDrain:
		w.drain(n)
	case powersave.StatePowerUp:
		w.powerUp(n)
	case powersave.StatePowerDown:
		if !n.flags.Any(powersave.NodePoweringDown) {
			n.flags |= powersave.NodePowerDown
			n.changed = w.now
		}
	case powersave.StatePowerDownForce:
		w.force(n, true)
	default:
	}
	return true
}
