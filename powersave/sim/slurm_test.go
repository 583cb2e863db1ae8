package sim_test

import (
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// The model of slurmctld: power_save.c, and the parts of node_mgr.c that concern it.

const (
	suspendTime    = 25 * time.Second
	suspendTimeout = 20 * time.Second
	resumeTimeout  = 40 * time.Second
)

type slurm struct {
	nodes    [nodeCount]*node
	made     [nodeCount]node
	jobs     []*slurmJob
	toResume []*slurmJob
	gates    int
	spare    [][]powersave.SlurmNode // of reads that are over
}

type node struct {
	index                     int
	name                      string
	down                      bool
	flags                     powersave.NodeState
	reason                    string
	reasonAt                  time.Time
	bootReq, downReq, idle    time.Time
	boot                      time.Time // of the slurmd that registered last
	uid                       string    // its pod
	instance                  string    // slurmd's --instance-id
	goneSince, fineSince      time.Time
	goneAsked                 time.Time // a forced power-down was asked for while its slurmd was gone
	markSince                 time.Time
	since, changed, downSince time.Time
	drained                   time.Time
	looked                    time.Time // before it was put back
	invalid                   bool      // drained by slurmctld itself
	jobs                      []*slurmJob
	cleaning                  *slurmJob // requeued after ResumeTimeout, and its gate still runs
	epoch                     int       // counts power changes
	judged                    int       // the last epoch in which people had drained it
	unheard                   int       // the last epoch of which no program could tell
	pods                      int       // made in this epoch
	generation                int64     // of the newest pod
	crashes                   int       // of these, that ended by themselves, in the bridge's life crashLife
	crashLife                 int
	creating                  int // calls under way
	oddSince, emptySince      time.Time
	barredSince               time.Time // see patrolGone
	refusedAt                 time.Time // a pod was refused, and none made since
	refusedOn                 string    // the offering it was for
	users                     int       // jobs that had it in this epoch
	half                      *slurmJob // it booted for this job, which was given back
	halfSince                 time.Time
	halfLife                  int       // of the bridge
	halfKept                  bool      // a request says so still
	forgotten                 bool      // not in slurm.conf at present
	left                      time.Time // when that was so last
	more
}

func (s *slurm) init() {
	for i, name := range nodeNames {
		s.nodes[i] = &s.made[i]
		s.made[i] = node{index: i, name: name, flags: powersave.NodePoweredDown, epoch: 1, oddSince: start, goneSince: start, fineSince: start, markSince: start}
	}
}

// node finds a node by name; nil if slurmctld never had it.
func (s *slurm) node(name string) *node {
	switch {
	case len(name) == 2 && name[0] == 'n':
		return s.nodes[name[1]-'0']
	case name == nodeNames[farNode]:
		return s.nodes[farNode]
	}
	return nil
}

// ours tells the nodes that some NodeSet names.
func (n *node) ours() bool { return n.index != farNode }

// set is the index of the node's NodeSet.
func (n *node) set() int { return n.index / 4 }

func (n *node) serves() bool {
	return !n.flags.Any(powersave.NodePoweredDown | powersave.NodePoweringDown | powersave.NodePoweringUp)
}

// slots counts what jobs hold of a node; two are all.
func (n *node) slots() int {
	used := 0
	for _, j := range n.jobs {
		used += j.slots()
	}
	return used
}

// state is what slurmrestd shows. A job that is being requeued after ResumeTimeout counts until its PrologSlurmctld ended.
func (n *node) state() powersave.NodeState {
	base, used := powersave.NodeIdle, 0
	for _, j := range n.jobs {
		if j.completing {
			n.flags |= powersave.NodeCompleting
		} else {
			used += j.slots()
		}
	}
	switch {
	case n.cleaning != nil && n.cleaning.gate != 0, used == 1:
		base = powersave.NodeMixed
	case n.down:
		base = powersave.NodeDown
	case used > 1:
		base = powersave.NodeAllocated
	}
	return base | n.flags | powersave.NodeCloud
}

func (n *node) say(reason string, now time.Time) { n.reason, n.reasonAt = reason, now }

const notResponding = "Not responding"

// add is set_node_reason: slurmctld adds its own words to those of others.
func (n *node) add(reason string, now time.Time) {
	switch {
	case n.reason == "":
		n.say(reason, now)
	case !strings.Contains(n.reason, reason):
		n.say(n.reason+" : "+reason, now)
	}
}

// forget is what becomes of a reason that people take back. Only a node that goes up loses its reason, and an empty one is ignored
// (node_mgr.c update_node, clusteracct_storage_g_node_up). So who has spoken on a node that does not answer has to bring it back,
// and slurmctld finds it silent anew; that much is made short here.
func (n *node) forget(now time.Time) {
	if n.down && n.flags.Any(powersave.NodeNotResponding) {
		n.say(notResponding, now)
		return
	}
	n.say("", now)
}

// foreign says that somebody else has written the node's reason.
func (n *node) foreign() bool {
	return n.reason != "" && !strings.HasPrefix(n.reason, powersave.ReasonPrefix) && !strings.HasPrefix(n.reason, "ResumeTimeout reached") &&
		!strings.HasPrefix(n.reason, notResponding)
}

// taken says that somebody else has a say in what becomes of the node. A reason of ours may quote what stood on another node, in which
// nothing is divided as slurmctld does it.
func (n *node) taken() bool { return n.foreign() || strings.Contains(n.reason, " : "+prologFailed) }

func (w *world) turn(n *node, off, on powersave.NodeState) {
	n.flags = n.flags&^off | on
	n.epoch++
	n.pods, n.crashes = 0, 0
	if n.halfSince = w.now; on != 0 { // a node that comes up stays half a gang
		n.half = nil
	}
	if n.flags.Any(powersave.NodePoweringUp | powersave.NodePoweredDown) {
		n.users = len(n.jobs)
	}
	n.changed = w.now
	n.refusedAt = time.Time{}
	if w.out != nil {
		w.logf("%s is %s", n.name, n.state())
	}
}

func hostlist(nodes []*node) slurmconf.Hostlist {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.name
	}
	return slurmconf.NewHostlist(names...)
}

