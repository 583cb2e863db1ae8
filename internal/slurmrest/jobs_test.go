package slurmrest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v0042 "github.com/SlinkyProject/slurm-client/api/v0042"
	v0043 "github.com/SlinkyProject/slurm-client/api/v0043"
	v0044 "github.com/SlinkyProject/slurm-client/api/v0044"
	v0045 "github.com/SlinkyProject/slurm-client/api/v0045"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/powersave"
)

func number(n int) map[string]any { return map[string]any{"set": true, "infinite": false, "number": n} }

// jobsFake knows a plain job, a het job with three components, an array of which one task
// has got the array's ID, and a job that is over.
func jobsFake() *fake {
	f := newFake()
	running := []string{"RUNNING", "CONFIGURING"}
	f.jobs = []fakeJob{
		{"job_id": 1, "job_state": []string{"PENDING"}},
		{"job_id": 5, "job_state": running, "nodes": "c[0-1]", "het_job_id": number(5), "het_job_offset": number(0)},
		{"job_id": 6, "job_state": running, "nodes": "g0", "het_job_id": number(5), "het_job_offset": number(1)},
		{"job_id": 7, "job_state": running, "nodes": "c2", "het_job_id": number(5), "het_job_offset": number(2)},
		{"job_id": 10, "job_state": running, "nodes": "c3", "array_job_id": number(10), "array_task_id": number(2)},
		{"job_id": 11, "job_state": []string{"PENDING", "COMPLETING"}, "nodes": "c4", "array_job_id": number(10), "array_task_id": number(0)},
		{"job_id": 12, "job_state": []string{"COMPLETED"}, "nodes": "c[0-5]"},
	}
	return f
}

func jobIDs(jobs []powersave.SlurmJob) []uint32 {
	ids := []uint32{}
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

func TestJobs(t *testing.T) {
	const list = "GET /slurm/v0.0.45/jobs/?flags=ALL"
	single := func(id int) string { return fmt.Sprintf("GET /slurm/v0.0.45/job/%d?flags=ALL", id) }
	for name, tc := range map[string]struct {
		ask      []uint32
		want     []uint32
		requests []string
	}{
		"all":                     {nil, []uint32{1, 5, 6, 7, 10, 11, 12}, []string{list}},
		"one":                     {[]uint32{1}, []uint32{1}, []string{single(1)}},
		"one, forgotten":          {[]uint32{99}, []uint32{}, []string{single(99)}},
		"het leader":              {[]uint32{5}, []uint32{5, 6, 7}, []string{single(5)}},
		"het component":           {[]uint32{6}, []uint32{6, 5, 7}, []string{single(6), single(5)}},
		"all het components":      {[]uint32{5, 6, 7}, []uint32{5, 6, 7}, []string{single(5)}},
		"a task with the array's": {[]uint32{10}, []uint32{10}, []string{single(10)}},
		"twice":                   {[]uint32{1, 1}, []uint32{1}, []string{single(1)}},
		"many":                    {[]uint32{12, 11, 7, 99, 1}, []uint32{1, 5, 6, 7, 11, 12}, []string{list}},
		"many, none of them het":  {[]uint32{1, 10, 11, 12, 99}, []uint32{1, 10, 11, 12}, []string{list}},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobsFake()
			c := dialFake(t, f)
			jobs, err := c.Jobs(t.Context(), tc.ask...)
			require.NoError(t, err)
			assert.Equal(t, tc.want, jobIDs(jobs))
			assert.Equal(t, tc.requests, f.seen())
		})
	}
}

func TestJobsOfALargeCluster(t *testing.T) {
	f := newFake()
	for id := range 160 {
		f.jobs = append(f.jobs, fakeJob{"job_id": id + 1, "job_state": []string{"PENDING"}})
	}
	c := dialFake(t, f)
	_, err := c.Jobs(t.Context())
	require.NoError(t, err)
	for n, requests := range map[int]int{20: 20, 21: 1} {
		f.reset()
		var ids []uint32
		for id := range n {
			ids = append(ids, uint32(id+1))
		}
		jobs, err := c.Jobs(t.Context(), ids...)
		require.NoError(t, err)
		assert.Len(t, jobs, n)
		assert.Len(t, f.seen(), requests, "%d jobs", n)
	}
}

func TestJobsFail(t *testing.T) {
	for name, script := range map[string]func(http.ResponseWriter) error{
		"slurmctld is down": reply(502, 1800, "Unable to contact slurm controller (connect failure)"),
		"cut": func(w http.ResponseWriter) error {
			_, err := fmt.Fprint(w, `{"jobs":[{"job_id":1,"job_state":["PENDING"]}`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobsFake()
			cfg := f.config()
			cfg.Retries = -1
			c, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			for _, ask := range [][]uint32{nil, {1}} {
				f.script = []func(http.ResponseWriter) error{script}
				jobs, err := c.Jobs(t.Context(), ask...)
				require.Error(t, err)
				assert.Nil(t, jobs, "half an answer is none")
			}
		})
	}
}

