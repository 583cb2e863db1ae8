package powersave

import (
	"cmp"
	"strings"
	"time"
)

// HostsRead is the complete list of hosts.
type HostsRead struct{ Hosts []Host }

// HostSeen is the newest state of one host.
type HostSeen struct{ Host Host }

// HostsUnread says that hosts cannot be read, and why. The Engine goes on without them.
type HostsUnread struct{ Err string }

// JobsLost says that a node is powered down with jobs on it, and why. Slurm requeues them, or ends those that may not be requeued.
type JobsLost struct{ Node, NodeSet, Why string }

func (JobsLost) action()   {}
func (HostsRead) event()   {}
func (HostSeen) event()    {}
func (HostsUnread) event() {}

// care is what is done for a node whose host or pod is in trouble.
type care struct {
	served bool // a pod of ours has served the node since it was powered up
	// unwanted: it is to go when its host answers again, see putOff
	unwanted bool
	lostAt   time.Time   // when it was first found without one
	downAt   time.Time   // see heal
	update   *NodeUpdate // under way
	retryAt  time.Time
	why      string    // what the trouble is
	whyRead  int       // reads asked for before it was seen
	marking  string    // UID of the pod that is being marked
	markAt   time.Time // when it may be tried again
	note     string    // reason that the node had without being drained
	early    string    // verdict that stood before the pod served
	sound    string    // UID of the pod whose slurmd has served without complaint
	blamed   string    // UID and reason that the host was marked for
	replace  bool      // its pod is to be replaced, see keepUpdates
	reserved bool      // it is in maintenance since an update wants that
	leavesBy time.Time // powered down, it has left the reservation by then
}

func (e *Engine) readHosts(hosts []Host) {
	for _, name := range e.hosts.TakeAll(e.now, hosts, e.hostsInUse()) {
		e.hostChanged(name)
	}
	if e.hostsRead {
		return
	}
	e.hostsRead, e.closedAgain = true, true
	for _, n := range e.all() { // some may have waited to be put back
		if n.drainedHere() {
			e.decide(n)
		}
	}
}

// hostsInUse names the hosts of all pods, and those of pinned nodes.
func (e *Engine) hostsInUse() map[string]bool {
	hosts := map[string]bool{}
	for _, n := range e.all() {
		if n.pod != nil && n.pod.Host != "" {
			hosts[n.pod.Host] = true
		}
		if own := e.home(n); own != "" {
			hosts[own] = true
		}
	}
	return hosts
}

func (e *Engine) seeHost(h Host) {
	if !e.hosts.Take(e.now, h) {
		return
	}
	if h.Trouble == HostGone {
		e.hosts.Forget(e.hostsInUse())
	}
	e.hostChanged(h.Name)
}

// hostChanged looks at the nodes on a host, and at one that is pinned to it.
func (e *Engine) hostChanged(name string) {
	for _, n := range e.all() {
		if n.pod != nil && n.pod.Host == name || e.home(n) == name {
			e.decide(n)
		}
	}
}

// home is the host of a pinned node, whether it has a pod or not; "" for others.
func (e *Engine) home(n *node) string {
	if !e.sets[n.set].Pinned {
		return ""
	}
	return n.name + e.sets[n.set].HostSuffix
}

// judgeHome notes what speaks against the host of a pinned node. No other takes its pod: without one, it is to stay out of Slurm's choice.
func (e *Engine) judgeHome(n *node) {
	why, until := "", time.Time{}
	if own := e.home(n); own != "" {
		drained := n.slurm.State.Any(NodeDrain) && (n.slurm.DrainedForHost() || n.slurm.drainedFor(closedPrefix))
		why, until = e.hosts.JudgeOwn(e.now, own, drained)
	}
	if !until.IsZero() {
		e.wakeAt(n, until)
	}
	if why == n.badHome {
		return
	}
	if n.badHome, e.closedAgain = why, true; why == "" && n.closed.pod == "" { // it may be what boots failed of
		n.closed = closing{}
	}
}

// hostKnown says that whatever speaks against the own host of a pinned node is known, or that nobody will tell.
func (e *Engine) hostKnown(n *node) bool {
	return e.hostsRead || e.hostsDenied || !e.sets[n.set].Pinned
}

