package powersave

import (
	"time"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// node holds the facts about one node and the order in hand.
type node struct {
	name string
	set  string   // NodeSet that owns it; "" if none does
	was  string   // NodeSet that named it last, if none does now; set is that, too, while it boots
	jobs []uint32 // gangs that wait for it
	// owner is what set is to be, while NodeSets are read.
	owner string
	// upFor are the jobs that it was powered up for last.
	upFor           []uint32
	upAsked, upSeen time.Time // when that was asked for last, and seen to be over

	slurm      SlurmNode
	read       int       // number of the read that showed it; 0: none has
	readAt     time.Time // when that read was asked for
	seenAt     time.Time // when it was answered
	missing    bool      // slurmctld has no such node, says a complete read
	unknown    int       // newest read of some nodes that said so
	strayAt    time.Time // first complete read that showed the present disagreement
	strayOK    bool      // a second one confirmed it
	pod        *Pod
	podRead    int    // reads asked for before pod was first seen
	deleting   string // UID whose deletion Kubernetes has accepted or is being asked for
	goneUID    string // newest UID known to exist no longer
	delTries   int
	delRetry   time.Time
	creating   bool    // CreatePod is not answered yet
	making     string  // its offering
	makingRoom bool    // and whether it is to use room of its job
	forces     int     // updates of sendReleases that are not answered yet
	closing    bool    // an update of closeSets is under way
	closed     closing // it alone cannot boot for now
	badHome    string  // what speaks against the host it is pinned to
	care       care
	warm       warm
	believe    int    // only reads asked for after this many tell the truth: slurmctld has changed the node since
	failed     string // how far the boot came that was given up last
	dismissal  *dismissal
	forcedAt   time.Time // newest update of sendReleases
	gated      int       // reads asked for before the newest gate of a job that has it came
	gatedAt    time.Time // when that was
	gatedBy    []uint32  // and whose gates came since its last boot

	boot *boot
	off  *off

	active bool
	wakeAt time.Time
	noted  string
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

// actOn is how long ago a read may have been answered for a pod to be deleted, or a name freed, by it:
// a slurmd that outlives SuspendTimeout can come back into service.
const actOn = 5 * time.Second

// clockSkew is how far the clocks of Kubernetes' nodes and control plane may be apart.
const clockSkew = 2 * time.Second

// readSince reports whether a read later than the given one showed the node.
func (n *node) readSince(read int) bool { return n.read > read }

// see takes in what Slurm shows; false: slurmctld has changed the node since. Two complete reads, sightings apart, confirm a
// disagreement between Slurm and Kubernetes.
func (n *node) see(s SlurmNode, r *reads, complete bool, sightings time.Duration) bool {
	if r.count <= n.believe {
		return false
	}
	n.slurm, n.read, n.readAt, n.seenAt, n.missing = s, r.count, r.asked, r.ended, false
	n.sight(r, complete, sightings)
	return true
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
	case n.missing, n.slurm.State.Any(poweredOff | NodeFuture):
		return n.pod != nil && n.pod.Phase != PodTerminating
	}
	return false
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

// decide looks at one node and asks for the next thing it needs.
func (e *Engine) decide(n *node) {
	if !e.podsRead || !e.setsRead { // what has not been read must not be taken for absent
		return
	}
	e.reopen(n)
	e.judgeHome(n)
	switch {
	case n.off != nil: // also while a boot it may end is in hand
		e.decideOff(n)
	case n.boot != nil:
		e.decideBoot(n)
	default:
		e.decideSettled(n)
	}
	e.tend(n)
	e.mark(n)
	e.blame(n)
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

// decideSettled looks for disagreement that no order explains, as after a restart.
func (e *Engine) decideSettled(n *node) {
	state := n.slurm.State
	switch {
	case n.read == 0, !e.leading:
	case n.pod != nil && state.Any(NodePoweringUp) && n.pod.Phase != PodTerminating && n.deleting != n.pod.UID:
		// A boot of before our restart goes on, or one of another bridge.
		n.boot = &boot{generation: n.pod.Generation, accepted: e.now, read: n.read - 1, foreign: n.pod.Request != "", resumeTimeout: e.resumeTimeout}
		n.boot.times.Requested, n.boot.times.Accepted = n.pod.Created, e.now
		e.activate(n)
		e.joinGates()
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
	case n.pod == nil && e.othersWait(n):
	case n.pod == nil:
		e.note(Warn, n, "", "Slurm powers the node up, but no request for it arrived: booting it")
		n.boot = &boot{generation: n.readAt.UnixNano(), accepted: e.now, read: n.read - 1, resumeTimeout: e.resumeTimeout, clearAt: e.now}
		n.boot.times.Requested, n.boot.times.Accepted = e.now, e.now
		e.activate(n)
		e.joinGates()
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
