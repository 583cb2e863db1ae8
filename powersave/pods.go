package powersave

import (
	"fmt"
	"time"
)

// KubernetesUnread says that pods or NodeSets cannot be read at present, and why; without Err that they can be again.
// Until then nothing is taken down for what was known of them before.
type KubernetesUnread struct{ Err string }

func (KubernetesUnread) event() {}

// kubernetesUnread takes in whether pods and NodeSets can be read. What is to be taken down because two sightings agree needs
// both of them while they can.
func (e *Engine) kubernetesUnread(err string) {
	e.blind = err != ""
	for _, n := range e.all() {
		if n.boot != nil { // what could end its trouble cannot while Kubernetes is away
			n.boot.troubleAt = e.now
			if n.pod == nil {
				n.boot.clearAt = e.now
			}
		}
		n.strayAt, n.strayOK = time.Time{}, false
		n.care.lostAt, n.care.downAt = time.Time{}, time.Time{}
	}
	if !e.blind {
		e.reads.wantComplete(e.now)
	}
}

func (e *Engine) readPods(pods []Pod) {
	e.podsRead = true
	have := make(map[string]bool, len(pods))
	for _, p := range pods {
		have[p.Node] = true
		e.setPod(e.node(p.Node), p)
	}
	for _, n := range e.all() {
		if !have[n.name] && n.pod != nil {
			n.dropPod() // not for good: a list can be older than the pod
		}
		e.decide(n)
	}
}

func (e *Engine) seePod(p Pod) {
	n := e.node(p.Node)
	e.setPod(n, p)
	e.decide(n)
}

func (e *Engine) losePod(name, uid string) {
	n := e.nodes[name]
	if n == nil {
		return
	}
	if b := n.boot; b != nil && b.release == nil && n.pod != nil && n.pod.UID == uid && n.deleting != uid &&
		n.pod.Generation >= b.generation && n.pod.Phase != PodFailed {
		e.note(Warn, n, b.request(), "pod "+uid+" was taken away while its node booted")
	}
	if b := n.boot; b != nil && b.release == nil && n.pod != nil && n.pod.UID == uid && n.pod.Trouble == TroubleLost && !n.outdated() {
		b.createTrouble, b.problem = e.trouble(n) // until there is another
	}
	n.losePod(uid)
	e.placeEnds(n)
	e.decide(n)
}

// setPod takes in a pod; one with another UID has taken the place of the one known before.
func (n *node) setPod(p Pod) {
	if n.goneUID == p.UID {
		return // an answer that was overtaken by the pod's end
	}
	if n.pod == nil {
		n.pod = new(Pod)
	}
	*n.pod = p
}

func (n *node) losePod(uid string) {
	n.goneUID = uid
	if n.pod != nil && n.pod.UID == uid {
		n.dropPod()
	}
}

// dropPod also begins the sightings anew: what disagreed with Slurm is gone, and a power-up without a pod is another matter.
func (n *node) dropPod() {
	n.pod, n.deleting, n.delTries = nil, "", 0
	n.strayAt, n.strayOK = time.Time{}, false
}

func (e *Engine) podCreated(ev PodCreated) {
	n := e.nodes[ev.Node]
	if n == nil {
		return
	}
	n.creating = false
	if b := n.boot; b != nil && b.generation == ev.Generation {
		b.tries, b.createTrouble, b.alone = 0, TroubleNone, false
	}
	if n.pod == nil {
		p := Pod{Node: ev.Node, NodeSet: n.set, UID: ev.UID, Generation: ev.Generation, Phase: PodPending, Created: e.now, Busy: len(n.jobs) > 0, Offering: n.making, Revision: e.sets[n.set].Revision}
		e.setPod(n, p)
	}
	e.decide(n)
}

func (e *Engine) podCreateFailed(ev PodCreateFailed) {
	n := e.nodes[ev.Node]
	if n == nil {
		return
	}
	n.creating = false
	b := n.boot
	if b == nil || b.generation != ev.Generation {
		e.decide(n)
		return
	}
	if ev.Existing != nil && n.pod == nil {
		e.setPod(n, *ev.Existing)
	}
	if n.pod == nil {
		if n.makingRoom {
			e.unuseRoom(n)
		}
		b.problem, b.createTrouble, b.triedRead = ev.Err, ev.Trouble, e.reads.count
		if alone := ev.Permanent && ev.Trouble == TroubleNone; alone != b.alone {
			// An API server that has just started refuses what it will take a moment later: it is asked again well before the verdict.
			b.alone, b.tries = alone, 0
		}
		b.everywhere = ev.Everywhere
		if b.alone {
			b.createTrouble = TroubleConfig
		}
		e.note(Warn, n, b.request(), "creating pod failed: "+ev.Err)
		b.retryAt = e.now.Add(pause(b.tries))
		if ev.Permanent && !b.alone {
			b.retryAt = e.now.Add(retryMost)
		}
		b.tries++
	}
	e.decide(n)
}

func (e *Engine) podDeleteFailed(ev PodDeleteFailed) {
	n := e.nodes[ev.Node]
	if n == nil || n.deleting != ev.UID {
		return
	}
	n.deleting = ""
	// The call may have taken long: Slurm is looked at again before the next.
	if n.off != nil {
		n.off.read = e.reads.count
	}
	if n.boot != nil {
		n.boot.read = e.reads.count
	}
	if ev.Late { // nothing has failed, there is much to do
		e.decide(n)
		return
	}
	e.note(Warn, n, "", fmt.Sprintf("deleting pod %s failed: %s", ev.UID, ev.Err))
	n.delRetry = e.now.Add(pause(n.delTries))
	n.delTries++
	e.wakeAt(n, n.delRetry)
}
