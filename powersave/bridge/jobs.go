package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// tellJob writes why a job is given back into its record. What others wrote there stays, before it.
func (b *Bridge) tellJob(ctx context.Context, a powersave.TellJob) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.at(StepTell)
	jobs, err := b.Slurm.Jobs(ctx, a.Job)
	told := powersave.JobTold{Job: a.Job, Serial: a.Serial}
	slices.SortStableFunc(jobs, func(i, j powersave.SlurmJob) int { return cmp.Compare(i.HetOffset, j.HetOffset) })
	for _, j := range jobs {
		b.History.Add(history.Seen(time.Now(), j)) // its times will be other ones when it is back in the queue
		text, attempt, times := powersave.BackComment(j, a.Reason, a.Taken)
		if err == nil && !j.State.Ended() {
			err = b.updateJob(ctx, powersave.JobUpdate{ID: j.ID, AdminComment: &text})
		}
		if j.ID == a.Job {
			told.Interactive, told.Times, told.Attempt = !j.Batch, times, attempt
		}
		if j.HetJobID != 0 {
			told.Parts = append(told.Parts, powersave.JobPart{Job: j.ID, Nodes: j.Nodes})
		}
	}
	b.at(StepTold)
	b.Metrics.slurmCall("tell", err)
	if err != nil {
		told.Err = err.Error()
	}
	return told
}

// readBacks looks for jobs that were given back and do not rest.
func (b *Bridge) readBacks(ctx context.Context) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	jobs, err := b.Slurm.Jobs(ctx)
	b.Metrics.slurmCall("find", err)
	if err != nil {
		return powersave.BacksRead{Err: err.Error()}
	}
	return powersave.BacksRead{Jobs: powersave.JobsBack(jobs, time.Now())}
}

// holdJob keeps a requeued job from starting for a while. Slurm takes a begin time only of a pending job
// (job_mgr.c _update_job).
func (b *Bridge) holdJob(ctx context.Context, a powersave.HoldJob) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.at(StepHold)
	begin := time.Now().Add(a.Delay)
	held := powersave.JobHeld{Job: a.Job, Serial: a.Serial}
	jobs, err := b.Slurm.Jobs(ctx, a.Job)
	failed := err // a job that cannot be held yet is no failed call
	for _, j := range jobs {
		switch {
		case err != nil, j.State.Ended():
		case j.State.Any(powersave.JobRunning | powersave.JobConfiguring):
			b.Log.Info("job has nodes again before it could be held off", "job", j.Name(), "request", a.Request, "restarts", j.Restarts)
			held.Again = true
		case !j.State.Has(powersave.JobPending):
			err = fmt.Errorf("job %s is %s", j.Name(), j.State)
		default:
			comment, before := powersave.RestComment(j, begin)
			if before { // people may have it start sooner
				continue
			}
			u := powersave.JobUpdate{ID: j.ID, Begin: begin}
			if comment != j.AdminComment {
				u.AdminComment = &comment // with one call: a bridge that finds it knows
			}
			err = b.updateJob(ctx, u)
			if failed = err; err == nil {
				b.Log.Info("job rests", "job", j.Name(), "request", a.Request, "until", begin, "restarts", j.Restarts)
			}
		}
	}
	b.at(StepHeld)
	b.Metrics.slurmCall("hold", failed)
	if err != nil {
		held.Err = err.Error()
	}
	return held
}

// updateJob takes a job that has ended meanwhile for done.
func (b *Bridge) updateJob(ctx context.Context, u powersave.JobUpdate) error {
	err := b.Slurm.UpdateJob(ctx, u)
	var gone interface{ JobGone() bool }
	if errors.As(err, &gone) && gone.JobGone() {
		return nil
	}
	return err
}

// bootFailed tells the world of a verdict.
func (b *Bridge) bootFailed(f powersave.BootFailed) {
	b.Metrics.verdict(f)
	b.Log.Warn("boot failed", "node", f.Node, "nodeset", f.NodeSet, "offering", f.Offering, "request", f.Request, "jobs", f.Jobs,
		"class", f.Verdict.Trouble, "reason", f.Verdict.Reason)
	text := fmt.Sprintf("node %s: %s", f.Node, f.Verdict)
	if len(f.Jobs) > 0 {
		text += fmt.Sprintf(" (jobs given back: %s)", strings.Trim(fmt.Sprint(f.Jobs), "[]"))
	}
	b.Kubernetes.Warn(f.NodeSet, f.Node, f.UID, "BootFailed", text)
}
