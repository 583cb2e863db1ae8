package slurmrest

import (
	"context"
	"encoding/json"
	"io"
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

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/scaler"
)

func TestQueue(t *testing.T) {
	for versions, jobs := range map[string]string{
		"v0.0.42":                         "v0.0.42",
		"v0.0.42 v0.0.43":                 "v0.0.43",
		"v0.0.42 v0.0.43 v0.0.44":         "v0.0.44",
		"v0.0.42 v0.0.43 v0.0.44 v0.0.45": "v0.0.44", // v0.0.45 does not tell how jobs share nodes
	} {
		t.Run(versions, func(t *testing.T) {
			f := jobsFake()
			f.versions = strings.Fields(versions)
			newest := f.versions[len(f.versions)-1]
			s, err := dialFake(t, f).Queue(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []string{"GET /slurm/" + newest + "/partitions/?flags=ALL", "GET /slurm/" + newest + "/nodes/", "GET /slurm/" + jobs + "/jobs/?flags=ALL"}, f.seen())
			assert.Len(t, s.Nodes, 7)
			assert.Equal(t, scaler.NodeOff, s.Nodes[0].State)
			states := map[uint32]scaler.JobState{}
			for _, j := range s.Jobs {
				states[j.ID] = j.State
			}
			assert.Equal(t, map[uint32]scaler.JobState{1: scaler.JobPending, 5: scaler.JobRunning, 6: scaler.JobRunning, 7: scaler.JobRunning, 10: scaler.JobRunning, 11: scaler.JobPending}, states)
		})
	}
}

// Half a queue is none: demand would be wrong, and nobody could tell.
func TestQueueFails(t *testing.T) {
	down := reply(502, 1800, "Unable to contact slurm controller (connect failure)")
	for at := range 3 {
		f := jobsFake()
		cfg := f.config()
		cfg.Retries = -1
		c, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		for range at {
			f.script = append(f.script, nil)
		}
		f.script = append(f.script, down)
		s, err := c.Queue(t.Context())
		require.ErrorContains(t, err, "Unable to contact slurm controller")
		assert.Equal(t, scaler.Snapshot{}, s)
	}
}

