package powersave

import (
	"fmt"
	"time"
)

// JobState is the set of state words slurmctld shows for a job: one base state
// (PENDING, RUNNING, …) and any number of flags. A job whose nodes are booting is
// RUNNING and CONFIGURING; one that was requeued and still leaves its nodes is
// PENDING and COMPLETING. Source: slurm/slurm.h enum job_states, slurmrestd job.job_state.
type JobState uint32

// Base states and flags the bridge knows, under slurmrestd's names.
const (
	JobPending JobState = 1 << iota
	JobRunning
	JobSuspended
	JobCompleted
	JobCancelled
	JobFailed
	JobTimeout
	JobNodeFail
	JobPreempted
	JobBootFail
	JobDeadline
	JobOutOfMemory
	JobConfiguring
	JobCompleting
	JobRequeued
	JobRequeueHold
	JobPowerUpNode
	// JobOther stands for every word this version does not know.
	JobOther
)

const jobEnded = JobCompleted | JobCancelled | JobFailed | JobTimeout | JobNodeFail | JobPreempted | JobBootFail | JobDeadline | JobOutOfMemory

// jobStateWords is indexed by bit position.
var jobStateWords = []string{
	"PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
	"DEADLINE", "OUT_OF_MEMORY", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "POWER_UP_NODE", "OTHER",
}

// ParseJobState turns slurmrestd's words into a set. Words it does not know set JobOther.
func ParseJobState(words []string) JobState {
	return parseWords(words, jobStateWords, JobOther)
}

// Has reports whether every word of want is in s.
func (s JobState) Has(want JobState) bool { return s&want == want }

// Any reports whether at least one word of want is in s.
func (s JobState) Any(want JobState) bool { return s&want != 0 }

// Ended reports whether the job has come to its end, and takes no update any more. It may
// still be COMPLETING on its nodes.
func (s JobState) Ended() bool { return s.Any(jobEnded) }

// String joins the words with "+".
func (s JobState) String() string { return joinWords(s, jobStateWords) }

// SlurmJob is what slurmctld knows of one job, as far as the bridge needs it. Each task of
// an array and each component of a het job is a job with an ID of its own.
type SlurmJob struct {
	ID           uint32
	State        JobState
	StateReason  string   // one word, "BeginTime" or "NodeDown"; "None" if there is none
	StateDetail  string   // slurmctld's text beside StateReason, mostly empty
	Nodes        []string // held now; a job that COMPLETES still holds what it had
	Partition    string   // several with commas while pending
	UserID       uint32
	UserName     string // empty if slurmrestd's host does not know the user
	Batch        bool   // submitted by sbatch
	Requeue      bool   // the user allows a requeue
	Restarts     int
	Submitted    time.Time // anew with each requeue
	Begin        time.Time // not to be started earlier; in the past once it is eligible
	AdminComment string
	Comment      string

	ArrayJobID  uint32 // 0 outside arrays
	ArrayTaskID int    // -1 for the record that stands for several pending tasks

	HetJobID  uint32 // of the leader, 0 outside het jobs
	HetOffset int    // 0 for the leader
}

// Requeueable reports whether slurmctld requeues the job instead of killing it when it
// loses a node or is asked to (job_mgr.c kill_running_job_by_node_ptr, _job_requeue_op).
// SchedulerParameters=requeue_on_resume_failure extends that to all batch jobs while their
// nodes boot, from Slurm 25.05.
func (j SlurmJob) Requeueable() bool { return j.Batch && j.Requeue }

// Name is what Slurm calls the job in commands: "12", "12_3" or "12+1".
func (j SlurmJob) Name() string {
	switch {
	case j.ArrayJobID != 0 && j.ArrayTaskID >= 0:
		return fmt.Sprintf("%d_%d", j.ArrayJobID, j.ArrayTaskID)
	case j.HetJobID != 0:
		return fmt.Sprintf("%d+%d", j.HetJobID, j.HetOffset)
	}
	return fmt.Sprint(j.ID)
}

// JobUpdate changes one job. Zero fields stay as they are in Slurm.
type JobUpdate struct {
	ID uint32
	// AdminComment is accepted until the job ends, from SlurmUser; it outlives a requeue and
	// goes into accounting. A pointer to "" removes it.
	AdminComment *string
	// Begin is accepted from a pending job only; a time in the past means now.
	Begin time.Time
}

// String is used in logs and errors.
func (u JobUpdate) String() string {
	s := fmt.Sprintf("job %d", u.ID)
	if u.AdminComment != nil {
		s += fmt.Sprintf(", admin comment %q", *u.AdminComment)
	}
	if !u.Begin.IsZero() {
		s += ", begin " + u.Begin.UTC().Format(time.RFC3339)
	}
	return s
}
