package watch

import (
	"context"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
)

// Peeker is a Queue that can look at single jobs.
type Peeker interface {
	// PeekJobs looks at the jobs with these IDs. Those that are pending it reads, unless their mark in known is still the same. The marks are of all
	// these jobs that slurmctld has, in any state; one changes when the job's state does, or the pending tasks of its array.
	PeekJobs(ctx context.Context, ids []uint32, known map[uint32]string) (jobs []scaler.Job, marks map[uint32]string, err error)
}

const (
	peekRounds = 4 // looks in turn, while there are ever more new jobs
	peekMost   = 30 * time.Second
	// peekRetry is the pause after a look that failed; it doubles.
	peekRetry, peekRetryMost = 2 * time.Second, time.Minute
)

// peeked is what came of a look for new jobs.
type peeked struct {
	question
	jobs  []scaler.Job
	marks map[uint32]string
	took  time.Duration
	err   error
}

// peeker looks for new jobs, one look at a time.
type peeker struct {
	under  bool        // way
	answer chan peeked // of the one that is
	next   time.Time   // when the next one may be
	rounds int         // looks in turn
	took   time.Duration
	failed string // how the last one did
	pause  time.Duration
}

// during makes a read, and looks for new jobs and takes in what else changes while that takes its time. A look that hangs holds up nothing.
func (r *reader) during(ctx context.Context, read func()) {
	done := make(chan struct{})
	go func() { defer close(done); read() }()
	from := r.w.cfg.Now()
	if !r.peeks() {
		from = from.Add(r.w.cfg.Every) // what is read fast tells of new jobs itself
	}
	for {
		var due <-chan time.Time
		var timer *time.Timer
		if r.mayPeek() {
			next := r.peek.next
			if next.Before(from) {
				next = from
			}
			timer = time.NewTimer(next.Sub(r.w.cfg.Now()))
			due = timer.C
		}
		changed := true
		select {
		case <-done:
			stop(timer)
			return
		case <-due:
			r.startPeek(ctx)
			changed = false
		case p := <-r.peek.answer:
			changed = r.takePeek(ctx, p)
		case <-r.sets:
			r.sets, r.stale = nil, true
		case <-r.w.wake:
			r.stale = true
		}
		stop(timer)
		if changed && !r.failed && !r.jobsSeen.IsZero() {
			_ = r.publish() // NodeSets that are not there any more are reported when all has been read
		}
	}
}

func stop(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// peeks reports that reads of all jobs take so long that new jobs are looked for in between.
func (r *reader) peeks() bool {
	_, can := r.w.cfg.Queue.(Peeker)
	return can && r.jobsTook > r.w.cfg.Every/2
}

// mayPeek reports that a look could begin once it is time: while reads fail there are no figures for it to add to.
func (r *reader) mayPeek() bool {
	_, can := r.w.cfg.Queue.(Peeker)
	return can && !r.peek.under && !r.failed && !r.jobsSeen.IsZero()
}

// startPeek begins to look for jobs that came after the last read of all.
func (r *reader) startPeek(ctx context.Context) {
	cfg := &r.w.cfg
	q := r.late.ask()
	if len(q.ids) == 0 {
		r.peek.next = cfg.Now().Add(cfg.Every)
		return
	}
	r.peek.under = true
	go func() {
		ctx, cancel := context.WithTimeout(ctx, peekMost)
		defer cancel()
		start := cfg.Now()
		jobs, marks, err := cfg.Queue.(Peeker).PeekJobs(ctx, q.ids, q.known)
		r.peek.answer <- peeked{q, jobs, marks, cfg.Now().Sub(start), err}
	}()
}

// takePeek takes in what came of a look; false: the jobs are as they were.
func (r *reader) takePeek(ctx context.Context, p peeked) (changed bool) {
	cfg, k := &r.w.cfg, &r.peek
	k.under = false
	cfg.OnRead("new jobs", p.took, p.err)
	k.took += p.took
	k.rounds++
	if p.err != nil {
		k.pause = min(max(peekRetry, 2*k.pause), peekRetryMost)
		if text := p.err.Error(); ctx.Err() == nil && text != k.failed {
			k.failed = text
			cfg.Log.Warn("new jobs are seen late, with the next read of all: looking for them failed", "error", p.err)
		}
		k.next, k.rounds, k.took = cfg.Now().Add(k.pause), 0, 0
		return false
	}
	k.failed, k.pause = "", 0
	came, went, more := r.late.take(p.question, p.jobs, p.marks)
	if came || went {
		r.snap.Jobs, r.stale = r.late.with(r.jobs), true
		r.started = r.started || went
		r.nodesOlder = r.nodesOlder || r.started
	}
	if more && k.rounds < peekRounds {
		k.next = cfg.Now()
		return came || went
	}
	k.next = cfg.Now().Add(max(cfg.Every, time.Duration(cfg.Rest*float64(k.took))))
	k.rounds, k.took = 0, 0
	return came || went
}

// endPeek waits for the look that is under way.
func (r *reader) endPeek() {
	if r.peek.under {
		<-r.peek.answer
		r.peek.under = false
	}
}
