package powersave

import (
	"slices"
	"strings"
	"time"
)

// TaintHost asks for a Kubernetes node to be marked: somebody has found the hardware under a Slurm node bad. Slurm forgets
// that when the node is powered down (power_save.c, idle_on_node_suspend), and the next pod could land there again.
// Answered by HostTainted.
type TaintHost struct {
	Host          string
	Node, NodeSet string
	UID           string // of the pod
	Reason        string // as it stands in Slurm
}

// HostTainted answers TaintHost; an empty Err means that the host is marked, or gone, or that somebody has taken
// this very mark off it.
type HostTainted struct {
	TaintHost
	Err string
}

func (TaintHost) action()  {}
func (HostTainted) event() {}

// taint is a host that is to be marked, however long that takes: the node may be powered down and its pod gone before.
type taint struct {
	TaintHost
	asking  bool
	tries   int
	retryAt time.Time
}

const (
	taintMost  = 5 * time.Minute // longest pause before it is tried again
	manyTaints = 1000            // more are not kept: something else is wrong
)

// blame has the host of a node marked when the node's reason in Slurm tells of bad hardware.
func (e *Engine) blame(n *node) {
	c, state, reason := &n.care, n.slurm.State, n.slurm.Reason
	if n.boot != nil || !serving(state) && !state.Any(NodePoweringDown) {
		if c.early = ""; state.Any(judged) {
			c.early = reason
		}
	}
	if e.cfg.BadHardware == nil || n.set == "" || n.read == 0 || n.missing || n.boot != nil || n.pod == nil || n.pod.Host == "" ||
		n.slurm.InstanceID != "" && n.slurm.InstanceID != n.pod.UID { // its slurmd ran elsewhere
		return
	}
	if serving(state) && !state.Any(judged) {
		c.note, c.early = reason, "" // and no verdict
		// A node that was let go while it booted shows no power change any more, either: slurmd tells who it is when it registers.
		if !state.Any(NodeInvalidReg) && n.slurm.InstanceID == n.pod.UID {
			c.sound = n.pod.UID
		}
		return
	}
	verdict := reason
	if c.note != "" { // slurmctld adds its own reasons, also to one that has outlived what it was for
		verdict = strings.TrimPrefix(reason, c.note+" : ")
	}
	switch {
	case !serving(state) && !state.Any(NodePoweringDown), state.Any(NodePoweringUp | NodeFuture):
		return
	case state.Any(NodeInvalidReg) && c.sound != n.pod.UID:
		return // refused from the start: it is rather spec.shape that is wrong than every host
	case !state.Any(judged) && (c.sound != n.pod.UID || reason == c.note):
		return // suspending has cleared the drain, if there was one: the reason has to be new
	case reason == c.early: // spoken before this host had anything to do with the node
		return
	case strings.HasPrefix(reason, ReasonPrefix), !e.cfg.BadHardware.MatchString(verdict):
		return
	}
	if key := n.pod.UID + " " + reason; c.blamed != key && len(e.taints) < manyTaints && (e.leading || n.off != nil) {
		c.blamed = key
		e.note(Warn, n, "", "the hardware of host "+n.pod.Host+" is bad, says the node's reason: "+reason)
		e.taints = append(e.taints, &taint{
			TaintHost: TaintHost{Host: n.pod.Host, Node: n.name, NodeSet: n.set, UID: n.pod.UID, Reason: reason}, retryAt: e.now,
		})
	}
}

// askTaints asks for the hosts to be marked whose time has come.
func (e *Engine) askTaints() {
	for _, t := range e.taints {
		if !t.asking && !t.retryAt.After(e.now) {
			t.asking = true
			e.do(t.TaintHost)
		}
	}
}

func (e *Engine) hostTainted(ev HostTainted) {
	i := slices.IndexFunc(e.taints, func(t *taint) bool { return t.asking && t.TaintHost == ev.TaintHost })
	if i < 0 {
		return
	}
	if ev.Err == "" {
		e.taints = slices.Delete(e.taints, i, i+1)
		return
	}
	t := e.taints[i]
	t.asking, t.retryAt = false, e.now.Add(min(retryFirst<<min(t.tries, 20), taintMost))
	t.tries++
	if n := e.nodes[ev.Node]; n != nil {
		e.note(Warn, n, "", "marking host "+ev.Host+" failed: "+ev.Err)
	}
}
