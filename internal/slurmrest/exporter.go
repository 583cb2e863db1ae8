package slurmrest

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
)

// EachNode reads all nodes and hands each over as it comes in. begin is called before the first, and again when a read starts anew after a failure. What was handed
// over is all nodes only if there is no error.
func (c *Client) EachNode(ctx context.Context, begin func() func(exporter.Node)) error {
	return c.do(ctx, call{op: "list nodes", build: func(a *api) request { return a.nodes }, repeatable: true, long: true, read: func(body io.Reader) (answer.Envelope, error) {
		return answer.Decode(body, "nodes", answer.NewNodeFacts(begin()).Read)
	}})
}

// EachJob does the same with jobs, unless none has changed since the time that an earlier call returned; see QueueJobs, and its times.
func (c *Client) EachJob(ctx context.Context, since time.Time, begin func() func(exporter.Job)) (time.Time, error) {
	var at time.Time
	err := c.do(ctx, call{
		op: "list jobs", repeatable: true, long: true,
		build:     func(a *api) request { return changedSince(a.jobs, since) },
		unchanged: func() { at = time.Time{} },
		read: func(body io.Reader) (answer.Envelope, error) {
			r := answer.NewJobFacts(begin())
			env, err := answer.Decode(body, "jobs", r.Read)
			at = listedAt(env, since, r.Total)
			return env, err
		},
	})
	if err != nil {
		return time.Time{}, err
	}
	return at, nil
}

// PartitionFacts reads all partitions.
func (c *Client) PartitionFacts(ctx context.Context) ([]exporter.Partition, error) {
	var r *answer.PartitionFacts
	err := c.eachPartition(ctx, func() func(*json.Decoder) error {
		r = &answer.PartitionFacts{}
		return r.Read
	})
	if err != nil {
		return nil, err
	}
	return r.List, nil
}

// Diag reads slurmctld's statistics.
func (c *Client) Diag(ctx context.Context) (exporter.Diag, error) {
	var d exporter.Diag
	err := c.do(ctx, call{op: "get statistics", build: func(a *api) request { return a.diag }, repeatable: true, read: func(body io.Reader) (env answer.Envelope, err error) {
		env, d, err = answer.DecodeDiag(body)
		return env, err
	}})
	if err != nil {
		return exporter.Diag{}, err
	}
	return d, nil
}
