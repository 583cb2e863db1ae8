package powersave

import (
	"slices"
	"time"
)

// floorUpdated takes in the answer to an update of keepFloor; false: it is none.
func (e *Engine) floorUpdated(u NodeUpdate, err string) bool {
	asked := func(name string) bool {
		n := e.nodes[name]
		return n != nil && n.warm.ask != StateNone && n.warm.ask == u.State
	}
	if slices.ContainsFunc(u.Nodes, func(name string) bool { return !asked(name) }) { // another part of the Engine waits for it
		return false
	}
	var of *floor
	ours := map[string]int{} // by NodeSet
	if u.State == StatePowerUp && err == "" {
		for _, n := range e.all() {
			if n.warm.ours {
				ours[n.set]++
			}
		}
	}
	for _, name := range u.Nodes {
		n := e.nodes[name]
		n.warm.ask = StateNone
		if of == nil {
			of = e.floors.of[n.set]
		}
		if of == nil { // its NodeSet is gone
			of = &floor{}
		}
		if err != "" {
			continue
		}
		switch u.State {
		case StateRenew:
			n.warm.renewed = e.now
			continue
		case StatePowerUp:
			if f := e.floors.of[n.set]; f != nil && ours[n.set] < f.want { // those of a wish are Slurm's to power down
				n.warm.ours = true
				ours[n.set]++
			}
			n.slurm.State |= NodePowerUp
		default:
			n.warm.ours = false // whoever stops it wants the node
			n.slurm.State |= NodePowerDown
		}
		n.believe = e.reads.count // a read under way may not know it yet
	}
	switch {
	case of == nil:
		return false
	case u.State != StatePowerUp && err != "":
		e.note(Warn, nil, "", u.String()+" failed: "+err)
		if u.State == StateRenew {
			e.reads.wantComplete(e.now.Add(e.cfg.PollSlow)) // SuspendTime does not wait
		}
	case u.State == StatePowerDown:
		e.reads.wantComplete(e.now.Add(e.cfg.PollSlow))
	case u.State != StatePowerUp:
	case err == "":
		of.tries = 0
		of.most *= 2 // what stood in the way may be over
		e.reads.wantComplete(e.now.Add(e.cfg.PollSlow))
	case len(u.Nodes) > 1:
		of.refusal, of.most = err, len(u.Nodes)/2
		of.why, of.text = FloorRefused, err
		of.retryAt = e.now.Add(e.cfg.PollSlow)
	default:
		e.note(Warn, nil, "", u.String()+" failed: "+err)
		of.refusal, of.most = err, 1
		of.why, of.text = FloorRefused, err
		of.retryAt = e.now.Add(backoff(refusedFirst, refusedMost, of.tries, uint64(len(u.Nodes[0]))))
		of.tries++
	}
	for _, name := range u.Nodes {
		e.decide(e.nodes[name]) // it may have been in the way
	}
	return true
}

// floorCounts says how far the floors are.
func (e *Engine) floorCounts(counts map[string]*NodeSetCounts) {
	if len(e.floors.of) == 0 {
		return
	}
	for name, f := range e.floors.of {
		if c := counts[name]; c != nil {
			c.Floor = &FloorCounts{Wanted: f.want, Why: f.why, Text: f.text, Ahead: e.floors.wishes[name].Nodes, AheadText: f.wish.text, SuspendTimeSeconds: int32(e.floors.suspendTime / time.Second)}
		}
	}
	booting := map[string]bool{} // by NodeSet
	for _, n := range e.all() {
		c := counts[n.set]
		if c == nil || c.Floor == nil {
			continue
		}
		stand := n.stand()
		switch {
		case stand == standsUp && n.boots():
			booting[n.set] = true
		case stand == standsIdle || stand == standsUp:
			c.Floor.Held = min(c.Floor.Held+1, c.Floor.Wanted)
		}
	}
	for name, c := range counts {
		switch f := c.Floor; {
		case f == nil:
		case f.Wanted > 0 && c.Stale != "":
			f.Why, f.Text = FloorUnread, c.Stale
		case f.Held == f.Wanted:
			f.Why, f.Text = FloorHeld, ""
		case f.Why != FloorHeld:
		case booting[name]:
			f.Why = FloorBooting
		default:
			f.Why, f.Text = FloorUnread, "nodes have gone, and not all of Slurm has been read since"
		}
	}
}
