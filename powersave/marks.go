package powersave

// MarkPod asks for a pod to be marked as one that must not be disturbed, for jobs are on it or about to be, or for that
// mark to be taken off. Answered by PodMarked.
type MarkPod struct {
	Node, NodeSet, UID string
	Busy               bool
}

// PodMarked answers MarkPod; an empty Err means that the pod is marked so, or gone.
type PodMarked struct {
	MarkPod
	Err string
}

func (MarkPod) action()  {}
func (PodMarked) event() {}

// mark keeps the pod's mark in step with what Slurm shows.
func (e *Engine) mark(n *node) {
	c := &n.care
	if n.pod == nil || n.set == "" || n.read == 0 || n.off != nil || c.marking == n.pod.UID ||
		n.pod.Phase == PodTerminating || n.pod.Phase == PodFailed || n.boot == nil && !e.leading {
		return
	}
	busy := n.slurm.State.Any(inUse) || n.boot != nil && (len(n.jobs) > 0 || n.pod.Busy)
	if busy == n.pod.Busy {
		return
	}
	if !busy && n.boot == nil && (!n.readSince(n.podRead) || !serving(n.slurm.State)) {
		return // another bridge may have just made it
	}
	if c.markAt.After(e.now) {
		e.wakeAt(n, c.markAt)
		return
	}
	c.marking = n.pod.UID
	e.do(MarkPod{Node: n.name, NodeSet: n.set, UID: n.pod.UID, Busy: busy})
}

func (e *Engine) podMarked(ev PodMarked) {
	n := e.nodes[ev.Node]
	if n == nil || n.care.marking != ev.UID {
		return
	}
	n.care.marking = ""
	switch {
	case ev.Err != "":
		e.note(Warn, n, "", "marking the pod failed, whoever empties hosts may take it away: "+ev.Err)
		n.care.markAt = e.now.Add(e.cfg.PollIdle)
	case n.pod != nil && n.pod.UID == ev.UID:
		n.pod.Busy = ev.Busy
	}
	e.decide(n)
}
