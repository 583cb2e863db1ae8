package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/reserve"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// The model of windows for updates (Scheduled), of the reservations that the bridge keeps for them, and what must hold of both.

// window begins once, or again and again.
type window struct {
	first, every time.Duration // every 0: once
	long         time.Duration // 0: there is none
}

// Next is powersave.Schedule's.
func (v window) Next(t time.Time) time.Time {
	begin := start.Add(v.first)
	switch {
	case begin.After(t):
		return begin
	case v.every == 0:
		return time.Time{}
	}
	return begin.Add((t.Sub(begin)/v.every + 1) * v.every)
}

func (v window) String() string {
	s := fmt.Sprintf("at %v for %v", v.first, v.long)
	if v.every > 0 {
		s += fmt.Sprintf(", every %v", v.every)
	}
	return s
}

// windowing is what becomes of the windows.
type windowing struct {
	openAt    [2]*powersave.UpdateWindow // windows as the NodeSets have them; nil: none
	reserved  [2]reservation
	looking   bool
	figures   []powersave.NodeSetCounts // the engine's, after its step figuresOf
	figuresOf int
	refused   [2]string            // what the bridge was told last
	oldSince  [nodeCount]time.Time // since when a pod is to be replaced, and could be
	bookSince [nodeCount]time.Time // since when a node is in a reservation, or not, though it should be otherwise
}

type reservation struct {
	there      bool
	begin, end time.Time
	nodes      [nodeCount]bool
}

func (w *world) initWindows() {
	for i, v := range w.windows {
		if v.long > 0 {
			w.openAt[i] = &powersave.UpdateWindow{Schedule: v, Duration: v.long}
		}
	}
}

func (w *world) anyWindows() bool { return w.openAt != [2]*powersave.UpdateWindow{} }

// windowsIn is how often windows begin, or end, in that time.
func (w *world) windowsIn(d time.Duration) (times int) {
	for _, v := range w.windows {
		if v.every > 0 {
			times += 2 * int(d/v.every+1)
		}
	}
	return times
}

// mayUpdateNow says that nodes of the NodeSet may be taken out for an update.
func (w *world) mayUpdateNow(set int) bool {
	v := w.openAt[set]
	if v == nil {
		return true
	}
	begin, _, found := v.At(w.now)
	return found && !begin.After(w.now)
}

// What slurmctld does.

// maintain is slurmctld's look at reservations.
func (w *world) maintain() {
	for i := range w.reserved {
		r := &w.reserved[i]
		r.there = r.there && w.now.Before(r.end)
		for j, n := range w.nodes {
			if !n.ours() || n.set() != i {
				continue
			}
			const words = powersave.NodeMaintenance | powersave.NodeReserved
			if n.flags &^= words; r.there && r.nodes[j] && !r.begin.After(w.now) {
				n.flags |= words
			}
		}
	}
}

// keptFree says that a reservation keeps the job off the node.
func (w *world) keptFree(n *node, j *slurmJob) bool {
	r := &w.reserved[n.set()]
	return n.ours() && r.there && r.nodes[n.index] && w.now.Before(r.end) && w.now.Add(j.long).After(r.begin)
}

// What the bridge's loop for reservations does (powersave/reserve).

func (w *world) reserveNodes() {
	if w.engine == nil || w.looking {
		return
	}
	life := w.life
	if w.figuresOf != w.stepped {
		w.figures, w.figuresOf = w.engine.Counts(), w.stepped
	}
	if !w.reserved[0].there && !w.reserved[1].there && w.refused == [2]string{} && !slices.ContainsFunc(w.figures, wants) {
		return
	}
	w.looking = true
	steps := reserve.Plan(w.now, w.reservations(), w.figures)
	w.after(w.delay(50*time.Millisecond, updateSlow, 0, updateTakes), func() {
		if life != w.life {
			return
		}
		var refused [2]string
		for _, s := range steps {
			refused[strings.Index("ab", s.NodeSet)] = w.takeReservation(s)
		}
		w.looking = false
		for i, why := range refused {
			if why != w.refused[i] {
				w.refused[i] = why
				w.tell(0, powersave.UpdateReserved{NodeSet: setNames[i], Err: why})
			}
		}
	})
}

// wants says that a reservation is wished for a NodeSet.
func wants(c powersave.NodeSetCounts) bool { return c.Update != nil && c.Update.Reserve != nil }

// reservations by NodeSet, as slurmrestd shows them.
func (w *world) reservations() map[string]powersave.Reserve {
	all := map[string]powersave.Reserve{}
	for i, r := range w.reserved {
		if !r.there {
			continue
		}
		var nodes []string
		for j, in := range r.nodes {
			if in {
				nodes = append(nodes, nodeNames[j])
			}
		}
		all[setNames[i]] = powersave.Reserve{Begin: r.begin, End: r.end, Nodes: slurmconf.CompressHostlist(nodes)}
	}
	return all
}

