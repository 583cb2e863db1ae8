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
	missing  bool      // slurmctld has no such node
	strayAt  time.Time // first complete read that showed the present disagreement
	strayOK  bool      // a second one confirmed it
	pod      *Pod
	deleting string // UID whose deletion Kubernetes has accepted or is being asked for
	goneUID  string // newest UID known to exist no longer
	delTries int
	delRetry time.Time

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
	creating   bool
	tries      int
	retryAt    time.Time
	problem    string
	times      Timeline
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
}

// Words of slurmctld's node state that decide. Sources: slurmctld power_save.c, node_mgr.c, job_mgr.c.
const (
	poweredOff = NodePoweredDown | NodePoweringDown
	inUse      = NodeAllocated | NodeMixed | NodeCompleting
	notServing = NodePoweredDown | NodePoweringDown | NodePoweringUp | NodePowerUp
	// A forced power-down shows POWER_DOWN alone for a moment, with POWERING_UP gone already.
	notBooted = notServing | NodePowerDown
)

// serving reports that slurmd has registered and no power change is under way.
func serving(s NodeState) bool { return !s.Any(notServing) && !s.Any(NodeFuture) }

// readSince reports whether a read later than the given one showed the node.
func (n *node) readSince(read int) bool { return n.read > read }

// see takes in what Slurm shows. Two complete reads, sightings apart, confirm a disagreement
// between Slurm and Kubernetes.
func (n *node) see(s SlurmNode, r *reads, complete bool, sightings time.Duration) {
	n.slurm, n.read, n.readAt, n.missing = s, r.count, r.asked, false
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

// vanish takes in that slurmctld has no such node.
func (n *node) vanish(r *reads) {
	n.slurm, n.read, n.readAt, n.missing = SlurmNode{Name: n.name}, r.count, r.asked, true
	n.strayAt, n.strayOK = time.Time{}, false
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
	case n.slurm.State.Any(poweredOff):
		return n.pod != nil && n.pod.Phase != PodTerminating
	}
	return false
}

// orderBoot makes req the node's newest order, unless a newer one stands.
func (e *Engine) orderBoot(n *node, req *request) {
	unsure := e.now.Sub(req.Started) > e.cfg.FreshFor || req.Started.After(e.now.Add(e.cfg.FreshFor))
	switch {
	case n.off != nil && n.off.newest() > req.Sequence:
		// A newer request already took the node down; only Slurm knows which one stands.
		unsure = true
		e.dropOff(n)
	case n.off != nil:
		e.dropOff(n)
	}
	if b := n.boot; b != nil {
		b.requests = append(b.requests, req)
		b.accepted, b.read, b.repeated, b.retryAt = e.now, e.reads.count, true, time.Time{}
		return
	}
	n.boot = &boot{generation: req.Sequence, requests: []*request{req}, accepted: e.now, read: e.reads.count, unsure: unsure}
	n.boot.times.Requested, n.boot.times.Accepted = req.Started, e.now
	e.activate(n)
}

