package sim_test

import (
	"slices"
	"strconv"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// The model of Kubernetes: pods, their life, and a watch that keeps order and lags behind.

type kube struct {
	pods     [nodeCount]*pod
	machines [hostCount]machine
	uids     int
	scaling  bool // the autoscaler makes a host
	gaveUp   bool
	shortAt  [2]time.Time // when an offering last had no room
	leftAt   [2]time.Time // when a pod last left a place on it
}

type pod struct {
	powersave.Pod
	index     int
	host      bool
	at        int  // index of the host, if it has one
	dead      bool // with its host
	life      int  // of the bridge that made it
	born      time.Time
	started   time.Time // of slurmd
	taken     bool      // slurmctld has taken its registration
	lost      bool      // who asked for it was told that it failed
	booked    bool      // its room was made for it
	troubleAt time.Time
	endAt     time.Time // when it was deleted
	stays     bool      // its slurmd runs on, though it is being deleted
	hangs     bool      // a step in it never ends
}

// alive says whether its slurmd runs.
func (p *pod) alive() bool {
	return !p.dead && (p.Phase == powersave.PodRunning || p.Phase == powersave.PodReady || p.stays)
}

func (w *world) create(a powersave.CreatePod, n *node, life int) {
	failed := powersave.PodCreateFailed{Node: a.Node, Generation: a.Generation, Err: "timeout"}
	answer := func(ev powersave.Event) {
		if life != w.life {
			return
		}
		w.after(w.delay(5*time.Millisecond, createSlow, n.index, 10*time.Second), func() {
			if life == w.life {
				n.creating--
				w.step(ev)
			}
		})
	}
	old := w.pods[n.index]
	switch {
	case w.on(createFails, n.index), w.any(kubeAway):
		answer(failed)
		return
	case old != nil && old.Generation == a.Generation && old.Offering == a.Offering && old.Phase != powersave.PodTerminating:
		w.answered[n.index] = old.UID
		answer(powersave.PodCreated{Node: a.Node, UID: old.UID, Generation: a.Generation})
		return
	case old != nil:
		existing := old.Pod
		w.answered[n.index] = old.UID
		failed.Err, failed.Existing = "exists", &existing
		answer(failed)
		return
	case w.on(quota, n.index):
		failed.Err, failed.Trouble = "exceeded quota", powersave.TroubleQuota
		if n.refusedAt.IsZero() || n.refusedOn != a.Offering {
			n.refusedAt, n.refusedOn = w.now, a.Offering
		}
		answer(failed)
		return
	}
	w.mayCreate(n)
	w.mayTake(a, life)
	if w.on(createLost, n.index) && w.some(2*time.Millisecond, createLost, n.index) > 0 { // the API server carries it out when nobody waits for it any more
		answer(failed)
		w.after(w.some(15*time.Second, createLost, n.index), func() {
			if w.pods[n.index] == nil {
				w.make(a, n, life).lost = true
			}
		})
		return
	}
	p := w.make(a, n, life)
	if w.on(createLost, n.index) {
		p.lost = true
		answer(failed)
		return
	}
	w.answered[n.index] = p.UID
	answer(powersave.PodCreated{Node: a.Node, UID: p.UID, Generation: p.Generation})
	if n.lastRoom = w.room(a.Room); n.lastRoom != nil && life == w.life {
		n.lastRoom.made[n.index] = life
	}
}

// make puts the pod into the world.
func (w *world) make(a powersave.CreatePod, n *node, life int) *pod {
	w.uids++
	p := &pod{index: n.index, life: life, born: w.now, Pod: powersave.Pod{
		Node: a.Node, NodeSet: a.NodeSet, UID: "u" + strconv.Itoa(w.uids), Generation: a.Generation, Request: a.Request,
		Phase: powersave.PodPending, Created: w.now.Truncate(time.Second), Offering: a.Offering, Busy: a.Job != 0, Room: a.Room, Revision: w.revisionNow(),
	}}
	w.pods[n.index] = p
	n.refusedAt, n.generation = time.Time{}, a.Generation
	if n.pods++; n.pods > 8 {
		w.breaks("makes pods again and again", "%d of %s", n.pods, n.name)
	}
	w.watch(p)
	w.after(w.delay(500*time.Millisecond, slowHost, n.index, 10*time.Second), func() { w.place(p) })
	return p
}

// place is the scheduler.
func (w *world) place(p *pod) {
	if w.pods[p.index] != p || p.Phase != powersave.PodPending {
		return
	}
	used := 0
	for _, o := range w.pods {
		if o != nil && o.host && !o.booked {
			used++
		}
	}
	p.booked = w.booked(p)
	if used >= w.hosts && !p.booked || w.any(lessRoom) || w.soldOut(p) || !w.bind(p) {
		if i := slices.Index(offerings[:], p.Offering); i >= 0 {
			w.shortAt[i] = w.now
		}
		w.trouble(p, powersave.TroubleCapacity, "Unschedulable")
		w.scale()
		return
	}
	w.advance(p, powersave.PodScheduled)
	w.after(w.delay(time.Second, slowHost, p.index, 20*time.Second), func() { w.start(p) })
}

// placeAll is the scheduler after something has made room.
func (w *world) placeAll() {
	for _, p := range w.pods {
		if p != nil && p.Trouble == powersave.TroubleCapacity {
			w.place(p)
		}
	}
}

// scale is the autoscaler.
func (w *world) scale() {
	if w.scaleUp == 0 || w.scaling || w.gaveUp {
		return
	}
	w.scaling = true
	tell := func(since time.Time) {
		for _, p := range w.pods {
			if p != nil && p.Trouble == powersave.TroubleCapacity && p.Phase == powersave.PodPending && p.ScaleUp.IsZero() != since.IsZero() {
				p.ScaleUp, p.troubleAt = since, w.now
				w.watch(p)
			}
		}
	}
	w.after(time.Second, func() { tell(w.now) })
	w.after(time.Second+w.scaleUp, func() {
		w.scaling = false
		tell(time.Time{})
		if w.scaleFail {
			w.gaveUp = true
			return
		}
		w.hosts++
		w.placeAll()
	})
}

// start is the kubelet.
func (w *world) start(p *pod) {
	i := p.index
	if w.pods[i] != p || p.Phase != powersave.PodScheduled || p.dead {
		return
	}
	switch {
	case w.on(silenceHost, p.at):
		w.at(w.endOf(silenceHost, p.at), func() { w.start(p) })
		return
	case w.on(noImage, i):
		w.trouble(p, powersave.TroubleImage, "ErrImagePull")
		w.at(w.endOf(noImage, i), func() { w.start(p) })
		return
	case w.on(badConfig, i):
		w.trouble(p, powersave.TroubleConfig, "CreateContainerConfigError")
		w.at(w.endOf(badConfig, i), func() { w.start(p) })
		return
	}
	w.advance(p, powersave.PodRunning)
	p.started = w.now
	if w.on(crashing, i) {
		w.after(w.some(2*time.Second, crashing, i), func() { w.fail(p, "Error", powersave.TroubleCrash) })
		return
	}
	w.after(w.delay(time.Second, slowSlurmd, i, 15*time.Second), func() { w.answerRegistration(p) })
	if w.on(mute, i) {
		w.at(w.endOf(mute, i), func() { w.answerRegistration(p) })
	}
}

func (w *world) trouble(p *pod, t powersave.Trouble, reason string) {
	if p.Trouble != t {
		p.Trouble, p.Reason, p.troubleAt = t, reason, w.now
		w.watch(p)
	}
}

// advance moves a pod on.
func (w *world) advance(p *pod, to powersave.PodPhase) {
	p.Phase, p.Reason, p.Trouble, p.ScaleUp = to, "", powersave.TroubleNone, time.Time{}
	w.watch(p)
}

func (w *world) fail(p *pod, reason string, t powersave.Trouble) {
	if w.pods[p.index] == p && p.Phase != powersave.PodTerminating && p.Phase != powersave.PodFailed {
		p.Phase, p.Reason, p.Trouble, p.host = powersave.PodFailed, reason, t, false
		n := w.nodes[p.index]
		if n.crashLife != w.life {
			n.crashes, n.crashLife = 0, w.life
		}
		if n.crashes++; t == powersave.TroubleCrash && n.crashes > 4 && n.unheard != n.epoch {
			w.breaks("tries again what crashes", "%d pods of %s", n.crashes, n.name)
		}
		w.watch(p)
		w.lost(w.nodes[p.index], p.UID)
		w.placeAll()
	}
}

func (w *world) remove(a powersave.DeletePod, n *node, life int) {
	failed := powersave.PodDeleteFailed{Node: a.Node, UID: a.UID, Err: "timeout"}
	answer := func(ev powersave.Event) {
		w.tellLife(life, w.delay(5*time.Millisecond, deleteSlow, n.index, 10*time.Second), ev)
	}
	if w.now.After(a.Before) {
		failed.Late = true
		answer(failed)
		return
	}
	w.mayDelete(a)
	p := w.pods[n.index]
	switch {
	case w.on(deleteFails, n.index), w.any(kubeAway):
		answer(failed)
		return
	case p == nil || p.UID != a.UID:
		answer(powersave.PodDeleted{Node: a.Node, UID: a.UID, Gone: true})
		return
	case w.on(deleteLost, n.index):
		answer(failed) // and yet it was taken
	default:
		answer(powersave.PodDeleted{Node: a.Node, UID: a.UID})
	}
	w.terminate(p, powersave.OwnGrace)
}

// terminate is the end of a pod that was deleted, and whose jobs may run on for so long.
func (w *world) terminate(p *pod, long time.Duration) {
	if p.Phase == powersave.PodTerminating {
		return
	}
	p.endAt, p.Ends, p.stays = w.now, w.now.Add(long), p.alive() && w.works(p)
	p.hangs = p.hangs && p.stays
	w.advance(p, powersave.PodTerminating)
	w.letJobsEnd(p)
}

// works says that the preStop hook finds steps in the pod, and Slurm does not show the node to power down. A later delete leaves the pod no less
// time: the kubelet does not stop a hook for it (kubelet.go SyncTerminatingPod).
func (w *world) works(p *pod) bool {
	n := w.nodes[p.index]
	return n.uid == p.UID && n.serves() && (p.hangs || slices.ContainsFunc(n.jobs, func(j *slurmJob) bool { return j.state == running || j.completing }))
}

// letJobsEnd is the preStop hook, and what follows.
func (w *world) letJobsEnd(p *pod) {
	switch {
	case w.pods[p.index] != p || p.dead:
		return
	case p.stays && w.works(p) && w.now.Before(p.Ends):
		w.after(time.Second, func() { w.letJobsEnd(p) })
		return
	}
	if p.stays {
		w.logf("slurmd %s of %s ends", p.UID, p.Node)
	}
	p.stays = false
	w.lost(w.nodes[p.index], p.UID)
	w.after(w.delay(3*time.Second, deleteSlow, p.index, 30*time.Second), func() { w.vanish(p) })
}

// vanish takes a pod away, once its host confirms its end.
func (w *world) vanish(p *pod) {
	switch {
	case w.pods[p.index] != p:
		return
	case w.unconfirmed(p):
		w.at(w.endOf(silenceHost, p.at), func() { w.vanish(p) })
		return
	}
	w.pods[p.index] = nil
	if i := slices.Index(offerings[:], p.Offering); i >= 0 {
		w.leftAt[i] = w.now
	}
	if w.showGone(p.Pod, p.index); !w.listed && w.answered[p.index] == p.UID && w.shown[p.index].UID != p.UID {
		w.unseen = append(w.unseen, powersave.PodGone{Node: p.Node, UID: p.UID})
	}
	w.placeAll()
}

func (w *world) showGone(p powersave.Pod, index int) {
	if w.listed {
		w.shown[index] = powersave.Pod{}
		w.deliver(powersave.PodGone{Node: p.Node, UID: p.UID})
	}
}

func (w *world) watch(p *pod) {
	if !w.listed {
		return
	}
	w.shown[p.index] = p.Pod
	w.deliver(powersave.PodSeen{Pod: p.Pod})
	if w.any(watchTwice) {
		w.deliver(powersave.PodSeen{Pod: p.Pod})
	}
}

// deliver hands over news in order, once the pods have been listed.
func (w *world) deliver(ev powersave.Event) {
	if !w.listed {
		return
	}
	if at := w.now.Add(w.delay(20*time.Millisecond, watchSlow, 0, 5*time.Second)); at.After(w.watchAt) {
		w.watchAt = at
	}
	w.tell(w.watchAt.Sub(w.now), ev)
}

func (w *world) listPods(life int) {
	if life != w.life || w.listed {
		return
	}
	if w.any(watchGap) {
		w.at(w.endOf(watchGap, 0), func() { w.listPods(life) })
		return
	}
	w.listed, w.watchFrom = true, w.now
	if w.watchAt.Before(w.now) {
		w.watchAt = w.now
	}
	if !w.listedOnce {
		w.listedOnce = true
		var ev powersave.PodsRead
		for i, p := range w.pods {
			if p != nil {
				w.shown[i] = p.Pod
				ev.Pods = append(ev.Pods, p.Pod)
			}
		}
		w.deliver(ev)
	} else {
		w.listAgain()
	}
	if !w.any(kubeAway) {
		w.deliver(powersave.KubernetesUnread{})
	}
}

// loseKubernetes has the bridge find out that the API server is away, and that it is back.
func (w *world) loseKubernetes(later func(func())) {
	life := w.life
	w.after(w.some(2*time.Second, kubeAway, 0), func() {
		if life == w.life && w.any(kubeAway) {
			w.step(powersave.KubernetesUnread{Err: "the API server is away"})
		}
	})
	later(func() {
		if w.listed && !w.any(kubeAway) {
			w.deliver(powersave.KubernetesUnread{})
		}
	})
}

// listAgain is what a client makes of the list after its watch was broken: news of what it knew and is no more, and of what is new or has
// changed. What came and went meanwhile it looks for, if it knows of it by an answer.
func (w *world) listAgain() {
	life := w.life
	for _, gone := range w.unseen {
		w.after(5*time.Second+w.some(5*time.Second, watchGap, 2), func() {
			switch {
			case life != w.life:
			case !w.listed: // broken again: it looks later
				w.unseen = append(w.unseen, gone)
			default:
				w.deliver(gone)
			}
		})
	}
	w.unseen = nil
	for i, p := range w.pods {
		old := w.shown[i]
		known := old.UID != ""
		if known && (p == nil || p.UID != old.UID) {
			w.showGone(old, i)
		}
		if p != nil && (!known || p.Pod != old) {
			w.watch(p)
		}
	}
}