func TestJobsOn(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes []string
		want  []uint32
	}{
		"one node":      {[]string{"c1"}, []uint32{5}},
		"two nodes":     {[]string{"c2", "c4"}, []uint32{7, 11}},
		"a free node":   {[]string{"c5"}, []uint32{}}, // the job that had it is over
		"no such node":  {[]string{"c"}, []uint32{}},
		"no node named": {nil, []uint32{5, 6, 7, 10, 11}},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobsFake()
			jobs, err := dialFake(t, f).JobsOn(t.Context(), tc.nodes...)
			require.NoError(t, err)
			assert.Equal(t, tc.want, jobIDs(jobs))
		})
	}
}

// What is sent for each change, in each version.
func TestJobRequests(t *testing.T) {
	reason := "slurmtide: no capacity"
	begin := time.Unix(1795235098, 999)
	het := powersave.SlurmJob{ID: 6, HetJobID: 5, HetOffset: 1}
	task := powersave.SlurmJob{ID: 10, ArrayJobID: 10, ArrayTaskID: 2}
	got := map[string]map[string][]string{}
	for _, version := range []string{"v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"} {
		f := newFake()
		f.versions = []string{version}
		c := dialFake(t, f)
		got[version] = map[string][]string{}
		for name, act := range map[string]func() error{
			"comment": func() error {
				return c.UpdateJob(t.Context(), powersave.JobUpdate{ID: 7, AdminComment: &reason})
			},
			"no comment": func() error {
				return c.UpdateJob(t.Context(), powersave.JobUpdate{ID: 7, AdminComment: new(string)})
			},
			"begin":        func() error { return c.UpdateJob(t.Context(), powersave.JobUpdate{ID: 7, Begin: begin}) },
			"nothing":      func() error { return c.UpdateJob(t.Context(), powersave.JobUpdate{ID: 7}) },
			"cancel":       func() error { return c.CancelJob(t.Context(), powersave.SlurmJob{ID: 7}) },
			"cancel het":   func() error { return c.CancelJob(t.Context(), het) },
			"cancel task":  func() error { return c.CancelJob(t.Context(), task) },
			"requeue":      func() error { return c.RequeueJob(t.Context(), powersave.SlurmJob{ID: 7}, false) },
			"requeue het":  func() error { return c.RequeueJob(t.Context(), het, false) },
			"requeue task": func() error { return c.RequeueJob(t.Context(), task, true) },
		} {
			f.reset()
			err := act()
			if strings.HasPrefix(name, "requeue") && version != "v0.0.45" {
				var lacks interface{ NotOffered() bool }
				require.ErrorAs(t, err, &lacks)
				assert.True(t, lacks.NotOffered())
				require.ErrorContains(t, err, "requeue job: not offered by slurmrestd's "+version)
			} else {
				require.NoError(t, err)
			}
			got[version][name] = []string{}
			for i, request := range f.seen() {
				got[version][name] = append(got[version][name], strings.TrimSpace(request+" "+f.bodies[i]))
			}
		}
	}
	text, err := json.MarshalIndent(got, "", "  ")
	require.NoError(t, err)
	golden.Compare(t, "testdata/jobs.json", string(text)+"\n")
}

func TestNoJobToChange(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	for name, j := range map[string]powersave.SlurmJob{
		"no ID":              {},
		"many pending tasks": {ID: 10, ArrayJobID: 10, ArrayTaskID: -1},
	} {
		require.Error(t, c.RequeueJob(t.Context(), j, false), name)
		require.Error(t, c.CancelJob(t.Context(), j), name)
	}
	assert.Empty(t, f.seen(), "nothing may be sent")
}

