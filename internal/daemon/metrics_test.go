package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		return Metrics(address, NewRegistry(), map[string]http.Handler{"GET /livez": http.HandlerFunc(OK)})
	}
	status, text := get(t, metrics, "/metrics")
	assert.Equal(t, 200, status)
	assert.Contains(t, text, "go_goroutines ")
	_, text = get(t, metrics, "/livez")
	assert.Equal(t, "ok\n", text)
	status, _ = get(t, metrics, "/debug/pprof/")
	assert.Equal(t, 404, status, "whoever may read metrics may not read memory")
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
	part, err := Metrics(address, registry, nil)
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
	page := func(address string) (func(context.Context) error, error) { return Page(address, http.HandlerFunc(OK)) }
	status, text := get(t, page, "/")
	assert.Equal(t, 200, status)
	assert.Equal(t, "ok\n", text)
}
