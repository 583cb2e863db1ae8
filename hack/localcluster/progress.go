package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// stillAfter is how often a long step says that it is still at work.
const stillAfter = 15 * time.Second

// progress prints what happens, one line a step, with the time it took.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, start: time.Now()} }

func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "[%6.1fs] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// step announces a long step, reports every now and then, and ends with the
// returned function.
func (p *progress) step(format string, args ...any) (done func()) {
	what, began, ended := fmt.Sprintf(format, args...), time.Now(), make(chan struct{})
	p.say("%s", what)
	go func() {
		tick := time.NewTicker(stillAfter)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				p.say("%s: %.0fs so far", what, time.Since(began).Seconds())
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(ended)
		p.say("%s: took %.1fs", what, time.Since(began).Seconds())
	})
}
