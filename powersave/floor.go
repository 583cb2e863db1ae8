package powersave

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The floor of a NodeSet is the number of nodes that are to be up whether jobs need them or not (spec.replicas). It is kept through
// Slurm alone: nodes are powered up and down by slurmctld, and what keeps slurmctld's own power saving from taking idle nodes
// of the floor is that their idle time begins anew, again and again (StateRenew). So nothing has to be undone: when nobody renews
// any more, SuspendTime takes them. Nodes that are up for jobs count, and are not renewed.

// FloorWindow raises the floor again and again for a while.
type FloorWindow struct {
	Schedule Schedule
	Duration time.Duration
	Replicas int
}

// Schedule tells when windows begin.
type Schedule interface {
	// Next gives the first beginning after t; zero: none.
	Next(t time.Time) time.Time
}

// Shortfall is why a floor is not reached.
type Shortfall string

// What a floor can wait for. FloorHeld: nothing.
const (
	FloorHeld       Shortfall = ""
	FloorUnread     Shortfall = "NotRead"           // Slurm, and all else it takes, has not been read yet
	FloorBooting    Shortfall = "Booting"           // nodes are on their way
	FloorProblem    Shortfall = "Invalid"           // the NodeSet cannot be used
	FloorBackingOff Shortfall = "BackingOff"        // its breakers are open
	FloorRefused    Shortfall = "PowerUpFailed"     // slurmctld does not power nodes up
	FloorCapped     Shortfall = "MaxPoweredUp"      // more would be above NodeSet.MaxPoweredUp
	FloorNoNodes    Shortfall = "NoNodesToPowerUp"  // all others are down, drained, reserved or on their way down
	FloorTooFew     Shortfall = "MoreThanNodeNames" // the NodeSet has fewer nodes
)

// FloorShort says that a floor is not reached, and why; once for each reason. Boots that are under way are none.
type FloorShort struct {
	NodeSet string
	Why     Shortfall
	Text    string
}

func (FloorShort) action() {}

// FloorCounts is what there is to say of a NodeSet's floor.
type FloorCounts struct {
	Wanted int       `json:"wanted"`        // spec.replicas, or that of an open window if it is more
	Held   int       `json:"held"`          // nodes that serve, at most Wanted
	Why    Shortfall `json:"why,omitempty"` // when Held is less
	Text   string    `json:"text,omitempty"`
	// Ahead is how many nodes are to be up, beside those in use, for jobs that are yet to start (WarmWished), at least; AheadText
	// why they cannot.
	Ahead     int    `json:"ahead,omitempty"`
	AheadText string `json:"aheadText,omitempty"`
}

const (
	renewUnknown = 10 * time.Second // how often idle time is renewed while SuspendTime is not known
	renewShare   = 4                // and else: so often within SuspendTime
	renewMost    = 5 * time.Minute  // slurmctld logs it, and tells slurmdbd, for each node
	refusedFirst = 30 * time.Second // pause after slurmctld did not power up a single node
	refusedMost  = 10 * time.Minute
)

// floors is what all floors have in common.
type floors struct {
	of          map[string]*floor
	known       map[string]string // UIDs of the NodeSets whose FloorWas has been looked at
	suspendTime time.Duration     // the shortest in slurm.conf, as the newest request told; 0: not known
	read        int               // number of the complete read that was acted on last
	from        int               // reads asked for before a floor changed: only later ones are acted on
	windowsAt   time.Time         // when a window opens or closes next
	wishes      map[string]WarmWish
}

// floor is kept while a NodeSet has one, and until the nodes that were up for it have gone.
type floor struct {
	want int
	was  int // what the leader before us kept; looked at once
	why  Shortfall
	text string
	told Shortfall

	wish     shortOf // why a wish is not met
	wishTold Shortfall

	// slurmctld refuses to power up any node of a request when all would be more than MaxPoweredUpNodes: then fewer are asked for.
	most    int // 0: no limit
	tries   int
	retryAt time.Time
	refusal string

	closed int // nodes that closeSets keeps out of use, or is about to put back
}

