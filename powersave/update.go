package powersave

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A pod bears the revision of its NodeSet that it was made from. Pods of other revisions than the NodeSet's are outdated. With RollingUpdate
// the leader replaces them: with each complete read it chooses as many nodes as may be out at once, idle ones first. The rest is tend's, as
// for a host that is to be emptied: a drain with a reason of ours, a power-down when no job is left, and the way back once the pod is gone.
// Nothing has to be remembered: the reason in Slurm tells which nodes were chosen, the pods' revision which are done.

// RollingUpdate is how outdated pods are replaced (spec.updateStrategy).
type RollingUpdate struct {
	MaxUnavailable int  // most nodes that are out at once
	Percent        bool // it is percent of the nodes that are up
}

// Limit is how many of the nodes that are up may be out at once: one at least.
func (r *RollingUpdate) Limit(up int) int {
	if !r.Percent {
		return max(r.MaxUnavailable, 1)
	}
	return max((up*r.MaxUnavailable+99)/100, 1)
}

// UpdateWait is what an update waits for.
type UpdateWait string

// What an update can wait for. UpdateDone: nothing.
const (
	UpdateDone       UpdateWait = ""
	UpdateOnDelete   UpdateWait = "OnDelete"   // outdated pods are left alone
	UpdateReplacing  UpdateWait = "Replacing"  // nodes are out, and as many as may be
	UpdateBackingOff UpdateWait = "BackingOff" // the NodeSet's breakers are open: what is taken down might not come back
	UpdateHeld       UpdateWait = "Held"       // the nodes left are drained by others, down, or bear somebody's reason
	UpdateScheduled  UpdateWait = "Scheduled"  // the window in which nodes are replaced is yet to begin
	UpdateWindowOver UpdateWait = "WindowOver" // it has ended, and there is no other
	UpdateUnread     UpdateWait = "NotRead"    // Slurm has not been read since, or not for a while; another bridge leads
)

// UpdateCounts is what there is to say of a NodeSet's revisions.
type UpdateCounts struct {
	Revision  string     `json:"revision"`
	Current   string     `json:"current"`   // that most outdated pods are of; Revision if none is outdated
	Updated   int        `json:"updated"`   // pods of Revision
	Outdated  int        `json:"outdated"`  // other pods
	Replacing int        `json:"replacing"` // of them, those whose node is drained, or about to go, for that reason
	Why       UpdateWait `json:"why,omitempty"`
	Text      string     `json:"text,omitempty"`
	Refused   string     `json:"refused,omitempty"` // why what is to be reserved is not, maybe with what to do about it
	// Reserve is what Slurm is to keep free of new jobs for it: the nodes of outdated pods, in the window. Nil: nothing, or it is not known, see Why.
	Reserve *Reserve `json:"reserve,omitempty"`
}

const (
	updating = "update: "
	// UpdatePrefix begins the reason of nodes that are drained because their pod is to be replaced; only those are put back.
	UpdatePrefix = ReasonPrefix + updating
)

// updates is what all rolling updates have in common.
type updates struct {
	rolling  map[string]bool // NodeSets
	read     int             // number of the complete read that was acted on last
	of       map[string]updateState
	draining []*node           // until their jobs have ended; read more often
	windowAt time.Time         // when a window begins or ends next; zero: none does
	shut     map[string]bool   // NodeSets whose window is not open
	refused  map[string]string // why windows are not reserved in Slurm, by NodeSet
}

type updateState struct {
	held bool // nodes that are drained are put back
	why  UpdateWait
	text string
}

// setRolling takes in which NodeSets are updated, and when, before anything is decided about their nodes.
func (e *Engine) setRolling() {
	u := &e.updates
	if len(u.rolling) > 0 && e.leading {
		e.reads.wantComplete(e.now) // one may be so no longer
	}
	u.rolling = map[string]bool{}
	for name, set := range e.sets {
		if set.Rolling != nil && set.Revision != "" {
			u.rolling[name] = true
		}
	}
	e.setWindows()
}

// setUpdates drops what is known of NodeSets that are updated no longer.
func (e *Engine) setUpdates() {
	u := &e.updates
	maps.DeleteFunc(u.refused, func(name, _ string) bool { return e.sets[name].Window == nil })
	for _, n := range e.all() {
		n.care.replace = n.care.replace && u.rolling[n.set]
	}
	if len(u.rolling) > 0 && e.leading {
		e.reads.wantComplete(e.now)
	}
}

