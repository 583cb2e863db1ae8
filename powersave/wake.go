package powersave

import (
	"container/heap"
	"time"
)

// NextWake is when Step wants to be called with Tick if no event comes before. Zero: never.
func (e *Engine) NextWake() time.Time {
	next := e.reads.next()
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if len(e.wakes) > 0 {
		sooner(e.wakes[0].at)
	}
	if len(e.freeable) > 0 {
		sooner(e.freeAt)
	}
	sooner(e.roomsDue())
	sooner(e.floorsDue())
	sooner(e.updatesDue())
	for _, b := range e.backs {
		sooner(b.next())
	}
	sooner(e.found.next())
	for _, n := range e.dismissed {
		if !n.dismissal.sent && n.dismissal.retryAt.After(e.now) { // else a read is awaited
			sooner(n.dismissal.retryAt)
		}
	}
	for _, t := range e.taints {
		if !t.asking {
			sooner(t.retryAt)
		}
	}
	for _, c := range e.closed {
		if c.until.After(e.now) { // else a read is awaited
			sooner(c.until)
		}
	}
	for _, g := range e.gates {
		sooner(g.deadline)
		sooner(e.blindAt(g))
	}
	for _, g := range e.heldGates {
		sooner(g.until())
	}
	return next
}

// wake decides afresh on every node whose time has come.
func (e *Engine) wake() {
	for len(e.wakes) > 0 && !e.wakes[0].at.After(e.now) {
		w := heap.Pop(&e.wakes).(wake)
		if w.n.wakeAt.Equal(w.at) {
			w.n.wakeAt = time.Time{}
			e.decide(w.n)
		}
	}
}

// wakeAt asks for decide(n) at t, replacing a later appointment; not in this step, or wake would never end.
func (e *Engine) wakeAt(n *node, t time.Time) {
	t = later(t, e.now.Add(time.Millisecond))
	if !n.wakeAt.IsZero() && !t.Before(n.wakeAt) {
		return
	}
	n.wakeAt = t
	heap.Push(&e.wakes, wake{t, n})
}

type wake struct {
	at time.Time
	n  *node
}

type wakeHeap []wake

func (h wakeHeap) Len() int { return len(h) }
func (h wakeHeap) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].n.name < h[j].n.name
}
func (h wakeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *wakeHeap) Push(x any)   { *h = append(*h, x.(wake)) }
func (h *wakeHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	*h = old[:len(old)-1]
	return w
}