// Every field read has the name and the type that slurm-client's generated types have.
func TestQueueFieldsOfVersions(t *testing.T) {
	read := func(kind string, text []byte) any {
		q, p, c := answer.NewQueue(), &answer.Partitions{}, answer.NewCapacity()
		for _, try := range []struct {
			kind string
			item func(*json.Decoder) error
		}{{"jobs", q.Read}, {"partitions", p.Read}, {"nodes", c.Read}} {
			if try.kind == kind {
				_, err := answer.Decode(strings.NewReader(`{"`+kind+`":[`+string(text)+`]}`), kind, try.item)
				require.NoError(t, err, "%s", text)
			}
		}
		return [3]any{q.List, p.List, c.List}
	}
	job := `{"job_id":7,"job_state":["PENDING"],"state_reason":"Resources","priority":{"set":true,"number":5},"eligible_time":{"set":true,"number":1795248446},"user_id":9,"dependency":"afterok:5",
		"array_job_id":{"set":true,"number":7},"array_task_string":"1-4%1","array_max_tasks":{"set":true,"number":1},"het_job_id":{"set":true,"number":6},"het_job_offset":{"set":true,"number":1},
		"partition":"a,b","tres_req_str":"node=3","node_count":{"set":true,"number":4},"max_nodes":{"set":true,"number":8},"tasks":{"set":true,"number":6},"cpus":{"set":true,"number":12},"cpus_per_task":{"set":true,"number":2},
		"tasks_per_node":{"set":true,"number":3},"tasks_per_core":{"set":true,"number":1},"tasks_per_socket":{"set":true,"number":2},"minimum_cpus_per_node":{"set":true,"number":6},"sockets_per_node":{"set":true,"number":1},
		"cores_per_socket":{"set":true,"number":4},"threads_per_core":{"set":true,"number":1},"tasks_per_tres":{"set":true,"number":1},"memory_per_cpu":{"set":true,"number":500},"minimum_tmp_disk_per_node":{"set":true,"number":10},
		"tres_per_node":"gres/gpu:2","tres_per_job":"gres/gpu:4","tres_per_task":"cpu=1","tres_per_socket":"gres/gpu:1","cpus_per_tres":"gres/gpu:8","memory_per_tres":"gres/gpu:1024","features":"x|y",
		"required_nodes":"c1","excluded_nodes":"c2","resv_name":"mine","shared":["none"]}`
	running := `{"job_id":8,"job_state":["RUNNING"],"nodes":"c[1-2]","required_nodes":"c1","excluded_nodes":"c4","end_time":{"set":true,"number":1795248446},"user_id":9}`
	partition := `{"name":"p","nodes":{"configured":"ALL"},"partition":{"state":["UP"]},"priority":{"tier":3},"minimums":{"nodes":2},"maximums":{"nodes":{"set":true,"number":4},"cpus_per_node":{"set":true,"number":8},"oversubscribe":{"jobs":4,"flags":["force"]}}}`
	partition45 := `{"name":"p","nodes":{"configured":"ALL"},"partition":{"state":["UP"],"oversubscribe":"FORCE:4","exclusive":"USER"},"priority":{"tier":3},"minimums":{"nodes":2},"maximums":{"nodes":{"set":true,"number":4},"cpus_per_node":{"set":true,"number":8}}}`
	node := `{"name":"c1","state":["IDLE"],"partitions":["p"],"features":["a"],"cpus":32,"effective_cpus":30,"sockets":2,"cores":8,"threads":2,"real_memory":4000,"specialized_memory":500,"temporary_disk":9,
		"weight":5,"gres":"gpu:2","gres_used":"gpu:1","reservation":"mine","alloc_cpus":4,"alloc_memory":100}`
	for name, tc := range map[string]struct {
		job, partition, node any
		parts                string
	}{
		"v0.0.42": {&v0042.V0042JobInfo{}, &v0042.V0042PartitionInfo{}, &v0042.V0042Node{}, partition},
		"v0.0.43": {&v0043.V0043JobInfo{}, &v0043.V0043PartitionInfo{}, &v0043.V0043Node{}, partition},
		"v0.0.44": {&v0044.V0044JobInfo{}, &v0044.V0044PartitionInfo{}, &v0044.V0044Node{}, partition},
		"v0.0.45": {nil, &v0045.V0045PartitionInfo{}, &v0045.V0045Node{}, partition45},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				kind, text string
				typed      any
			}{{"jobs", running, tc.job}, {"jobs", job, tc.job}, {"partitions", tc.parts, tc.partition}, {"nodes", node, tc.node}} {
				if c.typed == nil {
					continue // jobs are not read with it
				}
				require.NoError(t, json.Unmarshal([]byte(c.text), c.typed), c.kind)
				again, err := json.Marshal(c.typed)
				require.NoError(t, err)
				assert.Equal(t, read(c.kind, []byte(c.text)), read(c.kind, again), c.kind)
			}
		})
	}
}

// Only what changed is asked for, and "nothing changed" is told from "there are no jobs".
func TestQueueJobsSince(t *testing.T) {
	since := time.Unix(1795248446, 0)
	body := func(text string) func(http.ResponseWriter) error {
		return func(w http.ResponseWriter) error {
			_, err := w.Write([]byte(text))
			return err
		}
	}
	one := `{"job_id":7,"job_state":["PENDING"]}`
	for name, tc := range map[string]struct {
		since  time.Time
		answer func(http.ResponseWriter) error
		jobs   int
		at     time.Time
	}{
		"nothing changed":                 {since, body(`{"jobs":[],"last_update":{"set":false,"number":0},"warnings":[{"description":"No job changes since"}]}`), 0, time.Time{}},
		"nothing changed, time 0":         {since, body(`{"jobs":[],"last_update":{"set":true,"number":0}}`), 0, time.Time{}},
		"not modified":                    {since, func(w http.ResponseWriter) error { w.WriteHeader(http.StatusNotModified); return nil }, 0, time.Time{}},
		"the last job has gone":           {since, body(`{"jobs":[],"last_update":{"set":true,"number":1795248450}}`), 0, time.Unix(1795248450, 0)},
		"a job is new":                    {since, body(`{"jobs":[` + one + `],"last_update":{"set":true,"number":1795248450}}`), 1, time.Unix(1795248450, 0)},
		"all":                             {time.Time{}, body(`{"last_update":{"set":true,"number":1795248450},"jobs":[` + one + `]}`), 1, time.Unix(1795248450, 0)},
		"all, and it does not tell when":  {time.Time{}, body(`{"jobs":[]}`), 0, time.Unix(1, 0)},
		"some, and it does not tell when": {since, body(`{"jobs":[` + one + `]}`), 1, time.Unix(1, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobsFake()
			c := dialFake(t, f)
			f.script = append(f.script, tc.answer)
			jobs, at, err := c.QueueJobs(t.Context(), tc.since)
			require.NoError(t, err)
			assert.Len(t, jobs, tc.jobs)
			assert.Equal(t, tc.at.Unix(), at.Unix())
			want := "GET /slurm/v0.0.44/jobs/?flags=ALL"
			if !tc.since.IsZero() {
				want += "&update_time=1795248446"
			}
			assert.Equal(t, []string{want}, f.seen())
		})
	}
}