// dropUpdates forgets them: another bridge leads, or did.
func (e *Engine) dropUpdates() {
	e.updates.of, e.updates.draining, e.updates.refused = nil, nil, nil
	for _, n := range e.all() {
		n.care.replace = false
	}
}

// outdated says that the node has a pod that runs, of another revision than its NodeSet.
func (e *Engine) outdated(n *node) bool {
	return e.behind(n) && (n.pod.Phase == PodRunning || n.pod.Phase == PodReady)
}

// behind says that the node has a pod, up or on its way, of another revision than its NodeSet.
func (e *Engine) behind(n *node) bool {
	revision := e.sets[n.set].Revision
	return revision != "" && n.alive() && n.pod.Phase != PodTerminating && n.pod.Revision != revision
}

// passing says that something is under way with the node that is over soon: it boots, goes, or has been changed since it was read.
func (e *Engine) passing(n *node) bool {
	return n.boot != nil || n.off != nil || n.dismissal != nil || n.care.update != nil || n.closing || n.warm.ask == StatePowerDown || n.read != e.reads.whole ||
		n.slurm.State.Any(poweredOff|NodePowerDown|turning) || e.promised(n)
}

// replaces says that the node is out for an update, or has been chosen to be.
func (e *Engine) replaces(n *node) bool {
	set := e.sets[n.set]
	return set.Rolling != nil && set.Problem == "" && e.outdated(n) && !e.updates.of[n.set].held && !e.updates.shut[n.set] &&
		(n.care.replace || n.slurm.State.Any(NodeDrain) && n.slurm.drainedFor(UpdatePrefix))
}

// takenOut says that the node is out for an update, and has not come back, be it that slurmctld has added a reason of its own since.
func (n *node) takenOut() bool {
	return n.care.replace || strings.HasPrefix(n.slurm.Reason, UpdatePrefix) && n.slurm.State.Any(NodeDrain|NodePowerDown|NodePoweringDown)
}

// replaceable says that nothing but jobs keeps the node's pod from being replaced.
func (e *Engine) replaceable(n *node) bool {
	const kept = judged | NodePowerDrain | NodeInvalidReg
	return serving(n.slurm.State) && !n.slurm.State.Any(kept) && n.nobodys() && !e.passing(n)
}

