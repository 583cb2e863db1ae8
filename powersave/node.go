package powersave

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// node holds the facts about one node and the order in hand.
type node struct {
	name string
	set  string   // NodeSet that owns it; "" if none does
	jobs []uint32 // gangs that wait for it

	slurm    SlurmNode
	read     int       // number of the read that showed it; 0: none has
	readAt   time.Time // when that read was asked for
	seenAt   time.Time // when it was answered
	missing  bool      // slurmctld has no such node, says a complete read
	unknown  int       // newest read of some nodes that said so
	strayAt  time.Time // first complete read that showed the present disagreement
	strayOK  bool      // a second one confirmed it
	pod      *Pod
	deleting string // UID whose deletion Kubernetes has accepted or is being asked for
	goneUID  string // newest UID known to exist no longer
	delTries int
	delRetry time.Time
	creating bool // CreatePod is not answered yet
	forces   int  // updates of sendReleases that are not answered yet
	closing  bool // an update of closeSets is under way
	care     care
	believe  int    // only reads asked for after this many tell the truth: slurmctld has changed the node since
	failed   string // how far the boot came that was given up last

	boot *boot
	off  *off

	active bool
	wakeAt time.Time
	noted  string
}

// boot is the order to run a pod for the node until its slurmd has registered.
type boot struct {
	generation int64
	requests   []*request
	accepted   time.Time // engine clock, newest request
	read       int       // reads asked for before that: only later ones tell about this order
	repeated   bool      // Slurm powered the node up again meanwhile
	unsure     bool      // may be obsolete: Slurm must confirm it before a pod is created
	tries      int
	retryAt    time.Time
	problem    string
	waits      string // why nothing happens though nothing is wrong
	uid        string // pod that times tells of
	remade     string // pod that was replaced last
	remakes    int    // pods of this boot that came to nothing

	resumeTimeout time.Duration
	attempt       *Attempt // leave of the breakers to make the pod; nil: not asked for
	blamed        bool     // the breakers know what came of it
	moving        bool     // the pod is to go, the next is for another offering
	createTrouble Trouble
	trouble       Trouble   // seen last
	troubleAt     time.Time // since when
	crashed       string    // pod that crashed last
	crashes       int
	release       *release // set once the boot is being given back
	times         Timeline
}

// off is the order to remove the node's pod.
type off struct {
	kind      spool.Kind // KindSuspend also stands for pods that reconciling found orphaned
	requests  []*request
	accepted  time.Time
	read      int  // as in boot
	confirmed bool // Slurm, read after acceptance, showed that it does not use the node
	updating  bool // an update of the node is batched or under way
	updated   bool
	tries     int
	retryAt   time.Time
	why       string
	uid, host string // of the pod that is to go
	times     OffTimes
}

// Words of slurmctld's node state that decide. Sources: slurmctld power_save.c, node_mgr.c, job_mgr.c.
const (
	poweredOff = NodePoweredDown | NodePoweringDown
	inUse      = NodeAllocated | NodeMixed | NodeCompleting
	// POWER_UP is not among them: it comes with POWERED_DOWN, and stays by mistake when slurmd
	// registers just then.
	notServing = NodePoweredDown | NodePoweringDown | NodePoweringUp
	// Set by people, and taken back by StateResume (node_mgr.c update_node).
	judged = NodeDrain | NodeFail | NodeDown
)

// serving reports that slurmd has registered and no power change is under way.
func serving(s NodeState) bool { return !s.Any(notServing) && !s.Any(NodeFuture) }