// second is a round of slurmctld's clockwork, and a look at what must not last.
func (w *world) second() {
	w.after(time.Second, w.each)
	if !w.any(slurmctldRestart) {
		w.schedJobs()
		w.power()
	}
	if w.anyWindows() {
		w.maintain()
		w.reserveNodes()
	}
	w.patrol()
	w.finishWhenAtRest()
}

// power is one round of power_save.c.
func (w *world) power() {
	var wake, sleep, failed []*node
	for _, j := range slices.Clone(w.toResume) {
		rest := false
		for _, n := range j.nodes {
			switch {
			case j.state != configuring || !n.flags.Any(powersave.NodePoweredDown) || slices.Contains(wake, n):
			case w.any(slices1) && len(wake) > 0:
				rest = true
			default:
				wake = append(wake, n)
			}
		}
		if !rest {
			w.toResume = slices.DeleteFunc(w.toResume, func(o *slurmJob) bool { return o == j })
		}
	}
	for _, n := range w.nodes {
		if n.flags.Has(powersave.NodePoweredDown|powersave.NodePowerUp) && !slices.Contains(wake, n) {
			wake = append(wake, n)
		}
		const busy = powersave.NodePoweringUp | powersave.NodePoweringDown
		idle := n.serves() && w.now.Sub(n.idle) > suspendTime && (!n.down || !w.leftDown)
		switch {
		case slices.Contains(wake, n):
			n.bootReq = w.now
			w.turn(n, powersave.NodePowerUp|powersave.NodePoweredDown, powersave.NodePoweringUp|powersave.NodeNotResponding)
		case len(n.jobs) == 0 && !n.flags.Any(busy) && (n.flags.Any(powersave.NodePowerDown) || idle):
			n.downReq = w.now
			if n.flags.Any(powersave.NodePowerDown) {
				n.flags &^= powersave.NodeDrain
			}
			w.turn(n, powersave.NodePowerDown|powersave.NodePoweredDown|powersave.NodeNotResponding, powersave.NodePoweringDown)
			sleep = append(sleep, n)
		case n.flags.Any(powersave.NodePoweringDown) && w.now.Sub(n.downReq) > suspendTimeout:
			w.turn(n, powersave.NodePoweringDown|powersave.NodeInvalidReg, powersave.NodePoweredDown)
			n.instance = ""
			if p := w.pods[n.index]; p != nil && w.some(2*time.Millisecond, reconfigure, n.index) > 0 {
				w.after(w.some(5*time.Second, reconfigure, n.index), func() { w.answerRegistration(p) }) // waiting_for_node_power_down ends
			}
		case n.flags.Any(powersave.NodePoweringUp) && w.now.Sub(n.bootReq) > resumeTimeout:
			w.timeout(n)
			failed = append(failed, n)
		}
	}
	w.program(spool.KindResume, wake)
	w.program(spool.KindSuspend, sleep)
	w.program(spool.KindResumeFail, failed)
	for _, n := range wake {
		if !n.ours() {
			w.after(5*time.Second, func() { w.register(n, "elsewhere", w.now) })
		}
	}
	for _, n := range w.nodes { // people bring nodes back
		if n.down && n.flags.Any(powersave.NodePoweredDown) && w.now.Sub(n.downSince) > 20*time.Second && !w.leavesDown(n) {
			n.down = false
			n.say("", w.now)
			if !w.on(drain, n.index) {
				n.flags &^= powersave.NodeDrain
			}
		}
		if n.invalid && !w.on(refused, n.index) {
			n.invalid = false
			n.flags &^= powersave.NodeInvalidReg | powersave.NodeDrain
			n.forget(w.now)
		}
	}
}

