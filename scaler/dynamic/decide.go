package dynamic

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// decide looks at one node and asks for the next thing it needs, but for what grow and shrink decide.
func (p *Planner) decide(n *node) {
	if n.asking || n.retryAt.After(p.now) {
		return
	}
	switch {
	case n.creating:
	case n.pod == nil:
		p.withoutPod(n)
	case n.pod.Phase == powersave.PodTerminating:
		if joinedNow(n) && p.told(n) && !n.rec.State.Any(powersave.NodeDrain) {
			p.drain(n, n.pod.Leaving())
		}
	case n.deleting != "":
	case n.pod.Phase == powersave.PodFailed:
		p.failed(n)
	case n.joined != n.pod.UID && p.hasJoined(n):
		n.joined = n.pod.UID
		n.idleAt = time.Time{}
		if n.made {
			n.times.Registered = p.now
		}
		if n.tried && joinedNow(n) {
			p.breakers.Succeeded(n.attempt)
			n.tried = false
		}
		p.decide(n)
	case n.rec != nil && n.rec.InstanceID == n.pod.UID && p.downed(n) && p.told(n):
		// Without ReturnToService=2 a node that we set down in its last life stays so.
		p.update(powersave.NodeUpdate{State: powersave.StateResume}, n)
	case n.joined != n.pod.UID:
		p.booting(n)
	case n.rec == nil:
		if p.confirmed(n) {
			p.deletePod(n, "slurmctld has no record of it any more")
		}
	default:
		p.serving(n)
	}
}

// hasJoined reports that the node's pod has registered. A comment tells that it once did, whatever has become of the node since.
func (p *Planner) hasJoined(n *node) bool {
	return joinedNow(n) || n.rec != nil && n.rec.InstanceID == n.pod.UID && p.welcomed(n) && !p.downed(n)
}

// confirmed reports that two reads, far enough apart, show that pod and record do not belong together.
func (p *Planner) confirmed(n *node) bool {
	return p.fresh && p.told(n) && !n.strayAt.IsZero() && p.now.Sub(n.strayAt) >= p.cfg.Sightings
}

// withoutPod brings a record to its end.
func (p *Planner) withoutPod(n *node) {
	if n.rec == nil || !p.ours(n) || !p.fresh || !p.told(n) {
		return
	}
	state := n.rec.State
	sawItGo := n.goneRead > 0 && p.reading > n.goneRead
	switch {
	case !sawItGo && !p.confirmed(n):
	case !state.Any(powersave.NodeDrain | powersave.NodeDown):
		p.drain(n, "its pod is gone")
	case p.busy(n) && !state.Any(powersave.NodeDown):
		// Slurm finds out after SlurmdTimeout; its jobs need not wait for that.
		if p.confirmed(n) {
			p.say(true, n, "the node has a job and no pod: it is set down, so that the job is requeued")
			p.update(powersave.NodeUpdate{State: powersave.StateDown, Reason: powersave.ReasonPrefix + "its pod is gone"}, n)
		}
	case p.busy(n):
	case p.claims[n.name].grip > gripNone || state.Any(spoken):
		p.say(false, n, "the record stays, for it is named by "+cmp.Or(p.claims[n.name].by, "a reservation"))
	case p.mayTake():
		n.asking = true
		p.do(DeleteRecord{Node: n.name, NodeSet: n.set, InstanceID: n.rec.InstanceID})
	}
}

// failed brings a node to its end whose pod has ended by itself.
func (p *Planner) failed(n *node) {
	switch {
	case n.joined != n.pod.UID && (n.rec == nil || n.rec.InstanceID != n.pod.UID):
		p.bootFailed(n, cmp.Or(n.pod.Trouble, powersave.TroubleCrash))
	case n.rec == nil:
		if p.fresh && p.told(n) && p.reading > n.podRead {
			p.deletePod(n, "it has ended")
		}
	case !p.told(n) || !p.fresh:
	case !n.rec.State.Any(powersave.NodeDrain | powersave.NodeDown):
		p.drain(n, "its pod has ended: "+why(n.pod))
	case p.busy(n) && !n.rec.State.Any(powersave.NodeDown):
		if p.confirmed(n) {
			p.say(true, n, "the pod of a node with a job has ended: the node is set down, so that the job is requeued")
			p.update(powersave.NodeUpdate{State: powersave.StateDown, Reason: powersave.ReasonPrefix + "its pod has ended: " + why(n.pod)}, n)
		}
	case p.free(n):
		p.deletePod(n, "it has ended")
	}
}