// troubled says why no new job should come to the node, be it that its pod is to be replaced, "" if nothing speaks against it. leave: nor
// should the pod stay when its jobs have ended; one on a silent host stays, though it is being deleted: nobody could confirm that it ends.
func (e *Engine) troubled(n *node) (why string, leave bool) {
	switch {
	case n.pod == nil, n.pod.Phase == PodFailed:
		if n.care.served && serving(n.slurm.State) && !n.creating { // else who was asked for it has not answered yet
			if n.works() && strings.HasPrefix(n.slurm.Reason, HostPrefix+leaving) {
				return "the node's pod was deleted, and jobs had not ended in time", false
			}
			return "the node's pod is gone", false
		}
		return "", false
	case n.pod.Phase == PodTerminating:
		return n.pod.Leaving(), !e.hosts.Silent(n.pod.Host)
	}
	why, leave, until := e.hosts.Judge(e.now, n.pod.Host, n.slurm.State.Any(NodeDrain) && n.slurm.DrainedForHost())
	if !until.IsZero() {
		e.wakeAt(n, until)
	}
	if why == "" && e.replaces(n) {
		return updating + "revision " + cmp.Or(n.pod.Revision, "unknown") + " is replaced when idle", true
	}
	return why, leave
}

// drainReason is what a node says that is drained, or powered down, because it is troubled.
func drainReason(why string) string {
	if strings.HasPrefix(why, updating) {
		return ReasonPrefix + why
	}
	return HostPrefix + why
}

// works says that Slurm counts jobs on the node that are not just ending.
func (n *node) works() bool { return n.slurm.State.Any(NodeAllocated | NodeMixed) }

// tend keeps new jobs off a node whose host or pod is in trouble, and puts it back when that is over. Jobs run on.
// Boots are left to their verdicts: draining a node that is powering up requeues its jobs (node_mgr.c update_node).
func (e *Engine) tend(n *node) {
	c := &n.care
	if !e.leading {
		return
	}
	if !n.tended() || n.read == 0 || n.missing || n.boot != nil || n.off != nil {
		c.lostAt, c.downAt = time.Time{}, time.Time{}
		if n.boot != nil {
			c.served, c.unwanted = false, false
		}
		return
	}
	state := n.slurm.State
	alive, drained := n.alive(), n.drainedHere()
	c.unwanted = c.unwanted && drained
	switch {
	case !serving(state):
		c.served, c.unwanted = false, false
	case n.pod != nil, n.slurm.InstanceID != "", drained && state.Any(NodeDrain): // slurmd's --instance-id is ours
		c.served = true
	}
	why, leave := e.troubled(n)
	if why != c.why {
		c.why, c.whyRead = why, e.reads.count
	}
	lost, heals := e.lost(n, why != "" && !alive), e.heal(n, n.set != "" && (why == "" || leave))
	u := NodeUpdate{}
	switch {
	case c.update != nil || n.closing, n.warm.ask == StateRenew: // which would take a drain back
		return
	case c.retryAt.After(e.now):
		e.wakeAt(n, c.retryAt)
		return
	case lost:
		u.State = StatePowerDownForce
		if n.nobodys() {
			u.Reason = drainReason(why)
		}
	case heals != StateNone:
		u.State = heals
	case why != "" && serving(state) && !state.Any(judged|NodePowerDown) && n.nobodys(),
		// What it was drained for is over: it is to say what it stays out for, which the next bridge has to know, too.
		strings.HasPrefix(why, updating) && n.slurm.DrainedForHost() && serving(state) && state.Any(NodeDrain) && !state.Any(NodeFail|NodeDown|NodePowerDown):
		u = NodeUpdate{State: StateDrain, Reason: drainReason(why)}
	case why == "" && drained && (n.badHome == "" && (n.pod == nil && e.hostKnown(n) || e.hostsRead) || n.slurm.drainedFor(UpdatePrefix)) && state.Any(NodeDrain|NodeDown) && !state.Any(NodeFail|NodeInvalidReg|NodePowerDown|turning) &&
		(!state.Any(NodeDown) || state.Any(NodePoweredDown)):
		u.State = n.putBack()
	case leave && drained && !e.blind && serving(state) && state.Has(NodeIdle|NodeDrain) && !state.Any(inUse|NodePowerDown|NodePowerDrain|NodeDown):
		u.State = StatePowerDown
	case why == "" && drained && state.Has(NodeDrain|NodeDown) && !n.readSince(c.whyRead):
		e.reads.wantComplete(e.now) // whoever set it DOWN may have put it back since
		return
	default:
		return
	}
	if e.now.Sub(n.seenAt) > actOn || n.podEnds() && !n.readSince(c.whyRead) {
		e.reads.wantComplete(e.now) // somebody may have said something about it since, or Slurm have had the pod deleted by another bridge
		return
	}
	switch {
	case heals == StatePowerDown:
		e.note(Warn, n, "", "slurmd does not answer, though pod "+n.pod.UID+" runs: powering the node down")
	case heals == StateResume:
		e.note(Info, n, "", "slurmctld gave its boot up a while ago: putting the node back")
	case u.Reason != "":
		level := Warn
		if strings.HasPrefix(why, updating) {
			level = Info
		}
		e.note(level, n, "", why+map[StateChange]string{StateDrain: ": draining the node", StatePowerDownForce: ": powering the node down"}[u.State])
	}
	if lost && n.works() {
		e.do(JobsLost{Node: n.name, NodeSet: n.set, Why: why})
	}
	c.update = &NodeUpdate{State: u.State, Reason: u.Reason}
	e.tending = append(e.tending, n)
}