// timeout is what becomes of a node at ResumeTimeout.
func (w *world) timeout(n *node) {
	w.turn(n, powersave.NodePoweringUp|powersave.NodePowerDown|powersave.NodeDrain|powersave.NodeNotResponding, powersave.NodePoweredDown)
	n.down, n.downSince = true, w.now
	w.doubtAll(n) // what ResumeFailProgram tells counts, too
	n.say("ResumeTimeout reached", w.now)
	for _, j := range slices.Clone(n.jobs) {
		heard := j.state == configuring && n.ours() && w.knows(j) && w.engine != nil && w.lifeAt.Before(j.asked)
		w.kill(j, false)
		if heard {
			j.lateRun, j.lateLife = j.restarts, w.life
		}
		if j.gate != 0 {
			n.cleaning = j
		}
	}
}

// register is validate_node_specs: slurmctld ignores a slurmd that started before the power change.
func (w *world) register(n *node, uid string, started time.Time) {
	switch {
	case n.forgotten, w.any(slurmctldRestart),
		n.flags.Any(powersave.NodePoweringUp) && started.Unix() < n.bootReq.Unix(),
		n.flags.Any(powersave.NodePoweringDown) && started.Before(n.downReq.Add(suspendTimeout)):
		w.logf("slurmd %s of %s ignored", uid, n.name)
		return
	}
	if !n.serves() || n.uid != uid {
		p := w.pods[n.index]
		n.since, n.idle = w.now, w.now
		w.turn(n, powersave.NodePoweringUp|powersave.NodePoweringDown|powersave.NodePoweredDown, 0)
		if w.on(refused, n.index) {
			n.flags |= powersave.NodeInvalidReg | powersave.NodeDrain
			n.invalid, n.drained = true, w.now
			n.say(shortReason, w.now)
			w.findShort(n, uid)
			long := w.endOf(refused, n.index).Sub(w.now) > 2*time.Second // else it may be mended before the bridge sees it
			w.killAll(n, long && p != nil && w.now.Sub(p.Created) < resumeTimeout/2 && !n.flags.Any(powersave.NodePowerDown))
		} else if p != nil && p.UID == uid {
			p.taken = true
		}
	}
	n.boot, n.uid, n.instance, n.flags = started, uid, uid, n.flags&^powersave.NodeNotResponding
	if n.down { // ReturnToService=2
		if n.down = false; !n.flags.Any(powersave.NodeDrain) {
			n.say("", w.now)
		}
	}
}

func (w *world) answerRegistration(p *pod) {
	if w.pods[p.index] == p && p.alive() && !w.on(mute, p.index) && (!w.on(deaf, p.index) || w.nodes[p.index].uid != p.UID) {
		w.register(w.nodes[p.index], p.UID, p.started)
	}
}

