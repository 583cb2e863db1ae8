//go:build integration

package slurmrest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/powersave"
)

// realJobs submits jobs that wait for nodes which never come.
type realJobs struct {
	*Client
	t   *testing.T
	ctx context.Context
}

// submit takes job descriptions, several for a het job, and returns the first ID.
func (r realJobs) submit(more map[string]any, components ...map[string]any) uint32 {
	r.t.Helper()
	describe := func(more map[string]any) map[string]any {
		d := map[string]any{"name": "slurmrest-test", "current_working_directory": "/tmp", "environment": []string{"PATH=/bin"}, "exclusive": []string{"true"}, "requeue": true}
		for k, v := range more {
			d[k] = v
		}
		return d
	}
	body := map[string]any{"script": "#!/bin/sh\nsleep 1000\n"}
	if components == nil {
		body["job"] = describe(more)
	} else {
		list := []any{describe(more)}
		for _, c := range components {
			list = append(list, describe(c))
		}
		body["jobs"] = list
	}
	text, err := json.Marshal(body)
	require.NoError(r.t, err)
	var id uint32
	err = r.do(r.ctx, call{
		op: "submit job",
		build: func(a *api) request {
			return func(server string) (*http.Request, error) {
				req, err := http.NewRequest(http.MethodPost, server+"slurm/"+a.version+"/job/submit", bytes.NewReader(text))
				if err == nil {
					req.Header.Set("Content-Type", "application/json")
				}
				return req, err
			}
		},
		read: func(body io.Reader) (answer.Envelope, error) {
			var a struct {
				answer.Envelope
				ID uint32 `json:"job_id"`
			}
			err := json.NewDecoder(body).Decode(&a)
			id = a.ID
			return a.Envelope, err
		},
	})
	require.NoError(r.t, err)
	require.NotZero(r.t, id)
	r.t.Cleanup(func() {
		// Also after a failure: other tests want the nodes.
		_ = r.CancelJob(context.Background(), powersave.SlurmJob{ID: id})
	})
	return id
}

// until reads a job until ok.
func (r realJobs) until(id uint32, what string, ok func(powersave.SlurmJob) bool) powersave.SlurmJob {
	r.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		jobs, err := r.Jobs(r.ctx, id)
		require.NoError(r.t, err)
		require.NotEmpty(r.t, jobs, "job %d", id)
		if ok(jobs[0]) {
			return jobs[0]
		}
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			r.t.Fatalf("job %d is not %s: %+v", id, what, jobs[0])
		}
	}
}

func (r realJobs) configuring(id uint32, nodes int) powersave.SlurmJob {
	r.t.Helper()
	return r.until(id, "configuring", func(j powersave.SlurmJob) bool {
		return j.State.Has(powersave.JobRunning|powersave.JobConfiguring) && len(j.Nodes) == nodes
	})
}

func (r realJobs) ended(id uint32) powersave.SlurmJob {
	r.t.Helper()
	return r.until(id, "ended", func(j powersave.SlurmJob) bool { return j.State.Ended() })
}

// poweringUp waits until slurmctld has called ResumeProgram for the node.
func (r realJobs) poweringUp(node string) {
	r.t.Helper()
	for {
		nodes, err := r.Nodes(r.ctx, node)
		require.NoError(r.t, err)
		if nodes[0].State.Any(powersave.NodePoweringUp) {
			return
		}
		require.True(r.t, sleep(r.ctx, 100*time.Millisecond), "%s is %v", node, nodes[0].State)
	}
}

// force takes nodes, and the jobs on them, away.
//
// The end of every power program has slurmctld ping all nodes within a second. A node that
// is told to go in that second is pinged, too, though it never came up (ping_nodes.c). Debian's
// Slurm then tries for 10 s to resolve its name, holding the configuration's lock.
func (r realJobs) force(nodes ...string) {
	r.t.Helper()
	for _, node := range nodes {
		r.poweringUp(node)
	}
	require.True(r.t, sleep(r.ctx, 2*time.Second))
	require.NoError(r.t, r.update(powersave.NodeUpdate{Nodes: nodes, State: powersave.StatePowerDownForce, Reason: "slurmtide: test"}))
}

// update changes nodes, and tries again what was not answered: see force.
func (r realJobs) update(u powersave.NodeUpdate) error {
	for {
		err := r.UpdateNodes(r.ctx, u)
		if !errors.Is(err, context.DeadlineExceeded) || r.ctx.Err() != nil {
			return err
		}
		r.t.Log(err)
	}
}

