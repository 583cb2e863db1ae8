package sim_test

import (
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// do begins a step of the schedule.
func (w *world) do(st *step) {
	w.logf("* %s", st)
	if end := w.passed + st.long; st.what.wide() {
		for i := range w.until[st.what] {
			w.until[st.what][i] = end
		}
	} else if end > w.until[st.what][st.node] {
		w.until[st.what][st.node] = end
	}
	if st.what.rough() && st.what != bridgeCrash {
		w.roughFor(st.long)
	}
	if st.what.ofHost() {
		w.doHost(st)
		return
	}
	n := w.nodes[st.node]
	if st.what == noImage || st.what == badConfig {
		w.breakSpec(n, st.long)
		return
	}
	if n.forgotten && st.what != job && !st.what.wide() {
		return
	}
	later := func(f func()) { w.after(st.long, f) }
	switch st.what {
	case job:
		w.submit(*st)
	case cancelJob:
		if j := n.newest(); j != nil {
			w.end(j)
		}
	case requeueJob:
		if j := n.newest(); j != nil {
			w.kill(j, false)
		}
	case drain:
		w.drain(n)
		n.drained = w.now
		n.say("bad disk", w.now)
		later(func() {
			if !n.invalid {
				n.flags &^= powersave.NodeDrain
			}
			if strings.HasPrefix(n.reason, "bad disk") {
				n.forget(w.now)
			}
		})
	case powerUp:
		w.powerUp(n)
	case powerDown:
		if !n.flags.Any(powersave.NodePoweringDown) {
			n.flags |= powersave.NodePowerDown
		}
	case forceDown:
		w.force(n, false)
	case writeReason:
		n.say(annsReason, w.now)
		later(func() {
			if strings.HasPrefix(n.reason, annsReason) {
				n.forget(w.now)
				n.flags &^= powersave.NodeDrain // whoever drained it knows it no longer
			}
		})
	case leaveConf:
		w.leaveConf(n, later)
	case reconfigure:
		w.endGates(false)
		w.slurmctldStarts()
	case changeSets:
		w.leaveSet(st, later)
	case badSet: // who makes a mistake changes the spec, and so does who mends it
		w.roughFor(st.long)
		w.mend(0)
		later(func() { w.mend(0) })
	case lessRoom, noSpot, noOwn:
		later(w.placeAll)
	case evict:
		if p := w.pods[st.node]; p != nil {
			w.fail(p, "Evicted", powersave.TroubleLost)
		}
	case deletePod:
		if p := w.pods[st.node]; p != nil {
			if p.hangs = w.some(4*time.Millisecond, deletePod, st.node) == 0; p.hangs {
				w.terminate(p, 10*time.Minute)
			} else {
				w.terminate(p, st.long)
			}
		}
	case prologError:
		if n.serves() {
			n.flags |= powersave.NodeDrain
			n.drained = w.now
			n.add(prologFailed, w.now)
			later(func() {
				if strings.Contains(n.reason, prologFailed) {
					n.forget(w.now)
					n.flags &^= powersave.NodeDrain
				}
			})
		}
	case bridgeCrash:
		if w.doomed, w.deadFor = st.n, st.long; st.n == 0 {
			w.crash(st.long)
		}
	case slurmctldRestart:
		w.endGates(w.some(2*time.Millisecond, slurmctldRestart, 0) > 0)
		later(w.slurmctldStarts)
	case kubeAway:
		w.loseKubernetes(later)
	case watchGap:
		w.step(powersave.HostsUnread{Err: "the watch is broken"})
		if w.listed {
			w.listed = false
			life := w.life
			w.after(w.some(2*time.Second, watchGap, 1), func() {
				if life == w.life && !w.listed {
					w.step(powersave.KubernetesUnread{Err: "the watch is broken"})
				}
			})
			later(func() { w.listPods(life) })
		}
	default: // looked at where it matters
		w.doMore(st, n, later)
	}
}

// slurmctldStarts is what slurmctld does at first: start-gates that ran are run again, and every slurmd registers anew.
func (w *world) slurmctldStarts() {
	if !w.any(slurmctldRestart) {
		w.gatesAgain()
	}
	for _, p := range w.pods {
		if p != nil {
			w.answerRegistration(p)
		}
	}
}

// doMore begins a step that concerns requests for room, bad hardware or nodes DOWN.
func (w *world) doMore(st *step, n *node, later func(func())) {
	switch st.what {
	case roomFails, roomTries, roomTakes:
		later(w.answerRooms)
	case roomsMissing: // whoever installs them has to have the NodeSet tried again
		later(func() {
			for set, asks := range w.asks {
				if asks {
					w.mend(set)
				}
			}
		})
	case roomRevoked:
		w.revokeRooms()
	case roomDeleted:
		w.deleteRooms()
	case badHardware, noteHardware:
		w.findBad(n, st.what == badHardware, later)
	case setDown:
		w.setDown(n, later)
	case deaf:
		w.deafen(n)
	case newTemplate, oldTemplate:
		w.changeTemplate(st.what == newTemplate)
	default:
	}
}

// breakSpec lets pods of the node's NodeSet lack something, which only people can mend.
func (w *world) breakSpec(n *node, long time.Duration) {
	if n.ours() {
		w.toMend[n.set()] = true
		w.after(long, func() { w.mend(n.set()) })
	}
}

// leaveConf takes a node out of slurm.conf for a while.
func (w *world) leaveConf(n *node, later func(func())) {
	w.roughFor(0)
	for _, j := range append([]*slurmJob(nil), n.jobs...) {
		w.end(j)
		n.drop(j, w.now)
	}
	n.down, n.uid, n.instance, n.forgotten, n.left, n.invalid, n.cleaning = false, "", "", true, w.now, false, nil
	n.say("", w.now)
	w.turn(n, ^powersave.NodeState(0), powersave.NodePoweredDown)
	later(func() {
		w.roughFor(0)
		n.forgotten, n.left = false, w.now
		w.turn(n, 0, 0)
	})
}

// newest is the job that got the node last.
func (n *node) newest() *slurmJob {
	for i := len(n.jobs) - 1; i >= 0; i-- {
		if j := n.jobs[i]; j.state == configuring || j.state == running {
			return j
		}
	}
	return nil
}

const (
	annsReason   = "looked at by Ann"
	prologFailed = "Prolog error"
)

// endOfChaos mends everything.
func (w *world) endOfChaos() {
	w.toMend[0] = w.toMend[0] || w.limits != [2]int{} // a job of all nodes is to run
	w.hosts, w.limits, w.doomed = nodeCount, [2]int{}, 0
	for set, changed := range w.toMend { // the others have to find out by themselves, when it is time to try again
		if changed {
			w.mend(set)
			w.after(2*prompt, func() { w.mend(set) }) // of what a bridge that was just started had not yet seen fail
		}
	}
	w.mendHosts()
	w.answerIn, w.booking = min(w.answerIn, time.Second), 0
	w.answerRooms()
	w.placeAll()
	for _, j := range w.jobs {
		if j.state == pending && j.begin.After(w.now) {
			w.end(j)
		}
	}
}

const (
	calm  = 200 * time.Second // until all must be back at zero
	probe = 25 * time.Second  // for a job of all nodes to start
)

// finishWhenAtRest sends a job that needs every node once all is back at zero, to see that none has become unusable, and
// ends when all is back at zero again.
func (w *world) finishWhenAtRest() {
	if w.faulty() {
		return
	}
	if w.rest == 0 && w.last == nil && w.now.Sub(start) < chaos+time.Second {
		w.endOfChaos()
	}
	end := start.Add(chaos + calm)
	if w.last != nil {
		if w.last.state < running && w.now.Sub(w.last.asked) > probe {
			w.breaks("node unusable", "job %d of all nodes waits: %s", w.last.id, w.picture())
		}
		end = w.last.asked.Add(calm)
	}
	if odd := w.disturbed(); odd != "" {
		w.rest = 0
		if w.now.After(end) {
			w.breaks("not back at zero", "%s: %s", odd, w.picture())
			w.ended = true
		}
		return
	}
	w.rest++
	switch {
	case w.rest < 2:
	case w.last == nil && w.probe:
		w.rest = 0
		w.last = w.submit(step{what: job, n: farNode, long: time.Second, opts: exclusive | stays})
		w.last.asked = w.now
	case w.long && w.roomsLeft(): // they are to go in the end
	case !w.long, w.rest > 100:
		w.ended = true
		late := 0
		for _, at := range w.reads {
			if w.now.Sub(at) < time.Minute {
				late++
			}
		}
		if w.rest > 100 && late > 4+w.windowsIn(time.Minute) {
			w.breaks("reads while idle", "%d in the last minute", late)
		}
	}
}

// disturbed says what is not at rest.
func (w *world) disturbed() string {
	switch {
	case w.engine == nil:
		return "bridge is down"
	case len(w.spool) > 0:
		return "request " + w.spool[0].ID + " is not finished"
	}
	for _, j := range w.jobs {
		if j.state != over || j.completing {
			return "jobs"
		}
	}
	for i, n := range w.nodes {
		const good = powersave.NodePoweredDown
		if w.pods[i] != nil || n.flags&^powersave.NodeNotResponding != good || n.down {
			return n.name
		}
	}
	switch {
	case w.reserved[0].there || w.reserved[1].there:
		return "a reservation"
	case !w.engine.Settled():
		return "engine not settled"
	case len(w.engine.Gangs()) > 0:
		return "gangs kept"
	}
	return ""
}
