package slurmrest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
)

func TestPeekJobs(t *testing.T) {
	pending := []string{"PENDING"}
	more := []fakeJob{
		{"job_id": 20, "job_state": pending, "state_name": "20_[0-3]", "array_job_id": number(20), "array_task_string": "0-3"},
		{"job_id": 21, "job_state": []string{"RUNNING"}, "state_name": "21_4", "array_job_id": number(20), "array_task_id": number(4), "nodes": "c0"},
		{"job_id": 30, "job_state": pending, "state_name": "30+0", "het_job_id": number(30), "het_job_offset": number(0)},
		{"job_id": 31, "job_state": pending, "state_name": "31+1", "het_job_id": number(30), "het_job_offset": number(1)},
	}
	const states = "GET /slurm/v0.0.45/jobs/state/?job_id="
	const job = "GET /slurm/v0.0.44/job/" // which tells how nodes are shared
	for name, tc := range map[string]struct {
		ids      []uint32
		known    map[uint32]string
		want     []uint32
		marks    map[uint32]string
		requests []string
	}{
		"nothing":            {marks: map[uint32]string{}},
		"none of them":       {ids: []uint32{2, 3}, marks: map[uint32]string{}, requests: []string{states + "2&job_id=3"}},
		"a new one":          {ids: []uint32{1, 2}, want: []uint32{1}, marks: map[uint32]string{1: "1 PENDING"}, requests: []string{states + "1&job_id=2", job + "1?flags=ALL"}},
		"as it was":          {ids: []uint32{1}, known: map[uint32]string{1: "1 PENDING"}, marks: map[uint32]string{1: "1 PENDING"}, requests: []string{states + "1"}},
		"started":            {ids: []uint32{10}, known: map[uint32]string{10: "10 PENDING"}, marks: map[uint32]string{10: "10 RUNNING,CONFIGURING"}, requests: []string{states + "10"}},
		"ended":              {ids: []uint32{12}, marks: map[uint32]string{12: "12 COMPLETED"}, requests: []string{states + "12"}},
		"an array":           {ids: []uint32{20, 21}, want: []uint32{20}, marks: map[uint32]string{20: "20_[0-3] PENDING", 21: "21_4 RUNNING"}, requests: []string{states + "20&job_id=21", job + "20?flags=ALL"}},
		"one task less":      {ids: []uint32{20}, known: map[uint32]string{20: "20_[0-4] PENDING"}, want: []uint32{20}, marks: map[uint32]string{20: "20_[0-3] PENDING"}, requests: []string{states + "20", job + "20?flags=ALL"}},
		"het, read together": {ids: []uint32{30, 31}, want: []uint32{30, 31}, marks: map[uint32]string{30: "30+0 PENDING", 31: "31+1 PENDING"}, requests: []string{states + "30&job_id=31", job + "30?flags=ALL"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobsFake()
			f.jobs = append(f.jobs, more...)
			jobs, marks, err := dialFake(t, f).PeekJobs(t.Context(), tc.ids, tc.known)
			require.NoError(t, err)
			var ids []uint32
			for _, j := range jobs {
				assert.Equal(t, scaler.JobPending, j.State)
				ids = append(ids, j.ID)
			}
			assert.Equal(t, tc.want, ids)
			assert.Equal(t, tc.marks, marks)
			assert.Equal(t, tc.requests, f.seen())
		})
	}
	t.Run("an older slurmrestd", func(t *testing.T) {
		f := jobsFake()
		f.versions = []string{"v0.0.42"}
		_, _, err := dialFake(t, f).PeekJobs(t.Context(), []uint32{1}, nil)
		require.NoError(t, err)
		assert.Equal(t, []string{"GET /slurm/v0.0.42/jobs/state/?job_id=1", "GET /slurm/v0.0.42/job/1?flags=ALL"}, f.seen())
	})
	t.Run("forgotten meanwhile", func(t *testing.T) {
		f := jobsFake()
		f.script = append(f.script, nil, reply(500, errInvalidJobID, "Invalid job id specified"))
		jobs, marks, err := dialFake(t, f).PeekJobs(t.Context(), []uint32{1}, nil)
		require.NoError(t, err)
		assert.Empty(t, jobs)
		assert.Len(t, marks, 1)
	})
	t.Run("no answer", func(t *testing.T) {
		f := jobsFake()
		f.script = append(f.script, nil, reply(500, 1800, "Unable to contact slurm controller (connect failure)"))
		cfg := f.config()
		cfg.Retries = -1
		c, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		_, _, err = c.PeekJobs(t.Context(), []uint32{1}, nil)
		assert.ErrorContains(t, err, "Unable to contact slurm controller")
	})
}