// freeNodes powers every node down that the test has woken.
func (r realJobs) freeNodes() {
	r.t.Helper()
	for {
		nodes, err := r.Nodes(r.ctx)
		require.NoError(r.t, err)
		busy := false
		awake := map[powersave.StateChange][]string{}
		for _, n := range nodes {
			switch {
			case n.State.Any(powersave.NodePoweringUp):
				awake[powersave.StatePowerDownForce] = append(awake[powersave.StatePowerDownForce], n.Name)
			case n.State.Any(powersave.NodePoweringDown):
				awake[powersave.StateResume] = append(awake[powersave.StateResume], n.Name)
			case n.State.Any(powersave.NodePowerUp | powersave.NodePowerDown):
				busy = true
			}
		}
		switch up, down := awake[powersave.StatePowerDownForce], awake[powersave.StateResume]; {
		case len(down) > 0:
			err := r.update(powersave.NodeUpdate{Nodes: down, State: powersave.StateResume})
			if !IsInvalidTransition(err) { // a bridge may be faster
				require.NoError(r.t, err)
			}
		case len(up) > 0 && !busy:
			r.force(up...)
		case !busy:
			return
		}
		require.True(r.t, sleep(r.ctx, 300*time.Millisecond))
	}
}

func jobError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	t.Log(err)
	return e
}

// withRealJobs runs a test with the newest version of the server, since each takes long, and takes its nodes back.
// TestRealUnknownJob makes the same calls with all of them.
func withRealJobs(t *testing.T, test func(t *testing.T, r realJobs)) {
	realNewest(t, 1, func(t *testing.T, c *Client) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		r := realJobs{c, t, ctx}
		t.Cleanup(func() {
			defer cancel()
			r.freeNodes()
		})
		test(t, r)
	})
}

func TestRealRequeueByNode(t *testing.T) {
	withRealJobs(t, func(t *testing.T, r realJobs) {
		start := time.Now()
		id := r.submit(map[string]any{"minimum_nodes": 2})
		j := r.configuring(id, 2)
		assert.True(t, j.Requeueable())
		assert.Equal(t, "slurm", j.UserName)
		assert.NotEmpty(t, j.Partition)
		assert.Zero(t, j.ArrayJobID)
		assert.Zero(t, j.HetJobID)
		assert.Zero(t, j.Restarts)
		assert.False(t, j.State.Any(powersave.JobOther), "%v", j.State)
		assert.WithinDuration(t, start, j.Begin, time.Minute)

		reason := `slurmtide: no "capacity" in zone a; 1 of 2 nodes`
		require.NoError(t, r.UpdateJob(r.ctx, powersave.JobUpdate{ID: id, AdminComment: &reason}))
		assert.True(t, jobError(t, r.UpdateJob(r.ctx, powersave.JobUpdate{ID: id, Begin: time.Now().Add(time.Hour)})).JobNotPending())
		on, err := r.JobsOn(r.ctx, j.Nodes[1], "no-such-node")
		require.NoError(t, err)
		require.Len(t, on, 1)
		assert.Equal(t, id, on[0].ID)
		assert.Equal(t, reason, on[0].AdminComment)

		r.force(j.Nodes[0])
		j = r.until(id, "pending", func(j powersave.SlurmJob) bool { return j.State == powersave.JobPending })
		assert.Equal(t, 1, j.Restarts)
		assert.Empty(t, j.Nodes)
		assert.Equal(t, reason, j.AdminComment, "it outlives a requeue")
		assert.True(t, j.Begin.After(time.Now()), "slurmctld puts a delay of its own: %v", j.Begin)
		begin := time.Now().Add(time.Hour).Truncate(time.Second)
		require.NoError(t, r.UpdateJob(r.ctx, powersave.JobUpdate{ID: id, Begin: begin, AdminComment: new(string)}))
		j = r.until(id, "put off", func(j powersave.SlurmJob) bool { return j.Begin.Equal(begin) })
		assert.Empty(t, j.AdminComment)

		require.NoError(t, r.CancelJob(r.ctx, j))
		j = r.ended(id)
		assert.True(t, j.State.Any(powersave.JobCancelled))
		require.NoError(t, r.CancelJob(r.ctx, j), "a second time")
		assert.True(t, jobError(t, r.UpdateJob(r.ctx, powersave.JobUpdate{ID: id, AdminComment: &reason})).JobGone())
	})
}

func TestRealJobThatMayNotBeRequeued(t *testing.T) {
	withRealJobs(t, func(t *testing.T, r realJobs) {
		id := r.submit(map[string]any{"minimum_nodes": 2, "requeue": false})
		j := r.configuring(id, 2)
		assert.False(t, j.Requeueable())
		if version, _ := r.Version(); version == "v0.0.45" {
			assert.True(t, jobError(t, r.RequeueJob(r.ctx, j, false)).NotRequeueable())
		}
		r.force(j.Nodes[1])
		j = r.ended(id)
		assert.True(t, j.State.Any(powersave.JobNodeFail), "%v", j.State)
		assert.Equal(t, "NodeDown", j.StateReason)
		assert.Empty(t, j.Nodes)
	})
}

