package powersave

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBackComment(t *testing.T) {
	for name, test := range map[string]struct {
		old      string
		restarts int
		want     string
		times    int
	}{
		"empty":             {"", 0, "slurmtide: capacity: x (attempt 1)", 1},
		"requeued before":   {"", 4, "slurmtide: capacity: x (attempt 5)", 1},
		"foreign":           {"billing 4", 0, "billing 4; slurmtide: capacity: x (attempt 1)", 1},
		"of old":            {"slurmtide: image: y", 1, "slurmtide: capacity: x (attempt 2)", 1},
		"once":              {"slurmtide: image: y (attempt 1)", 1, "slurmtide: capacity: x (attempt 2, 2 in a row in vain)", 2},
		"twice":             {"billing 4; slurmtide: image: y (attempt 2, 2 in a row in vain)", 2, "billing 4; slurmtide: capacity: x (attempt 3, 3 in a row in vain)", 3},
		"said again":        {"slurmtide: image: y (attempt 2, 2 in a row in vain)", 1, "slurmtide: capacity: x (attempt 2, 2 in a row in vain)", 2},
		"ran in between":    {"slurmtide: image: y (attempt 2, 2 in a row in vain)", 3, "slurmtide: capacity: x (attempt 4)", 1},
		"brackets of its":   {"slurmtide: image: y (attempt 2) (attempt 5)", 5, "slurmtide: capacity: x (attempt 6, 2 in a row in vain)", 2},
		"somebody else's":   {"gone (attempt 2, 2 in a row in vain)", 2, "gone (attempt 2, 2 in a row in vain); slurmtide: capacity: x (attempt 3)", 1},
		"added to":          {"slurmtide: image: y (attempt 1) seen by Ann", 1, "seen by Ann; slurmtide: capacity: x (attempt 2, 2 in a row in vain)", 2},
		"before and behind": {"billing 4; slurmtide: image: y (attempt 2, 2 in a row in vain) (rests until 2026-05-01T09:41:20Z); ticket 4711", 2, "billing 4; ticket 4711; slurmtide: capacity: x (attempt 3, 3 in a row in vain)", 3},
		"added with braces": {"slurmtide: image: y (attempt 2) (attempt 5), seen (by Ann)", 5, "seen (by Ann); slurmtide: capacity: x (attempt 6, 2 in a row in vain)", 2},
		"too large numbers": {"slurmtide: image: y (attempt 99999999999999999999)", 1, "slurmtide: capacity: x (attempt 2)", 1},
	} {
		t.Run(name, func(t *testing.T) {
			job := SlurmJob{ID: 7, State: JobRunning | JobConfiguring, AdminComment: test.old, Restarts: test.restarts}
			for _, how := range []struct {
				what  string
				state JobState
				more  int
				taken bool
			}{
				{what: "it has its nodes"}, {what: "said again"}, {"slurmctld has requeued it", JobPending | JobCompleting, 1, true},
				{"somebody has", JobPending, 1, false}, {"and it starts anew", JobRunning | JobConfiguring, 1, true},
			} {
				if job.State, job.Restarts = cmp.Or(how.state, job.State), test.restarts+how.more; how.what != "said again" {
					job.AdminComment = test.old
				}
				comment, attempt, times := BackComment(job, "slurmtide: capacity: x", how.taken)
				assert.Equal(t, test.want, comment, how.what)
				assert.Equal(t, test.restarts+1, attempt, how.what)
				assert.Equal(t, test.times, times, how.what)
				job.AdminComment = comment
			}
		})
	}
}

