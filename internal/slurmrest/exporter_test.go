package slurmrest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	v0042 "github.com/SlinkyProject/slurm-client/api/v0042"
	v0043 "github.com/SlinkyProject/slurm-client/api/v0043"
	v0044 "github.com/SlinkyProject/slurm-client/api/v0044"
	v0045 "github.com/SlinkyProject/slurm-client/api/v0045"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/powersave"
)

// A read that fails begins anew: nothing is counted twice.
func TestEachNode(t *testing.T) {
	f := newFake()
	c := dialFake(t, f)
	f.script = append(f.script, reply(503, 0, ""))
	begun, seen := 0, 0
	require.NoError(t, c.EachNode(t.Context(), func() func(exporter.Node) {
		begun, seen = begun+1, 0
		return func(n exporter.Node) {
			seen++
			assert.True(t, n.State.Any(powersave.NodePoweredDown))
		}
	}))
	assert.Equal(t, 1, begun)
	assert.Equal(t, 7, seen)
	f.partial = true
	require.ErrorContains(t, c.EachNode(t.Context(), func() func(exporter.Node) { begun++; return func(exporter.Node) {} }), "unexpected EOF")
	assert.Equal(t, 1+1+DefaultRetries, begun)
}

func TestEachJob(t *testing.T) {
	f := jobsFake()
	c := dialFake(t, f)
	states := map[powersave.JobState]int{}
	count := func() func(exporter.Job) { return func(j exporter.Job) { states[j.State]++ } }
	at, err := c.EachJob(t.Context(), time.Time{}, count)
	require.NoError(t, err)
	assert.Equal(t, time.Unix(1, 0), at, "this one does not tell its clock")
	assert.Positive(t, states[powersave.JobPending])
	f.reset()
	f.script = append(f.script, func(w http.ResponseWriter) error { w.WriteHeader(http.StatusNotModified); return nil })
	at, err = c.EachJob(t.Context(), time.Unix(1795248446, 0), func() func(exporter.Job) { t.Error("nothing has changed"); return nil })
	require.NoError(t, err)
	assert.Zero(t, at)
	assert.Equal(t, []string{"GET /slurm/v0.0.45/jobs/?flags=ALL&update_time=1795248446"}, f.seen())
}

func TestDiag(t *testing.T) {
	text, err := os.ReadFile("../../exporter/collect/testdata/diag.json")
	require.NoError(t, err)
	f := newFake()
	c := dialFake(t, f)
	say := func(text string) {
		f.script = append(f.script, func(w http.ResponseWriter) error { _, err := w.Write([]byte(text)); return err })
	}
	say(string(text))
	d, err := c.Diag(t.Context())
	require.NoError(t, err)
	assert.InDelta(t, 3e9, d.RPCs[0].Count, 0, "more than 32 bits hold")
	assert.InDelta(t, 4.5e9, d.Main.Sum, 0)
	assert.Equal(t, []string{"GET /slurm/v0.0.45/diag/"}, f.seen())
	for text, want := range map[string]string{
		`{"errors":[]}`:                        `there are no "statistics" in it`,
		`{"statistics":{"jobs_started":1}`:     "unexpected EOF",
		`{"errors":[{"error_number":2002}]}`:   "Slurm error 2002",
		`{"statistics":{"jobs_started":"no"}}`: "cannot unmarshal",
	} {
		for range 1 + DefaultRetries {
			say(text)
		}
		_, err := c.Diag(t.Context())
		require.ErrorContains(t, err, want, text)
		f.script = nil
	}
}

