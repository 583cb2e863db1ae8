package inbox

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func isReady(q *Inbox) bool {
	select {
	case <-q.Ready():
		return true
	default:
		return false
	}
}

func TestInbox(t *testing.T) {
	q := New()
	assert.False(t, isReady(q))
	assert.Empty(t, q.Take())
	var got []int
	put := func(i int) { q.Put(func(context.Context) { got = append(got, i) }) }
	run := func() {
		for _, f := range q.Take() {
			f(t.Context())
		}
	}
	for i := range 3 { // nobody listens: Put does not wait
		put(i)
	}
	assert.True(t, isReady(q))
	assert.False(t, isReady(q), "it is said once for all that is there")
	run()
	assert.Equal(t, []int{0, 1, 2}, got)
	run()
	assert.Equal(t, []int{0, 1, 2}, got, "what was taken is not there again")

	put(3)
	assert.True(t, isReady(q), "also after it was emptied")
	run()
	assert.Equal(t, []int{0, 1, 2, 3}, got)

	// What is put while the loop works comes with the next Take, which Ready tells of.
	q.Put(func(context.Context) { put(5) })
	assert.True(t, isReady(q))
	run()
	assert.Equal(t, []int{0, 1, 2, 3}, got)
	assert.True(t, isReady(q))
	run()
	assert.Equal(t, []int{0, 1, 2, 3, 5}, got)
}

// None is lost, or handed over twice, with many who put.
func TestInboxOfMany(t *testing.T) {
	const putters, each = 8, 500
	q := New()
	next := make([]int, putters)
	total := 0
	took := func(p, i int) {
		assert.Equal(t, next[p], i, "each one's in order")
		next[p]++
		total++
	}
	var all sync.WaitGroup
	for p := range putters {
		all.Go(func() {
			for i := range each {
				q.Put(func(context.Context) { took(p, i) })
			}
		})
	}
	for total < putters*each {
		<-q.Ready()
		for _, f := range q.Take() {
			f(t.Context())
		}
	}
	all.Wait()
	assert.Empty(t, q.Take())
}