// warm is a node's part in its NodeSet's floor.
type warm struct {
	ours    bool        // was powered up for the floor, or held for it: goes when the floor is lowered
	since   time.Time   // idle since then, in Slurm's time
	renewed time.Time   // zero: not since the node was busy
	ask     StateChange // under way
}

// standing is what a node means to the floor.
type standing int

const (
	standsOut  standing = iota // of no use: down, drained, on its way down, or not known
	standsOff                  // powered down
	standsUp                   // on its way up, busy, or else not to be touched
	standsIdle                 // plainly idle
)

// PlainlyIdle says that nothing but idleness is to be said of the node: no job, no drain, no power change, nobody's reason. Only then
// may its idle time be renewed: that would take back DRAIN and FAIL, and the reason with them (node_mgr.c update_node).
func (s SlurmNode) PlainlyIdle() bool {
	const plain = NodeIdle | NodeCloud | NodePlanned | NodeReserved | NodeDynamicNorm
	return s.State.Has(NodeIdle) && s.State&^plain == 0 && (&node{slurm: s}).nobodys()
}

func (n *node) stand() standing {
	const useless = judged | poweredOff&^NodePoweredDown | NodePowerDown | NodePowerDrain | NodeInvalidReg | NodeMaintenance | NodeFuture |
		NodeRebootRequested | NodeRebootIssued
	state := n.slurm.State
	switch {
	case n.read == 0, n.missing, n.off != nil, state.Any(useless), n.boot != nil && n.boot.release != nil, n.warm.ask == StatePowerDown:
		return standsOut
	case n.boot != nil, state.Any(NodePoweringUp), n.warm.ask == StatePowerUp, state.Has(NodePoweredDown | NodePowerUp):
		return standsUp
	case state.Any(NodePoweredDown):
		return standsOff
	case n.slurm.PlainlyIdle():
		return standsIdle
	case state.Any(NodeIdle | inUse):
		return standsUp
	}
	return standsOut
}

// mayPowerUp says that nothing speaks against a powered-down node.
func (n *node) mayPowerUp(now time.Time) bool {
	return n.pod == nil && !n.creating && !n.closing && !n.closed.until.After(now) && n.care.update == nil && n.warm.ask == StateNone &&
		!n.slurm.State.Any(inUse|NodeReserved) && mayWrite(n.slurm.Reason)
}

// FloorAt is what the floor of a NodeSet is at a time, and when that could change by itself; zero: never.
func (s NodeSet) FloorAt(now time.Time) (want int, until time.Time) {
	want = s.Floor
	for _, w := range s.Windows {
		begin := w.Schedule.Next(now.Add(-w.Duration))
		next := begin
		if !begin.IsZero() && !begin.After(now) {
			want = max(want, w.Replicas)
			next = begin.Add(w.Duration)
			if again := w.Schedule.Next(now); !again.IsZero() && again.Before(next) { // they overlap
				next = again
			}
		}
		if next.After(now) && (until.IsZero() || next.Before(until)) {
			until = next
		}
	}
	return want, until
}

// setFloors takes in what floors are wanted.
func (e *Engine) setFloors() {
	f := &e.floors
	f.windowsAt = time.Time{}
	if f.of == nil {
		f.of, f.known = map[string]*floor{}, map[string]string{}
	}
	for name, set := range e.sets {
		want, until := set.FloorAt(e.now)
		if !until.IsZero() && (f.windowsAt.IsZero() || until.Before(f.windowsAt)) {
			f.windowsAt = until
		}
		was := 0
		if uid, known := f.known[name]; !known || uid != set.UID {
			f.known[name], was = set.UID, set.FloorWas
		}
		have := f.of[name]
		switch {
		case have == nil && want == 0 && was == 0, have != nil && have.want == want:
			continue
		case have == nil:
			have = &floor{was: was}
			f.of[name] = have
		}
		f.from = e.reads.count
		*have = floor{want: want, was: have.was, told: have.told, wishTold: have.wishTold, why: FloorUnread, text: "Slurm has not been read since the floor was set"}
		e.reads.wantComplete(e.now)
	}
	gone := func(name string) bool { _, there := e.sets[name]; return !there }
	maps.DeleteFunc(f.of, func(name string, _ *floor) bool { return gone(name) })
	maps.DeleteFunc(f.wishes, func(name string, _ WarmWish) bool { return gone(name) })
	maps.DeleteFunc(f.known, func(name, _ string) bool { return gone(name) })
}

