package watch

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/scaler"
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