// putOff says that n is not to be powered down before its silent host answers again: nobody could confirm that its pod ends, and
// a slurmd that outlives SuspendTimeout comes back into service.
func (e *Engine) putOff(n *node) bool {
	if n.pod == nil || !n.drainedHere() || !n.slurm.State.Any(NodeDrain) || !e.hosts.Silent(n.pod.Host) {
		return false
	}
	n.care.unwanted = true
	return true
}

// putBack is what takes the node's drain back, and DOWN, which it may be while it is powered down; or what is done instead.
func (n *node) putBack() StateChange {
	switch {
	case n.slurm.State.Any(NodeDown):
		return StateResume
	case n.care.unwanted:
		return StatePowerDown
	}
	return StateUndrain
}

// alive says that the node has a pod that has not ended.
func (n *node) alive() bool { return n.pod != nil && n.pod.Phase != PodFailed }

// tended says that the node is a NodeSet's, or was until its pod was deleted: there may still be jobs on it, and Slurm may give it more.
func (n *node) tended() bool {
	return n.set != "" || n.pod != nil && n.pod.Phase == PodTerminating ||
		n.pod == nil && serving(n.slurm.State) && n.slurm.State.Any(NodeDrain) && strings.HasPrefix(n.slurm.Reason, HostPrefix+leaving)
}

// drainedHere says that nobody but us keeps the node out of use.
func (n *node) drainedHere() bool {
	return n.slurm.DrainedForHost() || n.slurm.drainedFor(UpdatePrefix)
}

// podEnds says that the node's pod has come to its end, or is about to.
func (n *node) podEnds() bool {
	return n.pod == nil || n.pod.Phase == PodTerminating || n.pod.Phase == PodFailed
}

// nobodys says that no person has written the node's reason.
func (n *node) nobodys() bool { return n.slurm.Unspoken() }

// turning are the words of a change under way, which is waited for.
const turning = NodePoweringUp | NodePoweringDown | NodeRebootRequested | NodeRebootIssued

// lost says that Slurm counts on a node whose pod is gone, after a second sighting. It would find out itself after
// SlurmdTimeout, 5 min by default, and keep the node's jobs that long.
func (e *Engine) lost(n *node, gone bool) bool {
	c := &n.care
	switch state := n.slurm.State; {
	case !gone, e.blind:
		c.lostAt = time.Time{}
	case state.Any(NodeDown) && !n.nobodys(): // people know more
	case c.lostAt.IsZero():
		c.lostAt = e.now
		e.reads.wantComplete(e.now)
	case n.readAt.Equal(e.reads.complete) && n.readAt.Sub(c.lostAt) >= e.cfg.Sightings:
		return true
	default:
		e.reads.wantComplete(c.lostAt.Add(e.cfg.Sightings))
	}
	return false
}

// sendTending asks for the updates of this step, nodes with the same one together.
func (e *Engine) sendTending() {
	var updates []NodeUpdate
	for _, n := range e.tending {
		updates = merge(updates, *n.care.update, n.name)
	}
	e.tending = nil
	for _, u := range updates {
		e.do(UpdateNodes{u})
	}
}

// tended takes in the answer to an update of sendTending; false: it is none.
func (e *Engine) tended(n *node, u NodeUpdate, err string) bool {
	c := &n.care
	if c.update == nil || c.update.State != u.State || c.update.Reason != u.Reason {
		return false
	}
	c.update = nil
	if err != "" {
		e.note(Warn, n, "", u.String()+" failed: "+err)
		c.retryAt = e.now.Add(e.cfg.Sightings)
		e.reads.wantComplete(c.retryAt)
		return true
	}
	// What Slurm will show from now on; a read under way may not know it yet.
	n.believe = e.reads.count
	switch u.State {
	case StateDrain:
		n.slurm.State |= NodeDrain
		n.slurm.Reason = u.Reason
	case StateResume, StateUndrain:
		n.slurm.State &^= NodeDrain | NodeDown
		n.slurm.Reason = ""
	case StatePowerDown:
		n.slurm.State |= NodePowerDown
	default:
		n.read, c.lostAt = 0, time.Time{}
		e.reads.wantComplete(e.now.Add(e.cfg.PollSlow))
	}
	e.decide(n) // the trouble may be over
	return true
}
