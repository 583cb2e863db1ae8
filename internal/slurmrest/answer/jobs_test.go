package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

func TestDecodeJobs(t *testing.T) {
	const configuring = powersave.JobRunning | powersave.JobConfiguring
	no := `{"set":false,"infinite":false,"number":0}`
	for name, tc := range map[string]struct {
		text string
		want powersave.SlurmJob
		err  string
	}{
		"little":                  {`{"job_id":7,"job_state":["RUNNING","CONFIGURING"]}`, powersave.SlurmJob{ID: 7, State: configuring}, ""},
		"a word of the future":    {`{"job_id":7,"job_state":["PENDING","DREAMING"]}`, powersave.SlurmJob{ID: 7, State: powersave.JobPending | powersave.JobOther}, ""},
		"nodes held":              {`{"job_id":7,"job_state":["RUNNING","CONFIGURING"],"nodes":"c[1,3]"}`, powersave.SlurmJob{ID: 7, State: configuring, Nodes: []string{"c1", "c3"}}, ""},
		"nodes of a requeued job": {`{"job_id":7,"job_state":["PENDING","COMPLETING"],"nodes":"c1"}`, powersave.SlurmJob{ID: 7, State: powersave.JobPending | powersave.JobCompleting, Nodes: []string{"c1"}}, ""},
		"nodes of an ended job":   {`{"job_id":7,"job_state":["NODE_FAIL"],"nodes":"c1"}`, powersave.SlurmJob{ID: 7, State: powersave.JobNodeFail}, ""},
		"no array, no het":        {`{"job_id":7,"job_state":["PENDING"],"array_job_id":{"set":true,"number":0},"array_task_id":` + no + `,"het_job_id":{"set":true,"number":0},"het_job_offset":` + no + `}`, powersave.SlurmJob{ID: 7, State: powersave.JobPending}, ""},
		"task 0":                  {`{"job_id":8,"job_state":["PENDING"],"array_job_id":{"set":true,"number":7},"array_task_id":{"set":true,"number":0}}`, powersave.SlurmJob{ID: 8, State: powersave.JobPending, ArrayJobID: 7}, ""},
		"several pending tasks":   {`{"job_id":7,"job_state":["PENDING"],"array_job_id":{"set":true,"number":7},"array_task_id":` + no + `}`, powersave.SlurmJob{ID: 7, State: powersave.JobPending, ArrayJobID: 7, ArrayTaskID: -1}, ""},
		"het component":           {`{"job_id":8,"job_state":["PENDING"],"het_job_id":{"set":true,"number":7},"het_job_offset":{"set":true,"number":1}}`, powersave.SlurmJob{ID: 8, State: powersave.JobPending, HetJobID: 7, HetOffset: 1}, ""},
		"numbers out of range":    {`{"job_id":8,"job_state":["PENDING"],"het_job_id":{"set":true,"number":-3},"array_job_id":{"set":true,"number":1e15}}`, powersave.SlurmJob{ID: 8, State: powersave.JobPending}, ""},
		"no ID":                   {`{"job_state":["PENDING"]}`, powersave.SlurmJob{}, "a job without an ID"},
		"no state":                {`{"job_id":7}`, powersave.SlurmJob{}, "state of job 7: it is missing"},
		"empty state":             {`{"job_id":7,"job_state":[]}`, powersave.SlurmJob{}, "state of job 7: it is missing"},
		"state is a word":         {`{"job_id":7,"job_state":"PENDING"}`, powersave.SlurmJob{}, "state of job 7"},
		"nodes that are no list":  {`{"job_id":7,"job_state":["RUNNING"],"nodes":"c[1"}`, powersave.SlurmJob{}, "nodes of job 7"},
		"cut":                     {`{"job_id":7,"job_state":["RUN`, powersave.SlurmJob{}, "invalid character"},
		"an ID that is no number": {`{"job_id":"7"}`, powersave.SlurmJob{}, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewJobs(nil)
			_, err := Decode(strings.NewReader(`{"jobs":[`+tc.text+`],"errors":[]}`), "jobs", r.Read)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, []powersave.SlurmJob{tc.want}, r.List)
		})
	}
	r := NewJobs(func(j powersave.SlurmJob) bool { return j.ID == 8 })
	_, err := Decode(strings.NewReader(`{"jobs":[{"job_id":7,"job_state":["PENDING"]},{"job_id":8,"job_state":["PENDING"]}]}`), "jobs", r.Read)
	require.NoError(t, err)
	assert.Len(t, r.List, 1)
	assert.Equal(t, 2, r.Total)
}

func TestDecodeStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []Problem
		err  string
	}{
		"no list":             {`{"errors":[]}`, []Problem{}, ""},
		"null":                {`{"status":null,"errors":[]}`, []Problem{}, ""},
		"all well":            {`{"status":[{"error_code":0,"error":"No error"},{"error":{"code":0}},{}],"errors":[]}`, []Problem{}, ""},
		"one of two":          {`{"status":[{"error_code":0},{"error_code":2037,"error":"disabled","why":"so"}],"errors":[]}`, []Problem{{Description: "so", Number: 2037, Name: "disabled", Source: "status"}}, ""},
		"as an object":        {`{"status":[{"error":{"code":2017,"string":"invalid","message":"so"}}],"errors":[]}`, []Problem{{Description: "so", Number: 2017, Name: "invalid", Source: "status"}}, ""},
		"after Slurm's own":   {`{"errors":[{"error_number":1}],"status":[{"error_code":2}]}`, []Problem{{Number: 1}, {Number: 2, Source: "status"}}, ""},
		"before Slurm's own":  {`{"status":[{"error_code":2}],"errors":[{"error_number":1}]}`, []Problem{{Number: 1}, {Number: 2, Source: "status"}}, ""},
		"error is a list":     {`{"status":[{"error":[]}]}`, nil, "cannot unmarshal"},
		"error's code a text": {`{"status":[{"error":{"code":"x"}}]}`, nil, "cannot unmarshal"},
		"cut":                 {`{"status":[{"error_code":2}`, nil, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			env, err := DecodeStatus(strings.NewReader(tc.text), "status")
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, env.Errors)
		})
	}
}

