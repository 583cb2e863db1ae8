// Package inbox is how a loop is told things by others without either waiting.
package inbox

import (
	"context"
	"sync"
)

// Inbox is an unbounded queue of what a loop is to do: the loop must never wait for those it waits for.
type Inbox struct {
	mu    sync.Mutex
	items []func(context.Context)
	ready chan struct{}
}

// New makes an empty one.
func New() *Inbox { return &Inbox{ready: make(chan struct{}, 1)} }

// Put adds f. It never waits.
func (q *Inbox) Put(f func(context.Context)) {
	q.mu.Lock()
	q.items = append(q.items, f)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Ready tells when there is something to Take.
func (q *Inbox) Ready() <-chan struct{} { return q.ready }

// Take empties the inbox, oldest first.
func (q *Inbox) Take() []func(context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}
