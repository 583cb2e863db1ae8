package watch

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/scaler/ask"
)

type fixed struct {
	figures Figures
	err     error
}

func (f fixed) Latest() (Figures, error) { return f.figures, f.err }

func TestExplainJobs(t *testing.T) {
	full := fixed{figures: *figure(time.Unix(100, 0), scaler.Snapshot{
		Partitions: []scaler.Partition{{Name: "gpu"}},
		NodeSets:   []scaler.NodeSet{{Name: "gpu"}},
		Nodes:      []scaler.Node{{Name: "gpu-0", NodeSet: "gpu", Partitions: []string{"gpu"}, State: scaler.NodeOff, Shape: &scaler.Shape{CPUs: 8, Memory: 1000, Gres: "gpu:h100:8"}}},
		Jobs: []scaler.Job{
			{ID: 7, Priority: 1, Request: scaler.Request{Partitions: "gpu", Tasks: 1, Memory: 10, TRESPerNode: "gres/gpu:h200:8"}},
			{ID: 8, State: scaler.JobRunning, Nodes: "gpu-[1-2]"},
			{ID: 9, State: scaler.JobLeaving, Nodes: "gpu-3"},
		},
	}, 1)}
	lost := fixed{err: &NotReadError{Cause: errors.New("connection refused")}}
	both := map[string]Latester{"one": full, "two": lost}
	for path, want := range map[string]struct {
		clusters map[string]Latester
		status   int
		text     string
	}{
		"/explain/job/7":              {map[string]Latester{"one": full}, 200, "job 7 does not count: no NodeSet can ever run it: needs gpu:h200:8, NodeSet gpu offers gpu:h100:8\n"},
		"/explain/job/8":              {map[string]Latester{"one": full}, 200, "job 8 runs on gpu-[1-2]\n"},
		"/explain/job/9":              {both, 200, "cluster one: job 9 has ended, and leaves gpu-3\n"},
		"/explain/job/9?cluster=one":  {both, 200, "job 9 has ended, and leaves gpu-3\n"},
		"/explain/job/10":             {map[string]Latester{"one": full}, 404, "Slurm lists no job 10 that waits or runs\n"},
		"/explain/job/11":             {both, 503, "cluster two: Slurm's queue has not been read yet: connection refused\n"},
		"/explain/job/9?cluster=none": {both, 404, "no cluster \"none\" here\n"},
		"/explain/job/9?output=json":  {both, 200, `[{"cluster":"one","job":9,"text":"job 9 has ended, and leaves gpu-3"}]` + "\n"},
		"/explain/job/10?output=json": {map[string]Latester{"one": full}, 404, "Slurm lists no job 10 that waits or runs\n"},
		"/explain/job/x":              {both, 400, "\"x\" is not the number of a job\n"},
		"/explain/job/4294967296":     {both, 400, "\"4294967296\" is not the number of a job\n"},
	} {
		w := httptest.NewRecorder()
		ExplainJobs(want.clusters).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, want.status, w.Code, path)
		assert.Equal(t, want.text, w.Body.String(), path)
	}
}

func TestTellDemand(t *testing.T) {
	gpu := func(i int, state scaler.NodeState) scaler.Node {
		return scaler.Node{Name: fmt.Sprint("gpu-", i), NodeSet: "gpu", Partitions: []string{"gpu"}, State: state, Shape: &scaler.Shape{CPUs: 8, Memory: 1000, Gres: "gpu:h100:8"}}
	}
	used := gpu(1, scaler.NodeUp)
	used.AllocCPUs = 8
	job := func(id uint32, gres string) scaler.Job {
		return scaler.Job{ID: id, Priority: 1, Request: scaler.Request{Partitions: "gpu", Tasks: 1, Memory: 10, TRESPerNode: gres}}
	}
	held := job(12, "")
	held.Priority, held.Reason = 0, "JobHeldUser"
	figures := figure(time.Unix(100, 0).UTC(), scaler.Snapshot{
		Partitions: []scaler.Partition{{Name: "gpu"}},
		NodeSets:   []scaler.NodeSet{{Name: "gpu"}, {Name: "none"}, {Name: "of a trigger"}},
		Nodes:      []scaler.Node{gpu(0, scaler.NodeOff), used, gpu(2, scaler.NodeOff)},
		Jobs: []scaler.Job{
			job(7, "gres/gpu:h200:8"), job(8, "gres/gpu:h100:8"), held, {ID: 13, State: scaler.JobRunning, Nodes: "gpu-1", Request: scaler.Request{Partitions: "gpu", TRESPerNode: "gres/gpu:h100:8"}},
		},
	}, 2)
	one, two := fixed{figures: *figures}, fixed{err: &NotReadError{Cause: errors.New("connection refused")}}
	server := httptest.NewServer(http.StripPrefix("/under", TellDemand(map[string]Latester{"one": one, "two": two})))
	defer server.Close()
	s, err := ask.At(server.URL+"/under/", ask.TLS{})
	require.NoError(t, err)
	got, err := s.Demand(t.Context(), "one")
	require.NoError(t, err)
	assert.Equal(t, ask.Demand{
		Cluster: "one", Read: time.Unix(100, 0).UTC(),
		NodeSets: []ask.NodeSet{{Name: "gpu", Needed: 2, PowerUp: 1, InUse: 1, Jobs: 1}, {Name: "none"}},
		Pending: []ask.Pending{
			{Why: "capacity", Says: "need nodes that are off", Counts: true, Jobs: 1},
			{Why: "held", Says: "are held", Jobs: 1}, {Why: "impossible", Says: "can run on no NodeSet", Jobs: 1},
		},
		Never: []ask.Never{{Miss: "needs gpu:h200:8, NodeSet gpu offers gpu:h100:8", Jobs: 1}},
	}, got)
	later := *figures // Slurm was seen to be like this once more
	later.Read = later.Read.Add(time.Minute)
	again := later.Demand("one")
	assert.Equal(t, later.Read, again.Read)
	assert.Same(t, &figures.Demand("one").Pending[0], &again.Pending[0], "the jobs are gone through once")
	assert.Same(t, &figures.Demand("one").NodeSets[0], &again.NodeSets[0])
	for cluster, want := range map[string]string{
		"two": "Slurm's queue has not been read yet: connection refused", "three": `no cluster "three" here`, "": `which cluster? There are ["one" "two"]`,
	} {
		_, err := s.Demand(t.Context(), cluster)
		require.EqualError(t, err, want)
	}
	w := httptest.NewRecorder()
	TellDemand(map[string]Latester{"one": one}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/demand", nil))
	assert.Contains(t, w.Body.String(), `{"cluster":"one",`, "there is only one")
}