func FuzzJobs(f *testing.F) {
	f.Add([]byte(`{"jobs":[{"job_id":8,"job_state":["RUNNING","CONFIGURING"],"nodes":"c[1-3]","array_job_id":{"set":true,"number":7},"array_task_id":{"set":true,"number":0},
		"het_job_id":{"set":true,"number":7},"eligible_time":{"set":true,"infinite":false,"number":1795235098}}],"errors":[]}`))
	f.Add([]byte(`{"status":[{"error":{"code":2017,"string":"invalid"}},{"error_code":2037,"error":"disabled"}],"errors":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewJobs(nil)
		_, _ = Decode(bytes.NewReader(text), "jobs", r.Read)
		for _, j := range r.List {
			if j.ID == 0 || j.State == 0 || j.ArrayJobID == 0 && j.ArrayTaskID != 0 || j.HetJobID == 0 && j.HetOffset != 0 {
				t.Fatalf("half a job: %+v", j)
			}
		}
		_, _ = DecodeStatus(bytes.NewReader(text), "status")
	})
}

// Answers recorded from slurmrestd 24.11.5 and 26.05.5 while no node of the jobs came up: a
// job with a comment, one that was cancelled, a het job, an array with one task at a time,
// and one that is not to begin yet.
func TestRecordedJobs(t *testing.T) {
	for file, first := range map[string]uint32{"24.11.5/jobs-v0.0.42.json": 9, "26.05.5/jobs-v0.0.45.json": 33} {
		t.Run(file, func(t *testing.T) {
			text, err := os.Open(filepath.Join("testdata", file))
			require.NoError(t, err)
			defer text.Close()
			r := NewJobs(nil)
			env, err := Decode(text, "jobs", r.Read)
			require.NoError(t, err)
			assert.Empty(t, env.Errors)
			assert.Equal(t, filepath.Dir(file), env.Meta.Slurm.Release)
			const configuring = powersave.JobRunning | powersave.JobConfiguring | powersave.JobPowerUpNode
			named := map[string]powersave.SlurmJob{}
			for _, j := range r.List {
				assert.Equal(t, "root", j.UserName)
				assert.Equal(t, "all", j.Partition)
				assert.Equal(t, j.ID != first+1, j.Requeueable())
				assert.WithinDuration(t, time.Unix(1795248470, 0), j.Submitted, 2*time.Minute)
				named[j.Name()] = j
			}
			require.Len(t, named, 7)
			name := func(format string, offset uint32) powersave.SlurmJob {
				j, ok := named[fmt.Sprintf(format, first+offset)]
				require.True(t, ok, "%s in %v", fmt.Sprintf(format, first+offset), named)
				return j
			}

			plain := name("%d", 0)
			assert.Equal(t, configuring, plain.State)
			assert.Equal(t, []string{"cpu-0", "cpu-1"}, plain.Nodes)
			assert.Equal(t, "slurmtide: no capacity in zone a", plain.AdminComment)
			assert.Equal(t, "mine", plain.Comment)
			assert.Equal(t, "None", plain.StateReason)

			assert.Equal(t, powersave.JobCancelled, name("%d", 1).State)
			assert.Empty(t, name("%d", 1).Nodes)

			assert.Len(t, name("%d+0", 2).Nodes, 1)
			second := name("%d+1", 2)
			assert.Equal(t, []uint32{first + 3, first + 2}, []uint32{second.ID, second.HetJobID})
			assert.Len(t, second.Nodes, 2)

			assert.Len(t, name("%d_0", 4).Nodes, 3)
			assert.Equal(t, first+6, name("%d_0", 4).ID)
			waiting := name("%d", 4)
			assert.Equal(t, -1, waiting.ArrayTaskID)
			assert.Equal(t, "JobArrayTaskLimit", waiting.StateReason)

			later := name("%d", 5)
			assert.Equal(t, powersave.JobPending, later.State)
			assert.Equal(t, "BeginTime", later.StateReason)
			assert.Equal(t, time.Hour, later.Begin.Sub(later.Submitted).Round(time.Minute))
		})
	}
}

// Reading all jobs to find a few must not keep the others.
func TestJobsMemory(t *testing.T) {
	text, err := os.ReadFile("testdata/26.05.5/jobs-v0.0.45.json")
	require.NoError(t, err)
	var recorded struct {
		Jobs []json.RawMessage `json:"jobs"`
	}
	require.NoError(t, json.Unmarshal(text, &recorded))
	var long bytes.Buffer
	long.WriteString(`{"jobs":[`)
	for i := range 2_000 {
		if i > 0 {
			long.WriteByte(',')
		}
		long.Write(recorded.Jobs[i%len(recorded.Jobs)])
	}
	long.WriteString(`]}`)
	r := NewJobs(func(j powersave.SlurmJob) bool { return j.State.Any(powersave.JobCancelled) })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err = Decode(bytes.NewReader(long.Bytes()), "jobs", r.Read)
	require.NoError(t, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d of %d jobs: %.1f MB of JSON, %.1f MB allocated, %.2f MB kept", len(r.List), r.Total, float64(long.Len())/1e6, float64(after.TotalAlloc-before.TotalAlloc)/1e6, float64(kept)/1e6)
	assert.Equal(t, 2_000, r.Total)
	assert.Less(t, kept, int64(1<<20), "a job must not keep its JSON alive")
	runtime.KeepAlive(r)
}
