package exporter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestJobTally(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	tally := NewJobTally(now, Options{PerUser: true}, "idle")
	for _, j := range []Job{
		{State: powersave.JobPending, Reason: "Resources", Partitions: "a,b", User: "ann", Account: "x", Eligible: now.Add(-time.Hour), TRES: "cpu=4,mem=1.5G,node=2,gres/gpu=2,gres/gpu:h100=2"},
		{State: powersave.JobPending, Reason: "JobArrayTaskLimit", Partitions: "a", User: "ann", Account: "x", ArrayTasks: "1-9:2%1", Eligible: now.Add(-time.Minute), CPUs: 3, Nodes: 1, TRES: "gres/gpu:h100=1,gres/gpu:a10=1"},
		{State: powersave.JobPending, Reason: "Dependency", Partitions: "a", User: "ben", Eligible: now.Add(-2 * time.Hour)},
		{State: powersave.JobPending, Reason: "JobHeldUser", Partitions: "a", User: "ben", Held: true, Eligible: now.Add(-2 * time.Hour)},
		{State: powersave.JobPending, Reason: "BeginTime", Partitions: "a", User: "ben", Eligible: now.Add(time.Hour)},
		{State: powersave.JobPending, Reason: "Full moon", Partitions: "b", User: "ben", ArrayTasks: "1-3,5,..."},
		{State: powersave.JobPending, Partitions: "b", User: "ben"},
		{State: powersave.JobRunning | powersave.JobConfiguring | powersave.JobPowerUpNode, Partitions: "a", User: "ben", Account: "y", CPUs: 1, Nodes: 1, TRES: "cpu=8,mem=4G,node=2,billing=8"},
		{State: powersave.JobCompleted | powersave.JobCompleting, Partitions: "a", User: "ann", CPUs: 100, TRES: "cpu=100"},
		{State: powersave.JobOther, Partitions: "a"},
		{State: powersave.JobSuspended, Partitions: "c,c", ArrayTasks: "1-9", TRES: "cpu=-4,gres/gpumem=80,gres/gpuutil=50", CPUs: 2},
		{State: powersave.JobSuspended, Partitions: "d", TRES: "mem=4P"},
	} {
		tally.Add(j)
	}
	got := tally.Samples()
	assert.InDelta(t, 12, value(t, got, mRecords), 0)
	assert.InDelta(t, 1, value(t, got, mPartitionJobs, "c", "suspended"), 0, "a partition that is named twice is one, and so is a task that has left its array")
	assert.InDelta(t, 2, value(t, got, mPartitionJobsCPUs, "c", "suspended"), 0, "what cannot be is passed over")
	assert.Zero(t, value(t, got, mPartitionJobsGPUs, "c", "suspended"), "its memory is no GPU")
	assert.InDelta(t, 2, value(t, got, mJobsNodes, "running"), 0)
	assert.InDelta(t, 2+5*1, value(t, got, mJobsNodes, "pending"), 0)
	assert.InDelta(t, now.Add(-time.Hour).Unix(), value(t, got, mOldest, "b"), 0, "those that are not eligible yet have not waited since 1970")
	assert.InDelta(t, 14, value(t, got, mJobs, "pending"), 0, "five tasks of one array, four of the other")
	assert.InDelta(t, 1, value(t, got, mJobs, "other"), 0)
	assert.InDelta(t, 0, value(t, got, mJobs, "timeout"), 0)
	assert.InDelta(t, 1, value(t, got, mCut), 0)
	for reason, want := range map[string]float64{"Resources": 1, "JobArrayTaskLimit": 5, "other": 4, "None": 1} {
		assert.InDelta(t, want, value(t, got, mPending, reason), 0, reason)
	}
	assert.InDelta(t, 4+5*3, value(t, got, mJobsCPUs, "pending"), 0)
	assert.InDelta(t, 8, value(t, got, mJobsCPUs, "running"), 0, "TRES tells what it has")
	assert.InDelta(t, 2+5*2, value(t, got, mJobsGPUs, "pending"), 0)
	assert.InDelta(t, 1.5*(1<<30), value(t, got, mJobsMemory, "pending"), 0)
	assert.InDelta(t, 1, value(t, got, mJobsFlagged, "power_up_node"), 0)
	assert.InDelta(t, 6, value(t, got, mPartitionJobs, "b", "pending"), 0)
	assert.InDelta(t, 1, value(t, got, mPartitionJobs, "a", "completed"), 0)
	assert.InDelta(t, 0, value(t, got, mPartitionJobs, "idle", "pending"), 0, "it is told of although it has no jobs")
	assert.InDelta(t, now.Add(-time.Hour).Unix(), value(t, got, mOldest, "a"), 0, "held, dependent and later ones do not wait")
	assert.InDelta(t, 6, value(t, got, mUserJobs, "ann", "x", "pending"), 0)
	assert.InDelta(t, 8, value(t, got, mUserCPUs, "ben", "y", "running"), 0)
	for _, s := range got {
		if s.Metric == mUserJobs {
			assert.Contains(t, active, s.Labels[2], "ended jobs of users are history")
		}
	}
}

