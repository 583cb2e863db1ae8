package powersave

import (
	"fmt"
	"slices"
	"strings"
)

// renewBatch bounds the nodes of one renewal, which are looked at one by one: if one comes to nothing, or takes too long, others do not.
const renewBatch = 128

// renew lets the idle time of nodes begin anew where that is due. None of them is just being drained: a renewal takes that back.
func (e *Engine) renew(hold []*node) {
	var names []string
	for _, n := range hold {
		if n.warm.ask == StateNone && e.now.Sub(n.warm.renewed) >= e.renewEvery()/2 && n.read == e.reads.whole {
			n.warm.ask = StateRenew
			names = append(names, n.name)
		}
	}
	slices.Sort(names)
	for batch := range slices.Chunk(names, renewBatch) {
		e.do(UpdateNodes{NodeUpdate{Nodes: batch, State: StateRenew}})
	}
}

// lower powers down as many of the nodes that were up for the floor as are too many: those that have been idle longest. idle
// begins with those that were busy last.
func (e *Engine) lower(idle []*node, surplus int) {
	if e.blind {
		return
	}
	var names []string
	for _, n := range slices.Backward(idle) {
		if len(names) >= surplus {
			break
		}
		// A planned one is about to get a job (backfill.c).
		if !n.warm.ours || n.slurm.State.Any(NodePlanned) {
			continue
		}
		if n.warm.ask != StateNone || n.read != e.reads.whole || e.promised(n) {
			e.reads.wantComplete(e.now.Add(e.cfg.PollSlow)) // then it may be its turn
			continue
		}
		n.warm.ask = StatePowerDown
		names = append(names, n.name)
	}
	if len(names) > 0 {
		slices.Sort(names)
		e.do(UpdateNodes{NodeUpdate{Nodes: names, State: StatePowerDown}})
	}
}

// promised says that a request has named the node for a job since it was read.
func (e *Engine) promised(n *node) bool {
	for _, g := range e.gangs {
		if g.read >= n.read && g.whole.Contains(n.name) {
			return true
		}
	}
	return false
}

// lacking is what keepFloor has counted.
type lacking struct {
	all, total int  // nodes that are to be up, with those of a wish; the NodeSet has
	own, lacks int  // that are missing, without and with a wish's
	waits      bool // for more, for a moment
	on         int  // nodes that Slurm does not show powered down
}

// raise powers up what the floor lacks, and notes why it cannot.
func (e *Engine) raise(f *floor, set NodeSet, l lacking, off []*node) {
	lacks, on := l.lacks, l.on
	off = slices.DeleteFunc(off, func(n *node) bool { return !n.mayPowerUp(e.now) })
	choice, probes := e.breakers.choose(e.now, set, e.use(set.Name))
	room := lacks
	if set.MaxPoweredUp > 0 {
		room = min(lacks, max(set.MaxPoweredUp-on, 0))
	}
	ask := min(room, len(off))
	switch {
	case lacks <= 0 && l.waits:
		f.why, f.text, ask = FloorWaits, waitsText, 0
	case lacks <= 0:
		f.most, f.tries, f.refusal, ask = 0, 0, "", 0
		f.why, f.text = FloorHeld, ""
	case set.Problem != "":
		f.why, f.text, ask = FloorProblem, set.Problem, 0
	case f.retryAt.After(e.now):
		ask = 0
	case !choice.OK:
		f.why, f.text, ask = FloorBackingOff, choice.Why, 0
		if choice.Until.After(e.now) {
			f.text += fmt.Sprintf("; tried again at %s", choice.Until.UTC().Format("15:04:05Z"))
		}
	case room < lacks && ask == room:
		f.why, f.text = FloorCapped, fmt.Sprintf("spec.maxPoweredUp is %d, and %d nodes are up", set.MaxPoweredUp, on+ask)
	case ask < lacks && l.all > l.total:
		f.why, f.text = FloorTooFew, fmt.Sprintf("%d nodes are wanted, the NodeSet has %d", l.all, l.total)
	case ask < lacks && f.leaving > 0:
		f.why, f.text = FloorWaits, "nodes are about to leave the reservation for an update"
		e.reads.wantComplete(e.now.Add(e.cfg.PollSlow))
	case ask < lacks && f.closed > 0:
		f.why, f.text = FloorBackingOff, "nodes are being put back"
		if c, closed := e.closed[set.Name]; closed {
			f.text = strings.TrimPrefix(c.reason, closedPrefix)
		}
	case ask < lacks:
		f.why = FloorNoNodes
		f.text = fmt.Sprintf("%d of %d nodes are wanted and cannot be powered up: see sinfo -R for those that are down or drained", lacks-ask, l.all)
	default:
		f.why, f.text = FloorBooting, ""
	}
	if len(probes) > 0 { // it decides for all
		ask = min(ask, 1)
	}
	if 0 < f.most && f.most < ask {
		ask = f.most
		f.why, f.text = FloorRefused, f.refusal
	}
	if f.wish = (shortOf{}); l.own <= 0 && lacks > 0 { // the wish alone lacks them
		f.wish, f.why, f.text = shortOf{f.why, f.text}, FloorHeld, ""
	}
	if f.wish.why != f.wishTold && f.wish.why != FloorBooting {
		f.wishTold = f.wish.why
		if f.wish.why != FloorHeld {
			e.do(Report{Level: Info, NodeSet: set.Name, Text: "nodes for jobs to come cannot be powered up: " + f.wish.text})
		}
	}
	if f.why != f.told && f.why != FloorBooting && f.why != FloorWaits {
		f.told = f.why
		if f.why != FloorHeld {
			e.do(FloorShort{NodeSet: set.Name, Why: f.why, Text: f.text})
		}
	}
	if ask <= 0 || e.blind {
		return
	}
	names := make([]string, 0, ask)
	for _, n := range off[:ask] {
		n.warm.ask = StatePowerUp
		names = append(names, n.name)
	}
	e.do(UpdateNodes{NodeUpdate{Nodes: names, State: StatePowerUp}})
}
