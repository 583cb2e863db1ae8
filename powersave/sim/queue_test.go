package sim_test

import "time"

// event is something that is to happen.
type event struct {
	at    time.Time
	nanos int64
	order int
	do    func()
}

// queue is a heap of events by time, then by order of arrival.
type queue struct {
	heap  []event
	order int
}

func (a *event) before(b *event) bool {
	return a.nanos < b.nanos || a.nanos == b.nanos && a.order < b.order
}

func (q *queue) push(t time.Time, do func()) {
	q.order++
	e := event{t, t.UnixNano(), q.order, do}
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = e
}

func (q *queue) pop() event {
	top := q.heap[0]
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	for i := 0; last > 0; {
		down := 2*i + 1
		if down >= last {
			q.heap[i] = e
			break
		}
		if down+1 < last && q.heap[down+1].before(&q.heap[down]) {
			down++
		}
		if e.before(&q.heap[down]) {
			q.heap[i] = e
			break
		}
		q.heap[i] = q.heap[down]
		i = down
	}
	return top
}
