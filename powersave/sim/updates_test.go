package sim_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of templates that are changed, and what must hold of updates.

type updating struct {
	revision  int
	changedAt time.Time
	backSince [nodeCount]time.Time // since when nothing keeps it drained for an update
	windowing
}

const updateReason = powersave.ReasonPrefix + "update: "

func (w *world) revisionNow() string { return "r" + strconv.Itoa(w.revision) }

func (w *world) strategyOf(set int) *powersave.RollingUpdate {
	if w.rolling[set] == 0 {
		return nil
	}
	return &powersave.RollingUpdate{MaxUnavailable: w.rolling[set]}
}

// changeTemplate changes what pods are made from, or changes it back.
func (w *world) changeTemplate(to bool) {
	if to {
		w.revision++
	} else {
		w.revision = max(w.revision-1, 0)
	}
	w.changedAt = w.now
	w.mend(0)
	w.mend(1)
}

// outFor says that the node is out for an update.
func outFor(n *node) bool {
	return strings.HasPrefix(n.reason, updateReason) && n.flags.Any(powersave.NodeDrain|powersave.NodePowerDown|powersave.NodePoweringDown)
}

// mayReplace looks at drains for an update.
func (w *world) mayReplace(n *node, u powersave.NodeUpdate) {
	if u.State != powersave.StateDrain || !strings.HasPrefix(u.Reason, updateReason) {
		return
	}
	most := w.rolling[n.set()]
	if most == 0 {
		w.breaks("replaces what is to stay", "%s: %s", n.name, u.Reason)
	}
	if p := w.pods[n.index]; p != nil && p.alive() && p.Revision == w.revisionNow() && w.now.Sub(w.changedAt) > stale && w.now.Sub(p.born) > stale && w.now.After(w.rough) {
		w.breaks("replaces a pod that is up to date", "%s: %s", n.name, u.Reason)
	}
	if n.flags.Any(powersave.NodePoweringUp) && w.now.Sub(n.changed) > stale {
		w.breaks("replaces a pod that boots", "%s: %s", n.name, u.Reason)
	}
	out := 0
	for _, m := range w.nodes {
		if m != n && m.ours() && m.set() == n.set() && outFor(m) && w.now.Sub(m.reasonAt) > stale {
			out++
		}
	}
	if out >= most && w.now.After(w.rough) {
		w.breaks("takes out too many for an update", "%s, and %d are out", n.name, out)
	}
}

// patrolUpdate looks whether a node that was drained for an update is put back when that is over.
func (w *world) patrolUpdate(n *node, p *pod) {
	back := n.ours() && n.flags.Any(powersave.NodeDrain) && strings.HasPrefix(n.reason, updateReason) && !n.taken() && !n.down && !n.flags.Any(powersave.NodePowerDown) &&
		(n.set() == 0 || !w.any(changeSets)) &&
		(p == nil && n.flags.Any(powersave.NodePoweredDown) || p != nil && p.alive() && !p.stays && p.host && w.machines[p.at].trouble == "" && n.serves() && (p.Revision == w.revisionNow() || !w.mayUpdateNow(n.set())))
	if !back {
		w.backSince[n.index] = w.now
	} else if w.smooth(latest(w.backSince[n.index], w.changedAt, start), idle) {
		w.breaks("stays drained", "%s since %.3f", w.show(n), w.backSince[n.index].Sub(start).Seconds())
	}
}