// Whoever did not ask for changes has no use for an answer without a body.
func TestNotModifiedUnasked(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	f.script = append(f.script, func(w http.ResponseWriter) error { w.WriteHeader(http.StatusNotModified); return nil })
	_, err := c.QueueNodes(t.Context())
	require.ErrorContains(t, err, "HTTP 304")
}

func TestSelect(t *testing.T) {
	conf := func(words string) func(http.ResponseWriter) error {
		return func(w http.ResponseWriter) error {
			_, err := io.WriteString(w, `{"slurm_conf": {"SelectTypeParameters": `+words+`}, "errors": [], "meta": {}}`)
			return err
		}
	}
	f := newFake()
	c := dialFake(t, f)
	for words, want := range map[string]scaler.Select{
		`["CR_CORE_MEMORY"]`:                         {OneNodeFirstFit: true},
		`["CR_CPU", "CR_LLN"]`:                       {OneNodeFirstFit: true, CPUs: true, NoMemory: true},
		`["CR_CORE_MEMORY", "CR_ONE_TASK_PER_CORE"]`: {OneNodeFirstFit: true, OneTaskPerCore: true},
		`[], "MaxNodeCount": 32`:                     {OneNodeFirstFit: true, MaxNodeCount: 32},
		`[], "MaxNodeCount": 4294967294`:             {OneNodeFirstFit: true},
		`[], "MaxNodeCount": {"set": false}`:         {OneNodeFirstFit: true},
	} {
		f.script = []func(http.ResponseWriter) error{conf(words)}
		got, told, err := c.Select(t.Context())
		require.NoError(t, err)
		assert.True(t, told)
		assert.Equal(t, want, got, words)
	}
	f.script = []func(http.ResponseWriter) error{conf(`["CR_NEW"]`)}
	_, _, err := c.Select(t.Context())
	require.ErrorContains(t, err, "CR_NEW")

	f = newFake()
	f.versions = []string{"v0.0.44"}
	got, told, err := dialFake(t, f).Select(t.Context())
	require.NoError(t, err)
	assert.False(t, told)
	assert.Equal(t, scaler.Select{}, got)
}

// What comes of a slurmdbd that slurmrestd asks for the names of TRES, before it tells of partitions, as seen with 24.11 and 26.05.
func TestSlurmdbdInTheWay(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter) error
		says   string
	}{
		"without auth/jwt": {slurmdb(502, 5003, "Header lengths are longer than data received"), "Header lengths are longer than data received (Slurm error 5003, HTTP 502); slurmrestd asks slurmdbd for the names of TRES: is slurmdbd up, and has slurmdbd.conf AuthAltTypes=auth/jwt"},
		"away":             {slurmdb(500, 111, "Connection refused"), "Connection refused (Slurm error 111, HTTP 500); slurmrestd asks slurmdbd"},
		"hangs":            {lose(context.DeadlineExceeded), "With accounting it asks slurmdbd for the names of TRES: does that answer?"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.script = []func(http.ResponseWriter) error{tc.answer}
			cfg := f.config()
			cfg.Retries = -1
			c, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			_, err = c.QueuePartitions(t.Context())
			require.ErrorContains(t, err, tc.says)
		})
	}
}

func slurmdb(status, number int, text string) func(http.ResponseWriter) error {
	return func(w http.ResponseWriter) error {
		w.WriteHeader(status)
		return json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]any{"description": "Slurmdb query failed", "error_number": number, "error": text, "source": "slurmdb_tres_get"}}})
	}
}
