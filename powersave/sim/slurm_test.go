package sim_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// The model of slurmctld: power_save.c, and the parts of node_mgr.c that concern it.

const (
	suspendTime    = 20 * time.Second
	suspendTimeout = 30 * time.Second
	resumeTimeout  = 60 * time.Second
)

type slurm struct {
	nodes    map[string]*node
	names    []string // of nodes, sorted
	jobs     []*job
	toResume []*job
}

type node struct {
	name                      string
	base, flags               powersave.NodeState
	reason                    string
	bootReq, downReq, idle    time.Time
	boot                      time.Time // of the slurmd that registered last
	uid                       string    // its pod
	since, changed, downSince time.Time
	drained                   time.Time
	job                       *job
	epoch                     int // counts power changes
	pods                      int // made in this epoch
	creating                  int // calls under way
	oddSince                  time.Time
	forgotten                 bool      // not in slurm.conf at present
	left                      time.Time // when that was so last
}

type job struct {
	id             uint32
	nodes          []*node
	gate           uint64 // waiting start gate, 0: none
	asked, upSince time.Time
	started, ended bool
}

func (s *slurm) init() {
	s.nodes = map[string]*node{}
	for _, name := range []string{"far", "n0", "n1", "n2", "n3", "n4", "n5"} {
		s.names = append(s.names, name)
		s.nodes[name] = &node{name: name, base: powersave.NodeIdle, flags: powersave.NodePoweredDown}
	}
}

// ours tells the nodes that some NodeSet names.
func (n *node) ours() bool { return n.name != "far" }

func (n *node) serves() bool {
	return !n.flags.Any(powersave.NodePoweredDown | powersave.NodePoweringDown | powersave.NodePoweringUp)
}

// state is what slurmrestd shows. A job that is being requeued counts until its PrologSlurmctld ended.
func (n *node) state() powersave.NodeState {
	base := n.base
	if base != powersave.NodeAllocated && n.job != nil && n.job.gate != 0 {
		base = powersave.NodeMixed
	}
	return base | n.flags | powersave.NodeCloud
}

func (n *node) turn(off, on powersave.NodeState, w *world) {
	n.flags = n.flags&^off | on
	n.epoch++
	n.pods = 0
	n.changed = w.now
	w.logf("%s is %s", n.name, n.state())
}

func hostlist(nodes []*node) slurmconf.Hostlist {
	var names []string
	for _, n := range nodes {
		names = append(names, n.name)
	}
	return slurmconf.NewHostlist(names...)
}

// submit allocates nodes to a job, as far as some are free.
func (w *world) submit() {
	j := &job{id: uint32(len(w.jobs) + 1)}
	want, down, pdoi := 1+w.IntN(3), false, w.chance(0.1)
	for _, i := range w.Perm(len(w.names)) {
		n := w.nodes[w.names[i]]
		const hinder = powersave.NodePoweringDown | powersave.NodePowerDown | powersave.NodeDrain | powersave.NodePowerUp | powersave.NodeNotResponding
		if len(j.nodes) == want || n.forgotten || n.base != powersave.NodeIdle || n.job != nil || n.flags.Any(hinder) || n.name == "far" && w.IntN(4) > 0 {
			continue
		}
		n.job, n.base, n.changed, n.reason = j, powersave.NodeAllocated, w.now, ""
		if pdoi {
			n.flags |= powersave.NodePowerDown // a partition with PowerDownOnIdle
		}
		down = down || !n.serves()
		j.nodes = append(j.nodes, n)
	}
	if len(j.nodes) == 0 {
		return
	}
	w.jobs = append(w.jobs, j)
	w.logf("job %d on %s", j.id, hostlist(j.nodes))
	if down {
		w.toResume = append(w.toResume, j)
	}
	w.after(w.delay(20*time.Millisecond, 5*time.Second), func() { // start-gate
		if w.engine == nil || j.ended {
			return
		}
		w.gateID++
		j.gate, j.asked, j.upSince = uint64(w.gateID), w.now, w.now
		w.step(powersave.GateOpened{ID: j.gate, JobID: j.id, Nodes: hostlist(j.nodes), Deadline: w.now.Add(w.upTo(100 * time.Second))})
	})
}

