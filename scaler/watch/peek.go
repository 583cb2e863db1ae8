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
	peekRetry  = time.Minute
)

// allJobs is what came of a read of all jobs.
type allJobs struct {
	jobs []scaler.Job
	at   time.Time
	took time.Duration
	err  error
}

// wait reads all jobs, and looks for new ones while that takes its time.
func (r *reader) wait(ctx context.Context, since time.Time) allJobs {
	cfg := &r.w.cfg
	start := cfg.Now()
	r.late.begin()
	done := make(chan allJobs, 1)
	go func() {
		jobs, at, err := cfg.Queue.QueueJobs(ctx, since)
		done <- allJobs{jobs, at, cfg.Now().Sub(start), err}
	}()
	again := time.NewTicker(cfg.Every)
	defer again.Stop()
	for {
		select {
		case a := <-done:
			return a
		case <-again.C:
			if r.peek(ctx) {
				_ = r.publish() // NodeSets that are not there any more are reported when the jobs have been read
			}
		}
	}
}

// peeks reports that reads of all jobs take so long that new jobs are looked for in between.
func (r *reader) peeks() bool {
	_, can := r.w.cfg.Queue.(Peeker)
	return can && r.jobsTook > r.w.cfg.Every/2
}

// peek looks for jobs that came after the last read of all; false: the jobs are as they were.
func (r *reader) peek(ctx context.Context) (changed bool) {
	cfg := &r.w.cfg
	peeker, can := cfg.Queue.(Peeker)
	start := cfg.Now()
	if !can || r.failed || start.Before(r.peekNext) {
		return false
	}
	var failed error
	for range peekRounds {
		ids, known := r.late.ask()
		if len(ids) == 0 {
			break
		}
		began := cfg.Now()
		jobs, marks, err := peeker.PeekJobs(ctx, ids, known)
		cfg.OnRead("new jobs", cfg.Now().Sub(began), err)
		if failed = err; err != nil {
			break
		}
		came, went, more := r.late.take(jobs, marks)
		changed = changed || came || went
		r.started = r.started || went
		if !more {
			break
		}
	}
	if changed {
		r.snap.Jobs, r.stale = r.late.with(r.jobs), true
		r.nodesOlder = r.nodesOlder || r.started
	}
	rest := max(cfg.Every, time.Duration(cfg.Rest*float64(cfg.Now().Sub(start))))
	text := ""
	if failed != nil {
		rest, text = peekRetry, failed.Error()
		if ctx.Err() == nil && text != r.peekErr {
			cfg.Log.Warn("new jobs are seen late, with the next read of all: looking for them failed", "error", failed)
		}
	}
	r.peekErr, r.peekNext = text, cfg.Now().Add(rest)
	return changed
}
