package powersave

import (
	"cmp"
	"maps"
	"math"
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
	FloorUnread     Shortfall = "NotRead"           // Slurm has not been read since, or not for a while
	FloorWaits      Shortfall = "Waiting"           // a moment, for what Slurm powers up itself (see raiseWait), or for what leaves a reservation
	FloorBooting    Shortfall = "Booting"           // nodes are on their way
	FloorProblem    Shortfall = "Invalid"           // the NodeSet cannot be used
	FloorBackingOff Shortfall = "BackingOff"        // its breakers are open
	FloorRefused    Shortfall = "PowerUpFailed"     // slurmctld does not power nodes up
	FloorCapped     Shortfall = "MaxPoweredUp"      // more would be above NodeSet.MaxPoweredUp
	FloorNoNodes    Shortfall = "NoNodesToPowerUp"  // all others are down, drained, reserved or on their way down
	FloorTooFew     Shortfall = "MoreThanNodeNames" // the NodeSet has fewer nodes
)

// FloorShort says that a floor is not reached, and why; once for each reason. Waiting for a moment, or for boots, is none.
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
	// SuspendTimeSeconds is the shortest SuspendTime in slurm.conf; 0: not known.
	SuspendTimeSeconds int32 `json:"suspendTimeSeconds,omitempty"`
	// Ahead is how many nodes are to be up, beside those in use, for jobs that are yet to start (WarmWished), at least; AheadText
	// why they cannot.
	Ahead     int    `json:"ahead,omitempty"`
	AheadText string `json:"aheadText,omitempty"`
}

// SuspendTimeSafe is the least SuspendTime with which power saving takes nothing of a floor as long as no call to slurmctld fails more than twice in a row, reads
// take half a second at most, and renewals one. Between two renewals lie then: the wait for the next read (a quarter of SuspendTime, or renewUnknown), three times
// two reads that fail, with pauses of 1 s and 2 s, and one that does not, three renewals, and 1 s after each that fails: 10 + 3*(3+1.5) + 3*1 + 2*1 = 28.5 s.
const SuspendTimeSafe = 30 * time.Second

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
	suspendTime time.Duration     // the shortest in slurm.conf, as the newest request told, or a NodeSet's status; 0: not known
	read        int               // number of the complete read that was acted on last
	from        int               // reads asked for before a floor was set or lowered: only later ones are acted on
	windowsAt   time.Time         // when a window opens or closes next
	wishes      map[string]WarmWish
}

// floor is kept while a NodeSet has one, and until the nodes that were up for it have gone.
type floor struct {
	want   int
	was    int // what the leader before us kept; looked at once
	raised raised
	bounds bounds
	why    Shortfall
	text   string
	told   Shortfall

	wish     shortOf // why a wish is not met
	wishTold Shortfall

	// slurmctld refuses to power up any node of a request when all would be more than MaxPoweredUpNodes: then fewer are asked for.
	most    int // 0: no limit
	tries   int
	retryAt time.Time
	refusal string

	closed  int // nodes that closeSets keeps out of use, or is about to put back
	leaving int // powered-down nodes that are about to leave the reservation for an update
}