func TestJobRefusals(t *testing.T) {
	comment := "slurmtide: x"
	update := func(c *Client, t *testing.T) error {
		return c.UpdateJob(t.Context(), powersave.JobUpdate{ID: 7, AdminComment: &comment})
	}
	requeue := func(c *Client, t *testing.T) error {
		return c.RequeueJob(t.Context(), powersave.SlurmJob{ID: 7}, false)
	}
	cancel := func(c *Client, t *testing.T) error { return c.CancelJob(t.Context(), powersave.SlurmJob{ID: 7}) }
	// status is an answer with HTTP 200, no errors, and a refusal for the job.
	status := func(field, entry string) func(http.ResponseWriter) error {
		return func(w http.ResponseWriter) error {
			_, err := fmt.Fprintf(w, `{%q:[%s],"errors":[]}`, field, entry)
			return err
		}
	}
	type refusal struct{ gone, notPending, notRequeueable bool }
	for name, tc := range map[string]struct {
		act    func(*Client, *testing.T) error
		answer func(http.ResponseWriter) error
		want   *refusal // nil: success
		says   string
	}{
		"update, unknown job":       {update, reply(500, 2017, "Invalid job id specified"), &refusal{gone: true}, "Slurm error 2017"},
		"update, job is over":       {update, reply(500, 2084, "Job has already finished"), &refusal{gone: true}, "update job (job 7, admin comment \"slurmtide: x\")"},
		"update, job is running":    {update, reply(500, 2073, "Job is no longer pending execution"), &refusal{notPending: true}, ""},
		"update, refused in a list": {update, status("results", `{"job_id":7,"error_code":2073,"error":"Job is no longer pending execution","why":"plugin"}`), &refusal{notPending: true}, "plugin: Job is no longer"},
		"update, done in a list":    {update, status("results", `{"job_id":7,"error_code":0,"error":"No error","why":""}`), nil, ""},
		"requeue forbidden":         {requeue, reply(500, 2037, "Requested operation is presently disabled"), &refusal{notRequeueable: true}, ""},
		"requeue of srun":           {requeue, status("status", `{"job_id":7,"error_code":2039,"error":"Only batch jobs are accepted or processed"}`), &refusal{notRequeueable: true}, ""},
		"requeue of a pending job":  {requeue, reply(500, 2024, "Job is pending execution"), nil, ""},
		"requeue, unknown job":      {requeue, reply(500, 2017, "Invalid job id specified"), &refusal{gone: true}, ""},
		"cancel, job is over":       {cancel, status("status", `{"error":{"code":2021,"string":"Job/step already completing or completed"},"step_id":"7","job_id":{"set":true,"number":7}}`), nil, ""},
		"cancel, unknown job":       {cancel, status("status", `{"error":{"code":2017,"string":"Invalid job id specified","message":"no"},"step_id":"7"}`), &refusal{gone: true}, "no: Invalid job id"},
		"cancel, done":              {cancel, status("status", `{"error":{"code":0,"string":""},"step_id":"7"}`), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			c := dialFake(t, f)
			f.script = []func(http.ResponseWriter) error{tc.answer}
			err := tc.act(c, t)
			require.Len(t, f.seen(), 1)
			if tc.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.says)
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, *tc.want, refusal{e.JobGone(), e.JobNotPending(), e.NotRequeueable()})
		})
	}
}

// A change of a job may be sent again when nobody knows whether it arrived.
func TestJobChangesAreRepeated(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	for name, act := range map[string]func() error{
		"update":  func() error { return c.UpdateJob(t.Context(), powersave.JobUpdate{ID: 7, AdminComment: new(string)}) },
		"requeue": func() error { return c.RequeueJob(t.Context(), powersave.SlurmJob{ID: 7}, false) },
		"cancel":  func() error { return c.CancelJob(t.Context(), powersave.SlurmJob{ID: 7}) },
	} {
		f.reset()
		f.script = []func(http.ResponseWriter) error{reply(504, 1802, "Unable to contact slurm controller (receive failure)")}
		require.NoError(t, act(), name)
		assert.Len(t, f.seen(), 2, name)
	}
}

var canonicalJobs = `{"jobs":[{"job_id":11,"job_state":["RUNNING","CONFIGURING"],"state_reason":"NodeDown","state_description":"text","nodes":"c[1-2]",
	"partition":"gpu","user_id":1000,"user_name":"ada","batch_flag":true,"requeue":true,"restart_cnt":2,"admin_comment":"slurmtide: no","comment":"mine",
	"submit_time":{"set":true,"infinite":false,"number":1795235097},"eligible_time":{"set":true,"infinite":false,"number":1795235098},
	"array_job_id":{"set":true,"infinite":false,"number":10},"array_task_id":{"set":true,"infinite":false,"number":3},
	"het_job_id":{"set":true,"infinite":false,"number":9},"het_job_offset":{"set":true,"infinite":false,"number":2}}],
	"last_backfill":{"set":true,"infinite":false,"number":1},"last_update":{"set":true,"infinite":false,"number":1},` + canonicalEnvelope

func TestGeneratedJobsAgree(t *testing.T) {
	for version, into := range map[string]any{
		"v0.0.42": &v0042.V0042OpenapiJobInfoResp{},
		"v0.0.43": &v0043.V0043OpenapiJobInfoResp{},
		"v0.0.44": &v0044.V0044OpenapiJobInfoResp{},
		"v0.0.45": &v0045.V0045OpenapiJobInfoResp{},
	} {
		dec := json.NewDecoder(bytes.NewReader([]byte(canonicalJobs)))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(into), version)
		text, err := json.Marshal(into)
		require.NoError(t, err)
		r := answer.NewJobs(nil)
		_, err = answer.Decode(bytes.NewReader(text), "jobs", r.Read)
		require.NoError(t, err, version)
		assert.Equal(t, []powersave.SlurmJob{{
			ID: 11, State: powersave.JobRunning | powersave.JobConfiguring, StateReason: "NodeDown", StateDetail: "text", Nodes: []string{"c1", "c2"},
			Partition: "gpu", UserID: 1000, UserName: "ada", Batch: true, Requeue: true, Restarts: 2, AdminComment: "slurmtide: no", Comment: "mine",
			Submitted: time.Unix(1795235097, 0), Begin: time.Unix(1795235098, 0), ArrayJobID: 10, ArrayTaskID: 3, HetJobID: 9, HetOffset: 2,
		}}, r.List, version)
	}
}
