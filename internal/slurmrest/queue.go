package slurmrest

import (
	"context"
	"io"

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/scaler"
)

// Queue reads what demand is reckoned from: jobs, partitions and nodes, each with the fields that scaler needs. Nodes have
// no NodeSet, and there are no NodeSets, for Slurm knows none of them. Jobs are read last, so that one
// that started meanwhile is rather seen twice than not at all.
//
// slurmrestd's v0.0.45 does not tell any more whether a job wants its nodes for itself, and has nothing else
// that would ("shared" was removed, "exclusive" is only in the accounting's jobs); so jobs are read with v0.0.44 there.
func (c *Client) Queue(ctx context.Context) (scaler.Snapshot, error) {
	var s scaler.Snapshot
	err := c.do(ctx, call{op: "list partitions", build: func(a *api) request { return a.partitions }, repeatable: true, read: func(body io.Reader) (answer.Envelope, error) {
		r := answer.Partitions{}
		env, err := answer.Decode(body, "partitions", r.Read)
		s.Partitions = r.List
		return env, err
	}})
	if err != nil {
		return scaler.Snapshot{}, err
	}
	err = c.do(ctx, call{op: "list nodes", build: func(a *api) request { return a.nodes }, repeatable: true, long: true, read: func(body io.Reader) (answer.Envelope, error) {
		r := answer.NewCapacity()
		env, err := answer.Decode(body, "nodes", r.Read)
		s.Nodes = r.List
		return env, err
	}})
	if err != nil {
		return scaler.Snapshot{}, err
	}
	err = c.do(ctx, call{op: "list jobs", build: queuedJobs, repeatable: true, long: true, read: func(body io.Reader) (answer.Envelope, error) {
		r := answer.NewQueue()
		env, err := answer.Decode(body, "jobs", r.Read)
		s.Jobs = r.List
		return env, err
	}})
	if err != nil {
		return scaler.Snapshot{}, err
	}
	return s, nil
}

// queuedJobs asks in the newest version that tells how jobs share their nodes.
func queuedJobs(a *api) request {
	if a.sharing != nil {
		return a.sharing
	}
	return a.jobs
}
