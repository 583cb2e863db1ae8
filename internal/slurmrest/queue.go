package slurmrest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/scaler"
)

// Queue reads what demand is reckoned from: jobs, partitions and nodes, each with the fields that scaler needs. Nodes have
// no NodeSet, and there are no NodeSets, for Slurm knows none of them. Jobs are read last, so that one
// that started meanwhile is rather seen twice than not at all.
func (c *Client) Queue(ctx context.Context) (scaler.Snapshot, error) {
	partitions, err := c.QueuePartitions(ctx)
	if err != nil {
		return scaler.Snapshot{}, err
	}
	nodes, err := c.QueueNodes(ctx)
	if err != nil {
		return scaler.Snapshot{}, err
	}
	jobs, _, err := c.QueueJobs(ctx, time.Time{})
	if err != nil {
		return scaler.Snapshot{}, err
	}
	return scaler.Snapshot{Jobs: jobs, Partitions: partitions, Nodes: nodes}, nil
}

// Select reads how slurmctld hands out nodes, and how many it may have. From 26.05 on slurmrestd tells; told is false before, and the answer slurm.conf's default.
// It does not change while slurmctld runs.
func (c *Client) Select(ctx context.Context) (s scaler.Select, told bool, err error) {
	var words []string
	most := 0
	err = c.do(ctx, call{op: "get configuration", build: func(a *api) request { return a.conf }, repeatable: true, read: func(body io.Reader) (answer.Envelope, error) {
		var conf struct {
			answer.Envelope
			Conf struct {
				Words []string        `json:"SelectTypeParameters"`
				Most  json.RawMessage `json:"MaxNodeCount"`
			} `json:"slurm_conf"`
		}
		err := json.NewDecoder(body).Decode(&conf)
		words = conf.Conf.Words
		// Without one slurmctld shows NO_VAL.
		if n, err := strconv.ParseUint(string(conf.Conf.Most), 10, 32); err == nil && n < math.MaxUint32-1 {
			most = int(n)
		}
		return conf.Envelope, err
	}})
	if errors.As(err, new(notOfferedError)) {
		return scaler.Select{}, false, nil
	}
	if err != nil {
		return scaler.Select{}, false, err
	}
	if s, err = scaler.ParseSelect(strings.Join(words, ",")); err != nil {
		return scaler.Select{}, false, err
	}
	s.OneNodeFirstFit, s.MaxNodeCount = true, most
	return s, true, nil
}

const opPartitions = "list partitions"

// QueuePartitions reads all partitions.
func (c *Client) QueuePartitions(ctx context.Context) ([]scaler.Partition, error) {
	var r *answer.Partitions
	err := c.eachPartition(ctx, func() func(*json.Decoder) error {
		r = &answer.Partitions{}
		return r.Read
	})
	if err != nil {
		return nil, err
	}
	return r.List, nil
}

// eachPartition hands all partitions to what begin gives, which is called again when a read starts anew.
func (c *Client) eachPartition(ctx context.Context, begin func() func(*json.Decoder) error) error {
	return c.do(ctx, call{op: opPartitions, build: func(a *api) request { return a.partitions }, repeatable: true, read: func(body io.Reader) (answer.Envelope, error) {
		return answer.Decode(body, "partitions", begin())
	}})
}

// QueueNodes reads all nodes. There is no way to ask only for what changed: with update_time slurmrestd 24.11 fails when nodes
// changed and partitions did not (slurmctld/nodes.c _dump_nodes, which passes the time on to both).
func (c *Client) QueueNodes(ctx context.Context) ([]scaler.Node, error) {
	var list []scaler.Node
	err := c.do(ctx, call{op: "list nodes", build: func(a *api) request { return a.nodes }, repeatable: true, long: true, read: func(body io.Reader) (answer.Envelope, error) {
		r := answer.NewCapacity()
		env, err := answer.Decode(body, "nodes", r.Read)
		list = r.List
		return env, err
	}})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// QueueJobs reads all jobs if any changed since the time that an earlier call returned; the zero time asks for them in any case.
// It returns slurmctld's clock at the answer, or the zero time if nothing changed, which costs slurmctld next to
// nothing (proc_req.c _slurm_rpc_dump_jobs). Times are whole seconds: jobs that changed in the second of
// a read are read once more. slurmctld may set its time of the last change back (backfill.c notes the start of a round after
// others have noted later changes), so now and then all have to be asked for.
//
// slurmrestd's v0.0.45 does not tell any more whether a job wants its nodes for itself, and has nothing else
// that would ("shared" was removed, "exclusive" is only in the accounting's jobs); so jobs are read with v0.0.44 there.
func (c *Client) QueueJobs(ctx context.Context, since time.Time) ([]scaler.Job, time.Time, error) {
	var list []scaler.Job
	var at time.Time
	err := c.do(ctx, call{
		op: "list jobs", repeatable: true, long: true,
		build:     func(a *api) request { return changedSince(queuedJobs(a), since) },
		unchanged: func() { list, at = nil, time.Time{} },
		read: func(body io.Reader) (answer.Envelope, error) {
			r := answer.NewQueue()
			env, err := answer.Decode(body, "jobs", r.Read)
			list, at = r.List, listedAt(env, since, r.Total)
			return env, err
		},
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	c.completeLists(ctx, list)
	return list, at, nil
}

// listedAt is slurmctld's clock at an answer with jobs; zero: it says that none has changed since.
func listedAt(env answer.Envelope, since time.Time, jobs int) time.Time {
	at := env.LastUpdate.Time()
	if at.IsZero() && (since.IsZero() || jobs > 0) {
		return time.Unix(1, 0) // it does not tell: the next call will get all
	}
	return at
}

// queuedJobs asks in the newest version that tells how jobs share their nodes.
func queuedJobs(a *api) request {
	if a.sharing != nil {
		return a.sharing
	}
	return a.jobs
}

// changedSince adds update_time to a request.
func changedSince(build request, since time.Time) request {
	if since.IsZero() {
		return build
	}
	return func(server string) (*http.Request, error) {
		req, err := build(server)
		if err != nil {
			return nil, err
		}
		query := req.URL.Query()
		query.Set("update_time", strconv.FormatInt(since.Unix(), 10))
		req.URL.RawQuery = query.Encode()
		return req, nil
	}
}
