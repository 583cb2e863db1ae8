package slurmrest

import (
	"context"
	"fmt"
	"slices"

	"github.com/slurmtide/slurmtide/scaler"
)

// mostCut is how many arrays with cut task lists are asked for once more, cutAtOnce in one request: slurmctld tells of all that has started of them, too.
const mostCut, cutAtOnce = 256, 64

// completeLists gives pending arrays the task lists that slurmrestd has cut short, as it does without SLURM_BITSTR_LEN=0 in its environment
// (slurm_protocol_defs.c xlate_array_task_str): "jobs/state" has them in full (fmt_job_id_string). What cannot be read stays cut, and scaler counts the tasks that are seen.
func (c *Client) completeLists(ctx context.Context, jobs []scaler.Job) {
	cut := map[uint32]*scaler.Job{}
	var ids []uint32
	for i := range jobs {
		if j := &jobs[i]; j.TasksCut() && len(ids) < mostCut {
			cut[j.ID] = j
			ids = append(ids, j.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	c.warnOfCutLists(ids[0])
	for some := range slices.Chunk(ids, cutAtOnce) {
		states, err := c.jobStates(ctx, some)
		if err != nil {
			c.cfg.Log.Warn("cut task lists of arrays: fewer tasks count than wait", "arrays", len(ids), "error", err)
			return
		}
		for id, s := range states {
			giveTasks(cut[id], s.tasks)
		}
	}
}

// giveTasks replaces a cut list. The array may have started altogether meanwhile: then what was seen of it stays, as of any job that starts while all are read.
func giveTasks(j *scaler.Job, tasks string) {
	if tasks == "" {
		return
	}
	if j.ArrayTasks = tasks; j.ArrayLimit != 0 {
		j.ArrayTasks += fmt.Sprintf("%%%d", j.ArrayLimit)
	}
}

// warnOfCutLists says once what slurmrestd lacks.
func (c *Client) warnOfCutLists(id uint32) {
	c.cutLists.Do(func() {
		c.cfg.Log.Warn("slurmrestd cuts the task lists of arrays short: start it with SLURM_BITSTR_LEN=0 in its environment. Until then such arrays are asked for once more, each time",
			"slurmrestd", c.where, "array", id)
	})
}