func TestRealArraysAndHetJobs(t *testing.T) {
	withRealJobs(t, func(t *testing.T, r realJobs) {
		array := r.submit(map[string]any{"array": "0-2"})
		var tasks []powersave.SlurmJob
		r.until(array, "configuring in all tasks", func(powersave.SlurmJob) bool {
			on, err := r.JobsOn(r.ctx)
			require.NoError(t, err)
			tasks = nil
			for _, j := range on {
				if j.ArrayJobID == array {
					tasks = append(tasks, j)
				}
			}
			return len(tasks) == 3
		})
		// The task that bears the array's ID is told alone why it is given back.
		require.NoError(t, r.UpdateJob(r.ctx, powersave.JobUpdate{ID: array, AdminComment: new("slurmtide: of one task")}))
		for _, task := range tasks {
			jobs, err := r.Jobs(r.ctx, task.ID)
			require.NoError(t, err)
			for _, j := range jobs {
				if j.ID == array {
					assert.Equal(t, "slurmtide: of one task", j.AdminComment)
				} else {
					assert.Empty(t, j.AdminComment, j.Name())
				}
			}
		}
		for _, task := range tasks {
			if task.ID == array { // cancelled by its ID alone it would take the others along
				require.NoError(t, r.CancelJob(r.ctx, task))
				assert.Equal(t, fmt.Sprintf("%d_%d", array, task.ArrayTaskID), task.Name())
			}
		}
		r.ended(array)
		for _, task := range tasks {
			if task.ID != array {
				r.configuring(task.ID, 1)
				require.NoError(t, r.CancelJob(r.ctx, task))
				r.ended(task.ID)
			}
		}

		leader := r.submit(map[string]any{"minimum_nodes": 1}, map[string]any{"minimum_nodes": 2})
		r.configuring(leader, 1)
		jobs, err := r.Jobs(r.ctx, leader+1)
		require.NoError(t, err)
		require.Equal(t, []uint32{leader + 1, leader}, jobIDs(jobs))
		assert.Equal(t, leader, jobs[0].HetJobID)
		assert.Equal(t, 1, jobs[0].HetOffset)
		assert.Len(t, jobs[0].Nodes, 2)
		assert.True(t, jobs[0].Requeueable())
		r.force(jobs[0].Nodes[0])
		for id := leader; id <= leader+1; id++ {
			j := r.until(id, "pending", func(j powersave.SlurmJob) bool { return j.State == powersave.JobPending })
			assert.Equal(t, 1, j.Restarts)
		}
		require.NoError(t, r.CancelJob(r.ctx, jobs[0]))
		r.ended(leader)
		r.ended(leader + 1)
	})
}

func TestRealRequeue(t *testing.T) {
	withRealJobs(t, func(t *testing.T, r realJobs) {
		id := r.submit(map[string]any{"minimum_nodes": 1})
		j := r.configuring(id, 1)
		if version, _ := r.Version(); version != "v0.0.45" {
			var lacks interface{ NotOffered() bool }
			require.ErrorAs(t, r.RequeueJob(r.ctx, j, false), &lacks)
			require.NoError(t, r.CancelJob(r.ctx, j))
			return
		}
		require.NoError(t, r.RequeueJob(r.ctx, j, true))
		j = r.until(id, "pending", func(j powersave.SlurmJob) bool { return j.State.Any(powersave.JobPending) })
		assert.Equal(t, 1, j.Restarts)
		require.NoError(t, r.RequeueJob(r.ctx, j, false), "a second time")
		require.NoError(t, r.CancelJob(r.ctx, j))
		j = r.ended(id)
		require.NoError(t, r.RequeueJob(r.ctx, j, false))
		assert.True(t, r.ended(id).State.Any(powersave.JobCancelled), "an ended job is not run again")
		assert.Equal(t, 1, r.ended(id).Restarts)
	})
}

func TestRealUnknownJob(t *testing.T) {
	realVersions(t, func(t *testing.T, c *Client) {
		const unknown = 60_000_000
		jobs, err := c.Jobs(t.Context(), unknown)
		require.NoError(t, err)
		assert.Empty(t, jobs)
		assert.True(t, jobError(t, c.UpdateJob(t.Context(), powersave.JobUpdate{ID: unknown, AdminComment: new(string)})).JobGone())
		assert.True(t, jobError(t, c.CancelJob(t.Context(), powersave.SlurmJob{ID: unknown})).JobGone())
		err = c.RequeueJob(t.Context(), powersave.SlurmJob{ID: unknown}, false)
		if version, _ := c.Version(); version == "v0.0.45" {
			assert.True(t, jobError(t, err).JobGone())
		} else {
			require.Error(t, err)
		}
	})
}
