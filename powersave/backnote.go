package powersave

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// What is known of jobs that were given back before stands in their records, so that a restart does not forget it: AdminComment
// says, after the reason, which attempt of the job came to nothing, and how many in a row did. Slurm counts attempts with each
// requeue (job_mgr.c, restart_cnt). A job that ran in between has been requeued once more than we know of, and begins anew.
// When it has been told to rest, that stands there, too: what becomes of its begin time after that is up to people.

var backNoted = regexp.MustCompile(` \(attempt (\d+)(?:, (\d+) in a row in vain)?\)( \(rests until [^()]*\))?`)

// BackComment is the AdminComment that says why the job is given back, in the place of an earlier one of ours; what others wrote
// stays before it, also what they have added to ours. taken says that slurmctld has requeued the job already, and counted that. attempt is the start that came to nothing, times
// how often the job has been given back in a row, this time included.
func BackComment(j SlurmJob, reason string, taken bool) (comment string, attempt, times int) {
	attempt = j.Restarts + 1
	if taken || j.State.Has(JobPending) {
		attempt = max(1, j.Restarts)
	}
	kept, _, _ := strings.Cut(j.AdminComment, ReasonPrefix)
	var others string
	for _, text := range []string{kept, j.AdminComment[noteEnds(j.AdminComment):]} {
		if text = strings.Trim(text, ",; "); text != "" {
			others += text + "; "
		}
	}
	times = 1
	switch restarts, before, _ := noted(j); {
	case before == 0:
	case restarts+1 == attempt: // said again
		times = before
	case restarts+2 == attempt:
		times = before + 1
	}
	note := fmt.Sprintf(" (attempt %d)", attempt)
	if times > 1 {
		note = fmt.Sprintf(" (attempt %d, %d in a row in vain)", attempt, times)
	}
	return others + reason + note, attempt, times
}

// lastNote finds the note in a comment of ours: the last of what looks like one, for a reason may, too. Nil: there is none.
func lastNote(comment string) (at []int) {
	start := strings.Index(comment, ReasonPrefix)
	if start < 0 {
		return nil
	}
	for _, at = range backNoted.FindAllStringSubmatchIndex(comment[start:], -1) {
		for i := range at {
			if at[i] >= 0 {
				at[i] += start
			}
		}
	}
	return at
}

// noteEnds is where others have added to it; without one nobody can tell.
func noteEnds(comment string) int {
	if at := lastNote(comment); at != nil {
		return at[1]
	}
	return len(comment)
}

// RestComment is the AdminComment that says until when the job rests that was given back; held: it says so already. What others have added
// stays behind it, and a comment that they have written over as it is.
func RestComment(j SlurmJob, until time.Time) (comment string, held bool) {
	restarts, times, held := noted(j)
	if times == 0 || restarts+1 != j.Restarts {
		return j.AdminComment, false
	}
	if held {
		return j.AdminComment, true
	}
	end := noteEnds(j.AdminComment)
	return j.AdminComment[:end] + " (rests until " + until.UTC().Format(time.RFC3339) + ")" + j.AdminComment[end:], false
}

// noted reads what BackComment and RestComment wrote: at how many restarts the job was given back last, how often in a row, and whether it was
// told to rest; times is 0 if it was not given back.
func noted(j SlurmJob) (restarts, times int, rests bool) {
	at := lastNote(j.AdminComment)
	if at == nil {
		return 0, 0, false
	}
	group := func(i int) string { return j.AdminComment[max(0, at[2*i]):max(0, at[2*i+1])] }
	attempt, err := strconv.Atoi(group(1))
	if err != nil || attempt < 1 {
		return 0, 0, false
	}
	times = 1
	if group(2) != "" {
		if times, err = strconv.Atoi(group(2)); err != nil || times < 1 {
			return 0, 0, false
		}
	}
	return attempt - 1, times, group(3) != ""
}

// JobBack is a job that was given back, and has not started since, or that has been told why and is not off its nodes yet.
type JobBack struct {
	Job    uint32
	Times  int           // as BackComment's
	Rested time.Duration // since it is back in the queue
	Leaves bool          // it is not, yet
	Rests  bool          // as it should
}

// JobsBack finds them among all jobs. now is Slurm's time.
func JobsBack(jobs []SlurmJob, now time.Time) (backs []JobBack) {
	for _, j := range jobs {
		restarts, times, held := noted(j)
		switch {
		case times == 0:
		case j.State.Has(JobRunning|JobConfiguring) && restarts == j.Restarts:
			backs = append(backs, JobBack{Job: j.ID, Times: times, Leaves: true})
		case j.State.Has(JobPending) && restarts+1 == j.Restarts:
			b := JobBack{Job: j.ID, Times: times}
			if !j.State.Any(JobCompleting) { // Submitted is of its first run until it is off its nodes (job_mgr.c batch_requeue_fini)
				b.Rested = max(0, now.Sub(j.Submitted))
			}
			rest := restAfter(j.ID, times)
			b.Rests = held || b.Rested >= rest || !j.Begin.Before(now.Add(rest-b.Rested-backSlack))
			backs = append(backs, b)
		}
	}
	return backs
}

// backSlack is how much later a job may have been found back in the queue than it was: its begin time counts from then.
const backSlack = 2 * time.Second

// restAfter is how long a job rests that has been given back so many times in a row.
func restAfter(job uint32, times int) time.Duration {
	return backoff(holdFirst, holdMost, times-1, uint64(job))
}
