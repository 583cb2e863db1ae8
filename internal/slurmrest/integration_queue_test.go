//go:build integration

package slurmrest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
)

// What jobs ask for comes back as it was submitted, whichever version is spoken. All of them are held, so no node wakes.
func TestRealQueue(t *testing.T) {
	realVersions(t, func(t *testing.T, c *Client) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		t.Cleanup(cancel) // after the jobs are cancelled
		r := realJobs{c, t, ctx}
		all, err := c.Nodes(ctx)
		require.NoError(t, err)
		first, second := all[0].Name, all[1].Name
		number := func(n int) map[string]any { return map[string]any{"set": true, "number": n} }
		// slurmrestd takes "exclusive" of a job and does nothing with it; "shared" works.
		held := func(shared string, more map[string]any) map[string]any {
			more["hold"], more["shared"] = true, []string{shared}
			return more
		}
		want := map[uint32]func(*scaler.Job){}
		want[r.submit(held("none", map[string]any{"minimum_nodes": 2, "maximum_nodes": 3}))] = func(j *scaler.Job) {
			j.MinNodes, j.MaxNodes, j.Exclusive = 2, 3, scaler.ExclusiveNode
		}
		want[r.submit(held("user", map[string]any{"minimum_nodes": 1, "tasks": 4, "cpus_per_task": 2, "memory_per_cpu": number(50)}))] = func(j *scaler.Job) {
			j.MinNodes, j.Tasks, j.CPUsPerTask, j.Memory, j.MemoryPerCPU, j.Exclusive = 1, 4, 2, 50, true, scaler.ExclusiveUser
		}
		want[r.submit(held("oversubscribe", map[string]any{"minimum_nodes": 1, "memory_per_node": number(60), "required_nodes": []string{first}, "excluded_nodes": []string{second}}))] = func(j *scaler.Job) {
			j.MinNodes, j.Memory, j.RequiredNodes, j.ExcludedNodes, j.Oversubscribe = 1, 60, first, second, true
		}
		array := r.submit(held("none", map[string]any{"array": "0-98:2%5", "minimum_nodes": 1}))
		want[array] = func(j *scaler.Job) {
			j.ArrayJobID, j.ArrayTasks, j.ArrayLimit, j.MinNodes, j.Exclusive = array, "0-98:2%5", 5, 1, scaler.ExclusiveNode
		}
		leader := r.submit(held("none", map[string]any{"minimum_nodes": 1}), held("none", map[string]any{"minimum_nodes": 2}))
		for i := range uint32(2) {
			want[leader+i] = func(j *scaler.Job) {
				j.HetJobID, j.HetOffset, j.MinNodes, j.Exclusive = leader, int(i), i+1, scaler.ExclusiveNode
			}
		}

		s, err := c.Queue(ctx)
		require.NoError(t, err)
		found := 0
		for _, j := range s.Jobs {
			expect, ok := want[j.ID]
			if !ok {
				continue
			}
			found++
			t.Logf("%+v", j)
			assert.Equal(t, scaler.JobPending, j.State)
			assert.Equal(t, "JobHeldUser", j.Reason)
			assert.Zero(t, j.Priority)
			assert.NotEmpty(t, j.Partitions)
			expected := j
			expect(&expected)
			assert.Equal(t, expected, j)
		}
		assert.Equal(t, len(want), found)

		// One by one they look the same.
		ids := slices.Sorted(maps.Keys(want))
		late, marks, err := c.PeekJobs(ctx, append(ids, ids[len(ids)-1]+1000), nil)
		require.NoError(t, err)
		t.Logf("%v", marks)
		assert.Len(t, marks, len(want), "those that slurmctld has")
		require.Len(t, late, len(want))
		for _, j := range late {
			at := slices.IndexFunc(s.Jobs, func(o scaler.Job) bool { return o.ID == j.ID })
			require.GreaterOrEqual(t, at, 0)
			j.Reason, j.Start = s.Jobs[at].Reason, s.Jobs[at].Start
			assert.Equal(t, s.Jobs[at], j)
		}
		late, again, err := c.PeekJobs(ctx, ids, marks)
		require.NoError(t, err)
		assert.Empty(t, late, "nothing has changed")
		assert.Equal(t, marks, again)
		_, none, err := c.PeekJobs(ctx, []uint32{ids[len(ids)-1] + 1000}, nil)
		require.NoError(t, err)
		assert.Empty(t, none)

		require.Len(t, s.Nodes, len(all))
		for _, n := range s.Nodes {
			assert.Equal(t, scaler.NodeOff, n.State, n.Name)
			assert.NotZero(t, n.Shape.CPUs)
			assert.NotZero(t, n.Shape.Memory)
			assert.NotEmpty(t, n.Partitions)
			assert.Same(t, s.Nodes[0].Shape, n.Shape)
		}
		require.NotEmpty(t, s.Partitions)
		for _, p := range s.Partitions {
			t.Logf("%+v", p)
			assert.False(t, p.Down)
			assert.Equal(t, scaler.ExclusiveNo, p.Exclusive)
		}

		// Held they ask for nothing; released they would.
		s.NodeSets = []scaler.NodeSet{{Name: "all"}}
		for i := range s.Nodes {
			s.Nodes[i].NodeSet = "all"
		}
		assert.Zero(t, scaler.Demand(time.Now(), s).New)
		for i := range s.Jobs {
			s.Jobs[i].Reason, s.Jobs[i].Priority = "None", 1
		}
		report := scaler.Demand(time.Now(), s)
		t.Logf("%+v", report)
		assert.Positive(t, report.New.Lower)
		for _, j := range report.Jobs {
			assert.NotEqual(t, scaler.WhyUnknown, j.Why, j)
			assert.NotEqual(t, scaler.WhyImpossible, j.Why, j)
		}
	})
}
