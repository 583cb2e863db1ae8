package watch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
)

// private is a slurmctld that keeps some jobs from the token's user.
type private struct {
	*slurm
	lock   sync.Mutex
	others map[uint32]bool
	user   string
	err    error
	looks  int
}

func (s *private) QueueJobs(ctx context.Context, since time.Time) ([]scaler.Job, time.Time, error) {
	jobs, at, err := s.slurm.QueueJobs(ctx, since)
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.DeleteFunc(jobs, func(j scaler.Job) bool { return s.others[j.ID] }), at, err
}

func (s *private) HiddenJob(_ context.Context, shown map[uint32]bool) (uint32, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock.Lock()
	defer s.lock.Unlock()
	s.looks++
	for _, j := range s.jobs {
		if s.err == nil && s.others[j.ID] && !shown[j.ID] {
			return j.ID, s.user, nil
		}
	}
	return 0, "", s.err
}

func (s *private) set(change func()) {
	s.lock.Lock()
	defer s.lock.Unlock()
	change()
}

func (s *private) end(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = slices.DeleteFunc(s.jobs, func(j scaler.Job) bool { return j.ID == id })
	s.changedAt = time.Now().Unix()
}

func TestHiddenJobs(t *testing.T) {
	const text = "Slurm's queue is not shown in full: job 2 is kept from alice, who is no operator (PrivateData=jobs in slurm.conf), and so are others, perhaps: " +
		"use a token for SlurmUser, or make the user one (sacctmgr modify user alice set adminlevel=operator)"
	run := func(name string, test func(t *testing.T, s *private, w *Watcher)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, ns := cluster()
				s := &private{slurm: base, user: "alice", others: map[uint32]bool{2: true}}
				s.submit(1, "cpu")
				w := New(Config{Queue: s, NodeSets: ns, Log: slog.New(slog.DiscardHandler)})
				ctx, cancel := context.WithCancel(t.Context())
				go func() { _ = w.Run(ctx) }()
				defer synctest.Wait()
				defer cancel()
				test(t, s, w)
			})
		})
	}
	run("from the start", func(t *testing.T, s *private, w *Watcher) {
		s.submit(2, "cpu")
		for range 100 { // at no moment a figure
			time.Sleep(100 * time.Millisecond)
			_, err := w.Latest()
			require.Error(t, err)
		}
		_, err := w.Latest()
		require.EqualError(t, err, text)
		require.ErrorAs(t, err, new(*NotReadError), "KEDA is told Unavailable")
	})
	run("later: what was known counts no more, until all is shown", func(t *testing.T, s *private, w *Watcher) {
		time.Sleep(3 * time.Second)
		assert.Equal(t, 1, nodes(t, w, "cpu"))
		s.submit(2, "cpu")
		time.Sleep(5 * time.Second)
		_, err := w.Latest()
		require.EqualError(t, err, text)
		s.set(func() { s.others = nil }) // alice is an operator now
		time.Sleep(6 * time.Second)
		assert.Equal(t, 2, nodes(t, w, "cpu"))
	})
	run("it ends, and another one comes", func(t *testing.T, s *private, w *Watcher) {
		s.submit(2, "cpu")
		time.Sleep(2 * time.Second)
		s.end(2)
		time.Sleep(6 * time.Second)
		assert.Equal(t, 1, nodes(t, w, "cpu"), "all there is")
		s.set(func() { s.others[3] = true })
		s.submit(3, "cpu")
		time.Sleep(time.Second) // no list is trusted any more
		_, err := w.Latest()
		require.ErrorContains(t, err, "job 3 is kept from alice")
	})
	run("a token that does not tell its user", func(t *testing.T, s *private, w *Watcher) {
		s.set(func() { s.user = "" })
		s.submit(2, "cpu")
		time.Sleep(2 * time.Second)
		_, err := w.Latest()
		require.ErrorContains(t, err, "job 2 is kept from its user, who is no operator")
		require.ErrorContains(t, err, "sacctmgr modify user NAME set")
	})
	run("a look that fails", func(t *testing.T, s *private, w *Watcher) {
		s.set(func() { s.err = errors.New("not offered") })
		s.submit(2, "cpu")
		time.Sleep(2 * time.Second)
		assert.Equal(t, 1, nodes(t, w, "cpu"), "says nothing against the jobs")
	})
	run("few looks", func(t *testing.T, s *private, _ *Watcher) {
		time.Sleep(time.Second)
		for id := range uint32(60) {
			s.submit(id+100, "cpu")
			time.Sleep(time.Second)
		}
		s.set(func() {
			assert.LessOrEqual(t, s.looks, 13)
			assert.GreaterOrEqual(t, s.looks, 10)
			s.looks = 0
		})
		time.Sleep(5 * time.Minute)
		s.set(func() { assert.LessOrEqual(t, s.looks, 11, "with each read of all, changed or not") })
	})
}
