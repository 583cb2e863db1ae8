package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/measure"
)

// get asks a part, which runs until the test ends, for a path.
func get(t *testing.T, start func(address string) (func(context.Context) error, error), path string) (status int, text string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	_, err = start(address)
	require.ErrorContains(t, err, "address already in use; choose another --")
	require.NoError(t, l.Close())
	part, err := start(address)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- part(ctx) }()
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + address + path)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-ended)
	return response.StatusCode, string(body)
}

func TestMetrics(t *testing.T) {
	metrics := func(address string) (func(context.Context) error, error) {
		return Metrics(address, nil, NewRegistry(), map[string]http.Handler{"GET /livez": http.HandlerFunc(OK)})
	}
	status, text := get(t, metrics, "/metrics")
	assert.Equal(t, 200, status)
	assert.Contains(t, text, "go_goroutines ")
	assert.Contains(t, text, `promhttp_metric_handler_requests_total{code="503"} 0`)
	_, text = get(t, metrics, "/livez")
	assert.Equal(t, "ok\n", text)
	status, _ = get(t, metrics, "/debug/pprof/")
	assert.Equal(t, 404, status, "whoever may read metrics may not read memory")
}

// A scraper gets what it asks for: exemplars in OpenMetrics, native histograms in protobuf, and the plain page as it always was.
func TestFormats(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := prometheus.NewHistogramVec(measure.Times("slurmtide_boot_phase_seconds", "Time.", 1, 10), []string{"phase"})
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "slurmtide_boots_total", Help: "Boots."})
	registry.MustRegister(h, c)
	measure.Observe(h.WithLabelValues("registered"), 4*time.Second, "1767225600")
	c.Inc()
	page := func(accept string) (kind, text string) {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		pages(registry).ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		return w.Header().Get("Content-Type"), w.Body.String()
	}
	for _, accept := range []string{"", "text/plain;version=0.0.4"} {
		kind, text := page(accept)
		assert.Equal(t, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", kind)
		assert.Contains(t, text, "\nslurmtide_boot_phase_seconds_bucket{phase=\"registered\",le=\"10\"} 1\n")
		assert.Contains(t, text, "\n# TYPE slurmtide_boots_total counter\nslurmtide_boots_total 1\n")
		assert.NotContains(t, text, "1767225600")
		problems, err := promlint.New(strings.NewReader(text)).Lint() // promtool check metrics
		require.NoError(t, err)
		assert.Empty(t, problems)
	}
	kind, text := page("application/openmetrics-text;version=1.0.0;q=0.9,text/plain;version=0.0.4;q=0.5")
	assert.Contains(t, kind, "application/openmetrics-text; version=1.0.0")
	assert.Regexp(t, `\nslurmtide_boot_phase_seconds_bucket\{phase="registered",le="10.0"\} 1 # \{request_id="1767225600"\} 4.0 [0-9.e+]+\n`, text)
	assert.Contains(t, text, "\n# TYPE slurmtide_boots counter\nslurmtide_boots_total 1.0\n")
	assert.True(t, strings.HasSuffix(text, "\n# EOF\n"))
	kind, text = page("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	decoder := expfmt.NewDecoder(strings.NewReader(text), expfmt.NewFormat(expfmt.TypeProtoDelim))
	assert.Contains(t, kind, "application/vnd.google.protobuf")
	for {
		var family dto.MetricFamily
		require.NoError(t, decoder.Decode(&family), "the histogram is there")
		if family.GetName() == "slurmtide_boot_phase_seconds" {
			shown := family.GetMetric()[0].GetHistogram()
			assert.Equal(t, []int64{1}, shown.GetPositiveDelta(), "a native bucket")
			require.Len(t, shown.GetExemplars(), 1)
			assert.Equal(t, "1767225600", shown.GetExemplars()[0].GetLabel()[0].GetValue())
			break
		}
	}
}

// stuck is a collector that is in no hurry.
type stuck struct{ begun, let chan struct{} }

func (s stuck) Describe(chan<- *prometheus.Desc) {}
func (s stuck) Collect(chan<- prometheus.Metric) {
	s.begun <- struct{}{}
	<-s.let
}

// However many scrape, and however slowly they read: no more pages than this are in memory.
func TestManyScrapes(t *testing.T) {
	registry, s := prometheus.NewRegistry(), stuck{make(chan struct{}), make(chan struct{})}
	registry.MustRegister(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	part, err := Metrics(address, nil, registry, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended, codes := make(chan error), make(chan int)
	go func() { ended <- part(ctx) }()
	scrape := func() int {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	for range mostScrapes {
		go func() { codes <- scrape() }()
		<-s.begun
	}
	assert.Equal(t, http.StatusServiceUnavailable, scrape())
	close(s.let)
	for range mostScrapes {
		assert.Equal(t, http.StatusOK, <-codes)
	}
	cancel()
	require.NoError(t, <-ended)
}

func TestProfiles(t *testing.T) {
	for path, want := range map[string]string{
		"/debug/pprof/":                  "heap",
		"/debug/pprof/goroutine?debug=1": "goroutine profile: total ",
		"/debug/pprof/heap?debug=1":      "heap profile: ",
		"/debug/pprof/cmdline":           ".test",
	} {
		status, text := get(t, Profiles, path)
		assert.Equal(t, 200, status, path)
		assert.Contains(t, text, want, path)
	}
	status, _ := get(t, Profiles, "/metrics")
	assert.Equal(t, 404, status)
}

func TestPage(t *testing.T) {
	page := func(address string) (func(context.Context) error, error) {
		return Page(address, nil, http.HandlerFunc(OK))
	}
	status, text := get(t, page, "/")
	assert.Equal(t, 200, status)
	assert.Equal(t, "ok\n", text)
}
