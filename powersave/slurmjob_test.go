package powersave

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJobState(t *testing.T) {
	require.Len(t, jobStateWords, 18)
	for i, word := range jobStateWords {
		s := JobState(1) << i
		assert.Equal(t, s, ParseJobState([]string{word}))
		assert.Equal(t, word, s.String())
	}
	assert.Equal(t, JobOther, JobState(1)<<(len(jobStateWords)-1), "a constant without a word, or the other way round")
	assert.Equal(t, JobRunning|JobConfiguring, ParseJobState([]string{"RUNNING", "configuring"}))
	assert.Equal(t, JobPending|JobOther, ParseJobState([]string{"PENDING", "RESV_DEL_HOLD", "SIGNALING"}))
	assert.Equal(t, "RUNNING+CONFIGURING", (JobConfiguring | JobRunning).String())
	for s, ended := range map[JobState]bool{
		JobPending: false, JobPending | JobCompleting: false, JobRunning | JobConfiguring: false, JobSuspended: false,
		JobCancelled | JobCompleting: true, JobNodeFail: true, JobCompleted: true, JobOutOfMemory: true,
	} {
		assert.Equal(t, ended, s.Ended(), s)
	}
}

func TestSlurmJob(t *testing.T) {
	for name, tc := range map[string]struct {
		job         SlurmJob
		want        string
		requeueable bool
	}{
		"batch":                   {SlurmJob{ID: 12, Batch: true, Requeue: true}, "12", true},
		"batch without requeue":   {SlurmJob{ID: 12, Batch: true}, "12", false},
		"srun":                    {SlurmJob{ID: 12, Requeue: true}, "12", false},
		"array task":              {SlurmJob{ID: 14, ArrayJobID: 12, ArrayTaskID: 3}, "12_3", false},
		"task with the array's":   {SlurmJob{ID: 12, ArrayJobID: 12}, "12_0", false},
		"many pending tasks":      {SlurmJob{ID: 12, ArrayJobID: 12, ArrayTaskID: -1}, "12", false},
		"het leader":              {SlurmJob{ID: 12, HetJobID: 12}, "12+0", false},
		"another het's component": {SlurmJob{ID: 13, HetJobID: 12, HetOffset: 1}, "12+1", false},
	} {
		assert.Equal(t, tc.want, tc.job.Name(), name)
		assert.Equal(t, tc.requeueable, tc.job.Requeueable(), name)
	}
}

func TestJobUpdateText(t *testing.T) {
	comment := "slurmtide: \"no\""
	assert.Equal(t, "job 7", JobUpdate{ID: 7}.String())
	assert.Equal(t, `job 7, admin comment "slurmtide: \"no\"", begin 2026-11-21T07:00:00Z`,
		JobUpdate{ID: 7, AdminComment: &comment, Begin: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)}.String())
}
