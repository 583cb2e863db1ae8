package exporter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestOwnJobs(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1_800_000_000+s, 0) }
	tally := NewJobTally(at(0), Options{PerJob: 10})
	for _, j := range []Job{
		{ID: 1, State: powersave.JobRunning, Name: strings.Repeat("é", 200), User: "ann", Account: "x", Partitions: "p", QOS: "normal", NodeList: "n[08-10],m", Submit: at(-9), Start: at(-8), End: at(60),
			TRES: "cpu=64,mem=2G,node=4,billing=64,gres/gpu=8,gres/gpu:h100=8"},
		{ID: 9, ArrayJob: 7, ArrayTask: "0", State: powersave.JobRunning | powersave.JobConfiguring, User: "ben", CPUs: 2, NodeList: "c"},
		{ID: 10, State: powersave.JobSuspended, NodeList: "c"},
		{ID: 11, State: powersave.JobTimeout | powersave.JobCompleting, NodeList: "c"},
		{ID: 12, State: powersave.JobRunning, NodeList: "c[1-"},
		{ID: 13, State: powersave.JobPending, ArrayJob: 13, ArrayTasks: "1-9"},
		{ID: 14, State: powersave.JobCompleted, NodeList: "c"},
		{ID: 15, State: powersave.JobPending | powersave.JobRequeued, NodeList: "c"},
	} {
		tally.Add(j)
	}
	got := tally.Samples()
	value(t, got, mJobInfo, "1", strings.Repeat("é", 100), "ann", "x", "p", "normal", "", "")
	value(t, got, mJobInfo, "9", "", "ben", "", "", "", "7", "0")
	for id, want := range map[string]string{"1": "running", "9": "configuring", "10": "suspended", "11": "completing", "12": "running"} {
		assert.InDelta(t, 1, value(t, got, mJobState, id, want), 0)
	}
	for _, name := range []string{"n08", "n09", "n10", "m"} {
		assert.InDelta(t, 1, value(t, got, mJobNode, "1", name), 0)
	}
	assert.InDelta(t, 64, value(t, got, mJobCPUs, "1"), 0)
	assert.InDelta(t, 2, value(t, got, mJobCPUs, "9"), 0)
	assert.InDelta(t, 2<<30, value(t, got, mJobMemory, "1"), 0)
	assert.InDelta(t, 8, value(t, got, mJobGPUs, "1"), 0)
	assert.InDelta(t, at(-9).Unix(), value(t, got, mJobSubmit, "1"), 0)
	assert.InDelta(t, at(-8).Unix(), value(t, got, mJobStart, "1"), 0)
	assert.InDelta(t, at(60).Unix(), value(t, got, mJobEnd, "1"), 0)
	assert.Zero(t, value(t, got, mLeftOut, "jobs"))
	assert.InDelta(t, 1, value(t, got, mLeftOut, "nodes"), 0, "a list that cannot be read")
	for _, s := range got {
		if len(s.Metric.Labels) > 0 && s.Metric.Labels[0] == "job_id" {
			assert.NotContains(t, []string{"13", "14", "15"}, s.Labels[0], "it has no nodes: %s", s.Metric.Name)
			assert.False(t, s.Metric == mJobStart && s.Labels[0] != "1", "a time that is not known is not 1970")
		}
	}
}

// However many jobs there are, and however large: as many series as were asked for, of those that started first, whatever the order in which they come.
func TestOwnJobsBounded(t *testing.T) {
	const most, jobs = 50, 10_000
	for _, step := range []int{1, 7, jobs - 1} {
		tally := NewJobTally(time.Unix(0, 0), Options{PerJob: most})
		for i := range jobs {
			n := i * step % jobs
			tally.Add(Job{ID: uint32(n + 1), State: powersave.JobRunning, Start: time.Unix(int64(1000+n/2), 0), NodeList: fmt.Sprintf("n[1-%d]", 1+n%40)})
			assert.LessOrEqual(t, len(tally.own.list), 2*most)
		}
		got := tally.Samples()
		nodes, infos := 0, 0
		for _, s := range got {
			switch s.Metric {
			case mJobInfo:
				infos++
			case mJobNode:
				nodes++
			}
		}
		assert.Equal(t, most, infos)
		assert.Equal(t, 499, nodes, "465 of the first 30, 31 of the next, and the 41st and 42nd, which are small, in what room is left")
		for id := 1; id <= most; id++ {
			assert.InDelta(t, 1, value(t, got, mJobState, fmt.Sprint(id), "running"), 0)
		}
		assert.InDelta(t, jobs-most, value(t, got, mLeftOut, "jobs"), 0)
		assert.InDelta(t, jobs-33, value(t, got, mLeftOut, "nodes"), 0)
	}
}

// A tally may be asked twice.
func TestOwnJobsTwice(t *testing.T) {
	tally := NewJobTally(time.Unix(0, 0), Options{PerJob: 1})
	for id := range uint32(3) {
		tally.Add(Job{ID: id + 1, State: powersave.JobRunning})
	}
	first := tally.Samples()
	assert.Equal(t, first, tally.Samples())
}