// orderOff makes req the node's newest order, unless a newer boot stands.
func (e *Engine) orderOff(n *node, req *request) {
	if b := n.boot; b != nil {
		if b.generation > req.Sequence {
			e.do(Report{Level: Info, Node: n.name, NodeSet: n.set, Request: req.ID,
				Text: fmt.Sprintf("%s from before the present boot ignored", req.Kind)})
			e.settled(req)
			return
		}
	}
	if o := n.off; o != nil {
		o.requests = append(o.requests, req)
		o.accepted, o.read, o.confirmed, o.updated, o.kind = e.now, e.reads.count, false, false, req.Kind
		return
	}
	n.off = &off{kind: req.Kind, requests: []*request{req}, accepted: e.now, read: e.reads.count, why: string(req.Kind)}
	e.activate(n)
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

func (e *Engine) dropBoot(n *node) {
	requests := n.boot.requests
	n.boot = nil
	e.forget(n)
	for _, r := range requests {
		e.settled(r)
	}
}

// failBoot ends a boot that came to nothing; who waits for the node need not wait longer.
func (e *Engine) failBoot(n *node) {
	e.dropBoot(n)
	e.failGates(n)
}

// forget removes the node from the gangs that waited for it.
func (e *Engine) forget(n *node) {
	for _, id := range n.jobs {
		if g := e.gangs[id]; g != nil {
			g.nodes = slices.DeleteFunc(g.nodes, func(name string) bool { return name == n.name })
			if len(g.nodes) == 0 {
				delete(e.gangs, id)
			}
		}
	}
	n.jobs = nil
}

// decide looks at one node and asks for the next thing it needs.
func (e *Engine) decide(n *node) {
	switch {
	case n.off != nil: // also while a boot it may end is in hand
		e.decideOff(n)
	case n.boot != nil:
		e.decideBoot(n)
	default:
		e.decideSettled(n)
	}
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
		case serving(state) && !state.Any(notBooted):
			e.bootDone(n)
			return
		case state.Any(poweredOff) && !state.Any(NodePoweringUp|NodePowerUp):
			// Slurm gave the boot up. A pod that exists is left to the two sightings of an orphan.
			e.note(Info, n, b.request(), "Slurm shows "+state.String()+": the boot is given up")
			e.failBoot(n)
			e.decideSettled(n)
			return
		case state.Any(NodePoweringUp):
			b.unsure = false
		}
	}
	if n.pod == nil {
		e.create(n)
		return
	}
	b.observe(n.pod, e.now)
	switch {
	case n.pod.Phase == PodTerminating:
		b.problem = "waiting for the pod of an earlier boot to go"
	case n.pod.Generation < b.generation:
		// Its slurmd started before this power-up: slurmctld would ignore it.
		b.problem = "replacing the pod of an earlier boot"
		if n.readSince(b.read) {
			e.delete(n, "pod belongs to an earlier boot")
		} else {
			e.reads.want(e.now)
		}
	case n.pod.Phase == PodFailed:
		b.problem = strings.TrimSpace(n.pod.Reason + " " + n.pod.Message)
		e.note(Warn, n, b.request(), "pod failed: "+b.problem)
		e.delete(n, "pod failed: "+n.pod.Reason)
	case b.repeated && b.times.Running.Before(b.accepted) && !b.times.Running.IsZero() &&
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
	case b.creating:
		return
	case !e.podsRead || !e.setsRead:
		return // both lists come right after the start
	case b.unsure:
		e.reads.want(e.now)
		return
	case n.set == "":
		b.problem = "no NodeSet names this node"
		e.note(Fault, n, b.request(), b.problem+": create one whose spec.nodeNames holds it, or take the node out of slurm.conf")
		return
	case e.sets[n.set].Problem != "":
		b.problem = e.sets[n.set].Problem
		e.note(Fault, n, b.request(), b.problem)
		return
	case b.retryAt.After(e.now):
		e.wakeAt(n, b.retryAt)
		return
	}
	b.creating = true
	if b.times.Asked.IsZero() {
		b.times.Asked = e.now
	}
	e.do(CreatePod{Node: n.name, NodeSet: n.set, Generation: b.generation, Request: b.request()})
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
	e.do(DeletePod{Node: n.name, UID: n.pod.UID, Why: why})
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
	e.dropBoot(n)
}

