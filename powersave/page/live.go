package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/powersave/bridge"
)

// frame is what all who watch are to see. It is never changed, but replaced.
type frame struct {
	view   []byte  // JSON of the newest View; nil: there is none yet
	number uint64  // of that view
	beat   []byte  // JSON of a beat
	looked *looked // what view was made of, for searches
	err    error   // why the newest look has seen nothing
	next   chan struct{}
}

// beat tells between views, which come only when something has changed, that they are of now, or why they are not.
type beat struct {
	Time      time.Time `json:"time"`
	SlurmRead time.Time `json:"slurmRead,omitzero"`
	Error     string    `json:"error,omitempty"` // why there is nothing newer than the view
}

// looked is what a look has seen.
type looked struct {
	status bridge.Status
	over   []Boot
}

// live is what those who watch share.
type live struct {
	mu      sync.Mutex
	now     frame
	viewers int
	ended   bool
	wanted  chan struct{} // somebody begins to watch
}

func newLive() *live {
	return &live{now: frame{next: make(chan struct{})}, wanted: make(chan struct{}, 1)}
}

// enter says whether somebody more may watch.
func (l *live) enter(most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.viewers >= most || l.ended {
		return false
	}
	l.viewers++
	select {
	case l.wanted <- struct{}{}:
	default:
	}
	return true
}

// leave forgets what was seen when the last one goes: who comes next would take it for new.
func (l *live) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.viewers--; l.viewers == 0 {
		l.now.view, l.now.beat, l.now.looked, l.now.err = nil, nil, nil, nil
	}
}

func (l *live) watched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.viewers > 0
}

func (l *live) frame() (f frame, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.ended
}

// show replaces the frame. A view that says the same, or that is not there because of err, stays as it was. While nobody watches nothing is kept, see leave.
func (l *live) show(view []byte, b beat, seen *looked, err error) {
	if err != nil {
		b.Error = err.Error()
	}
	text, _ := json.Marshal(b) // times and texts cannot fail
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.viewers == 0 {
		return
	}
	f := l.now
	f.err = err
	if err == nil {
		f.looked = seen
		if !bytes.Equal(view, f.view) {
			f.view = view
			f.number++
		}
	}
	f.beat, f.next = text, make(chan struct{})
	close(l.now.next)
	l.now = f
}

// end lets all go who watch.
func (l *live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.now.next)
	}
}

// Run looks while somebody watches, until ctx is done. Then nobody may watch any more.
func (p *Page) Run(ctx context.Context) error {
	defer p.live.end()
	if p.Demand != nil {
		var asking sync.WaitGroup
		defer asking.Wait()
		asking.Go(func() { p.follow(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.live.wanted:
		}
		for p.live.watched() { // however many come and go
			began := time.Now()
			p.look(ctx)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(max(p.every, min(rest*time.Since(began), longestRest))):
			}
		}
	}
}

// rest is how many times as long as a look took the next one waits: the loop that answers has more to do than that. Beyond longestRest the look was no work, but waiting.
const (
	rest        = 10
	longestRest = 10 * time.Second
)

// look shows what is there now.
func (p *Page) look(ctx context.Context) {
	seen, view, err := p.see(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.live.show(nil, beat{Time: time.Now()}, nil, err)
		return
	}
	p.live.show(view, beat{Time: seen.status.Engine.Time, SlurmRead: seen.status.Engine.SlurmRead}, seen, nil)
}

// see asks the bridge, reads the history's end, and makes the View of it, as JSON. A fault of ours is an error like others: what only shows things must not end the bridge.
func (p *Page) see(ctx context.Context) (seen *looked, view []byte, err error) {
	defer func() {
		fault := recover()
		if fault == nil {
			p.faulty = p.faulty && err != nil
			return
		}
		err = fmt.Errorf("it cannot be shown (%v): the bridge's log has more", fault)
		if !p.faulty {
			p.Log.Error("the page cannot be made; power saving goes on", "panic", fault, "stack", string(debug.Stack()))
		}
		p.faulty = true
	}()
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	st, err := p.Bridge.Snapshot(ctx)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = busy(lookWait)
		}
		return nil, nil, err
	}
	entries, err := p.Recent.Newest()
	v, over := Look(p.Cluster, st, entries)
	if err != nil {
		v.Trouble = append(v.Trouble, "What happened before the bridge began is not shown: "+err.Error())
	}
	v.Scaler, v.Demand = p.Demand != nil, p.demanded.Load()
	if view, err = json.Marshal(v); err != nil { // a figure that is no number
		return nil, nil, fmt.Errorf("the page cannot be written as JSON: %w", err)
	}
	return &looked{status: st, over: over}, view, nil
}

const lookWait = 5 * time.Second

func busy(waited time.Duration) error {
	return fmt.Errorf("the bridge did not answer within %v: look into its log", waited)
}