// booting reports that Slurm has just shown that no slurmd has registered since the boot in hand was asked for, so that
// nothing uses the node.
func (n *node) booting(now time.Time) bool {
	return n.readSince(n.boot.read) && now.Sub(n.seenAt) <= actOn && n.slurm.State.Any(NodePoweringUp)
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

// actOn is how long ago a read may have been answered for a pod to be deleted, or a name freed, by it:
// a slurmd that outlives SuspendTimeout can come back into service.
const actOn = 5 * time.Second

// clockSkew is how far the clocks of Kubernetes' nodes and control plane may be apart.
const clockSkew = 2 * time.Second

// readSince reports whether a read later than the given one showed the node.
func (n *node) readSince(read int) bool { return n.read > read }

// see takes in what Slurm shows. Two complete reads, sightings apart, confirm a disagreement
// between Slurm and Kubernetes.
func (n *node) see(s SlurmNode, r *reads, complete bool, sightings time.Duration) {
	if r.count <= n.believe {
		return
	}
	n.slurm, n.read, n.readAt, n.seenAt, n.missing = s, r.count, r.asked, r.ended, false
	n.sight(r, complete, sightings)
}

// vanish takes in that slurmctld has no such node.
func (n *node) vanish(r *reads, complete bool, sightings time.Duration) {
	n.slurm, n.read, n.readAt, n.seenAt, n.missing = SlurmNode{Name: n.name}, r.count, r.asked, r.ended, true
	n.sight(r, complete, sightings)
}

func (n *node) sight(r *reads, complete bool, sightings time.Duration) {
	if !complete {
		return
	}
	if !n.stray() {
		n.strayAt, n.strayOK = time.Time{}, false
		return
	}
	switch {
	case n.strayAt.IsZero():
		n.strayAt = r.asked
	case r.asked.Sub(n.strayAt) >= sightings:
		n.strayOK = true
	}
}

// stray reports that no order explains what the two sides show: a pod that Slurm does not
// want, or a power-up without a pod.
func (n *node) stray() bool {
	if n.boot != nil || n.off != nil {
		return false
	}
	switch {
	case n.slurm.State.Any(NodePoweringUp):
		return n.pod == nil && n.set != ""
	case n.missing, n.slurm.State.Any(poweredOff):
		return n.pod != nil && n.pod.Phase != PodTerminating
	}
	return false
}

// orderBoot makes req the node's newest order, unless a newer one stands.
func (e *Engine) orderBoot(n *node, req *request) {
	unsure := e.now.Sub(req.Started) > e.cfg.FreshFor || req.Started.After(e.now.Add(e.cfg.FreshFor))
	if n.off != nil {
		// Programs can overtake each other before they get a sequence number: only Slurm knows
		// which order stands.
		unsure = true
		e.askAgain(n)
	}
	if b := n.boot; b != nil {
		b.requests = append(b.requests, req)
		b.accepted, b.read, b.repeated, b.retryAt = e.now, e.reads.count, true, time.Time{}
		return
	}
	n.boot = &boot{generation: req.Sequence, requests: []*request{req}, accepted: e.now, read: e.reads.count, unsure: unsure, resumeTimeout: req.ResumeTimeout}
	n.boot.times.Requested, n.boot.times.Accepted = req.Started, e.now
	n.failed = ""
	e.activate(n)
}

// orderOff makes req the node's newest order, unless a newer boot stands.
func (e *Engine) orderOff(n *node, req *request) {
	if b := n.boot; b != nil {
		// The sequence alone does not tell: programs overtake each other before they get their number.
		if b.generation > req.Sequence && b.times.Requested.After(req.Started) {
			e.do(Report{Level: Info, Node: n.name, NodeSet: n.set, Request: req.ID,
				Text: fmt.Sprintf("%s from before the present boot ignored", req.Kind)})
			e.settled(req)
			return
		}
	}
	if o := n.off; o != nil {
		o.requests = append(o.requests, req)
		o.accepted, o.kind, o.why = e.now, req.Kind, string(req.Kind)
		e.askAgain(n)
		return
	}
	n.off = &off{kind: req.Kind, requests: []*request{req}, accepted: e.now, read: e.reads.count, why: string(req.Kind)}
	n.off.times.Requested, n.off.times.Accepted = req.Started, e.now
	e.activate(n)
}

// askAgain makes the off in hand wait for Slurm to confirm it once more.
func (e *Engine) askAgain(n *node) {
	o := n.off
	o.read, o.confirmed, o.updating, o.updated = e.reads.count, false, false, false
	e.freeable = slices.DeleteFunc(e.freeable, func(f *node) bool { return f == n })
}

func (o *off) newest() int64 {
	var s int64
	for _, r := range o.requests {
		s = max(s, r.Sequence)
	}
	return s
}

func (e *Engine) activate(n *node) {
	if !n.active {
		n.active = true
		e.active = append(e.active, n)
	}
	n.noted = ""
	n.strayAt, n.strayOK = time.Time{}, false
	e.reads.want(e.now.Add(e.cfg.PollSlow))
}

func (e *Engine) dropOff(n *node) {
	requests := n.off.requests
	n.off = nil
	e.freeable = slices.DeleteFunc(e.freeable, func(f *node) bool { return f == n })
	for _, r := range requests {
		e.settled(r)
	}
}

func (e *Engine) dropBoot(n *node, registered bool) {
	requests := n.boot.requests
	n.boot = nil
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
	e.dropBoot(n, false)
	if given != nil {
		e.freed(n)
	}
	e.failGates(n, jobs)
}

// decide looks at one node and asks for the next thing it needs.
func (e *Engine) decide(n *node) {
	switch {
	case !e.podsRead || !e.setsRead: // what has not been read must not be taken for absent
		return
	case n.off != nil: // also while a boot it may end is in hand
		e.decideOff(n)
	case n.boot != nil:
		e.decideBoot(n)
	default:
		e.decideSettled(n)
	}
	e.tend(n)
	e.mark(n)
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
		case state.Any(poweredOff) && !state.Any(NodePoweringUp|NodePowerUp):
			// Slurm gave the boot up. A pod that exists is left to the two sightings of an orphan.
			e.note(Info, n, b.request(), "Slurm shows "+state.String()+": the boot is given up")
			n.failed = b.story(n)
			e.failBoot(n)
			e.decideSettled(n)
			return
		case state.Any(NodePoweringUp):
			b.unsure = false
		}
	}
	if n.pod != nil {
		b.observe(n.pod, e.now)
	}
	if b.release == nil && !b.unsure && n.set != "" {
		e.judge(n)
	}
	b.waits = ""
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
	booting := n.booting(e.now)
	switch {
	case n.pod.Phase == PodTerminating:
		b.waits = "waiting for its former pod to go"
		if n.pod.Generation < b.generation {
			b.problem, b.waits = "", "waiting for the pod of an earlier boot to go"
		}
	case n.pod.Generation < b.generation:
		// Its slurmd started before this power-up: slurmctld would ignore it.
		b.problem, b.waits = "", "replacing the pod of an earlier boot"
		if booting {
			e.delete(n, "pod belongs to an earlier boot")
		} else {
			e.reads.want(e.pollFor(n))
		}
	case n.pod.Phase == PodFailed:
		b.problem = strings.TrimSpace(n.pod.Reason + " " + n.pod.Message)
		e.note(Warn, n, b.request(), "pod failed: "+b.problem)
		e.delete(n, "pod failed: "+n.pod.Reason)
	case booting && b.repeated && !b.times.Running.After(b.accepted) && !b.times.Running.IsZero() &&
		n.readAt.Sub(b.accepted) >= e.cfg.RegisterGrace:
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
		b.problem = "no NodeSet names this node"
		e.note(Fault, n, b.request(), b.problem+": create one whose spec.nodeNames holds it, or take the node out of slurm.conf")
		return
	case e.sets[n.set].Problem != "":
		b.problem = e.sets[n.set].Problem
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
	if !e.attempt(n) {
		return
	}
	n.creating, b.moving = true, false
	if b.times.Asked.IsZero() {
		b.times.Asked = e.now
	}
	c := CreatePod{Node: n.name, NodeSet: n.set, Generation: b.generation, Request: b.request(), Offering: b.attempt.Offering}
	if len(n.jobs) > 0 {
		c.Job = n.jobs[0]
	}
	e.do(c)
}

