package sim_test

import (
	"fmt"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of Kubernetes: pods, their life, and a watch that keeps order and lags behind.

type pod struct {
	powersave.Pod
	started time.Time // of slurmd
	lost    bool      // who asked for it was told that it failed
}

// alive says whether its slurmd runs.
func (p *pod) alive() bool {
	return p.Phase == powersave.PodRunning || p.Phase == powersave.PodReady
}

func (w *world) create(a powersave.CreatePod, tell teller) {
	failed := powersave.PodCreateFailed{Node: a.Node, Generation: a.Generation, Err: "timeout"}
	answer := func(ev powersave.Event) {
		n := w.nodes[a.Node]
		d := w.delay(5*time.Millisecond, 10*time.Second)
		w.after(d, func() { n.creating = max(0, n.creating-1) })
		tell(d, ev)
	}
	old := w.pods[a.Node]
	switch {
	case w.chance(0.05), w.now.Before(w.kubeAway):
		answer(failed)
		return
	case old != nil && old.Generation == a.Generation && old.Phase != powersave.PodTerminating:
		answer(powersave.PodCreated{Node: a.Node, UID: old.UID, Generation: a.Generation})
		return
	case old != nil:
		existing := old.Pod
		failed.Err, failed.Existing = "exists", &existing
		answer(failed)
		return
	}
	w.uids++
	p := &pod{Pod: powersave.Pod{
		Node: a.Node, NodeSet: a.NodeSet, UID: fmt.Sprintf("u%d", w.uids), Generation: a.Generation, Request: a.Request,
		Phase: powersave.PodPending, Created: w.now.Truncate(time.Second),
	}}
	w.pods[a.Node] = p
	if n := w.nodes[a.Node]; n != nil {
		if n.pods++; n.pods > 8 {
			w.breaks("makes pods again and again", "%d of %s", n.pods, n.name)
		}
	}
	w.watch(p)
	if w.chance(0.05) {
		p.lost = true
		answer(failed)
	} else {
		answer(powersave.PodCreated{Node: a.Node, UID: p.UID, Generation: p.Generation})
	}
	if w.chance(0.1) {
		p.Reason = "Unschedulable"
		w.watch(p)
	}
	w.after(w.delay(500*time.Millisecond, 90*time.Second), func() { w.advance(p, powersave.PodPending, powersave.PodScheduled) })
}

// advance moves a pod on, if it still is where it should be.
func (w *world) advance(p *pod, from, to powersave.PodPhase) {
	if w.pods[p.Node] != p || p.Phase != from {
		return
	}
	p.Phase, p.Reason = to, ""
	w.watch(p)
	switch {
	case to == powersave.PodScheduled && w.chance(0.05):
		w.after(w.upTo(3*time.Second), func() { w.fail(p, "OutOfcpu") })
	case to == powersave.PodScheduled:
		w.after(w.delay(time.Second, 30*time.Second), func() { w.advance(p, to, powersave.PodRunning) })
	case to == powersave.PodRunning:
		p.started = w.now
		w.after(w.delay(time.Second, 20*time.Second), func() { w.answerRegistration(p) })
	}
}

func (w *world) fail(p *pod, reason string) {
	if w.pods[p.Node] == p && p.Phase != powersave.PodTerminating {
		p.Phase, p.Reason = powersave.PodFailed, reason
		w.watch(p)
		w.lost(w.nodes[p.Node], p.UID)
	}
}

func (w *world) remove(a powersave.DeletePod, tell teller) {
	failed := powersave.PodDeleteFailed{Node: a.Node, UID: a.UID, Err: "timeout"}
	answer := func(ev powersave.Event) { tell(w.delay(5*time.Millisecond, 20*time.Second), ev) }
	if w.now.After(a.Before) {
		failed.Late = true
		answer(failed)
		return
	}
	w.mayDelete(a)
	p := w.pods[a.Node]
	switch {
	case w.chance(0.1), w.now.Before(w.kubeAway):
		answer(failed)
		return
	case p == nil || p.UID != a.UID:
		answer(powersave.PodDeleted{Node: a.Node, UID: a.UID, Gone: true})
		return
	case w.chance(0.05):
		answer(failed) // and yet it was taken
	default:
		answer(powersave.PodDeleted{Node: a.Node, UID: a.UID})
	}
	if p.Phase == powersave.PodTerminating {
		return
	}
	p.Phase = powersave.PodTerminating
	w.watch(p)
	w.lost(w.nodes[a.Node], p.UID)
	w.after(w.delay(3*time.Second, 50*time.Second), func() {
		delete(w.pods, a.Node)
		w.deliver(powersave.PodGone{Node: a.Node, UID: p.UID})
	})
}

func (w *world) watch(p *pod) {
	w.deliver(powersave.PodSeen{Pod: p.Pod})
	if w.chance(0.05) {
		w.deliver(powersave.PodSeen{Pod: p.Pod})
	}
}

// deliver hands over news in order, once the pods have been listed.
func (w *world) deliver(ev powersave.Event) {
	if !w.listed {
		return
	}
	if at := w.now.Add(w.delay(20*time.Millisecond, 5*time.Second)); at.After(w.watchAt) {
		w.watchAt = at
	}
	w.tell(w.watchAt.Sub(w.now), ev)
}

func (w *world) listPods(life int) {
	if life != w.life {
		return
	}
	w.listed, w.watchFrom, w.watchAt = true, w.now, w.now
	var ev powersave.PodsRead
	for _, name := range w.names {
		if p := w.pods[name]; p != nil {
			ev.Pods = append(ev.Pods, p.Pod)
		}
	}
	w.deliver(ev)
}
