package powersave

import (
	"cmp"
	"fmt"
	"time"
)

// Verdict says why a boot comes to nothing.
type Verdict struct {
	Trouble Trouble
	Reason  string // one sentence for people
}

// String is what stands, after ReasonPrefix, on the node and on the job.
func (v Verdict) String() string { return undivided(string(v.Trouble) + ": " + v.Reason) }

const (
	// graceDefault is how long a pod may be in trouble that waiting could end: a host that is just being freed, a registry
	// that hiccups, a secret that is about to be written.
	graceDefault = 10 * time.Second
	// hangGrace is how long a host may take to end a pod, beyond the time that the pod has for that.
	hangGrace = 30 * time.Second
	// crashesFinal is the number of pods of one boot that may end by themselves.
	crashesFinal = 2
)

// trouble names what holds the boot in hand of n up, if anything does.
func (e *Engine) trouble(n *node) (Trouble, string) {
	b, barred := n.boot, e.barred(n)
	switch {
	case n.slurm.State.Any(NodeInvalidReg) && serving(n.slurm.State):
		return TroubleRefused, "slurmctld refused the registration: " + cmp.Or(n.slurm.Reason, "no reason given")
	case barred != "" && (n.pod == nil || n.was != "" && n.former()):
		return TroubleConfig, barred
	case n.pod == nil:
		return b.createTrouble, b.problem
	case n.outdated(), n.pod.Phase == PodTerminating && n.pod.Trouble != TroubleLost: // which says who has taken it
		return TroubleNone, ""
	}
	return n.pod.Trouble, cmp.Or(n.pod.Message, n.pod.Reason)
}

// judge gives the boot in hand of n back when it cannot succeed any more, and sees to it that n is looked at again when
// that could have changed.
func (e *Engine) judge(n *node) {
	b := n.boot
	trouble, reason := e.trouble(n)
	if n.pod != nil && trouble == TroubleCrash && b.crashed != n.pod.UID {
		b.crashed = n.pod.UID
		b.crashes++
	}
	if trouble != b.trouble {
		b.trouble, b.troubleAt = trouble, e.now
	}
	patience, limited := e.patience(n, trouble)
	final := b.troubleAt.Add(patience + e.othersFirst(b))
	if at := e.hungAt(n); !at.IsZero() && !at.After(e.now) && e.mayGiveBack(n) {
		v := Verdict{Trouble: TroubleLost, Reason: fmt.Sprintf("its former pod, on host %s, is being deleted and does not go", n.pod.Host)}
		e.closeUntilGone(n, v)
		e.condemn(n, v)
		return
	} else if !at.IsZero() {
		e.wakeAt(n, at)
	}
	switch {
	case !limited:
		e.overdue(n)
	case final.After(e.now):
		e.wakeAt(n, final)
		e.overdue(n)
	default:
		e.condemn(n, Verdict{Trouble: trouble, Reason: reason})
	}
}

// barred says why no pod can be made for n, "" if one can.
func (e *Engine) barred(n *node) string {
	switch set, there := e.sets[n.set]; {
	case n.was == "", set.Problem != "": // which may be why it names no node
		return set.Problem
	case there:
		return fmt.Sprintf("NodeSet %s names %s no longer: put it back into spec.nodeNames, or take it out of slurm.conf", n.was, n.name)
	}
	return fmt.Sprintf("NodeSet %s is gone: make it again, or take its nodes out of slurm.conf", n.was)
}

// former says that what n waits for is the end of a pod.
func (n *node) former() bool { return n.pod != nil && n.pod.Phase == PodTerminating }

// hungAt is when the pod whose end the boot in hand waits for counts as one that hangs: hangGrace after the host was to have ended it. Zero:
// there is none, or its host is silent, so that it is the host's trouble.
func (e *Engine) hungAt(n *node) time.Time {
	b := n.boot
	if !n.former() || e.blind || n.pod.Host == "" || e.hosts.Silent(n.pod.Host) {
		return time.Time{}
	}
	if b.ending != n.pod.UID {
		b.ending, b.endingAt = n.pod.UID, e.now
	}
	return later(b.endingAt, n.pod.Ends).Add(hangGrace + e.othersFirst(b))
}

// patience is how long a trouble may last. Not limited: until the deadline.
func (e *Engine) patience(n *node, t Trouble) (d time.Duration, limited bool) {
	switch {
	case n.boot.alone && e.blind: // who refuses the pod refuses the lists as well, or does not answer
		return 0, false
	case t == TroubleNone,
		t == TroubleLost, // a new pod may do better
		t == TroubleCrash && n.boot.crashes < crashesFinal,
		t == TroubleCapacity && n.pod != nil && (!n.pod.ScaleUp.IsZero() || e.roomKept(n)): // a host is on its way
		return 0, false
	case t == TroubleCrash:
		return 0, true
	case t == TroubleRefused:
		return e.cfg.RegisterGrace, true
	}
	// What is missing may come: room, a secret, a registry's answer.
	return cmp.Or(e.sets[n.set].UnschedulableGrace, graceDefault), true
}
