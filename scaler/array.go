package scaler

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// TasksCut reports that slurmrestd cut ArrayTasks short: the array may have more pending tasks than are in it.
func (j *Job) TasksCut() bool { return strings.Contains(j.ArrayTasks, "...") }

// ArrayTasks counts the tasks in an array's task list without making them: "0-99999%5" is 100,000. More is true
// when slurmrestd cut the list short with "...": it prints 64 characters at most, unless its environment has
// SLURM_BITSTR_LEN=0. Then the tasks that are seen are counted. Source: slurm_protocol_defs.c xlate_array_task_str.
func ArrayTasks(list string) (n int, more bool) {
	list, _, _ = strings.Cut(list, "%")
	if list == "" {
		return 1, false
	}
	for item := range strings.SplitSeq(list, ",") {
		seen, cut := strings.CutSuffix(item, ".")
		if cut {
			// "4,6..." ends in a number that may itself be cut, and "4-..." in none.
			item, more = strings.TrimRight(seen, ".-"), true
		}
		if item == "" {
			continue
		}
		span, step, stepped := strings.Cut(item, ":")
		from, to, ranged := strings.Cut(span, "-")
		if !ranged {
			to = from
		}
		lo, err1 := strconv.ParseUint(from, 10, 32)
		hi, err2 := strconv.ParseUint(to, 10, 32)
		by := uint64(1)
		var err3 error
		if stepped {
			by, err3 = strconv.ParseUint(step, 10, 32)
		}
		if err1 != nil || err2 != nil || err3 != nil || hi < lo || by == 0 {
			more = true // something this version does not know
			continue
		}
		n = min(n+int((hi-lo)/by)+1, math.MaxInt32)
	}
	return max(n, 1), more
}

// arrayUse is how far an array has come up to its limit. All of its records share that: tasks that were requeued, or looked at already,
// have records of their own (job_mgr.c job_array_split, job_array_start_test).
type arrayUse struct {
	limit   int // 0: none
	running int // tasks that run
	placed  int // and those that are reckoned with
}

// arraysOf finds the arrays among the jobs. Each record of one shows the limit (job_mgr.c pack_job), but for those whose first is gone.
func arraysOf(jobs []Job) map[uint32]*arrayUse {
	all := map[uint32]*arrayUse{}
	for i := range jobs {
		j := &jobs[i]
		if j.ArrayJobID == 0 || j.State != JobPending && j.State != JobRunning {
			continue
		}
		a := all[j.ArrayJobID]
		if a == nil {
			a = &arrayUse{}
			all[j.ArrayJobID] = a
		}
		a.limit = max(a.limit, int(min(j.ArrayLimit, math.MaxInt32)))
		if j.State == JobRunning {
			a.running++
		}
	}
	return all
}

// left is how many tasks may start; nil: as many as there are.
func (a *arrayUse) left() int {
	if a == nil || a.limit == 0 {
		return math.MaxInt
	}
	return max(0, a.limit-a.running-a.placed)
}

func (a *arrayUse) take() {
	if a != nil {
		a.placed++
	}
}

// full words that no task may start.
func (a *arrayUse) full() string {
	if a.placed == 0 {
		return fmt.Sprintf("%d tasks of its array run, as many as may", a.running)
	}
	return fmt.Sprintf("%d tasks of its array run or come first, as many as may", a.running+a.placed)
}
