package powersave

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// closing is a NodeSet none of whose boots can succeed for now, or one node.
type closing struct {
	until  time.Time // zero: until its spec, or its problem, changes
	places int       // of a NodeSet: for so many nodes there is room nevertheless, within limits of offerings
	reason string
	tries  int    // of a node
	pod    string // that hangs; the node is closed until it is gone
}

// closedPrefix marks the nodes that Slurmtide has drained because of a closing; only those are put back.
const closedPrefix = ReasonPrefix + "closed: "

// closeSets takes the powered-down nodes of NodeSets that cannot be used, or whose breakers are open, out of Slurm's choice, so that Slurm
// places jobs elsewhere at once, and puts them back when that is over, or the next try is due.
func (e *Engine) closeSets() {
	if !e.leading || !e.podsRead || !e.setsRead || e.reads.complete.IsZero() {
		return
	}
	fresh := e.closedRead != e.reads.complete
	if len(e.closed) == 0 && !fresh && !e.closedAgain && e.breakers.AllClosed() {
		return
	}
	if !fresh && !e.closedAgain && e.closedBy == e.breakers.changes && (e.closedUntil.IsZero() || e.now.Before(e.closedUntil)) {
		return
	}
	e.closedBy, e.closedUntil = e.breakers.changes, e.breakers.until(e.now)
	now, closed := map[string]closing{}, e.breakers.AllClosed()
	for name, set := range e.sets {
		if set.Problem != "" { // readNodeSets tells when it has changed
			now[name] = closing{reason: closedPrefix + Verdict{Trouble: TroubleConfig, Reason: set.Problem}.String()}
			continue
		}
		if closed {
			continue // a NodeSet that is full is not closed for that
		}
		choice := e.breakers.Look(e.now, set, set.full())
		if choice.OK || choice.Soon || choice.Full && !e.breakers.rests(set) {
			continue
		}
		reason := closedPrefix + choice.Why
		if !choice.Until.IsZero() {
			reason += fmt.Sprintf("; tried again at %s", choice.Until.UTC().Format("15:04:05Z"))
		}
		now[name] = closing{until: choice.Until, reason: reason, places: e.placesLeft(set)}
	}
	if maps.Equal(now, e.closed) && !fresh && !e.closedAgain {
		return
	}
	var nodes []*node // few, if any
	spared := e.sparedOff(now)
	for _, n := range e.all() {
		if state, _ := e.closeUpdate(n, now, spared); state != StateNone {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) > 0 && e.now.Sub(e.reads.complete) > actOn {
		e.reads.wantComplete(e.now.Add(e.cfg.PollSlow)) // somebody may have drained them since; releases come first
		e.closedAgain = false                           // until then
		return
	}
	e.closed, e.closedRead, e.closedAgain = now, e.reads.complete, false
	var updates []NodeUpdate
	for _, n := range nodes {
		state, reason := e.closeUpdate(n, now, spared)
		updates = merge(updates, NodeUpdate{State: state, Reason: reason}, n.name)
		n.closing = true
	}
	for _, u := range updates {
		e.do(UpdateNodes{u})
	}
}

// sparedOff are the nodes that stay in Slurm's choice while their NodeSets are closed, as many as there are places: those that are in it, or just
// leave a place, before others.
func (e *Engine) sparedOff(now map[string]closing) map[*node]bool {
	off := map[string][]*node{}
	for _, n := range e.all() {
		if now[n.set].places == 0 || n.read == 0 || n.boot != nil || n.pod != nil || n.shut(e.now) {
			continue
		}
		state := n.slurm.State
		ours := state.Any(NodeDrain) && n.slurm.drainedFor(closedPrefix)
		leaves := n.off != nil && !state.Any(inUse|NodePoweringUp)
		if (leaves || n.isOff()) && !state.Any(NodeReserved) && (ours || !state.Any(judged) && mayWrite(n.slurm.Reason)) {
			off[n.set] = append(off[n.set], n)
		}
	}
	spared := map[*node]bool{}
	for set, nodes := range off {
		slices.SortStableFunc(nodes, func(a, b *node) int {
			switch {
			case a.off != nil && b.off == nil: // its name is freed next, and then it is in Slurm's choice
				return -1
			case a.off == nil && b.off != nil:
				return 1
			}
			return cmp.Compare(a.slurm.State&NodeDrain, b.slurm.State&NodeDrain)
		})
		for _, n := range nodes[:min(len(nodes), now[set].places)] {
			spared[n] = true
		}
	}
	return spared
}

// isOff says that Slurm shows the node powered down, and is not about to change that.
func (n *node) isOff() bool {
	return n.slurm.State.Has(NodePoweredDown) && !n.slurm.State.Any(inUse|NodePoweringUp|NodePowerUp|NodePoweringDown)
}

// closeUpdate is what n asks for when these NodeSets are closed, but for the spared nodes.
func (e *Engine) closeUpdate(n *node, now map[string]closing, spared map[*node]bool) (u StateChange, reason string) {
	hangs := n.hangs()
	if n.set == "" || n.read == 0 || n.missing || n.closing || n.boot != nil || n.off != nil && !hangs {
		return StateNone, ""
	}
	c, closed := now[n.set]
	closed = closed && !spared[n]
	if n.shut(e.now) && (hangs || !closed) {
		if c, closed = n.closed, true; n.badHome != "" && !hangs {
			c.reason = closedPrefix + n.badHome
		}
	}
	state := n.slurm.State
	off := (n.pod == nil || hangs) && (n.isOff() || n.badHome != "" && state.Any(NodePoweringDown))
	up := n.alive() && n.pod.Phase != PodTerminating && serving(state) && !state.Any(NodeDown|NodeFail|NodeInvalidReg) // somebody tried it, by hand
	switch {
	case !off && !up:
	case closed && off && !state.Any(judged|NodeReserved) && mayWrite(n.slurm.Reason):
		return StateDrain, c.reason
	case closed && off && state.Has(NodeIdle|NodeDrain) && !state.Any(NodeDown) && n.slurm.drainedFor(closedPrefix) && n.slurm.Reason != c.reason: // it is closed for another reason now
		return StateDrain, c.reason
	case (!closed && e.hostKnown(n) || up) && state.Any(NodeDrain) && n.slurm.drainedFor(closedPrefix): // what serves has its place
		// One that is DOWN, too, was set DOWN by somebody just before it was drained: that is not ours to take back at once, see heal.
		return StateUndrain, ""
	}
	return StateNone, ""
}

// closeNode takes a node out of Slurm's choice for a while because it alone cannot boot: somebody else's pod has its name, or its own
// host is full. Slurm would choose it for the next job, too.
func (e *Engine) closeNode(n *node, v Verdict) {
	set := e.sets[n.set]
	until := e.now.Add(backoff(cmp.Or(set.BackoffInitial, DefaultBackoffInitial), cmp.Or(set.BackoffMax, DefaultBackoffMax), n.closed.tries, uint64(len(n.name))))
	n.closed = closing{until: until, reason: fmt.Sprintf("%s%s; tried again at %s", closedPrefix, v, until.UTC().Format("15:04:05Z")), tries: n.closed.tries + 1}
	e.wakeAt(n, until)
}

// closeFull does so with a node that is given back with another, if its own host is full, too: the job's next attempt is to have others.
func (e *Engine) closeFull(n *node) {
	if t, reason := e.trouble(n); t == TroubleCapacity && e.sets[n.set].Pinned && !n.shut(e.now) {
		e.closeNode(n, Verdict{Trouble: t, Reason: reason})
	}
}

// closeUntilGone does so until the former pod of n is gone, which hangs.
func (e *Engine) closeUntilGone(n *node, v Verdict) {
	n.closed = closing{reason: closedPrefix + v.String(), pod: n.pod.UID}
}

// hangs says that n is closed for a former pod that is still there.
func (n *node) hangs() bool { return n.closed.pod != "" && n.pod != nil && n.pod.UID == n.closed.pod }

// shut says that n alone is out of Slurm's choice for now.
func (n *node) shut(now time.Time) bool {
	return n.closed.until.After(now) || n.hangs() || n.badHome != ""
}

// reopen ends the closing of n when its time has come, or what hung is gone.
func (e *Engine) reopen(n *node) {
	switch c := &n.closed; {
	case c.pod != "" && !n.hangs():
		*c, e.closedAgain = closing{}, true
	case c.until.After(e.now):
		e.wakeAt(n, c.until)
	case !c.until.IsZero():
		c.until, e.closedAgain = time.Time{}, true
	}
}

// closedUpdated takes in the answer to an update of closeSets.
func (e *Engine) closedUpdated(n *node, u NodeUpdate, err string) {
	n.closing = false
	if err != "" {
		e.note(Warn, n, "", u.String()+" failed: "+err)
		e.reads.wantComplete(e.now.Add(e.cfg.Sightings)) // and then again
		return
	}
	// What Slurm will show from now on; a read under way may not know it yet.
	n.believe = e.reads.count
	n.slurm.Reason = u.Reason
	if u.State == StateDrain {
		n.slurm.State |= NodeDrain
	} else {
		n.slurm.State &^= NodeDrain
		n.slurm.Reason = ""
	}
	e.closedAgain = true // its NodeSet may have opened meanwhile
	if u.State != StateDrain && e.floors.of[n.set] != nil {
		e.reads.wantComplete(e.now.Add(e.cfg.PollSlow)) // its floor may have waited for that
	}
}