func (w *world) end(j *job) {
	if j.ended {
		return
	}
	w.logf("job %d ends", j.id)
	j.ended = true
	for _, n := range j.nodes {
		if n.base == powersave.NodeAllocated {
			n.base = powersave.NodeIdle
		}
		n.idle, n.changed = w.now, w.now
		if j.gate == 0 {
			n.job = nil
			continue
		}
		n.flags |= powersave.NodeCompleting
	}
}

// power is one round of power_save.c, once a second.
func (w *world) power() {
	w.after(time.Second, w.power)
	w.schedule()
	var wake, sleep, failed []*node
	for _, j := range slices.Clone(w.toResume) {
		rest := false
		for _, n := range j.nodes {
			if j.ended || !n.flags.Any(powersave.NodePoweredDown) {
				continue
			}
			if w.chance(0.2) {
				rest = true // ResumeRate: a later slice
				continue
			}
			wake = append(wake, n)
		}
		if !rest {
			w.toResume = slices.DeleteFunc(w.toResume, func(o *job) bool { return o == j })
		}
	}
	for _, name := range w.names {
		n := w.nodes[name]
		if n.flags.Has(powersave.NodePoweredDown|powersave.NodePowerUp) && !slices.Contains(wake, n) {
			wake = append(wake, n)
		}
		const busy = powersave.NodePoweringUp | powersave.NodePoweringDown | powersave.NodeCompleting
		idle := n.serves() && w.now.Sub(n.idle) > suspendTime
		switch {
		case slices.Contains(wake, n):
			n.bootReq = w.now
			n.turn(powersave.NodePowerUp|powersave.NodePoweredDown, powersave.NodePoweringUp, w)
		case n.base != powersave.NodeAllocated && !n.flags.Any(busy) && (n.flags.Any(powersave.NodePowerDown) || idle):
			n.downReq = w.now
			if n.flags.Any(powersave.NodePowerDown) {
				n.flags &^= powersave.NodeDrain
			}
			n.turn(powersave.NodePowerDown|powersave.NodePoweredDown|powersave.NodeNotResponding, powersave.NodePoweringDown, w)
			sleep = append(sleep, n)
		case n.flags.Any(powersave.NodePoweringDown) && w.now.Sub(n.downReq) > suspendTimeout:
			n.turn(powersave.NodePoweringDown, powersave.NodePoweredDown, w)
			if p := w.pods[n.name]; p != nil && w.chance(0.5) {
				w.after(w.upTo(5*time.Second), func() { w.answerRegistration(p) }) // waiting_for_node_power_down ends
			}
		case n.flags.Any(powersave.NodePoweringUp) && w.now.Sub(n.bootReq) > resumeTimeout:
			n.turn(powersave.NodePoweringUp|powersave.NodePowerDown|powersave.NodeDrain, powersave.NodePoweredDown, w)
			n.base, n.reason, n.downSince = powersave.NodeDown, "ResumeTimeout reached", w.now
			if n.job != nil {
				w.end(n.job)
			}
			failed = append(failed, n)
		}
	}
	w.program(spool.KindResume, wake)
	if w.chance(0.05) {
		w.program(spool.KindResume, wake)
	}
	w.program(spool.KindSuspend, sleep)
	w.program(spool.KindResumeFail, failed)
	for _, n := range wake {
		if !n.ours() {
			w.after(5*time.Second, func() { w.register(n, "elsewhere", w.now) })
		}
	}
}