func TestRestComment(t *testing.T) {
	until := time.Date(2026, 5, 1, 12, 0, 30, 0, time.FixedZone("", 7200))
	const told, rests = "billing 4; slurmtide: image: y (attempt 2, 2 in a row in vain)", " (rests until 2026-05-01T10:00:30Z)"
	for name, test := range map[string]struct {
		job  SlurmJob
		want string
		held bool
	}{
		"back in the queue": {SlurmJob{Restarts: 2, AdminComment: told}, told + rests, false},
		"said before":       {SlurmJob{Restarts: 2, AdminComment: told + rests}, told + rests, true},
		"of another start":  {SlurmJob{Restarts: 3, AdminComment: told + rests}, told + rests, false},
		"added to":          {SlurmJob{Restarts: 2, AdminComment: told + " seen by Ann"}, told + rests + " seen by Ann", false},
		"said, and added":   {SlurmJob{Restarts: 2, AdminComment: told + rests + "; seen by Ann"}, told + rests + "; seen by Ann", true},
		"written over":      {SlurmJob{Restarts: 2, AdminComment: "seen by Ann"}, "seen by Ann", false},
		"nobody has told":   {SlurmJob{Restarts: 2}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			comment, held := RestComment(test.job, until)
			assert.Equal(t, test.want, comment)
			assert.Equal(t, test.held, held)
		})
	}
	comment, attempt, times := BackComment(SlurmJob{Restarts: 2, AdminComment: told + rests}, "slurmtide: capacity: x", false)
	assert.Equal(t, "billing 4; slurmtide: capacity: x (attempt 3, 3 in a row in vain)", comment)
	assert.Equal(t, []int{3, 3}, []int{attempt, times})
}

func TestJobsBack(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	const told = "slurmtide: capacity: x (attempt 4, 3 in a row in vain)"
	full := restAfter(7, 3) // two minutes, more or less
	for name, test := range map[string]struct {
		job  SlurmJob
		want []JobBack
	}{
		"not held":                            {SlurmJob{State: JobPending, Restarts: 4, AdminComment: told, Submitted: now.Add(-5 * time.Second), Begin: now.Add(30 * time.Second)}, []JobBack{{Job: 7, Times: 3, Rested: 5 * time.Second}}},
		"still on its nodes":                  {SlurmJob{State: JobPending | JobCompleting, Restarts: 4, AdminComment: told, Submitted: now.Add(-time.Hour), Begin: now.Add(-time.Hour)}, []JobBack{{Job: 7, Times: 3}}},
		"rests":                               {SlurmJob{State: JobPending, Restarts: 4, AdminComment: told, Submitted: now.Add(-5 * time.Second), Begin: now.Add(full - 5*time.Second)}, []JobBack{{Job: 7, Times: 3, Rested: 5 * time.Second, Rests: true}}},
		"told to rest, and started by people": {SlurmJob{State: JobPending, Restarts: 4, AdminComment: told + " (rests until 2026-05-01T12:01:55Z)", Submitted: now.Add(-5 * time.Second), Begin: now.Add(-time.Second)}, []JobBack{{Job: 7, Times: 3, Rested: 5 * time.Second, Rests: true}}},
		"told to rest the time before":        {SlurmJob{State: JobPending, Restarts: 5, AdminComment: told + " (rests until 2026-05-01T12:01:55Z)", Submitted: now, Begin: now}, nil},
		"has rested":                          {SlurmJob{State: JobPending, Restarts: 4, AdminComment: told, Submitted: now.Add(-full), Begin: now.Add(-time.Minute)}, []JobBack{{Job: 7, Times: 3, Rested: full, Rests: true}}},
		"others have added":                   {SlurmJob{State: JobPending, Restarts: 4, AdminComment: told + " (rests until 2026-05-01T09:41:20Z); ticket 4711", Submitted: now.Add(-5 * time.Second), Begin: now}, []JobBack{{Job: 7, Times: 3, Rested: 5 * time.Second, Rests: true}}},
		"told, not yet off":                   {SlurmJob{State: JobRunning | JobConfiguring, Restarts: 3, AdminComment: told}, []JobBack{{Job: 7, Times: 3, Leaves: true}}},
		"told, and yet runs":                  {SlurmJob{State: JobRunning, Restarts: 3, AdminComment: told}, nil},
		"boots once more":                     {SlurmJob{State: JobRunning | JobConfiguring, Restarts: 4, AdminComment: told}, nil},
		"ran in between":                      {SlurmJob{State: JobPending, Restarts: 5, AdminComment: told, Submitted: now, Begin: now}, nil},
		"never given back":                    {SlurmJob{State: JobPending, Submitted: now, Begin: now}, nil},
		"ended":                               {SlurmJob{State: JobCancelled, Restarts: 4, AdminComment: told, Submitted: now, Begin: now}, nil},
		"a comment of before":                 {SlurmJob{State: JobPending, Restarts: 4, AdminComment: "slurmtide: capacity: x", Submitted: now, Begin: now}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			test.job.ID = 7
			assert.Equal(t, test.want, JobsBack([]SlurmJob{test.job}, now))
		})
	}
}
