package powersave

import (
	"container/heap"
	"time"
)

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