func (e *Engine) decideOff(n *node) {
	o := n.off
	if !o.confirmed {
		if !n.readSince(o.read) {
			e.reads.want(e.now)
			return
		}
		state := n.slurm.State
		switch {
		case n.missing:
		case state.Any(NodePoweringUp), !state.Any(poweredOff | NodePowerDown | NodeDown):
			e.note(Info, n, o.request(), fmt.Sprintf("%s ignored: Slurm shows %s", o.kind, state))
			e.dropOff(n)
			e.decide(n)
			return
		case o.kind == spool.KindResumeFail:
			// No slurmd registered, so no job runs; yet Slurm counts the one that is being
			// requeued as on the node until its PrologSlurmctld has ended.
			if !state.Any(poweredOff | NodeDown) {
				return
			}
		case !state.Any(poweredOff) || state.Any(inUse):
			return // POWER_DOWN of a busy node, or a job just ending: look again
		}
		o.confirmed = true
		if n.boot != nil { // Slurm has ended it
			o.why = "boot failed: " + n.boot.story(n.pod)
			e.failBoot(n)
		}
	}
	if n.pod != nil {
		e.delete(n, o.why)
		return
	}
	if o.updated || !o.needsUpdate(n) {
		e.dropOff(n)
		e.decideSettled(n)
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

func (o *off) request() string {
	if len(o.requests) == 0 {
		return ""
	}
	return o.requests[0].ID
}

// needsUpdate says whether Slurm has to be told something once the pod is gone.
func (o *off) needsUpdate(n *node) bool {
	if n.missing {
		return false
	}
	if o.kind == spool.KindResumeFail {
		// slurmctld's own words; anything else was written by someone who knows more.
		return strings.HasPrefix(n.slurm.Reason, "ResumeTimeout reached")
	}
	return n.slurm.State.Any(NodePoweringDown)
}

// free sends the batched updates when their time has come.
func (e *Engine) free() {
	if len(e.freeable) == 0 || e.freeAt.After(e.now) {
		return
	}
	var names []string
	for _, n := range e.freeable {
		if n.off.kind == spool.KindResumeFail {
			e.do(UpdateNodes{NodeUpdate{Nodes: []string{n.name}, Reason: ReasonPrefix + n.off.why}})
			continue
		}
		names = append(names, n.name)
	}
	if len(names) > 0 {
		e.do(UpdateNodes{NodeUpdate{Nodes: names, State: StateResume}})
	}
	e.freeable = nil
}

// ReasonPrefix marks every node reason that Slurmtide writes; others are never overwritten.
const ReasonPrefix = "slurmtide: "

func (e *Engine) nodesUpdated(ev NodesUpdated) {
	for _, name := range ev.Update.Nodes {
		n := e.nodes[name]
		if n == nil || n.off == nil || !n.off.updating {
			continue
		}
		o := n.off
		o.updating = false
		if ev.Err == "" {
			o.updated = true
			e.reads.want(e.now.Add(e.cfg.PollSlow))
		} else {
			// Not vital: SuspendTimeout frees the name as well. Look at Slurm again, then retry.
			e.note(Warn, n, o.request(), ev.Update.String()+" failed: "+ev.Err)
			o.retryAt = e.now.Add(pause(o.tries))
			o.tries++
			o.updated = o.tries >= 5
			e.reads.want(e.now)
		}
		e.decide(n)
	}
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
		if !n.strayAt.IsZero() {
			e.reads.wantComplete(n.strayAt.Add(e.cfg.Sightings))
		}
	case n.pod == nil:
		e.note(Warn, n, "", "Slurm powers the node up, but no request for it arrived: booting it")
		n.boot = &boot{generation: e.now.UnixNano(), accepted: e.now, read: n.read - 1}
		n.boot.times.Requested, n.boot.times.Accepted = e.now, e.now
		e.activate(n)
		e.decideBoot(n)
	default:
		e.note(Warn, n, "", "pod "+n.pod.UID+" serves a node that Slurm shows as "+state.String()+": removing it")
		n.off = &off{kind: spool.KindSuspend, accepted: e.now, read: n.read - 1, why: "orphan"}
		e.activate(n)
		e.decideOff(n)
	}
}

// pause is the wait before try number tries+1.
func pause(tries int) time.Duration {
	return min(retryFirst<<min(tries, 10), retryMost)
}
