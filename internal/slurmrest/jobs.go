package slurmrest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/powersave"
)

// Jobs returns the jobs with these IDs, or all jobs when none is given, each het job with
// all its components. Jobs slurmctld has forgotten (MinJobAge after their end) are missing
// from the answer; so are the other tasks of an array whose first ID is asked for.
//
// slurmrestd reads one job or all of them, so few are asked for one by one. The bounds for
// nodes suit jobs, too: 7 ms for one, 0.6 ms for each in the list (26.05, 1,000 jobs).
func (c *Client) Jobs(ctx context.Context, ids ...uint32) ([]powersave.SlurmJob, error) {
	if len(ids) == 0 {
		return c.listJobs(ctx, nil)
	}
	want := make(map[uint32]bool, len(ids))
	for _, id := range ids {
		want[id] = true
	}
	c.mu.Lock()
	total := c.totalJobs
	c.mu.Unlock()
	if len(want) <= max(minSingle, total/singleShare) {
		return c.singleJobs(ctx, ids)
	}
	// Components of a het job are known only when the list has been read.
	jobs, err := c.listJobs(ctx, func(j powersave.SlurmJob) bool { return want[j.ID] || j.HetJobID != 0 })
	if err != nil {
		return nil, err
	}
	het := map[uint32]bool{}
	for _, j := range jobs {
		if want[j.ID] && j.HetJobID != 0 {
			het[j.HetJobID] = true
		}
	}
	return slices.DeleteFunc(jobs, func(j powersave.SlurmJob) bool { return !want[j.ID] && !het[j.HetJobID] }), nil
}

// JobsOn returns the jobs that hold any of the nodes now, or any node at all when none is
// named. It reads all jobs.
func (c *Client) JobsOn(ctx context.Context, nodes ...string) ([]powersave.SlurmJob, error) {
	want := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		want[n] = true
	}
	return c.listJobs(ctx, func(j powersave.SlurmJob) bool {
		return len(want) == 0 && len(j.Nodes) > 0 || slices.ContainsFunc(j.Nodes, func(n string) bool { return want[n] })
	})
}

func (c *Client) singleJobs(ctx context.Context, ids []uint32) ([]powersave.SlurmJob, error) {
	var jobs []powersave.SlurmJob
	have := map[uint32]bool{}
	// add asks for one job. The answer for a het leader holds all components, the one for
	// an array's ID all tasks (job_mgr.c pack_one_job).
	add := func(id uint32) error {
		r, err := c.readJobs(ctx, func(j powersave.SlurmJob) bool { return !have[j.ID] && (j.ID == id || j.HetJobID == id) }, call{
			op: "get job", detail: fmt.Sprint(id), build: func(a *api) request { return a.job(fmt.Sprint(id)) }, repeatable: true,
		})
		var e *Error
		switch {
		case errors.As(err, &e) && e.Number == errInvalidJobID:
			return nil
		case err != nil:
			return err
		}
		for _, j := range r.List {
			have[j.ID] = true
		}
		jobs = append(jobs, r.List...)
		return nil
	}
	for _, id := range ids {
		if have[id] {
			continue
		}
		n := len(jobs)
		if err := add(id); err != nil {
			return nil, err
		}
		if len(jobs) == n+1 && jobs[n].HetJobID != 0 && jobs[n].HetJobID != id {
			if err := add(jobs[n].HetJobID); err != nil {
				return nil, err
			}
		}
	}
	return jobs, nil
}

func (c *Client) listJobs(ctx context.Context, want func(powersave.SlurmJob) bool) ([]powersave.SlurmJob, error) {
	r, err := c.readJobs(ctx, want, call{op: "list jobs", build: func(a *api) request { return a.jobs }, repeatable: true, long: true})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.totalJobs = r.Total
	c.mu.Unlock()
	return r.List, nil
}

func (c *Client) readJobs(ctx context.Context, want func(powersave.SlurmJob) bool, q call) (*answer.Jobs, error) {
	var r *answer.Jobs
	q.read = func(body io.Reader) (answer.Envelope, error) {
		r = answer.NewJobs(want)
		return answer.Decode(body, "jobs", r.Read)
	}
	if err := c.do(ctx, q); err != nil {
		return nil, err
	}
	return r, nil
}

