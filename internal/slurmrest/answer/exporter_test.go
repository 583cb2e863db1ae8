package answer

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/powersave"
)

func TestFactsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		`{"nodes":[{"state":["IDLE"]}]}`:                        "a node without a name",
		`{"nodes":[{"name":"c"}]}`:                              "state of node c: it is missing",
		`{"nodes":[{"name":"c","state":[]}]}`:                   "state of node c: it is missing",
		`{"nodes":[{"name":"c","state":"IDLE"}]}`:               "state of node c",
		`{"nodes":[{"name":"c","state":["X"],"partitions":1}]}`: "partitions of node c",
		`{"jobs":[{"job_state":["PENDING"]}]}`:                  "a job without an ID",
		`{"jobs":[{"job_id":1}]}`:                               "state of job 1: it is missing",
		`{"partitions":[{}]}`:                                   "a partition without a name",
		`{"nodes":[{"name":"c","state":["IDLE"]}]`:              "unexpected EOF",
		`{"jobs":[{"job_id":1,"job_state":["PENDING"]}`:         "unexpected EOF",
	} {
		kind, _, _ := strings.Cut(strings.TrimPrefix(text, `{"`), `"`)
		nodes, jobs, partitions := NewNodeFacts(func(exporter.Node) {}), NewJobFacts(func(exporter.Job) {}), &PartitionFacts{}
		read := nodes.Read
		switch kind {
		case "jobs":
			read = jobs.Read
		case "partitions":
			read = partitions.Read
		}
		_, err := Decode(strings.NewReader(text), kind, read)
		require.ErrorContains(t, err, want, text)
	}
}

func TestFacts(t *testing.T) {
	var nodes []exporter.Node
	_, err := Decode(strings.NewReader(`{"nodes":[{"name":"c","state":["IDLE","POWER_DOWN_FORCE","POWER_DOWN","POWERED_DOWN"],"cpus":4,"cpu_load":0,"free_mem":{"set":false}},
		{"name":"d","state":["IDLE"],"cpu_load":7,"free_mem":{"set":true,"infinite":true,"number":0}},
		{"name":"e","state":["IDLE"],"cpus":64,"effective_cpus":60,"real_memory":1000,"specialized_memory":100,"free_mem":{"set":false}}]}`), "nodes",
		NewNodeFacts(func(n exporter.Node) { nodes = append(nodes, n) }).Read)
	require.NoError(t, err)
	assert.Equal(t, []exporter.Node{{Name: "c", State: powersave.NodeIdle | powersave.NodePowerDown | powersave.NodePoweredDown, CPUs: 4, FreeMemory: -1, Load: -1},
		{Name: "d", State: powersave.NodeIdle, FreeMemory: -1, Load: -1},
		{Name: "e", State: powersave.NodeIdle, CPUs: 60, SpecCPUs: 4, Memory: 1000, SpecMemory: 100, FreeMemory: -1, Load: -1}}, nodes)
	var jobs []exporter.Job
	_, err = Decode(strings.NewReader(`{"jobs":[
		{"job_id":1,"job_state":["RUNNING"],"user_name":"","user_id":1001,"tres_req_str":"cpu=1","tres_alloc_str":"cpu=2"},
		{"job_id":2,"job_state":["PENDING","COMPLETING"],"priority":{"set":true,"number":0},"tres_req_str":"cpu=1","tres_alloc_str":"cpu=2"},
		{"job_id":3,"job_state":["RUNNING"],"tres_req_str":"cpu=3","name":"x","qos":"q","nodes":"n[1-2]","array_job_id":{"set":true,"number":2},"array_task_id":{"set":true,"number":0},
			"submit_time":{"set":true,"number":5},"start_time":{"set":true,"number":6},"end_time":{"set":true,"number":7}}]}`), "jobs",
		NewJobFacts(func(j exporter.Job) { jobs = append(jobs, j) }).Read)
	require.NoError(t, err)
	require.Len(t, jobs, 3)
	assert.False(t, jobs[0].Held, "nobody has said so")
	assert.True(t, jobs[1].Held)
	assert.Equal(t, "cpu=3", jobs[2].TRES, "what it has is not said")
	assert.Equal(t, "cpu=2", jobs[0].TRES)
	assert.Equal(t, exporter.Job{
		State: powersave.JobRunning, User: "0", TRES: "cpu=3", ID: 3, ArrayJob: 2, ArrayTask: "0", Name: "x", QOS: "q", NodeList: "n[1-2]",
		Submit: time.Unix(5, 0), Start: time.Unix(6, 0), End: time.Unix(7, 0),
	}, jobs[2])
	assert.Empty(t, jobs[0].ArrayTask)
	assert.True(t, jobs[0].Start.IsZero())
	assert.Equal(t, "1001", jobs[0].User, "nobody knows his name")
	assert.Equal(t, "cpu=1", jobs[1].TRES, "a requeued job wants what it asked for")
}