// Flags count tasks, too, and a partition whose only job waits for its time has no oldest one.
func TestArrayFlags(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	tally := NewJobTally(now, Options{})
	tally.Add(Job{State: powersave.JobPending | powersave.JobRequeued, Partitions: "p", ArrayTasks: "1-5", Eligible: now.Add(time.Hour)})
	tally.Add(Job{State: powersave.JobPending, Partitions: "q", Eligible: now.Add(-time.Minute)})
	tally.Add(Job{State: powersave.JobPending, Partitions: "q", Eligible: now.Add(-time.Hour)})
	tally.Add(Job{State: powersave.JobPending, Partitions: "q", Eligible: now.Add(-2 * time.Minute)})
	got := tally.Samples()
	assert.InDelta(t, 5, value(t, got, mJobsFlagged, "requeued"), 0)
	assert.InDelta(t, now.Add(-time.Hour).Unix(), value(t, got, mOldest, "q"), 0)
	for _, s := range got {
		assert.False(t, s.Metric == mOldest && s.Labels[0] == "p")
	}
}

// Series come in the same order each time: by user, account and state.
func TestUsersInOrder(t *testing.T) {
	tally := NewJobTally(time.Unix(0, 0), Options{PerUser: true})
	for _, user := range []string{"cat", "ann", "ben"} {
		for _, account := range []string{"y", "x"} {
			tally.Add(Job{State: powersave.JobRunning, User: user, Account: account})
		}
	}
	var order []string
	for _, s := range tally.Samples() {
		if s.Metric == mUserJobs {
			order = append(order, s.Labels[0]+s.Labels[1])
		}
	}
	assert.Equal(t, []string{"annx", "anny", "benx", "beny", "catx", "caty"}, order)
}

func TestBytesOf(t *testing.T) {
	for text, want := range map[string]float64{"800M": 800 << 20, "1.50G": 3 << 29, "7": 7 << 20, "2T": 2 << 40, "1K": 1 << 10, "": 0, "M": 0, "-1M": 0, "x": 0, "9999999999P": 0, "NaN": 0, "1E": 0} {
		assert.InDelta(t, want, bytesOf(text), 0, text)
	}
}

// An array of jobs that nobody can ever run is a large number, and no negative one.
func TestLargeArray(t *testing.T) {
	tally := NewJobTally(time.Unix(0, 0), Options{})
	for range 10 {
		tally.Add(Job{State: powersave.JobPending, Partitions: "p", ArrayTasks: "0-4194302", TRES: "cpu=4096,mem=4000P,node=10000,gres/gpu=80000"})
	}
	got := tally.Samples()
	assert.InEpsilon(t, 10*4194303*4000.0*(1<<50), value(t, got, mJobsMemory, "pending"), 1e-9)
	assert.InEpsilon(t, 10*4194303*80000.0, value(t, got, mJobsGPUs, "pending"), 1e-9)
}

// Users appear only if they are asked for, and no job ever does.
func TestJobSeriesBounded(t *testing.T) {
	tally := NewJobTally(time.Unix(0, 0), Options{})
	for i := range 1000 {
		tally.Add(Job{State: powersave.JobPending, Reason: fmt.Sprint("word ", i), Partitions: "p", User: fmt.Sprint("u", i), Account: fmt.Sprint("a", i)})
	}
	assert.Less(t, len(tally.Samples()), 60)
}