func (b *boot) request() string {
	if len(b.requests) == 0 {
		return ""
	}
	return b.requests[0].ID
}

// delete asks for the node's pod to go. Callers have made sure that Slurm does not use it.
func (e *Engine) delete(n *node, why string) {
	if n.pod == nil || n.deleting == n.pod.UID || n.pod.Phase == PodTerminating {
		return
	}
	if n.delRetry.After(e.now) {
		e.wakeAt(n, n.delRetry)
		return
	}
	n.deleting = n.pod.UID
	e.do(DeletePod{Node: n.name, UID: n.pod.UID, Why: why, Before: e.now.Add(actOn)})
}

func (e *Engine) bootDone(n *node) {
	b := n.boot
	b.times.Registered = e.now
	if n.pod != nil {
		b.observe(n.pod, e.now)
	}
	done := Boot{Node: n.name, NodeSet: n.set, Generation: b.generation, Request: b.request(), Jobs: slices.Clone(n.jobs), Times: b.times, Phase: PhaseRegistered}
	if n.pod != nil {
		done.UID, done.Host = n.pod.UID, n.pod.Host
	}
	if len(e.history) == e.cfg.History {
		e.history = slices.Delete(e.history, 0, 1)
	}
	e.history = append(e.history, done)
	e.do(BootDone{done})
	e.succeeded(n)
	if b.release != nil { // its job is being given back all the same
		e.do(UpdateNodes{NodeUpdate{Nodes: []string{n.name}, State: StatePowerDown}})
	}
	e.dropBoot(n, b.release == nil)
}