func FuzzFacts(f *testing.F) {
	f.Add([]byte(`{"name":"c1","state":["IDLE"],"cpus":4,"gres":"gpu:h100:2(S:0-1)","gres_used":"gpu:h100:1(IDX:0)","cpu_load":1,"free_mem":{"set":true,"number":3}}`))
	f.Add([]byte(`{"job_id":1,"job_state":["PENDING"],"partition":"a,b","array_task_string":"1-9:2%4","tres_req_str":"cpu=4,mem=1.5G,gres/gpu:h100=2","state_reason":"x"}`))
	f.Add([]byte(`{"statistics":{"jobs_started":1,"rpcs_by_message_type":[{"message_type":"A","count":1e300}],"schedule_exit":{"a":1}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all := exporter.Options{PerNode: true, PerUser: true, PerJob: 2}
		nodes, jobs := exporter.NewNodeTally(all), exporter.NewJobTally(time.Unix(1_800_000_000, 0), all)
		list := append(append([]byte(`{"list":[`), text...), "]}"...)
		_, _ = Decode(bytes.NewReader(list), "list", NewNodeFacts(nodes.Add).Read)
		_, _ = Decode(bytes.NewReader(list), "list", NewJobFacts(jobs.Add).Read)
		_, d, _ := DecodeDiag(bytes.NewReader(text))
		for _, samples := range [][]exporter.Sample{nodes.Samples(), jobs.Samples(), d.Samples(all)} {
			for _, s := range samples {
				if len(s.Labels) != len(s.Metric.Labels) {
					t.Fatalf("%s%q", s.Metric.Name, s.Labels)
				}
			}
		}
	})
}

// repeated is the answer of a slurmrestd with one recorded object many times over, which is never in memory as a whole.
func repeated(tb testing.TB, file, field string, n int) (io.Reader, int64) {
	tb.Helper()
	text, err := os.ReadFile(file)
	require.NoError(tb, err)
	var recorded map[string]json.RawMessage
	require.NoError(tb, json.Unmarshal(text, &recorded))
	var objects []json.RawMessage
	require.NoError(tb, json.Unmarshal(recorded[field], &objects))
	parts := []io.Reader{strings.NewReader(`{"` + field + `":[`)}
	size := int64(0)
	for i := range n {
		object := objects[i%len(objects)]
		if i > 0 {
			parts = append(parts, strings.NewReader(","))
		}
		parts, size = append(parts, bytes.NewReader(object)), size+int64(len(object))+1
	}
	return io.MultiReader(append(parts, strings.NewReader(`],"errors":[]}`))...), size
}

// What a read of a large cluster costs on our side: JSON decoded, and summed up as it comes in.
func BenchmarkFacts(b *testing.B) {
	b.Run("jobs=100000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			text, size := repeated(b, "testdata/26.05.5/jobs-v0.0.45.json", "jobs", 100_000)
			b.SetBytes(size)
			t := exporter.NewJobTally(time.Unix(1_800_000_000, 0), exporter.Options{})
			r := NewJobFacts(t.Add)
			_, err := Decode(text, "jobs", r.Read)
			require.NoError(b, err)
			require.Equal(b, 100_000, r.Total)
		}
	})
	b.Run("nodes=10000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			text, size := repeated(b, "testdata/26.05.5/nodes-v0.0.45.json", "nodes", 10_000)
			b.SetBytes(size)
			t := exporter.NewNodeTally(exporter.Options{})
			_, err := Decode(text, "nodes", NewNodeFacts(t.Add).Read)
			require.NoError(b, err)
		}
	})
}
