package metricsapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// world answers everything the handler asks.
type world struct {
	metadata map[string]string // as asked for last
	value    float64
	err      error
	user     User
	unknown  error
	asked    []string
	denied   bool
	unsure   error
}

func (w *world) Figure(_ context.Context, metadata map[string]string) (float64, error) {
	w.metadata = metadata
	return w.value, w.err
}
func (w *world) Ready() error                             { return nil }
func (w *world) Authenticate(*http.Request) (User, error) { return w.user, w.unknown }
func (w *world) Allowed(_ context.Context, u User, namespace, metric string) (bool, error) {
	w.asked = append(w.asked, u.Name+" "+namespace+" "+metric)
	return !w.denied, w.unsure
}

func get(t *testing.T, w *world, path string) (int, map[string]any) {
	t.Helper()
	h := New(w, w, w, slog.New(slog.DiscardHandler))
	h.Now = func() time.Time { return time.Unix(1_800_000_000, 0).UTC() }
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	var answer map[string]any
	require.NoError(t, json.Unmarshal(text, &answer), "%s", text)
	return r.Code, answer
}

func TestMetric(t *testing.T) {
	w := &world{value: 2.5, user: User{Name: "hpa"}}
	code, got := get(t, w, root+"/namespaces/slurm/slurm-cpus?labelSelector=nodeSet%3Dcpu%2Ccluster%20in%20(tide)")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, map[string]any{
		"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": map[string]any{},
		"items": []any{map[string]any{
			"metricName": "slurm-cpus", "metricLabels": map[string]any{"nodeSet": "cpu", "cluster": "tide"}, "timestamp": "2027-01-15T08:00:00Z", "value": "2500m",
		}},
	}, got)
	assert.Equal(t, map[string]string{"nodeSet": "cpu", "cluster": "tide", "metric": "cpus", "target": "1"}, w.metadata)
	assert.Equal(t, []string{"hpa slurm slurm-cpus"}, w.asked)
	w.value = 7
	_, got = get(t, w, root+"/namespaces/slurm/slurm-nodes?labelSelector=nodeSet%3Dcpu")
	assert.Equal(t, "7", got["items"].([]any)[0].(map[string]any)["value"])
}

func TestRefused(t *testing.T) {
	path := root + "/namespaces/slurm/slurm-nodes?labelSelector=nodeSet%3Dcpu"
	for name, tc := range map[string]struct {
		world world
		path  string
		code  int
		want  string
	}{
		"nobody vouches":      {world{unknown: errors.New("no client certificate")}, path, 401, "no client certificate"},
		"the same, discovery": {world{unknown: errors.New("no client certificate")}, root, 401, "no client certificate"},
		"may not":             {world{user: User{Name: "eve"}, denied: true}, path, 403, "eve may not list slurm-nodes.external.metrics.k8s.io in namespace slurm: give the user a Role with the verb list"},
		"nobody can tell":     {world{unsure: errors.New("away")}, path, 500, "cannot tell whether you may read this: away"},
		"another metric":      {world{}, root + "/namespaces/slurm/nodes", 404, `there is no metric "nodes": there are slurm-cpus, slurm-gpus, slurm-jobs, slurm-nodes`},
		"another path":        {world{}, "/apis/apps/v1", 404, "GET /apis/apps/v1 is not served here"},
		"no equality":         {world{}, root + "/namespaces/slurm/slurm-nodes?labelSelector=nodeSet!%3Dcpu", 400, "label selector: nodeSet!=cpu: only key=value makes sense here, for example nodeSet=cpu"},
		"a target":            {world{}, root + "/namespaces/slurm/slurm-nodes?labelSelector=target%3D1", 400, "label selector: target: the metric's name says what is counted, and the target is the HPA's own"},
		"not a selector":      {world{}, root + "/namespaces/slurm/slurm-nodes?labelSelector=%3D%3D", 400, "reading the label selector"},
		"bad metadata":        {world{err: status.Error(codes.InvalidArgument, "no such key")}, path, 400, "no such key"},
		"unknown NodeSet":     {world{err: status.Error(codes.NotFound, "no such NodeSet")}, path, 404, "no such NodeSet"},
		"Slurm is away":       {world{err: status.Error(codes.Unavailable, "last read 42s ago")}, path, 503, "last read 42s ago"},
		"too many shapes":     {world{err: status.Error(codes.ResourceExhausted, "too many")}, path, 429, "too many"},
	} {
		t.Run(name, func(t *testing.T) {
			code, got := get(t, &tc.world, tc.path)
			assert.Equal(t, tc.code, code)
			assert.Equal(t, "Status", got["kind"])
			assert.Equal(t, "Failure", got["status"])
			assert.Contains(t, got["message"], tc.want)
			assert.NotContains(t, got, "items")
		})
	}
}

func TestDiscovery(t *testing.T) {
	code, got := get(t, &world{}, root)
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "APIResourceList", got["kind"])
	assert.Len(t, got["resources"], 4)
	assert.Equal(t, map[string]any{"name": "slurm-cpus", "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": []any{"get"}}, got["resources"].([]any)[0])
	_, got = get(t, &world{}, "/apis/external.metrics.k8s.io")
	assert.Equal(t, "APIGroup", got["kind"])
	_, got = get(t, &world{}, "/apis")
	assert.Equal(t, "APIGroupList", got["kind"])
}