// takeReservation is reservation.c create_resv, update_resv and delete_resv.
func (w *world) takeReservation(s reserve.Step) (refused string) {
	r := &w.reserved[strings.Index("ab", s.NodeSet)]
	switch {
	case w.slurmFails():
		return "timeout"
	case s.Drop:
		*r = reservation{}
		w.maintain()
		return ""
	case w.old:
		return "not offered"
	}
	var nodes [nodeCount]bool
	for _, name := range s.Nodes {
		n := w.node(name)
		if n == nil || n.forgotten {
			return "unknown node " + name
		}
		nodes[n.index] = true
	}
	if r.there, r.end, r.nodes = true, s.End, nodes; !s.Begin.IsZero() {
		r.begin = s.Begin
	}
	w.logf("reserved for %s from %.3f to %.3f: %v", s.NodeSet, r.begin.Sub(start).Seconds(), r.end.Sub(start).Seconds(), s.Nodes)
	w.maintain()
	return ""
}

// What must hold.

// mayAskReplace looks at what is asked for because of an update while no window is open.
func (w *world) mayAskReplace(u powersave.NodeUpdate) {
	for _, name := range u.Nodes {
		n := w.node(name)
		if n == nil || !n.ours() || w.mayUpdateNow(n.set()) {
			continue
		}
		p := w.pods[n.index]
		switch {
		case u.State == powersave.StateDrain && strings.HasPrefix(u.Reason, updateReason):
			w.breaks("replaces outside of its window", "%s: %s", name, u.Reason)
		case slices.ContainsFunc(n.jobs, func(j *slurmJob) bool { return j.state == configuring }): // it is let go with a job that is given back
		case u.State == powersave.StatePowerDown && u.Reason == "" && outFor(n) && !n.down && !n.flags.Any(powersave.NodePowerDown|powersave.NodePoweringDown) && w.now.Sub(n.reasonAt) > stale &&
			p != nil && p.alive() && p.Phase != powersave.PodTerminating && p.host && w.machines[p.at].trouble == "" && w.now.Sub(w.machines[p.at].since) > stale:
			w.breaks("replaces outside of its window", "%s is powered down", w.show(n))
		}
	}
}

// patrolOutdated looks whether a pod is replaced when it may be.
func (w *world) patrolOutdated(n *node, p *pod) {
	if !n.ours() || w.rolling[n.set()] == 0 {
		return
	}
	set, out := n.set(), 0
	old := p != nil && w.mayUpdateNow(set) && p.alive() && p.Phase != powersave.PodTerminating && p.Revision != w.revisionNow() && p.host && w.machines[p.at].trouble == "" &&
		n.serves() && !n.down && n.reason == "" && n.uid == p.UID && !n.flags.Any(powersave.NodeDrain|powersave.NodePowerDown|powersave.NodeNotResponding) && w.endOf(changeSets, 0).IsZero()
	for _, m := range w.nodes {
		if !old {
			break
		}
		if m.ours() && m.set() == set {
			old = !w.recently(m, time.Minute, lessRoom, noSpot, noOwn, quota, noImage, badConfig, badSet, crashing, mute, refused, slowSlurmd, slowHost, roomFails, roomTries, roomRevoked, roomsMissing)
			if outFor(m) || m.flags.Any(powersave.NodePowerDown) { // the bridge knows no better while one that it has replaced is to go once more
				out++
			}
		}
	}
	if !old || out >= w.rolling[set] || !w.backAt.IsZero() || w.shortAt != [2]time.Time{} { // a breaker may wait for a probe
		w.oldSince[n.index] = w.now
	} else if w.smooth(latest(w.oldSince[n.index], w.changedAt), 2*prompt) && w.now.Sub(latest(n.since, n.reasonAt, n.changed)) > config.PollIdle+prompt {
		w.breaks("stays outdated", "%s since %.3f", w.show(n), w.oldSince[n.index].Sub(start).Seconds())
	}
}

// patrolReserved looks whether the reservation has the nodes whose pods are outdated, and no others.
func (w *world) patrolReserved(n *node, p *pod) {
	if !n.ours() || w.openAt[n.set()] == nil {
		return
	}
	r := &w.reserved[n.set()]
	in, odd := r.there && r.nodes[n.index], false
	if !in && p == nil {
		w.bookSince[n.index] = w.now
		return
	}
	_, end, found := w.openAt[n.set()].At(w.now)
	switch {
	case n.forgotten, !w.endOf(changeSets, 0).IsZero() && n.set() == 1, w.any(badSet):
	case in:
		odd = !found || p == nil || p.Phase != powersave.PodTerminating && p.Phase != powersave.PodFailed && p.Revision == w.revisionNow()
	case !w.old && found && end.Sub(w.now) > time.Minute+prompt:
		odd = p != nil && p.Phase != powersave.PodTerminating && p.Phase != powersave.PodFailed && p.Revision != w.revisionNow()
	}
	switch {
	case !odd:
		w.bookSince[n.index] = w.now
	case !w.smooth(latest(w.bookSince[n.index], w.changedAt), idle):
	case in:
		w.breaks("stays reserved", "%s since %.3f", w.show(n), w.bookSince[n.index].Sub(start).Seconds())
	default:
		w.breaks("is not reserved", "%s since %.3f", w.show(n), w.bookSince[n.index].Sub(start).Seconds())
	}
}