// booting watches a pod that has not registered.
func (p *Planner) booting(n *node) {
	s := p.sets[n.set]
	if s == nil {
		return
	}
	late := p.now.Sub(n.bootAt) >= cmp.Or(s.Deadline, p.cfg.Deadline)
	lasting := n.trouble != powersave.TroubleNone && p.now.Sub(n.since) >= cmp.Or(s.UnschedulableGrace, p.cfg.Grace)
	choice := p.breakers.Look(p.now, s.NodeSet, nil)
	refused := n.rec != nil && n.rec.InstanceID == n.pod.UID && n.rec.State.Any(powersave.NodeInvalidReg)
	switch {
	case refused && !n.rec.State.Any(powersave.NodeDrain):
		if p.told(n) {
			p.drain(n, "slurmctld refuses its registration: "+n.rec.Reason)
		}
	case refused:
		p.bootFailed(n, powersave.TroubleRefused)
	case lasting && n.pod.ScaleUp.IsZero(), late && n.trouble != powersave.TroubleNone:
		p.bootFailed(n, n.trouble)
	case late:
		p.bootFailed(n, powersave.TroubleBootstrap)
	case n.pod.Phase == powersave.PodPending && !choice.OK && !choice.Soon && n.pod.Offering == "" && p.unused(n) && p.shut(n):
		// The others of a job that cannot have all its nodes.
		p.giveUp(n, "the NodeSet backs off: "+choice.Why)
	}
}

// bootFailed gives up a pod that did not register.
func (p *Planner) bootFailed(n *node, class powersave.Trouble) {
	if !p.unused(n) || !p.shut(n) {
		return
	}
	text := why(n.pod)
	switch class {
	case powersave.TroubleBootstrap:
		text = "slurmd did not register by the deadline"
	case powersave.TroubleRefused:
		text = strings.TrimPrefix(n.rec.Reason, powersave.ReasonPrefix)
	default:
	}
	if say := "the node cannot boot: " + string(class) + ": " + text; n.said != say {
		n.said = say
		p.do(Report{Warning: true, Node: n.name, NodeSet: n.set, Text: say, Class: class, Reason: text, UID: n.pod.UID})
	}
	if n.tried {
		p.breakers.Failed(p.now, n.attempt, class, text)
		n.tried = false
	}
	p.giveUp(n, "boot failed: "+string(class)+": "+text)
}

// unused reports that Slurm, read after the pod was first seen, has no use for it.
func (p *Planner) unused(n *node) bool {
	return p.fresh && p.told(n) && p.reading > n.podRead && (n.rec == nil || p.free(n) && n.rec.InstanceID != n.pod.UID ||
		p.free(n) && n.rec.State.Any(powersave.NodeDrain|powersave.NodeDown))
}

// shut reports that no job can come to the node of a pod that is given up, and sees to it if one could.
func (p *Planner) shut(n *node) bool {
	if n.rec == nil || n.rec.State.Any(judged) || !p.ours(n) {
		return true
	}
	p.drain(n, "its boot is given up")
	return false
}

func (p *Planner) giveUp(n *node, text string) {
	p.dropAttempt(n)
	p.deletePod(n, text)
}

// serving looks after a node that has registered.
func (p *Planner) serving(n *node) {
	if !p.told(n) {
		return
	}
	r, state, s := n.rec, n.rec.State, p.sets[n.set]
	p.mark(n)
	trouble, leave := p.host(n)
	drained, forHost, held := p.drained(n), p.forHost(n), p.claims[n.name]
	dead := state.Any(notServing | powered)
	mayWake, forUpdate := drained && !forHost && trouble == "" && !dead, p.forUpdate(n)
	switch {
	case r.InstanceID == n.pod.UID && !p.welcomed(n):
		u := powersave.NodeUpdate{Comment: p.comment(n)}
		if drained { // in the life before
			u.State = powersave.StateUndrain
		}
		p.update(u, n)
	case !drained && state.Any(powersave.NodeDrain|powersave.NodeFail), state.Any(powersave.NodeDown) && !r.Unspoken(): // somebody else's
	case trouble != "" && !drained && !state.Any(powersave.NodeDown) && r.Unspoken():
		p.say(true, n, trouble+": draining the node")
		p.drain(n, strings.TrimPrefix(powersave.HostPrefix, powersave.ReasonPrefix)+trouble)
	case trouble != "" && drained && !leave: // nobody could confirm that its pod ends
	case forHost && p.facts.Hosts == nil && !p.facts.HostsUnread: // nobody knows yet
	case forHost && trouble == "" && p.facts.Hosts != nil && r.DrainedForHost():
		p.wake(n, "its host is well again")
	case mayWake && forUpdate && !p.replaces(n):
		p.wake(n, "its pod is not to be replaced any more, or not now")
	case forUpdate && p.busy(n): // until its jobs have ended
	case mayWake && p.busy(n) && !state.Any(powersave.NodeCompleting):
		p.wake(n, "a job was quicker")
	case mayWake && held.grip >= gripNode:
		p.wake(n, "named by "+held.by)
	case drained && !p.busy(n) && !state.Any(rebooting) && (trouble != "" || dead || !state.Any(spoken)):
		if p.mayTake() && (trouble != "" || dead || s == nil || s.need == 0 || !n.listed || forUpdate) {
			p.deletePod(n, "drained: "+r.Reason)
		}
	case drained:
	case state.Any(powered) && p.free(n):
		p.say(true, n, "Slurm powers the node down: set SuspendExcStates=DYNAMIC_NORM in slurm.conf")
		p.drain(n, "powered down by Slurm")
	case state.Any(notServing) && !p.busy(n) && p.fresh && p.now.Sub(n.silentAt) >= p.cfg.SilentFor:
		p.drain(n, "slurmd does not respond")
	}
}

