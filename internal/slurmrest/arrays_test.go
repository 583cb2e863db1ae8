package slurmrest

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A slurmrestd without SLURM_BITSTR_LEN=0: lists come in 64 characters, and in full with the states.
func TestCutLists(t *testing.T) {
	const cut = "0-1,4,9,16,25,36,49,64,81,100,121,144,169,196,225,256,289,324..."
	const full = "0-1,4,9,16,25,36,49,64,81,100,121,144,169,196,225,256,289,324,361,400"
	array := func(id, limit int) fakeJob {
		j := fakeJob{"job_id": id, "job_state": []string{"PENDING"}, "state_name": fmt.Sprintf("%d_[%s]", id, full), "array_job_id": number(id), "array_task_string": cut}
		if limit > 0 {
			j["array_max_tasks"], j["array_task_string"] = number(limit), fmt.Sprintf("%s%%%d", cut, limit)
		}
		return j
	}
	const jobs, states = "GET /slurm/v0.0.44/jobs/?flags=ALL", "GET /slurm/v0.0.45/jobs/state/?job_id="
	setup := func(list ...fakeJob) (*fake, *Client, *bytes.Buffer) {
		f := newFake()
		f.jobs = list
		log := &bytes.Buffer{}
		cfg := f.config()
		cfg.Retries, cfg.Log = -1, slog.New(slog.NewTextHandler(log, nil))
		c, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		f.reset()
		return f, c, log
	}
	tasks := func(c *Client) (got []string) {
		list, _, err := c.QueueJobs(t.Context(), time.Time{})
		require.NoError(t, err)
		for _, j := range list {
			got = append(got, j.ArrayTasks)
		}
		return got
	}
	started := fakeJob{"job_id": 9, "job_state": []string{"RUNNING"}, "state_name": "9_1", "array_job_id": number(7), "array_task_id": number(1), "nodes": "c0"}

	t.Run("are asked for once more", func(t *testing.T) {
		f, c, log := setup(array(7, 0), array(8, 3), started)
		assert.Equal(t, []string{full, full + "%3", ""}, tasks(c))
		assert.Equal(t, []string{full, full + "%3", ""}, tasks(c))
		assert.Equal(t, []string{jobs, states + "7&job_id=8", jobs, states + "7&job_id=8"}, f.seen())
		assert.Equal(t, 1, strings.Count(log.String(), "SLURM_BITSTR_LEN=0"), "%s", log)
	})
	t.Run("one array alone", func(t *testing.T) {
		_, c, log := setup(array(7, 2))
		list, _, err := c.PeekJobs(t.Context(), []uint32{7}, nil)
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, full+"%2", list[0].ArrayTasks)
		assert.Contains(t, log.String(), "SLURM_BITSTR_LEN=0")
	})
	t.Run("stay cut where they cannot be read", func(t *testing.T) {
		f, c, log := setup(array(7, 0))
		f.script = append(f.script, nil, reply(500, 1800, "Unable to contact slurm controller (connect failure)"))
		assert.Equal(t, []string{cut}, tasks(c))
		assert.Contains(t, log.String(), "fewer tasks count than wait")
		assert.Contains(t, log.String(), "Unable to contact slurm controller")
	})
	t.Run("stay as they were if nothing waits any more", func(t *testing.T) {
		j := array(7, 0)
		j["state_name"] = "7_400"
		_, c, _ := setup(j)
		assert.Equal(t, []string{cut}, tasks(c))
	})
	t.Run("not too many", func(t *testing.T) {
		var list []fakeJob
		for id := range mostCut + 1 {
			list = append(list, array(id+1, 0))
		}
		f, c, _ := setup(list...)
		got := tasks(c)
		assert.Equal(t, full, got[mostCut-1])
		assert.Equal(t, cut, got[mostCut])
		assert.Len(t, f.seen(), 1+mostCut/cutAtOnce)
	})
	t.Run("none are cut", func(t *testing.T) {
		f, c, log := setup(fakeJob{"job_id": 7, "job_state": []string{"PENDING"}, "array_job_id": number(7), "array_task_string": full})
		assert.Equal(t, []string{full}, tasks(c))
		assert.Equal(t, []string{jobs}, f.seen())
		assert.NotContains(t, log.String(), "cut")
	})
}
