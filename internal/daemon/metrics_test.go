package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

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
