package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
)

// Checker is a Queue that can tell whether all jobs are shown to it.
type Checker interface {
	// HiddenJob looks for a job that slurmctld has and keeps from the user of the Queue's token: it is not among those shown, though it was there before they
	// were read or is not shown even now. 0: there is none. The user is empty if the token does not tell.
	HiddenJob(ctx context.Context, shown map[uint32]bool) (job uint32, user string, err error)
}

// HiddenJobsError means that slurmctld keeps jobs from the user of the token. What is known is too little for figures.
type HiddenJobsError struct {
	Job  uint32 // one of them
	User string // may be empty
}

func (e *HiddenJobsError) Error() string {
	user, name := e.User, e.User
	if user == "" {
		user, name = "its user", "NAME"
	}
	return fmt.Sprintf("job %d is kept from %s, who is no operator (PrivateData=jobs in slurm.conf), and so are others, perhaps: "+
		"use a token for SlurmUser, or make the user one (sacctmgr modify user %s set adminlevel=operator)", e.Job, user, name)
}

const (
	// seeEvery is the least time between two looks whether all jobs are shown; restSee, as a multiple of what one took.
	seeEvery = 5 * time.Second
	restSee  = 20
)

// sight is what is known of whether all jobs are shown.
type sight struct {
	next   time.Time // when to look again
	owed   bool      // jobs have changed since the last look
	short  bool      // jobs were hidden once: from now on no list is taken over before a look
	failed string    // how the last look did
}

// see fails if jobs are hidden: slurmctld leaves them out without a word, and the queue would look short. A look that fails says nothing against the jobs.
func (r *reader) see(ctx context.Context, jobs []scaler.Job, changed bool) error {
	cfg, s := &r.w.cfg, &r.sight
	s.owed = s.owed || changed
	checker, ok := cfg.Queue.(Checker)
	if !ok || !s.owed || !s.short && cfg.Now().Before(s.next) {
		return nil
	}
	shown := make(map[uint32]bool, len(jobs))
	for i := range jobs {
		shown[jobs[i].ID] = true
	}
	hidden, took, err := timed(ctx, r, "states", func() (HiddenJobsError, error) {
		job, user, err := checker.HiddenJob(ctx, shown)
		return HiddenJobsError{job, user}, err
	})
	s.next, s.owed = cfg.Now().Add(max(seeEvery, restSee*took)), false
	if err != nil {
		if text := err.Error(); ctx.Err() == nil && text != s.failed {
			s.failed = text
			cfg.Log.Warn("whether Slurm shows all jobs to the token's user is not known: asking for their states failed", "error", err)
		}
		return nil
	}
	s.failed = ""
	if hidden.Job != 0 {
		s.short, r.since = true, time.Time{}
		return &hidden
	}
	return nil
}
