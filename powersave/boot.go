package powersave

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// boot is the order to run a pod for the node until its slurmd has registered.
type boot struct {
	generation int64
	requests   []*request
	accepted   time.Time // engine clock, newest request
	read       int       // reads asked for before that: only later ones tell about this order
	repeated   bool      // Slurm powered the node up again meanwhile
	foreign    bool      // its pod was made for a request that was none of ours
	unsure     bool      // may be obsolete: Slurm must confirm it before a pod is created
	tries      int
	triedRead  int // reads asked for before the newest try failed
	retryAt    time.Time
	problem    string
	barred     bool   // problem is that no pod can be made for it
	waits      string // why nothing happens though nothing is wrong
	uid        string // pod that times tells of
	remade     string // pod that was replaced last
	remakes    int    // pods of this boot that came to nothing

	resumeTimeout time.Duration
	room          string    // request whose room its pod has used
	roomAttempt   int64     // the newest request of its job that said where its pod goes
	attempt       *Attempt  // leave of the breakers to make the pod; nil: not asked for
	queued        bool      // it waits for that
	clearAt       time.Time // since when nothing of ours stands in its way
	blamed        bool      // the breakers know what came of it
	moving        bool      // the pod is to go, the next is for another offering
	createTrouble Trouble
	alone         bool      // createTrouble says nothing about the NodeSet
	everywhere    bool      // and yet every node of it will meet it
	trouble       Trouble   // seen last
	troubleAt     time.Time // since when
	crashed       string    // pod that crashed last
	crashes       int
	ending        string               // pod seen terminating last
	endingAt      time.Time            // since when
	release       *release             // set once the boot is being given back
	left          map[uint32]time.Time // jobs that waited for it once, and until when
	parted        string               // why one of them was given back; "" if none was
	calls         int                  // how often slurmctld has been asked to give it to nobody
	callAt        time.Time            // when it may be asked once more
	times         Timeline
}

// booting reports that Slurm has just shown that no slurmd has registered since the boot in hand was asked for, so that
// nothing uses the node.
func (n *node) booting(now time.Time) bool {
	return n.readSince(n.boot.read) && now.Sub(n.seenAt) <= actOn && n.slurm.State.Any(NodePoweringUp)
}

// refuted reports that Slurm has shown the node off since the boot in hand was asked for, and not about to be powered up.
func (n *node) refuted() bool {
	return n.readSince(n.boot.read) && n.slurm.State.Any(poweredOff) && !n.slurm.State.Any(NodePoweringUp|NodePowerUp)
}

// registered reports that slurmctld has accepted a slurmd. POWER_DOWN alone does not tell: a forced
// power-down of a booting node shows it for a moment, with POWERING_UP gone already, and a
// partition with PowerDownOnIdle as long as a job runs. Then it counts when slurmd started:
// not before its pod was created.
func (n *node) registered() bool {
	switch state := n.slurm.State; {
	case !serving(state):
		return false
	case !state.Any(NodePowerDown), n.set == "": // of no NodeSet: nothing of ours can be waited for
		return true
	case n.pod == nil:
		return state.Any(NodeAllocated|NodeMixed) && !state.Any(NodeCompleting)
	}
	return !n.slurm.BootTime.IsZero() && !n.slurm.BootTime.Before(n.pod.Created.Add(-clockSkew))
}

// outdated says that the pod was made for an earlier boot, or for this one on another offering, by a call that came late.
func (n *node) outdated() bool {
	b := n.boot
	return n.pod.Generation < b.generation || b.attempt != nil && n.pod.Generation == b.generation && n.pod.Offering != b.attempt.Offering
}

// orderBoot makes req the node's newest order, unless a newer one stands.
func (e *Engine) orderBoot(n *node, req *request) {
	unsure := e.now.Sub(req.Started) > e.cfg.FreshFor || req.Started.After(e.now.Add(e.cfg.FreshFor))
	if n.off != nil {
		// Programs can overtake each other before they get a sequence number: only Slurm knows
		// which order stands.
		unsure = true
		n.off.unbooted = n.off.kind == spool.KindResumeFail
		e.askAgain(n)
	}
	switch b := n.boot; {
	case b == nil:
	case n.refuted(): // only that pods or NodeSets have not been read keeps it
		e.failBoot(n)
	case b.unsure && req.Started.After(b.times.Requested) && (len(n.jobs) == 0 || req.names(n.name)):
		e.dropBoot(n, false) // nothing has been done for it, and its jobs may have left the node long ago
	default:
		b.requests = append(b.requests, req)
		b.accepted, b.read, b.repeated, b.retryAt = e.now, e.reads.count, true, time.Time{}
		return
	}
	n.boot = &boot{generation: req.Sequence, requests: []*request{req}, accepted: e.now, read: e.reads.count, unsure: unsure, resumeTimeout: req.ResumeTimeout, clearAt: e.now}
	n.boot.times.Requested, n.boot.times.Accepted = req.Started, e.now
	n.failed = ""
	n.set = cmp.Or(n.set, n.was) // slurmctld has it still: its jobs are to hear of that as those before them
	e.activate(n)
}