// dropFloors forgets them: another bridge leads, or did.
func (e *Engine) dropFloors() {
	e.floors.of, e.floors.known, e.floors.wishes = nil, nil, nil
	for _, n := range e.nodes {
		n.warm = warm{}
	}
	if e.leading && e.setsRead {
		e.setFloors()
	}
}

// floorsDue is when keepFloors has something to do; zero: no time is known.
func (e *Engine) floorsDue() time.Time {
	due := e.floors.windowsAt
	for _, f := range e.floors.of {
		if !f.retryAt.IsZero() && (due.IsZero() || f.retryAt.Before(due)) {
			due = f.retryAt
		}
	}
	for _, w := range e.floors.wishes {
		if due.IsZero() || w.Until.Before(due) {
			due = w.Until
		}
	}
	if !e.leading {
		return time.Time{}
	}
	return due
}

// keepFloors looks at the floors after each complete read.
func (e *Engine) keepFloors() {
	f := &e.floors
	if !e.leading || !e.setsRead {
		return
	}
	if !f.windowsAt.IsZero() && !f.windowsAt.After(e.now) {
		e.setFloors()
	}
	e.endWishes()
	if len(f.of) == 0 || !e.podsRead || e.reads.complete.IsZero() {
		return
	}
	for _, one := range f.of {
		if !one.retryAt.IsZero() && !one.retryAt.After(e.now) {
			one.retryAt = time.Time{}
			e.reads.wantComplete(e.now)
		}
	}
	switch {
	case e.reads.whole <= f.from && e.reads.underway, f.from < e.reads.whole && e.reads.whole <= f.read:
		return
	case e.reads.whole <= f.from, e.now.Sub(e.reads.ended) > actOn:
		e.reads.wantComplete(e.now)
		return
	}
	f.read = e.reads.whole
	nodes := map[string][]*node{}
	for _, n := range e.nodes {
		if f.of[n.set] != nil {
			nodes[n.set] = append(nodes[n.set], n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.of)) {
		slices.SortFunc(nodes[name], func(a, b *node) int { return cmp.Compare(a.name, b.name) })
		e.keepFloor(f.of[name], e.sets[name], nodes[name])
	}
	e.reads.wantComplete(e.reads.complete.Add(e.renewEvery()))
}

// renewEvery is how often idle nodes of a floor are renewed.
func (e *Engine) renewEvery() time.Duration {
	if e.floors.suspendTime == 0 {
		return renewUnknown
	}
	return min(max(e.floors.suspendTime/renewShare, time.Second), renewMost)
}

// keepFloor does for one NodeSet what a complete read calls for; nodes are all of it, by name.
func (e *Engine) keepFloor(f *floor, set NodeSet, nodes []*node) {
	var idle, off []*node
	up, on, ours, busy, named := 0, 0, 0, 0, 0
	wish := e.floors.wishes[set.Name]
	f.closed = 0
	for _, n := range nodes {
		stand := n.stand()
		if n.read > 0 && !n.missing && !n.slurm.State.Any(NodePoweredDown|NodeFuture) || stand == standsUp {
			on++
		}
		switch stand {
		case standsOff:
			off = append(off, n)
			if slices.Contains(wish.Names, n.name) && n.mayPowerUp(e.now) {
				named++
			}
			n.warm = warm{ask: n.warm.ask}
		case standsOut:
			n.warm = warm{ask: n.warm.ask}
			if strings.HasPrefix(n.slurm.Reason, closedPrefix) {
				f.closed++
			}
		case standsUp:
			up++
			if n.slurm.State.Any(inUse) {
				busy++
				if slices.Contains(wish.Names, n.name) { // by the job that it was for: the next wish will know
					wish.Nodes--
				}
			}
			n.warm.renewed = time.Time{}
		case standsIdle:
			idle = append(idle, n)
			if n.warm.renewed.IsZero() {
				n.warm.since = n.slurm.LastBusy
			}
		}
		if n.warm.ours {
			ours++
		}
	}
	// Those held so far stay: the same few nodes are up for ever, and not each in turn.
	slices.SortStableFunc(idle, func(a, b *node) int {
		if a.warm.ours != b.warm.ours {
			return map[bool]int{true: -1, false: 1}[a.warm.ours]
		}
		return b.warm.since.Compare(a.warm.since)
	})
	if f.was > f.want { // lowered while nobody looked: what was held then is ours to power down
		for _, n := range idle[:min(len(idle), max(f.was-up, 0))] {
			n.warm.ours = true
			ours++
		}
	}
	f.was = 0
	for _, n := range idle[:min(len(idle), max(f.want-up, 0))] {
		if !n.warm.ours {
			n.warm.ours = true
			ours++
		}
	}
	all := f.want
	if wish.Nodes > 0 {
		all = max(all, busy+wish.Nodes)
		slices.SortStableFunc(off, wish.named())
	}
	hold, rest := holdFor(idle, f.want-up, all-up, wish)
	e.renew(hold)
	e.lower(rest, ours-f.want)
	// An idle node that is not named is of no use to the jobs: it is reserved, or another job is about to take it.
	lacks := max(all-up-len(idle), min(named, wish.Nodes))
	e.raise(f, set, lacking{all: all, total: len(nodes), own: f.want - up - len(idle), lacks: lacks, on: on}, off)
	if f.want == 0 && ours == 0 && e.floors.wishes[set.Name].Nodes == 0 && !slices.ContainsFunc(nodes, func(n *node) bool { return n.warm.ask != StateNone }) {
		delete(e.floors.of, set.Name)
		for _, n := range nodes {
			n.warm = warm{}
		}
	}
}

// renew lets the idle time of nodes begin anew where that is due.
func (e *Engine) renew(hold []*node) {
	var names []string
	for _, n := range hold {
		if n.warm.ask == StateNone && e.now.Sub(n.warm.renewed) >= e.renewEvery()/2 && n.read == e.reads.whole {
			n.warm.ask = StateRenew
			names = append(names, n.name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		e.do(UpdateNodes{NodeUpdate{Nodes: names, State: StateRenew}})
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
		if n.warm.ours && n.warm.ask == StateNone && !n.slurm.State.Any(NodePlanned) && n.read == e.reads.whole {
			n.warm.ask = StatePowerDown
			names = append(names, n.name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		e.do(UpdateNodes{NodeUpdate{Nodes: names, State: StatePowerDown}})
	}
}

// lacking is what keepFloor has counted.
type lacking struct {
	all, total int // nodes that are to be up, with those of a wish; the NodeSet has
	own, lacks int // that are missing, without and with a wish's
	on         int // nodes that Slurm does not show powered down
}

// raise powers up what the floor lacks, and notes why it cannot.
func (e *Engine) raise(f *floor, set NodeSet, l lacking, off []*node) {
	lacks, on := l.lacks, l.on
	off = slices.DeleteFunc(off, func(n *node) bool { return !n.mayPowerUp(e.now) })
	choice, probes := e.breakers.choose(e.now, set, e.inUse(set.Name))
	room := lacks
	if set.MaxPoweredUp > 0 {
		room = min(lacks, max(set.MaxPoweredUp-on, 0))
	}
	ask := min(room, len(off))
	switch {
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
	case ask < lacks && f.closed > 0:
		f.why, f.text = FloorBackingOff, "nodes are being put back"
	case ask < lacks:
		f.why = FloorNoNodes
		f.text = fmt.Sprintf("%d of %d nodes are wanted and cannot be powered up: see sinfo -R for those that are down or drained", lacks-ask, l.all)
	default:
		f.why, f.text = FloorBooting, ""
	}
	if len(probes) > 0 { // it decides for all
		ask = min(ask, 1)
	}
	if f.most > 0 && ask > 0 {
		ask = min(ask, f.most)
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
	if f.why != f.told && f.why != FloorBooting {
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