func (e *Engine) decideOff(n *node) {
	o := n.off
	if !n.readSince(o.read) || e.now.Sub(n.seenAt) > actOn {
		e.reads.want(e.now)
		return
	}
	state := n.slurm.State
	switch {
	case n.missing:
	case state.Any(NodePoweringUp), !state.Any(poweredOff):
		// Also when it was confirmed before: a slurmd that outlived SuspendTimeout can register again.
		// POWER_DOWN alone is a newer wish, for which SuspendProgram will be called again.
		e.note(Info, n, o.request(), fmt.Sprintf("%s ignored: Slurm shows %s", o.kind, state))
		e.dropOff(n)
		e.decide(n)
		return
	case o.confirmed, o.kind == spool.KindResumeFail:
		// After ResumeTimeout no slurmd has registered, so no job runs; yet Slurm counts the one that
		// is being requeued as on the node until its PrologSlurmctld has ended.
	case state.Any(inUse):
		return // a job is just ending: look again
	}
	if !o.confirmed {
		o.confirmed = true
		setOnce(&o.times.Confirmed, e.now)
		if n.boot != nil { // Slurm has ended it
			if !n.boot.unsure {
				n.failed = n.boot.story(n)
				if o.kind == spool.KindResumeFail && n.boot.release == nil {
					e.failed(n, n.late(0))
				}
			}
			e.failBoot(n)
		}
		if n.failed != "" {
			o.why, n.failed = "boot failed: "+n.failed, ""
		}
	}
	if n.pod != nil {
		o.uid, o.host = n.pod.UID, n.pod.Host
		e.delete(n, o.why)
		return
	}
	if n.creating {
		return // a pod may come yet
	}
	if o.uid != "" {
		setOnce(&o.times.PodGone, e.now)
	}
	if o.updated || !o.needsUpdate(n) {
		e.offDone(n)
		e.decide(n)
		return
	}
	if o.updating {
		return
	}
	if o.retryAt.After(e.now) {
		e.wakeAt(n, o.retryAt)
		return
	}
	o.updating = true
	if len(e.freeable) == 0 {
		e.freeAt = e.now.Add(freeBatch)
	}
	e.freeable = append(e.freeable, n)
}

func (e *Engine) offDone(n *node) {
	o := n.off
	defer e.dropOff(n)
	if n.set == "" && o.uid == "" { // not ours
		return
	}
	done := Off{Node: n.name, NodeSet: n.set, Request: o.request(), Why: o.why, UID: o.uid, Host: o.host, Times: o.times}
	done.Times.Finished = e.now
	if len(e.offHistory) == e.cfg.History {
		e.offHistory = slices.Delete(e.offHistory, 0, 1)
	}
	e.offHistory = append(e.offHistory, done)
}

func (o *off) request() string {
	if len(o.requests) == 0 {
		return ""
	}
	return o.requests[0].ID
}

// decideSettled looks for disagreement that no order explains, as after a restart.
func (e *Engine) decideSettled(n *node) {
	state := n.slurm.State
	switch {
	case n.read == 0:
	case n.pod != nil && state.Any(NodePoweringUp) && n.pod.Phase != PodTerminating:
		// A boot of before our restart goes on.
		n.boot = &boot{generation: n.pod.Generation, accepted: e.now, read: n.read - 1}
		n.boot.times.Requested, n.boot.times.Accepted = n.pod.Created, e.now
		e.activate(n)
		e.decideBoot(n)
	case !n.strayOK:
		if n.missing && n.stray() {
			e.note(Warn, n, "", "slurmctld knows no such node, but pod "+n.pod.UID+" serves it: if that stays so, it is removed")
		}
		if !n.strayAt.IsZero() {
			e.reads.wantComplete(n.strayAt.Add(e.cfg.Sightings))
		} else if n.stray() {
			e.reads.wantComplete(e.now.Add(e.cfg.Sightings))
		}
	case n.pod == nil:
		e.note(Warn, n, "", "Slurm powers the node up, but no request for it arrived: booting it")
		n.boot = &boot{generation: n.readAt.UnixNano(), accepted: e.now, read: n.read - 1}
		n.boot.times.Requested, n.boot.times.Accepted = e.now, e.now
		e.activate(n)
		e.decideBoot(n)
	default:
		shown := "a node that Slurm shows as " + state.String()
		if n.missing {
			shown = "a node that slurmctld does not know"
		}
		e.note(Warn, n, "", "pod "+n.pod.UID+" serves "+shown+": removing it")
		n.off = &off{kind: spool.KindSuspend, accepted: e.now, read: n.read - 1, why: "orphan"}
		n.off.times.Accepted = e.now
		e.activate(n)
		e.decideOff(n)
	}
}

// pause is the wait before try number tries+1.
func pause(tries int) time.Duration {
	return min(retryFirst<<min(tries, 10), retryMost)
}
