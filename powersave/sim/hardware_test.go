package sim_test

import (
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of hardware that somebody finds bad, of the marks of its hosts, and of nodes DOWN that nobody minds.

const (
	badReason   = "NHC: GPU Xid 79"
	shortReason = "gres/gpu count reported lower than configured (0 < 1)" // slurmctld's own
	panicReason = "kernel panic"
)

type hardware struct {
	findings []*finding
	backAt   time.Time // when the bridge gave a boot up last
}

// finding is what somebody has found, or just noted.
type finding struct {
	at    time.Time
	n     *node
	p     *pod
	drain bool
	loose bool      // just a note, but on a node that is drained
	asked time.Time // when the bridge asked for the mark first, in life
	life  int
	done  bool
	heard int  // the bridge's life that knows so
	over  bool // it cannot be seen any more

	reason string
}

// mark is a verdict that stands on a host.
type mark struct{ uid, reason string }

// more is what this model knows of a node.
type more struct {
	roomed     int64 // generation of the boot whose pod has used room
	lastRoom   *room // that its newest pod was to use
	roomlessAt time.Time
	leftAt     time.Time // DOWN, and left to the bridge
	deafAt     time.Time
	lastDown   time.Time // when it was last seen DOWN
	earlyBad   time.Time // when it was found bad without a pod that served it
	blamed     mark      // what its host was marked for last, in the life blamedLife
	blamedLife int
	unseen     time.Time // when somebody said what a reason of ours stood over before anybody could see it
	forced     attempt   // of the boot for which the bridge has asked for a forced power-down

	verdict     powersave.BootFailed // the newest, told in the life verdictLife
	verdictLife int
}

// findBad has somebody find the hardware of a node bad, or note something about it.
func (w *world) findBad(n *node, drain bool, later func(func())) {
	before := n.flags.Any(powersave.NodeDrain)
	n.say(badReason, w.now)
	if drain {
		w.drain(n)
		n.drained = w.now
	}
	if p := w.pods[n.index]; p != nil && p.host && p.alive() && n.ours() && n.serves() && n.uid == p.UID && !n.down {
		w.findings = append(w.findings, &finding{at: w.now, n: n, p: p, drain: drain, loose: before || n.down, reason: badReason})
	} else {
		n.earlyBad = w.now
	}
	later(func() {
		if !n.invalid { // whoever else drained it knows it no longer
			n.flags &^= powersave.NodeDrain
		}
		n.unsay(badReason, w.now)
	})
}

// findShort notes that slurmctld has refused a slurmd that it took before: its host has less than it had.
func (w *world) findShort(n *node, uid string) {
	if p := w.pods[n.index]; p != nil && p.UID == uid && p.taken {
		w.findings = append(w.findings, &finding{at: w.now, n: n, p: p, loose: true, reason: shortReason})
	}
}

// unsay takes a reason back, and not what others have added.
func (n *node) unsay(reason string, now time.Time) {
	switch rest, found := strings.CutPrefix(n.reason, reason); {
	case !found:
	case rest == "":
		n.forget(now)
	default:
		n.say(strings.TrimPrefix(rest, " : "), now)
	}
}

// mark is the bridge's call.
func (w *world) mark(a powersave.TaintHost, life int) {
	w.mayMark(a)
	w.after(w.some(50*time.Millisecond, taintLost, w.node(a.Node).index), func() {
		answer := powersave.HostTainted{TaintHost: a}
		i := w.hostIndex(a.Host)
		m := &w.machines[i]
		switch {
		case w.any(taintFails), w.any(kubeAway):
			answer.Err = "timeout"
		case m.trouble == powersave.HostGone:
		default:
			w.taint(i, mark{a.UID, a.Reason})
			if w.any(taintLost) {
				answer.Err = "timeout"
			}
		}
		if answer.Err == "" {
			for _, v := range w.findings {
				if v.p.UID == a.UID && strings.Contains(a.Reason, v.reason) {
					v.done, v.heard = true, life
				}
			}
		}
		w.tellLife(life, w.some(50*time.Millisecond, taintFails, i), answer)
	})
}

func (w *world) hostIndex(name string) int { return slices.Index(hostNames[:], name) }

// taint is kube/pods' TaintHost: what stands on the host already is not acted upon again.
func (w *world) taint(i int, mk mark) {
	m := &w.machines[i]
	for _, o := range m.marked {
		if o == mk {
			return
		}
	}
	m.marked, m.tainted = append(m.marked, mk), true
	w.reviewHost(i)
	d := 5*time.Second + w.some(20*time.Second, badHardware, i)
	if !w.faulty() {
		d = 2 * time.Second
	}
	w.after(d, func() { w.mendHost(i) })
}

// mendHost is an administrator who has mended it.
func (w *world) mendHost(i int) {
	w.machines[i].tainted = false
	w.reviewHost(i)
}

func (w *world) mendHosts() {
	if !w.marks {
		return
	}
	for i := range w.machines {
		w.mendHost(i)
	}
}

// mayMark looks whether anybody has found the host bad.
func (w *world) mayMark(a powersave.TaintHost) {
	n := w.node(a.Node)
	mk := mark{a.UID, a.Reason}
	var of *finding
	for _, v := range w.findings {
		if v.p.UID != a.UID || v.p.Host != a.Host || !strings.Contains(a.Reason, v.reason) {
			continue
		}
		// Somebody else may have drained the node before the bridge saw the note, or it was powered down.
		if !v.drain && !v.loose && !n.downReq.After(v.at) && (!n.drained.After(v.at) || n.drained.Sub(v.at) > idle) && (!n.down || !n.downSince.After(v.at)) {
			continue
		}
		of = v
	}
	switch {
	case of == nil && strings.Contains(a.Reason, badReason) && !n.earlyBad.IsZero() && (w.rough.After(n.earlyBad) || n.since.Sub(n.earlyBad) < prompt/2):
		return // it may have been found just after slurmd registered
	case of == nil && strings.Contains(a.Reason, badReason+" : "):
		return // slurmctld drained it for something else, and put that after what somebody had noted before
	case of == nil:
		w.breaks("marks a host that nobody found bad", "%s for %s: %q", a.Host, a.Node, a.Reason)
		return
	case n.blamed == mk && n.blamedLife == w.life && of.heard == w.life:
		w.breaks("marks a host again and again", "%s for %s: %q", a.Host, a.Node, a.Reason)
	case of.asked.IsZero() || of.life != w.life:
		of.asked, of.life = w.now, w.life
	}
	n.blamed, n.blamedLife = mk, w.life
}

// patrolMarks looks whether hosts that were found bad are marked.
func (w *world) patrolMarks() {
	for _, v := range w.findings {
		n := v.n
		v.over = v.over || w.pods[n.index] != v.p || !v.p.alive() || !n.serves() || n.uid != v.p.UID || !n.flags.Any(powersave.NodeDrain) || n.reason != badReason
		switch {
		case v.done || !v.drain || n.set() == 1 && !w.endOf(changeSets, 0).IsZero():
		case !v.asked.IsZero() && v.life == w.life:
			if w.smooth(v.asked, time.Minute) && w.now.Sub(w.endOf(taintFails, 0)) > time.Minute {
				w.breaks("bad host stays unmarked", "%s, asked for at %.3f", v.p.Host, v.asked.Sub(start).Seconds())
			}
		case v.over:
		case w.smooth(v.at, idle):
			w.breaks("bad host stays unmarked", "%s, though %s", v.p.Host, w.show(n))
		}
	}
}

// Nodes DOWN.

// setDown is scontrol update state=down.
func (w *world) setDown(n *node, later func(func())) {
	if n.flags.Any(powersave.NodePoweringUp | powersave.NodePoweringDown) {
		return
	}
	w.killAll(n, false)
	n.down, n.downSince, n.changed = true, w.now, w.now
	n.say(panicReason, w.now)
	at := w.now
	later(func() {
		if !n.downSince.Equal(at) || !n.down && (n.invalid || !strings.HasPrefix(n.reason, panicReason)) { // it may have registered
			return
		}
		n.down, n.changed = false, w.now
		n.flags &^= powersave.NodeDrain // whoever drained it knows it no longer
		n.unsay(panicReason, w.now)
	})
}

// deafen makes slurmd answer no longer: slurmctld sets the node DOWN.
func (w *world) deafen(n *node) {
	p := w.pods[n.index]
	if p == nil || !n.ours() || !p.alive() || n.uid != p.UID || !n.serves() || n.down {
		return
	}
	w.after(w.slurmdTimeout(), func() {
		if w.pods[n.index] != p || !p.alive() || n.uid != p.UID || !n.serves() || n.down || !w.on(deaf, n.index) {
			return
		}
		w.killAll(n, false)
		n.down, n.downSince, n.changed, n.flags = true, w.now, w.now, n.flags|powersave.NodeNotResponding
		n.add(notResponding, w.now)
	})
}

func (w *world) slurmdTimeout() time.Duration {
	if w.patient {
		return 40 * time.Second
	}
	return 10 * time.Second
}

// timedOut says that nothing but a boot that took too long has set the node DOWN.
func (n *node) timedOut() bool {
	return n.down && n.flags.Any(powersave.NodePoweredDown) && !n.flags.Any(powersave.NodeDrain|powersave.NodePowerUp|powersave.NodePowerDown) &&
		(strings.HasPrefix(n.reason, "ResumeTimeout reached") || strings.HasPrefix(n.reason, powersave.ReasonPrefix))
}

// leavesDown says that nobody but the bridge brings the node back, or whoever set it DOWN.
func (w *world) leavesDown(n *node) bool {
	return w.leftDown && n.ours() && (n.timedOut() || strings.HasPrefix(n.reason, panicReason))
}

// mayPutBack looks at nodes DOWN that are put back.
func (w *world) mayPutBack(n *node, u powersave.NodeUpdate) {
	if n.down && u.State == powersave.StatePowerDown && strings.HasPrefix(n.reason, panicReason) && w.now.Sub(n.reasonAt) > stale && w.now.Sub(w.backAt) > time.Minute && n.serves() {
		w.breaks("powers down what somebody set down", "%s", w.show(n))
	}
	if !n.down || u.State != powersave.StateResume || !n.flags.Any(powersave.NodePoweredDown) || n.flags.Any(powersave.NodePoweringDown) {
		return
	}
	switch known := w.now.Sub(n.reasonAt) > stale; {
	case n.taken() && known:
		w.breaks("puts back what somebody set down", "%s", w.show(n))
	case n.taken() && w.now.Sub(n.downReq) < suspendTimeout+stale: // the bridge is freeing its name, and has not seen yet that somebody has set it down
	case w.now.Sub(n.downSince) < backoff && !n.downSince.Equal(n.unseen) && !w.recently(n, stale, readSlow): // DOWN may have come while slurmctld answered
		w.breaks("puts a node back too soon", "%s, down since %.3f", w.show(n), n.downSince.Sub(start).Seconds())
	}
}

// patrolDown looks whether a node DOWN is minded.
func (w *world) patrolDown(n *node, p *pod) {
	known := n.ours() && w.hostsListed && (n.set() == 0 || w.endOf(changeSets, 0).IsZero())
	if !known || p != nil || !n.timedOut() || len(n.jobs) > 0 || n.cleaning != nil && n.cleaning.gate != 0 {
		n.leftAt = w.now
	} else if w.smooth(n.leftAt, 90*time.Second) {
		w.breaks("stays down", "%s since %.3f", w.show(n), n.leftAt.Sub(start).Seconds())
	}
	silent := known && n.down && n.serves() && p != nil && p.alive() && p.host && !n.taken() && strings.HasSuffix(n.reason, notResponding) &&
		!n.flags.Any(powersave.NodePowerDown|powersave.NodeDrain) && w.machines[p.at].trouble == ""
	if !silent {
		n.deafAt = w.now
	} else if w.smooth(n.deafAt, idle) {
		w.breaks("slurmd stays silent", "%s since %.3f", w.show(n), n.deafAt.Sub(start).Seconds())
	}
}