// bounds is what else of a NodeSet decides how far its floor can be reached.
type bounds struct {
	spec        int64
	most, nodes int
	problem     string
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
	standsOut  standing = iota // of no use: down, drained, on its way down, about to be that, or not known
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
	const useless = judged | poweredOff&^NodePoweredDown | NodePowerDown | NodePowerDrain | NodeInvalidReg | NodeFuture |
		NodeRebootRequested | NodeRebootIssued
	state := n.slurm.State
	switch {
	case n.read == 0, n.missing, n.off != nil, n.care.update != nil, state.Any(useless), state.Any(NodeMaintenance) && !n.care.reserved, n.boot != nil && n.boot.release != nil, n.dismissal != nil, n.warm.ask == StatePowerDown:
		return standsOut
	case n.boot != nil, state.Any(NodePoweringUp), n.warm.ask == StatePowerUp, state.Has(NodePoweredDown | NodePowerUp):
		return standsUp
	case state.Any(NodePoweredDown) && state.Any(NodeAllocated|NodeMixed): // a job has it: Slurm is about to power it up
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

// on says that slurmctld shows the node up, or will power it up: a power-down that is under way takes nothing of that back (node_mgr.c update_node).
func (n *node) on() bool {
	state := n.slurm.State
	return n.read > 0 && !n.missing && !state.Any(NodeFuture) && (!state.Any(NodePoweredDown) || state.Any(NodePowerUp|NodeAllocated|NodeMixed))
}

// boots says that a node that stands up has yet to serve.
func (n *node) boots() bool { return n.boot != nil || !serving(n.slurm.State) }

// mayPowerUp says that nothing speaks against a powered-down node.
func (n *node) mayPowerUp(now time.Time) bool {
	return n.pod == nil && !n.creating && !n.closing && !n.shut(now) && n.care.update == nil && n.warm.ask == StateNone &&
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
		uid, known := f.known[name]
		if known = known && uid == set.UID; !known {
			f.known[name], was = set.UID, set.FloorWas
			f.suspendTime = cmp.Or(f.suspendTime, set.SuspendTimeWas)
		}
		bounds := bounds{spec: set.SpecGeneration, most: set.MaxPoweredUp, nodes: set.Nodes.Len(), problem: set.Problem}
		have := f.of[name]
		switch {
		case have == nil && want == 0 && was == 0:
			continue
		case have != nil && have.want == want:
			if have.bounds != bounds {
				have.bounds = bounds
				e.reads.wantComplete(e.now)
			}
			continue
		case have == nil:
			have = &floor{was: was}
			f.of[name] = have
			if !known { // nobody has raised it just now
				have.raised.done = want
			}
		}
		*have = floor{
			want: want, was: have.was, raised: have.raised, bounds: bounds, told: have.told, wishTold: have.wishTold,
			why: FloorUnread, text: "Slurm has not been read since the floor was set",
		}
		if have.raised.to(want, e.now, e.reads.count) {
			have.why, have.text = FloorWaits, waitsText
			if e.podsRead {
				f.read = max(f.read, e.reads.whole) // those of before say nothing new
			}
			e.reads.wantComplete(have.raised.due())
			continue
		}
		f.from = e.reads.count
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
	for _, n := range e.all() {
		n.warm = warm{ask: n.warm.ask} // its answer is yet to come
	}
	if e.leading && e.setsRead {
		e.setFloors()
	}
}

// floorsDue is when keepFloors has something to do; zero: no time is known.
func (e *Engine) floorsDue() time.Time {
	due := e.floors.windowsAt
	sooner := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	for _, f := range e.floors.of {
		sooner(f.retryAt)
	}
	for _, w := range e.floors.wishes {
		sooner(w.Until)
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
	case e.reads.whole <= f.from, e.now.Sub(e.reads.wholeAt) > actOn:
		e.reads.wantComplete(e.now)
		return
	}
	f.read = e.reads.whole
	nodes := map[string][]*node{}
	for _, n := range e.all() {
		if f.of[n.set] != nil {
			nodes[n.set] = append(nodes[n.set], n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.of)) {
		e.keepFloor(f.of[name], e.sets[name], nodes[name])
	}
	e.reads.wantComplete(e.reads.complete.Add(e.renewEvery()))
	for _, one := range f.of {
		if due := one.raised.due(); !due.IsZero() {
			e.reads.wantComplete(due)
		}
	}
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
	up, boots, on, ours, busy, named := 0, 0, 0, 0, 0, 0
	wish := e.floors.wishes[set.Name]
	names := wish.names()
	f.closed, f.leaving = 0, 0
	unused := sinceRenewal(nodes)
	capped := func(all int) int { // what may be kept of it
		if set.MaxPoweredUp > 0 {
			return min(all, set.MaxPoweredUp)
		}
		return all
	}
	keep := capped(f.want)
	for _, n := range nodes {
		stand := n.stand()
		if n.on() || stand == standsUp {
			on++
		}
		switch stand {
		case standsOff:
			off = append(off, n)
			if names[n.name] && n.mayPowerUp(e.now) {
				named++
			}
			if n.leaves(e.now) {
				f.leaving++
			}
			n.warm = warm{ask: n.warm.ask}
		case standsOut:
			if n.warm.ask != StatePowerDown && n.care.update == nil { // which may fail
				n.warm = warm{ask: n.warm.ask}
			}
			if strings.HasPrefix(n.slurm.Reason, closedPrefix) && n.badHome == "" {
				f.closed++
			}
		case standsUp:
			up++
			if n.boots() {
				boots++
			}
			if n.slurm.State.Any(inUse | NodeMaintenance) { // of no use to jobs to come
				busy++
				if names[n.name] && n.slurm.State.Any(inUse) { // by the job that it was for: the next wish will know
					wish.Nodes--
				}
			}
			n.warm.renewed = time.Time{}
		case standsIdle:
			idle = append(idle, n)
			if n.warm.renewed.IsZero() || n.slurm.LastBusy.Sub(n.warm.renewed) > unused+usedAfter {
				n.warm.since = n.slurm.LastBusy
			}
		}
		if n.warm.ours && stand != standsOut {
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
	for _, n := range idle[:min(len(idle), max(keep-up, 0))] {
		if !n.warm.ours {
			n.warm.ours = true
			ours++
		}
	}
	all := f.want
	if wish.Nodes > 0 {
		all = max(all, busy+wish.Nodes)
		slices.SortStableFunc(off, names.first)
	}
	// Boots count, but may fail: until they are over as many nodes that serve are kept.
	hold, rest := holdFor(idle, keep-up+boots, capped(all)-up, wish.Nodes, names)
	e.renew(hold)
	e.lower(rest, ours-keep)
	own := f.raised.by(e.now, e.reads.whole)
	now := own
	if wish.Nodes > 0 {
		now = max(own, busy+wish.Nodes)
	}
	// An idle node that is not named is of no use to the jobs: it is reserved, or another job is about to take it.
	short := func(all int) int { return max(all-up-len(idle), min(named, wish.Nodes)) }
	e.raise(f, set, lacking{all: now, total: len(nodes), own: own - up - len(idle), lacks: short(now), waits: short(all) > max(short(now), 0), on: on}, off)
	if f.want == 0 && ours == 0 && e.floors.wishes[set.Name].Nodes == 0 && !slices.ContainsFunc(nodes, func(n *node) bool { return n.warm.ask != StateNone }) {
		delete(e.floors.of, set.Name)
		for _, n := range nodes {
			n.warm = warm{}
		}
	}
}

// usedAfter is how much later than others a node has to have been busy that were renewed about when it was, for a job to be the reason:
// more than calls to slurmctld differ in time.
const usedAfter = 5 * time.Second

// sinceRenewal is what lies between the renewal of idle nodes, by our clock, and what Slurm says they were busy last, by its clock, if no job has
// come meanwhile.
func sinceRenewal(nodes []*node) time.Duration {
	least := time.Duration(math.MaxInt64 / 2)
	for _, n := range nodes {
		if n.stand() == standsIdle && !n.warm.renewed.IsZero() && !n.slurm.LastBusy.IsZero() {
			least = min(least, n.slurm.LastBusy.Sub(n.warm.renewed))
		}
	}
	return least
}