func (e *Engine) dropBoot(n *node, registered bool) {
	requests := n.boot.requests
	n.boot, n.gatedBy = nil, nil
	if n.was != "" {
		n.set = ""
	}
	e.forget(n, registered)
	for _, r := range requests {
		e.settled(r)
	}
}

// failBoot ends a boot that came to nothing; who waits for the node need not wait longer.
func (e *Engine) failBoot(n *node) {
	jobs, given := n.jobs, n.boot.release
	if a := n.boot.attempt; a != nil {
		e.breakers.ProbeGone(*a)
	}
	parting := jobs
	if given != nil {
		parting = n.lateComers() // whom slurmctld has taken off it along with those that are given back
	}
	e.part(n, parting, n.name+" did not boot")
	e.dropBoot(n, false)
	if given != nil {
		e.freed(n)
	}
	e.failGates(n, jobs)
}

func (e *Engine) decideBoot(n *node) {
	b := n.boot
	if n.readSince(b.read) {
		state := n.slurm.State
		switch {
		case n.missing:
			e.note(Fault, n, b.request(), "slurmctld knows no such node: the boot is given up")
			e.failBoot(n)
			e.decideSettled(n)
			return
		case n.registered() && state.Any(NodeInvalidReg):
			e.turnedAway(n)
			return
		case n.registered():
			e.bootDone(n)
			return
		case n.refuted():
			// Slurm gave the boot up. A pod that exists is left to the two sightings of an orphan.
			e.note(Info, n, b.request(), "Slurm shows "+state.String()+": the boot is given up")
			n.failed = b.story(n)
			if state.Any(NodePoweredDown) && tookTooLong(n.slurm.Reason) && e.known(n) {
				e.timesOut(n, n.readAt)
			}
			e.failBoot(n)
			e.decideSettled(n)
			return
		case state.Any(NodePoweringUp):
			if state.Any(NodeIdle) { // those that waited for it may have left it
				for _, id := range slices.Clone(n.jobs) {
					if g := e.gangs[id]; b.unsure || g != nil && g.lost && b.release == nil && n.readAt.After(g.joined[n.name]) {
						e.leave(n, id)
					}
				}
			}
			b.unsure = false
			if reason, parted := e.parted(n); parted && b.release == nil {
				e.callOff(n, reason)
			}
		}
	}
	if n.pod != nil {
		b.observe(n.pod, e.now)
		if a := b.attempt; a != nil && n.pod.Generation > b.generation && n.pod.Offering != a.Offering { // another bridge chose where it is
			e.breakers.ProbeGone(*a)
			b.attempt = nil
		}
	}
	if b.barred && n.set != "" && e.barred(n) == "" { // what was mended says nothing of it any more, nor do breakers hear of what time it has cost
		b.barred, b.problem, b.waits, b.clearAt = false, "", "", e.now
	}
	if b.release == nil && !b.unsure && n.set != "" {
		e.judge(n)
	}
	if b.release != nil {
		e.pursueRelease(n)
		return
	}
	if b.moving && n.pod != nil {
		e.move(n)
		return
	}
	if n.pod == nil {
		e.create(n)
		return
	}
	b.waits = ""
	booting := n.booting(e.now)
	switch {
	case n.pod.Phase == PodTerminating:
		b.waits = "waiting for its former pod to go"
		if n.outdated() {
			b.problem, b.waits = "", "waiting for the pod of an earlier boot to go"
		}
	case n.outdated():
		// Its slurmd started before this power-up: slurmctld would ignore it. Or it is on an offering that was left.
		b.problem, b.waits = "", "replacing the pod of an earlier boot"
		switch {
		case booting && n.readSince(n.podRead):
			why := "pod belongs to an earlier boot"
			if b.attempt != nil && b.attempt.Offering != n.pod.Offering {
				why = "pod was made for another offering"
			}
			e.delete(n, why)
		case booting:
			e.reads.want(e.now)
		default:
			e.reads.want(e.pollFor(n))
		}
	case n.pod.Phase == PodFailed:
		b.problem = strings.TrimSpace(n.pod.Reason + " " + n.pod.Message)
		e.note(Warn, n, b.request(), "pod failed: "+b.problem)
		e.delete(n, "pod failed: "+n.pod.Reason)
	case booting && b.repeated && n.pod.Created.Before(b.accepted) && !b.times.Running.IsZero() &&
		n.readAt.Sub(later(b.accepted, b.times.Running)) >= e.cfg.RegisterGrace:
		// When its slurmd started is known only as exactly as the watch is prompt.
		e.delete(n, "slurmd started before the node was powered up again")
	default:
		b.problem = ""
		if n.pod.Reason != "" {
			b.problem = strings.TrimSpace(n.pod.Reason + " " + n.pod.Message)
			e.note(Warn, n, b.request(), "pod is "+string(n.pod.Phase)+": "+b.problem)
		}
		e.reads.want(e.pollFor(n))
	}
}

