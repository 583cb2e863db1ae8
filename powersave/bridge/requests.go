package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// scan hands every request of the spool that is new to the engine.
func (b *Bridge) scan(ctx context.Context) {
	began := time.Now()
	found, corrupt, err := b.Spool.Pending(func(id string) bool { _, known := b.requests[id]; return known })
	if err != nil {
		b.Log.Error("spool cannot be read; requests wait", "spool", b.SpoolDir, "error", err)
	}
	for _, c := range corrupt {
		b.Log.Error("request set aside", "request", c.ID, "file", c.Path, "error", c.Err)
	}
	for _, r := range found {
		b.requests[r.ID] = true
		req, err := decode(r, b.Log)
		if err != nil {
			b.Log.Error("request set aside", "request", r.ID, "error", err)
			if err := b.Spool.SetAside(r.ID, err); err != nil {
				b.Log.Error("setting request aside", "request", r.ID, "error", err)
			}
			delete(b.requests, r.ID)
			continue
		}
		attributes := []any{"request", r.ID, "kind", r.Kind, "nodes", r.Nodes, "jobs", len(req.Jobs), "age", began.Sub(r.Started).Round(time.Millisecond)}
		if b.Traces != nil && r.Kind == spool.KindResume {
			attributes = append(attributes, "trace", b.Traces.TraceID(r.ID))
		}
		b.Log.Info("request", attributes...)
		b.Metrics.request(r.Kind, req.ResumeTimeout)
		b.at(StepRequest)
		b.step(ctx, powersave.RequestAccepted{Request: req})
	}
	for id, open := range maps.All(b.requests) {
		if !open {
			b.finish(ctx, id)
		}
	}
	if took := time.Since(began); took > scanTooLarge {
		b.Log.Warn("reading the spool took long", "took", took, "requests", len(b.requests))
	}
}

// finish removes requests from the spool, beside the loop and one after the other: the lock on its
// count may be held for seconds. What fails is tried again by the next scan.
func (b *Bridge) finish(ctx context.Context, ids ...string) {
	for _, id := range ids {
		b.requests[id] = true
	}
	b.finished = append(b.finished, ids...)
	if b.finishing || len(b.finished) == 0 {
		return
	}
	ids, b.finished, b.finishing = b.finished, nil, true
	b.calls.Go(func() {
		for _, id := range ids {
			if ctx.Err() != nil {
				return // the next start finds it done
			}
			b.at(StepFinish)
			err := b.Spool.Done(id)
			b.at(StepFinished)
			b.inbox.Put(func(context.Context) {
				if err != nil {
					b.requests[id] = false
					b.Log.Error("finished request stays in the spool for now", "request", id, "error", err)
					return
				}
				delete(b.requests, id)
			})
		}
		b.inbox.Put(func(ctx context.Context) {
			b.finishing = false
			b.finish(ctx)
		})
	})
}

// decode turns a spooled request into the engine's form. A resume file that cannot be read
// costs the knowledge of jobs, not the nodes.
func decode(r spool.Request, log *slog.Logger) (powersave.Request, error) {
	nodes, err := slurmconf.ParseHostlist(r.Nodes)
	if err != nil {
		return powersave.Request{}, fmt.Errorf("reading its nodes: %w", err)
	}
	req := powersave.Request{ID: r.ID, Sequence: r.Sequence(), Kind: r.Kind, Started: r.Started, Nodes: nodes}
	req.ResumeTimeout = time.Duration(r.ResumeTimeout) * time.Second
	req.SuspendTime = time.Duration(r.SuspendTime) * time.Second
	req.AllAtOnce = r.AllAtOnce
	if r.ResumeFileError != "" {
		log.Warn("request without its jobs", "request", r.ID, "error", r.ResumeFileError)
	}
	if r.ResumeFile == nil {
		return req, nil
	}
	file, err := slurmconf.ParseResumeFile(r.ResumeFile)
	if err != nil {
		log.Warn("request without its jobs", "request", r.ID, "error", err)
		return req, nil
	}
	for _, j := range file.Jobs {
		req.Jobs = append(req.Jobs, powersave.Job{ID: j.JobID, Nodes: j.NodesAlloc, Partition: j.Partition})
	}
	return req, nil
}