// lost is slurmctld's view of a slurmd that answers no longer.
func (w *world) lost(n *node, uid string) {
	w.after(w.slurmdTimeout(), func() {
		if n.uid != uid || !n.serves() {
			return
		}
		n.uid = ""
		w.killAll(n, false)
		n.down, n.flags = true, n.flags|powersave.NodeNotResponding
		n.changed = w.now
		n.add(notResponding, w.now)
	})
}

// What slurmrestd is asked.

func (w *world) slurmFails() bool { return w.any(slurmAway) || w.any(slurmctldRestart) }

func (w *world) read(a powersave.ReadSlurm, life int) {
	if w.reading {
		w.breaks("two reads at once", "of %v", a.Nodes)
	}
	w.reading = true
	w.reads = append(w.reads, w.now)
	if i := len(w.reads) - 60; i >= 0 && w.now.Sub(w.reads[i]) < 10*time.Second {
		w.breaks("reads too often", "60 in %v", w.now.Sub(w.reads[i]))
	}
	if w.any(readFails) || w.slurmFails() {
		w.answerRead(life, w.some(5*time.Second, readFails, 0), powersave.SlurmReadFailed{Err: "slurmrestd is away"})
		return
	}
	w.after(w.delay(5*time.Millisecond, readSlow, 0, 4*time.Second), func() {
		ev := powersave.SlurmRead{Complete: len(a.Nodes) == 0}
		names := a.Nodes
		if ev.Complete {
			names = nodeNames[:]
		}
		if last := len(w.spare) - 1; last >= 0 {
			ev.Nodes, w.spare = w.spare[last], w.spare[:last]
		}
		for _, name := range names {
			n := w.node(name)
			switch {
			case n != nil && !n.forgotten && !w.any(readEmpty):
				ev.Nodes = append(ev.Nodes, powersave.SlurmNode{Name: name, State: n.state(), Reason: n.reason, BootTime: n.boot, InstanceID: n.instance})
			case !ev.Complete:
				ev.Unknown = append(ev.Unknown, name)
			}
		}
		w.answerRead(life, w.delay(5*time.Millisecond, readSlow, 1, 4*time.Second), ev)
	})
}

func (w *world) answerRead(life int, d time.Duration, ev powersave.Event) {
	if life != w.life {
		return
	}
	asked := w.reads[len(w.reads)-1]
	w.after(d, func() {
		if life == w.life {
			w.reading = false
			w.sighted(ev, asked)
			w.step(ev)
			if read, ok := ev.(powersave.SlurmRead); ok {
				w.spare = append(w.spare, read.Nodes[:0]) // the engine keeps none of it
			}
		}
	})
}

// slurmdGone says that there is no slurmd for what slurmctld has on the node, which it has not noticed.
func (w *world) slurmdGone(n *node) bool {
	p := w.pods[n.index]
	return n.serves() && (p == nil || !p.alive() || p.UID != n.uid)
}

// force is POWER_DOWN_FORCE: jobs are requeued or killed.
func (w *world) force(n *node, byUs bool) {
	if n.flags.Any(powersave.NodePoweringDown) {
		return
	}
	if w.slurmdGone(n) || w.now.Sub(n.goneAsked) <= updateTakes { // another that comes just now has the jobs of the one before it
		byUs = false // nothing is taken from anybody
	}
	if byUs {
		w.mayForce(n)
	}
	w.killAll(n, byUs)
	off := powersave.NodePowerUp | powersave.NodePoweringUp
	if w.old {
		off = powersave.NodePoweringUp
	}
	w.turn(n, off, powersave.NodePowerDown)
}

func (w *world) powerUp(n *node) {
	switch { // it does nothing to a node that is up or powering down
	case n.flags.Any(powersave.NodePoweringUp):
		n.flags |= powersave.NodePoweredDown | powersave.NodePowerUp
	case n.flags.Any(powersave.NodePoweredDown):
		n.flags |= powersave.NodePowerUp
	}
}

func (w *world) drain(n *node) {
	if n.flags.Any(powersave.NodePoweredDown | powersave.NodePoweringUp) {
		w.killAll(n, false)
	}
	n.flags |= powersave.NodeDrain
}