// Every field read has the name and the type that slurm-client's generated types have. Numbers that do not fit into those are left out here.
func TestExporterFieldsOfVersions(t *testing.T) {
	text, err := os.ReadFile("../../exporter/collect/testdata/diag.json")
	require.NoError(t, err)
	diag := strings.NewReplacer("3000000000", "30000", "4500000000", "45000", "4000000000", "40000").Replace(string(text))
	node := `{"name":"c1","state":["MIXED","CLOUD"],"partitions":["p"],"cpus":32,"effective_cpus":30,"real_memory":4000,"specialized_memory":60,"address":"10.0.0.7","instance_id":"i-1","reservation":"week","reason":"ECC","comment":"rack 7","gres":"gpu:2","gres_used":"gpu:1","alloc_cpus":4,"alloc_memory":100,
		"cpu_load":812,"free_mem":{"set":true,"infinite":false,"number":700}}`
	job := `{"job_id":7,"job_state":["PENDING"],"state_reason":"Resources","priority":{"set":true,"number":0},"eligible_time":{"set":true,"number":1795248446},"user_name":"ann","account":"x","partition":"a,b",
		"array_task_string":"1-4%1","tres_req_str":"node=3","tres_alloc_str":"","node_count":{"set":true,"number":4},"cpus":{"set":true,"number":12},
		"name":"train","qos":"normal","nodes":"c[1-4]","array_job_id":{"set":true,"number":5},"array_task_id":{"set":true,"number":2},
		"submit_time":{"set":true,"number":1795248440},"start_time":{"set":true,"number":1795248450},"end_time":{"set":true,"number":1795248490}}`
	partition := `{"name":"p","nodes":{"total":10},"cpus":{"total":20},"partition":{"state":["UP"]}}`
	for version, types := range map[string]struct{ diag, node, job, partition any }{
		"v0.0.42": {&v0042.V0042OpenapiDiagResp{}, &v0042.V0042Node{}, &v0042.V0042JobInfo{}, &v0042.V0042PartitionInfo{}},
		"v0.0.43": {&v0043.V0043OpenapiDiagResp{}, &v0043.V0043Node{}, &v0043.V0043JobInfo{}, &v0043.V0043PartitionInfo{}},
		"v0.0.44": {&v0044.V0044OpenapiDiagResp{}, &v0044.V0044Node{}, &v0044.V0044JobInfo{}, &v0044.V0044PartitionInfo{}},
		"v0.0.45": {&v0045.V0045OpenapiDiagResp{}, &v0045.V0045Node{}, &v0045.V0045JobInfo{}, &v0045.V0045PartitionInfo{}},
	} {
		t.Run(version, func(t *testing.T) {
			again := func(text string, into any) string {
				dec := json.NewDecoder(strings.NewReader(text))
				dec.DisallowUnknownFields()
				require.NoError(t, dec.Decode(into))
				out, err := json.Marshal(into)
				require.NoError(t, err)
				return string(out)
			}
			_, want, err := answer.DecodeDiag(strings.NewReader(diag))
			require.NoError(t, err)
			_, got, err := answer.DecodeDiag(strings.NewReader(again(diag, types.diag)))
			require.NoError(t, err)
			assert.Equal(t, want, got)
			assert.NotEmpty(t, got.Backfill.Exits)

			var nodes []exporter.Node
			read := answer.NewNodeFacts(func(n exporter.Node) { nodes = append(nodes, n) })
			require.NoError(t, read.Read(json.NewDecoder(strings.NewReader(again(node, types.node)))))
			assert.Equal(t, []exporter.Node{{Name: "c1", State: powersave.NodeMixed | powersave.NodeCloud, Partitions: []string{"p"}, CPUs: 30, SpecCPUs: 2, AllocCPUs: 4, Memory: 4000, SpecMemory: 60, AllocMemory: 100,
				FreeMemory: 700, Load: 812, Gres: "gpu:2", GresUsed: "gpu:1",
				Address: "10.0.0.7", Instance: "i-1", Reservation: "week", Reason: "ECC", Comment: "rack 7"}}, nodes)

			var jobs []exporter.Job
			readJobs := answer.NewJobFacts(func(j exporter.Job) { jobs = append(jobs, j) })
			require.NoError(t, readJobs.Read(json.NewDecoder(strings.NewReader(again(job, types.job)))))
			assert.Equal(t, []exporter.Job{{State: powersave.JobPending, Reason: "Resources", Partitions: "a,b", User: "ann", Account: "x", ArrayTasks: "1-4%1", Held: true,
				Eligible: time.Unix(1795248446, 0), CPUs: 12, Nodes: 4, TRES: "node=3",
				ID: 7, ArrayJob: 5, ArrayTask: "2", Name: "train", QOS: "normal", NodeList: "c[1-4]",
				Submit: time.Unix(1795248440, 0), Start: time.Unix(1795248450, 0), End: time.Unix(1795248490, 0)}}, jobs)

			partitions := answer.PartitionFacts{}
			require.NoError(t, partitions.Read(json.NewDecoder(bytes.NewReader([]byte(again(partition, types.partition))))))
			assert.Equal(t, []exporter.Partition{{Name: "p", State: "UP", Nodes: 10, CPUs: 20}}, partitions.List)
		})
	}
}