// keepUpdates goes on with rolling updates after each complete read.
func (e *Engine) keepUpdates() {
	u := &e.updates
	switch {
	case !e.leading || !e.setsRead || !e.podsRead || e.blind || e.reads.whole == u.read:
		return
	case len(u.rolling) == 0:
		u.of, u.draining = nil, nil
		return
	case e.now.Sub(e.reads.wholeAt) > actOn:
		e.reads.wantComplete(e.now)
		return
	}
	u.read, u.of, u.draining = e.reads.whole, map[string]updateState{}, nil
	nodes := map[string][]*node{}
	for _, n := range e.all() {
		if u.rolling[n.set] {
			nodes[n.set] = append(nodes[n.set], n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(u.rolling)) {
		e.update(e.sets[name], nodes[name])
	}
	e.sendTending()
	if len(u.draining) > 0 {
		e.reads.want(e.reads.ended.Add(e.cfg.PollWait))
	}
}

// update does for one NodeSet what a complete read calls for; nodes are all of it, by name.
func (e *Engine) update(set NodeSet, nodes []*node) {
	var idle, busy, out []*node
	up, serves, left, soon := 0, 0, 0, 0
	for _, n := range nodes {
		if n.read == 0 || n.missing {
			continue
		}
		state, stand := n.slurm.State, n.stand()
		if !state.Any(poweredOff | NodeFuture) {
			up++
		}
		if stand == standsIdle || stand == standsUp && !n.boots() {
			serves++
		}
		if c := &n.care; c.replace && (!n.nobodys() || n.off == nil && c.update == nil && !e.outdated(n) && !state.Any(NodePowerDown|NodePoweringDown)) {
			c.replace = false
		}
		switch {
		case n.takenOut():
			out = append(out, n)
		case !e.behind(n):
		case !e.outdated(n), e.passing(n):
			soon++
		case !e.replaceable(n):
			left++
		case state.Any(inUse):
			busy = append(busy, n)
		default:
			idle = append(idle, n)
		}
	}
	// A planned one is about to get a job (backfill.c).
	slices.SortStableFunc(idle, func(a, b *node) int {
		return cmp.Compare(a.slurm.State&NodePlanned, b.slurm.State&NodePlanned)
	})
	all := append(idle, busy...)
	choice, probes := e.breakers.choose(e.now, set, nil)
	limit := set.Rolling.Limit(up)
	state := updateState{}
	switch {
	case set.Problem != "":
		limit, state = 0, updateState{true, UpdateHeld, set.Problem}
	case e.updates.shut[set.Name]:
		limit, state = 0, set.Window.waits(e.now)
	case !choice.OK:
		limit, state = 0, updateState{!choice.Soon, UpdateBackingOff, choice.Why}
	case len(probes) > 0: // it decides for all
		limit = 1
	}
	lacks := e.lacks(set, serves)
	take := all[:min(len(all), max(limit-max(len(out), lacks), 0))]
	switch {
	case state.why != UpdateDone:
	case len(out)+len(all) > 0:
		state.why, state.text = UpdateReplacing, fmt.Sprintf("%d of at most %d nodes are out for it", len(out)+len(take), limit)
		if lacks > len(out) {
			state.text += fmt.Sprintf(", and the floor lacks %d", lacks)
		}
	case left > 0:
		state.why, state.text = UpdateHeld, "the nodes left are drained by others, down, or bear somebody's reason"
	case soon > 0:
		state.why, state.text = UpdateReplacing, fmt.Sprintf("%d nodes boot, or power down: their turn comes when that is over", soon)
	}
	e.updates.of[set.Name] = state
	for _, n := range take {
		n.care.replace = true
	}
	for _, n := range append(out, take...) {
		if state.held {
			n.care.replace = n.slurm.State.Any(NodePowerDown | NodePoweringDown)
		} else if serving(n.slurm.State) && !n.slurm.State.Any(NodePowerDown) {
			e.updates.draining = append(e.updates.draining, n)
		}
		e.decide(n)
	}
	if len(all) > len(take) {
		e.reads.wantComplete(e.reads.complete.Add(e.cfg.Sightings))
	}
}

// lacks is how many nodes of the NodeSet's floor do not serve, and are about to.
func (e *Engine) lacks(set NodeSet, serves int) int {
	f := e.floors.of[set.Name]
	if f == nil {
		return 0
	}
	switch f.why {
	case FloorNoNodes, FloorCapped, FloorTooFew, FloorProblem: // they will not for now
		return 0
	default:
	}
	want := min(f.want, set.Nodes.Len())
	if set.MaxPoweredUp > 0 {
		want = min(want, set.MaxPoweredUp)
	}
	return want - serves
}

// updateCounts says how far updates are.
func (e *Engine) updateCounts(counts map[string]*NodeSetCounts) {
	if !e.podsRead {
		return
	}
	old, nodes := map[string]map[string]int{}, map[string][]string{} // outdated pods by NodeSet and revision, and those of their nodes that Slurm has
	for name, c := range counts {
		if set := e.sets[name]; set.Revision != "" {
			c.Update = &UpdateCounts{Revision: set.Revision, Current: set.Revision}
		}
	}
	for _, n := range e.all() {
		if !n.alive() || n.pod.Phase == PodTerminating || counts[n.set] == nil || counts[n.set].Update == nil {
			continue
		}
		c := counts[n.set].Update
		if !e.behind(n) {
			c.Updated++
			continue
		}
		c.Outdated++
		if old[n.set] == nil {
			old[n.set] = map[string]int{}
		}
		old[n.set][n.pod.Revision]++
		if n.read > 0 && !n.missing { // slurmctld refuses a reservation with a name that it does not know
			nodes[n.set] = append(nodes[n.set], n.name)
		}
		if n.takenOut() {
			c.Replacing++
		}
	}
	for name, revisions := range old {
		c, stale := counts[name].Update, counts[name].Stale
		most := 0
		for _, r := range slices.Sorted(maps.Keys(revisions)) {
			if revisions[r] > most {
				c.Current, most = r, revisions[r]
			}
		}
		state, known := e.updates.of[name]
		switch {
		case e.sets[name].Rolling == nil:
			c.Why, c.Text = UpdateOnDelete, "they are replaced when Slurm has powered their nodes down"
		case !e.leading:
			c.Why, c.Text = UpdateUnread, "the bridge that leads sees to it"
		case stale != "" || !known || state.why == UpdateDone:
			c.Why, c.Text = UpdateUnread, cmp.Or(stale, "Slurm has not been read since")
		default:
			c.Why, c.Text = state.why, state.text
			c.Reserve = e.reserve(e.sets[name], nodes[name])
			if c.Reserve != nil {
				c.Refused = e.updates.refused[name]
			}
		}
	}
}