// schedule starts and ends jobs and returns nodes to service, as users and administrators would.
func (w *world) schedule() {
	for _, j := range w.jobs {
		if j.ended && j.gate == 0 {
			for _, n := range j.nodes {
				if n.job == j {
					n.job, n.flags = nil, n.flags&^powersave.NodeCompleting
				}
			}
		}
		if j.started || j.ended {
			continue
		}
		up := true
		for _, n := range j.nodes {
			up = up && n.serves()
		}
		if up {
			j.started = true
			w.after(3*time.Second+w.upTo(30*time.Second), func() { w.end(j) })
		}
	}
	for _, name := range w.names {
		n := w.nodes[name]
		if n.base == powersave.NodeDown && n.flags.Any(powersave.NodePoweredDown) && w.now.Sub(n.downSince) > 20*time.Second {
			n.base, n.reason = powersave.NodeIdle, ""
		}
	}
}

// interfere is an administrator, or the fault of a node.
func (w *world) interfere() {
	n := w.nodes[w.names[w.IntN(len(w.names))]]
	for range 3 { // rather one that is booting
		if !n.flags.Any(powersave.NodePoweringUp) {
			n = w.nodes[w.names[w.IntN(len(w.names))]]
		}
	}
	if n.forgotten {
		return
	}
	switch w.IntN(9) {
	case 0: // scontrol power down force
		if n.flags.Any(powersave.NodePoweringDown) {
			return
		}
		if n.job != nil {
			w.end(n.job)
		}
		n.turn(powersave.NodePowerUp|powersave.NodePoweringUp, powersave.NodePowerDown, w)
	case 1: // scontrol power down
		if !n.flags.Any(powersave.NodePoweringDown) {
			n.flags |= powersave.NodePowerDown
		}
	case 2: // scontrol power up; it does nothing to a node that is up or powering down
		switch {
		case n.flags.Any(powersave.NodePoweringUp):
			n.flags |= powersave.NodePoweredDown | powersave.NodePowerUp
		case n.flags.Any(powersave.NodePoweredDown):
			n.flags |= powersave.NodePowerUp
		}
	case 3:
		n.flags, n.drained = n.flags|powersave.NodeDrain, w.now
		w.after(w.upTo(60*time.Second), func() { n.flags &^= powersave.NodeDrain })
	case 4, 5: // scontrol reconfigure: every slurmd registers anew
		for _, name := range w.names {
			if p := w.pods[name]; p != nil {
				w.answerRegistration(p)
			}
		}
	case 6: // the pod dies
		if p := w.pods[n.name]; p != nil && p.Phase != powersave.PodTerminating {
			w.fail(p, "Evicted")
		}
	case 7: // NodeSet b goes and comes back
		w.setB, w.setGone = false, true
		w.tellSets(0)
		w.after(w.upTo(20*time.Second), func() { w.setB = true; w.tellSets(max(0, w.setsAt.Sub(w.now))) })
	case 8: // the node leaves slurm.conf, and mostly comes back
		if n.job != nil {
			w.end(n.job)
		}
		n.base, n.reason, n.uid, n.forgotten, n.left = powersave.NodeIdle, "", "", true, w.now
		n.turn(^powersave.NodeState(0), powersave.NodePoweredDown, w)
		if w.IntN(4) > 0 {
			w.after(w.upTo(60*time.Second), func() { n.forgotten = false; n.turn(0, 0, w) })
		}
	}
	w.logf("somebody interfered: %s is %s", n.name, n.state())
}

// register is validate_node_specs: slurmctld ignores a slurmd that started before the power change.
func (w *world) register(n *node, uid string, started time.Time) {
	switch {
	case n.forgotten,
		n.flags.Any(powersave.NodePoweringUp) && started.Unix() < n.bootReq.Unix(),
		n.flags.Any(powersave.NodePoweringDown) && started.Before(n.downReq.Add(suspendTimeout)):
		w.logf("slurmd %s of %s ignored", uid, n.name)
		return
	}
	if !n.serves() || n.uid != uid {
		n.since, n.idle = w.now, w.now
		n.turn(powersave.NodePoweringUp|powersave.NodePoweringDown|powersave.NodePoweredDown, 0, w)
	}
	n.boot, n.uid, n.flags = started, uid, n.flags&^powersave.NodeNotResponding
	if n.base == powersave.NodeDown {
		n.base = powersave.NodeIdle // ReturnToService=2
	}
}