// create asks for the pod of the boot in hand, as soon as all that takes is known.
func (e *Engine) create(n *node) {
	b := n.boot
	switch {
	case n.creating:
		return
	case b.unsure:
		if !n.readSince(b.read) {
			e.reads.want(e.now)
		}
		return
	case n.set == "":
		b.problem, b.barred = "no NodeSet names this node", true
		e.note(Fault, n, b.request(), b.problem+": create one whose spec.nodeNames holds it, or take the node out of slurm.conf")
		return
	case e.barred(n) != "":
		b.problem, b.barred, b.createTrouble = e.barred(n), true, TroubleNone // what was tried before says nothing of what is tried after that
		e.note(Fault, n, b.request(), b.problem)
		return
	}
	if b.uid != b.remade { // its pod is gone: an image that crashes must not keep Kubernetes busy
		b.remade = b.uid
		if b.remakes > 0 {
			b.retryAt = e.now.Add(pause(b.remakes - 1))
		}
		b.remakes++
	}
	if b.retryAt.After(e.now) {
		e.wakeAt(n, b.retryAt)
		return
	}
	if !e.stillWanted(n) {
		return
	}
	b.waits = ""
	if !e.attempt(n) {
		return
	}
	room, ok := e.roomFor(n)
	if !ok {
		return
	}
	if room != "" {
		e.useRoom(n, room)
	}
	n.creating, n.making, n.makingRoom, b.moving = true, b.attempt.Offering, room != "", false
	if b.times.Asked.IsZero() {
		b.times.Asked = e.now
	}
	c := CreatePod{Node: n.name, NodeSet: n.set, Generation: b.generation, Request: b.request(), Offering: b.attempt.Offering, Room: room}
	if len(n.jobs) > 0 {
		c.Job = n.jobs[0]
		c.HetJob = e.hets.leader[c.Job]
	}
	e.do(c)
}

func (b *boot) request() string {
	if len(b.requests) == 0 {
		return ""
	}
	return b.requests[0].ID
}

func (e *Engine) bootDone(n *node) {
	b := n.boot
	b.times.Registered = e.now
	if n.pod != nil {
		b.observe(n.pod, e.now)
	}
	done := Boot{
		Node: n.name, NodeSet: n.set, Offering: e.offeringOf(n), Generation: b.generation, Request: b.request(), Jobs: slices.Clone(n.jobs), Times: b.times, Phase: PhaseRegistered,
	}
	if n.pod != nil {
		done.UID, done.Host = n.pod.UID, n.pod.Host
	}
	if !b.anothers() {
		if len(e.history) == e.cfg.History {
			e.history = slices.Delete(e.history, 0, 1)
		}
		e.history = append(e.history, done)
		e.learnBoot(done)
		e.do(BootDone{done})
	}
	e.succeeded(n)
	if b.release != nil { // its job is being given back all the same
		e.letGo(n, b.release.reason)
	} else if reason, parted := e.parted(n); parted {
		e.letGo(n, reason)
	}
	n.upAsked, n.upSeen = later(b.times.Requested, n.poweredUpAt()), e.now
	e.dropBoot(n, b.release == nil)
	if b.release != nil {
		e.stay(n)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