// UpdateJob changes one job. slurmctld takes an admin comment from SlurmUser until the job
// ends, and a begin time while it is pending; a comment sent together with a refused begin
// time may stand all the same (job_mgr.c _update_job). So the reason is written before a job
// is requeued or killed, and its new begin time afterwards.
//
// See Error's JobGone and JobNotPending for what may be said against it.
func (c *Client) UpdateJob(ctx context.Context, u powersave.JobUpdate) error {
	if u.AdminComment == nil && u.Begin.IsZero() {
		return nil
	}
	return c.do(ctx, call{
		op: "update job", detail: clip(u.String(), 500), repeatable: true,
		build: func(a *api) request { return a.updateJob(fmt.Sprint(u.ID), u) },
		read:  func(body io.Reader) (answer.Envelope, error) { return answer.DecodeStatus(body, "results") },
	})
}

// RequeueJob puts a running or configuring job back into the queue, a het job as a whole;
// with hold it needs a release. A job that is pending already stays as it is, one that has
// ended too: Slurm alone would run it again.
//
// slurmrestd offers it from v0.0.45 (Slurm 26.05) only; with earlier ones the error has
// NotOffered() bool. There a job is requeued by taking a node from it (power_down_force)
// or by its PrologSlurmctld's failure. See Error's NotRequeueable, too.
func (c *Client) RequeueJob(ctx context.Context, j powersave.SlurmJob, hold bool) error {
	name, err := target(j)
	if err != nil {
		return fmt.Errorf("requeue: %w", err)
	}
	err = c.do(ctx, call{
		op: "requeue job", detail: name, repeatable: true,
		build: func(a *api) request {
			if a.requeue == nil {
				return nil
			}
			return a.requeue(name, hold)
		},
		read: func(body io.Reader) (answer.Envelope, error) { return answer.DecodeStatus(body, "status") },
	})
	var e *Error
	if errors.As(err, &e) && e.Number == errJobPending {
		return nil
	}
	return err
}

// CancelJob ends a job for good, whatever its state, a het job as a whole. It ends as
// CANCELLED by SlurmUser; slurmctld stops its PrologSlurmctld.
func (c *Client) CancelJob(ctx context.Context, j powersave.SlurmJob) error {
	name, err := target(j)
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	err = c.do(ctx, call{
		op: "cancel job", detail: name, repeatable: true,
		build: func(a *api) request { return a.cancel(name) },
		read:  func(body io.Reader) (answer.Envelope, error) { return answer.DecodeStatus(body, "status") },
	})
	var e *Error
	if errors.As(err, &e) && e.Number == errAlreadyDone {
		return nil
	}
	return err
}

// target names exactly this job in a requeue or cancel. The ID of an array's last task is
// the array's own, and would reach all its tasks (job_mgr.c job_requeue2); het components
// other than the leader are refused there.
func target(j powersave.SlurmJob) (string, error) {
	switch {
	case j.ID == 0:
		return "", errors.New("no job ID")
	case j.ArrayJobID != 0 && j.ArrayTaskID < 0:
		return "", fmt.Errorf("job %d stands for several pending tasks of array %d", j.ID, j.ArrayJobID)
	case j.HetJobID != 0:
		return fmt.Sprint(j.HetJobID), nil
	}
	return j.Name(), nil
}

// JobGone reports whether slurmctld does not know the job (any more), or it has ended.
func (e *Error) JobGone() bool {
	return e.Number == errInvalidJobID || e.Number == errJobFinished || e.Number == errAlreadyDone
}

// JobNotPending reports whether the change is for pending jobs only, and this one is not, or not yet again.
func (e *Error) JobNotPending() bool { return e.Number == errJobNotPending }

// NotRequeueable reports whether the job cannot be requeued: the user forbids it, or it was
// not submitted by sbatch.
func (e *Error) NotRequeueable() bool { return e.Number == errDisabled || e.Number == errBatchOnly }