// mark keeps the pod's mark in step with what Slurm shows.
func (p *Planner) mark(n *node) {
	busy := n.rec.State.Any(inUse)
	if n.marking || n.markAt.After(p.now) || busy == n.pod.Busy {
		return
	}
	n.marking = true
	p.do(MarkPod{powersave.MarkPod{Node: n.name, NodeSet: n.set, UID: n.pod.UID, Busy: busy}})
}

func (p *Planner) drain(n *node, reason string) {
	p.update(powersave.NodeUpdate{State: powersave.StateDrain, Reason: powersave.ReasonPrefix + reason}, n)
}

func (p *Planner) wake(n *node, reason string) {
	p.say(false, n, "put back: "+reason)
	n.idleAt = time.Time{}
	p.update(powersave.NodeUpdate{State: powersave.StateUndrain}, n)
}

func (p *Planner) update(u powersave.NodeUpdate, n *node) {
	n.asking, n.change = true, u.State
	u.Nodes = []string{n.name}
	p.do(Update{u})
}

func (p *Planner) deletePod(n *node, text string) {
	n.deleting = n.pod.UID
	p.do(DeletePod{Node: n.name, NodeSet: n.set, UID: n.pod.UID, Why: text})
}

// why tells in words what is the matter with a pod.
func why(pod *powersave.Pod) string {
	switch {
	case pod.Message != "" && pod.Reason != "":
		return pod.Reason + ": " + pod.Message
	case pod.Message != "" || pod.Reason != "":
		return pod.Reason + pod.Message
	}
	return "phase " + string(pod.Phase)
}

// Done takes in what came of an action.
func (p *Planner) Done(now time.Time, asked int, a Action, o Outcome) {
	p.now = now
	switch a := a.(type) {
	case CreatePod:
		n := p.node(a.Node)
		if o.Err == "" {
			p.ok(n)
			return // the pod will be seen; takePods ends creating
		}
		n.creating = false
		if n.tried {
			if o.Trouble != powersave.TroubleNone {
				p.breakers.Failed(now, n.attempt, o.Trouble, o.Err)
			} else {
				p.breakers.ProbeGone(n.attempt)
			}
			n.tried = false
		}
		p.note(Report{Node: n.name, NodeSet: n.set, Text: "creating its pod failed: " + o.Err, Class: o.Trouble, Reason: o.Err})
		p.retry(n, o)
	case DeletePod:
		if n := p.nodes[a.Node]; n != nil && n.deleting == a.UID && o.Err != "" {
			n.deleting = ""
			n.after = asked
			if !o.Late {
				p.note(Report{Node: n.name, NodeSet: n.set, Text: "deleting its pod failed: " + o.Err})
				p.retry(n, o)
			}
		}
	case Update:
		for _, name := range a.Nodes {
			if n := p.nodes[name]; n != nil {
				if o.Err != "" && !o.Missing && !o.Late {
					p.note(Report{Node: n.name, NodeSet: n.set, Text: fmt.Sprintf("%s failed: %s", a.NodeUpdate, o.Err)})
				}
				p.answered(n, asked, o)
			}
		}
	case DeleteRecord:
		if n := p.nodes[a.Node]; n != nil {
			if o.Err != "" && !o.Missing && !o.Late {
				p.note(Report{Node: n.name, NodeSet: n.set, Text: "slurmctld keeps its record: " + o.Err})
			}
			p.answered(n, asked, o)
			if o.Err == "" || o.Missing {
				n.rec, n.strayAt, n.goneRead = nil, time.Time{}, 0
			}
		}
	case MarkPod:
		if n := p.nodes[a.Node]; n != nil && n.pod != nil && n.pod.UID == a.UID {
			if n.marking = false; o.Err != "" {
				n.markAt = now.Add(markAgain)
			}
		}
	}
}

// note keeps a warning for the next step.
func (p *Planner) note(r Report) {
	if n := p.node(r.Node); n.said != r.Text {
		n.said, r.Warning = r.Text, true
		p.notes = append(p.notes, r)
	}
}

// answered ends an update of a node's record: what was read before it ended tells no more.
func (p *Planner) answered(n *node, asked int, o Outcome) {
	n.asking = false
	n.after = asked
	if o.Missing || o.Late {
		n.change = powersave.StateNone
	}
	switch {
	case o.Late:
	case o.Err != "" && !o.Missing:
		p.retry(n, o)
	default:
		p.ok(n)
	}
}

func (p *Planner) ok(n *node) { n.tries, n.retryAt = 0, time.Time{} }

func (p *Planner) retry(n *node, o Outcome) {
	wait := min(retryFirst<<min(n.tries, 10), retryMost)
	if o.Permanent {
		wait = retryMost
	}
	n.tries++
	n.retryAt = p.now.Add(wait)
}
