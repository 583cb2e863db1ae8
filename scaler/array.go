package scaler

import (
	"math"
	"strconv"
	"strings"
)

// arrayTasks counts the tasks in an array's task list without making them: "0-99999%5" is 100,000. More is true
// when slurmrestd cut the list short with "...": it prints 64 characters at most, unless its environment has
// SLURM_BITSTR_LEN=0. Then the tasks that are seen are counted. Source: slurm_protocol_defs.c xlate_array_task_str.
func arrayTasks(list string) (n int, more bool) {
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
