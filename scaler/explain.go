package scaler

import "fmt"

// Explain words for people why a job counts, or does not, and what can be done: `slurmtide explain job`.
func (j JobDemand) Explain() string {
	text := ""
	switch {
	case j.Why == WhyCapacity && j.New == 0:
		text = "counts: it fits on nodes that are powered up for jobs before it"
	case j.Why == WhyCapacity:
		text = fmt.Sprintf("counts: %s to be powered up for it", plural(j.New, "node is", "nodes are"))
	case j.Why == WhyRoom:
		text = "counts: there is room for it on nodes that are up or boot, and Slurm has not come to it yet"
	case j.Why == WhyImpossible:
		text = "does not count: no NodeSet can ever run it: " + j.Detail
	case j.Why == WhyFull:
		text = "does not count, for powering up cannot help: " + j.Detail
	default:
		text = "does not count: " + kinds[j.Why]
		if j.Detail != "" {
			text += " (" + j.Detail + ")"
		}
	}
	if j.Tasks > 1 && j.Why.Counts() {
		atLeast := ""
		if j.More {
			atLeast = "at least "
		}
		text += fmt.Sprintf("; %d of %s%d tasks of the array count", j.Counted, atLeast, j.Tasks)
	}
	return fmt.Sprintf("job %d %s", j.ID, text)
}

// kinds says what a class means that keeps a job from counting.
var kinds = map[Why]string{
	WhyElsewhere:   "somebody else's nodes run it",
	WhyHeld:        "it is held, and `scontrol release` lets it go",
	WhyDependency:  "it waits for other jobs",
	WhyBeginTime:   "its begin time is yet to come",
	WhyArrayLimit:  "as many tasks of its array run as may at once",
	WhyLicense:     "it waits for a licence",
	WhyLimit:       "a limit of its association, account or QOS keeps it waiting",
	WhyReservation: "it waits until its own reservation begins, or another one ends",
	WhyPartition:   "its partition does not start it",
	WhyPowerLimit:  "as many nodes are powered up as slurm.conf allows",
	WhyOther:       "it waits for something that no node would help with",
	WhyCleaning:    "it still leaves the nodes it had",
	WhyUnknown:     "this version of Slurmtide cannot tell what it waits for",
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Job finds a pending job, or the pending rest of an array, by its number.
func (r Report) Job(id uint32) (JobDemand, bool) {
	for _, j := range r.Jobs {
		if j.ID == id {
			return j, true
		}
	}
	return JobDemand{}, false
}