func (w *world) answerRegistration(p *pod) {
	if w.pods[p.Node] == p && p.alive() {
		w.register(w.nodes[p.Node], p.UID, p.started)
	}
}

// lost is slurmctld's view of a slurmd that answers no longer.
func (w *world) lost(n *node, uid string) {
	w.after(10*time.Second, func() {
		if n.uid != uid || !n.serves() {
			return
		}
		n.uid = ""
		if n.job != nil {
			w.end(n.job)
		}
		n.base, n.flags = powersave.NodeDown, n.flags|powersave.NodeNotResponding
	})
}

func (w *world) read(a powersave.ReadSlurm, tell teller) {
	w.reads = append(w.reads, w.now)
	if i := len(w.reads) - 150; i >= 0 && w.now.Sub(w.reads[i]) < 10*time.Second {
		w.breaks("reads too often", "150 in %v", w.now.Sub(w.reads[i]))
	}
	if w.chance(0.05) || w.now.Before(w.slurmAway) {
		tell(w.upTo(10*time.Second), powersave.SlurmReadFailed{Err: "slurmrestd is away"})
		return
	}
	before, behind := w.delay(5*time.Millisecond, 5*time.Second), w.delay(5*time.Millisecond, 5*time.Second)
	w.after(before, func() {
		ev := powersave.SlurmRead{Complete: len(a.Nodes) == 0}
		names := a.Nodes
		if ev.Complete {
			names = w.names
		}
		empty := w.chance(0.02) // an answer without nodes
		for _, name := range names {
			n := w.nodes[name]
			if n == nil || n.forgotten || empty {
				if ev.Complete {
					continue
				}
				ev.Unknown = append(ev.Unknown, name)
				continue
			}
			ev.Nodes = append(ev.Nodes, powersave.SlurmNode{Name: name, State: n.state(), Reason: n.reason, BootTime: n.boot})
		}
		tell(behind, ev)
	})
}

// update is update_node: resume clears DRAIN, and takes a node that is DOWN back.
func (w *world) update(u powersave.NodeUpdate, tell teller) {
	lost := w.chance(0.1) || w.now.Before(w.slurmAway)
	answer := powersave.NodesUpdated{Update: u}
	if lost {
		answer.Err = "timeout"
	}
	if !lost || w.IntN(2) == 0 {
		for _, name := range u.Nodes {
			n := w.nodes[name]
			switch {
			case n.forgotten:
				answer.Err = "unknown node " + name
			case !n.ours():
				w.breaks("touches a foreign node", "%s", name)
			case u.State != powersave.StateResume:
				n.reason = u.Reason
			case n.flags.Any(powersave.NodeDrain) && w.now.Sub(n.drained) > stale:
				w.breaks("undrains a node", "%s, which is %s", name, n.state())
			case n.flags.Any(powersave.NodePoweringDown):
				if n.creating > 0 {
					w.breaks("frees a name that a pod is being made for", "%s", name)
				}
				if p := w.pods[name]; p != nil && p.alive() && w.now.Sub(p.Created) > stale {
					w.breaks("frees the name of a living pod", "%s, pod %s", name, p.UID)
				}
				n.turn(powersave.NodePoweringDown, powersave.NodePoweredDown, w)
			default:
				answer.Err = fmt.Sprintf("invalid transition of %s from %s", name, n.state())
			}
		}
	}
	tell(w.delay(5*time.Millisecond, 5*time.Second), answer)
}
