package sim_test

import "time"

// event is something that is to happen.
type event struct {
	after time.Duration // since start
	order int
	do    func()
}

// queue is a heap of events by time, then by order of arrival. An alarm is one more, of which only what was set last counts.
type queue struct {
	heap  []event
	order int
	alarm event // do nil: none
}

func (a *event) before(b *event) bool {
	return a.after < b.after || a.after == b.after && a.order < b.order
}

func (q *queue) push(after time.Duration, do func()) {
	q.order++
	e := event{after, q.order, do}
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

func (q *queue) setAlarm(after time.Duration, do func()) {
	q.order++
	q.alarm = event{after, q.order, do}
}

func (q *queue) stopAlarm() { q.alarm = event{} }

func (q *queue) pop() event {
	if a := q.alarm; a.do != nil && (len(q.heap) == 0 || a.before(&q.heap[0])) {
		q.stopAlarm()
		return a
	}
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
