package measure

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/slurmtide/slurmtide/internal/golden"
)

func written(t *testing.T, m prometheus.Metric) *dto.Metric {
	t.Helper()
	var to dto.Metric
	require.NoError(t, m.Write(&to))
	return &to
}

func TestTimes(t *testing.T) {
	h := prometheus.NewHistogram(Times("slurmtide_x_seconds", "X.", 1, 2))
	for i := range 10_000 {
		h.Observe(1.01 + float64(i)/1000)
	}
	shown := written(t, h).GetHistogram()
	assert.Len(t, shown.GetBucket(), 2, "the classic buckets")
	assert.EqualValues(t, 3, shown.GetSchema(), "a bucket's bounds are 2^(1/8) apart: less than a tenth")
	buckets := len(shown.GetPositiveDelta())
	assert.Greater(t, buckets, 20)
	assert.LessOrEqual(t, buckets, 100)
	for i := range 3000 {
		h.Observe(float64(int(1)<<(i%40)) / 1e6)
	}
	assert.LessOrEqual(t, len(written(t, h).GetHistogram().GetPositiveDelta()), 100, "however far times are apart")
}

func TestObserve(t *testing.T) {
	for name, test := range map[string]struct {
		request string
		shown   bool
	}{
		"a request":          {"1767225600000000000", true},
		"none":               {"", false},
		"as long as may be":  {strings.Repeat("é", 118), true},
		"longer":             {strings.Repeat("é", 119), false},
		"no text":            {"\xff", false},
		"of several systems": {"a-b_c.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := prometheus.NewHistogram(Times("slurmtide_x_seconds", "X.", 1, 2))
			Observe(h, 1500*time.Millisecond, test.request)
			shown := written(t, h).GetHistogram()
			assert.EqualValues(t, 1, shown.GetSampleCount())
			assert.InDelta(t, 1.5, shown.GetSampleSum(), 0)
			e := shown.GetBucket()[1].GetExemplar()
			if !test.shown {
				assert.Nil(t, e)
				return
			}
			require.NotNil(t, e)
			assert.InDelta(t, 1.5, e.GetValue(), 0)
			require.Len(t, e.GetLabel(), 1)
			assert.Equal(t, "request_id", e.GetLabel()[0].GetName())
			assert.Equal(t, test.request, e.GetLabel()[0].GetValue())
		})
	}
	s := prometheus.NewSummary(prometheus.SummaryOpts{Name: "slurmtide_y_seconds", Help: "Y."}) // which takes none
	Observe(s, time.Second, "1")
	assert.EqualValues(t, 1, written(t, s).GetSummary().GetSampleCount())
}

// counts returns how many requests there were, by "verb code", and how many times were noted, by verb.
func counts(t *testing.T, r *prometheus.Registry, api string) map[string]int {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	got := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values := map[string]string{}
			for _, l := range m.GetLabel() {
				values[l.GetName()] = l.GetValue()
			}
			switch f.GetName() {
			case "slurmtide_" + api + "_requests_total":
				got[values["verb"]+" "+values["code"]] = int(m.GetCounter().GetValue())
			case "slurmtide_" + api + "_request_seconds":
				got[values["verb"]] = int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return got
}

func TestSlurmrestd(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	s := NewSlurmrestd(r)
	s.Request("list nodes", "200", 20*time.Millisecond)
	s.Request("list nodes", "200", 30*time.Millisecond)
	s.Request("update nodes", "error", time.Second)
	assert.Equal(t, map[string]int{"list_nodes 200": 2, "list_nodes": 2, "update_nodes error": 1, "update_nodes": 1}, counts(t, r, "slurmrestd"))
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestKubernetes(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	away := errors.New("away")
	client := NewKubernetes(r).Transport(transport(func(r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "away") {
			return nil, away
		}
		w := httptest.NewRecorder()
		w.WriteHeader(http.StatusConflict)
		return w.Result(), nil
	}))
	answer, err := client.RoundTrip(httptest.NewRequest("POST", "/api/v1/namespaces/slurm/pods", nil))
	require.NoError(t, err)
	assert.Equal(t, http.StatusConflict, answer.StatusCode)
	_, err = client.RoundTrip(httptest.NewRequest("DELETE", "/api/v1/namespaces/slurm/pods/away", nil)) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, away)
	assert.Equal(t, map[string]int{"create 409": 1, "create": 1, "delete error": 1, "delete": 1}, counts(t, r, "kubernetes"))
}

// The page as Prometheus gets it.
func TestMetricsPage(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	NewSlurmrestd(r).Request("list nodes", "200", 20*time.Millisecond)
	k := NewKubernetes(r)
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "other"} {
		k.done(verb, "200", 5*time.Millisecond)
	}
	for _, daemon := range []string{"bridge", "controller", "exporter", "scaler"} {
		ShowExpiry(r, daemon, func() time.Time { return time.Unix(2e9, 0) })
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	golden.Compare(t, "testdata/metrics.golden.txt", w.Body.String())
}

// closing is a transport that notes that its idle connections were closed.
type closing struct {
	http.RoundTripper
	closed bool
}

func (c *closing) CloseIdleConnections() { c.closed = true }

// Counting requests keeps client-go from nothing that it does with a transport.
func TestConnections(t *testing.T) {
	c := &closing{}
	utilnet.CloseIdleConnectionsFor(NewKubernetes(prometheus.NewPedanticRegistry()).Transport(c))
	assert.True(t, c.closed)
}

func TestVerb(t *testing.T) {
	for request, want := range map[string]string{
		"GET /api/v1/namespaces/slurm/pods":                                         "list",
		"GET /api/v1/namespaces/slurm/pods/cpu-0":                                   "get",
		"GET /api/v1/namespaces/slurm/pods?watch=true&resourceVersion=1":            "watch",
		"GET /api/v1/namespaces/slurm/pods?watch=1":                                 "watch",
		"GET /api/v1/nodes":                                                         "list",
		"GET /api/v1/nodes/host":                                                    "get",
		"GET /api/v1/namespaces":                                                    "list",
		"GET /api/v1/namespaces/slurm":                                              "get",
		"GET /apis/slurmtide.io/v1alpha1/namespaces/slurm/nodesets":                 "list",
		"GET /apis/coordination.k8s.io/v1/namespaces/slurm/leases/bridge":           "get",
		"GET /apis/slurmtide.io/v1alpha1":                                           "get",
		"GET /apis":                                                                 "get",
		"GET /version":                                                              "get",
		"HEAD /livez":                                                               "get",
		"POST /api/v1/namespaces/slurm/events":                                      "create",
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":               "create",
		"PUT /apis/coordination.k8s.io/v1/namespaces/slurm/leases/bridge":           "update",
		"PATCH /apis/slurmtide.io/v1alpha1/namespaces/slurm/nodesets/cpu/status":    "patch",
		"DELETE /api/v1/namespaces/slurm/pods/cpu-0":                                "delete",
		"DELETE /api/v1/namespaces/slurm/pods?labelSelector=slurmtide.io%2Fnodeset": "deletecollection",
		"OPTIONS /api/v1/namespaces/slurm/pods":                                     "other",
	} {
		method, url, _ := strings.Cut(request, " ")
		assert.Equal(t, want, verb(httptest.NewRequest(method, url, nil)), request)
	}
}
