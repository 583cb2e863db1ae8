package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/cli/clitest"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/test/leaks"
)

// The whole daemon, against recorded answers: figures, a token that is refused from some moment on, and its end.
func TestDaemon(t *testing.T) {
	t.Setenv("SLURM_JWT", "secret-token")
	var refuses atomic.Bool
	begins := make(chan struct{}) // closed when slurmrestd answers at last
	slurmrestd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-begins
		what := path.Base(r.URL.Path)
		file := filepath.Join("../../internal/slurmrest/answer/testdata/26.05.5", what+"-v0.0.45.json")
		if what == "diag" {
			file = "../../exporter/collect/testdata/diag.json"
		}
		text, err := os.ReadFile(file)
		switch {
		case refuses.Load() || r.Header.Get("X-SLURM-USER-TOKEN") != "secret-token":
			http.Error(w, "Authentication failure", http.StatusUnauthorized)
		case what == "ping":
			_, _ = io.WriteString(w, `{"meta":{"slurm":{"release":"26.05.5"}},"errors":[]}`)
		case err != nil:
			http.Error(w, "Unable find requested URL.", http.StatusNotFound)
		default:
			_, _ = w.Write(text)
		}
	}))
	defer slurmrestd.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	web := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, code := &clitest.Log{}, make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, newApp(), []string{"slurmtide", "exporter", "--slurmrestd", slurmrestd.URL, "--metrics-address", web, "--interval", "1s", "--max-age", "2s",
			"--per-node", "--per-job", "2", "--cluster", "tide", "--log-level", "debug"}, nil, log, log)
	}()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + web + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	require.Eventually(t, func() bool { code, _ := get("/livez"); return code == http.StatusOK }, 20*time.Second, 20*time.Millisecond, "%s", log)
	code503, text := get("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code503)
	assert.Equal(t, "Slurm has not been read yet\n", text)
	close(begins)
	require.Eventually(t, func() bool { code, _ := get("/readyz"); return code == http.StatusOK }, 20*time.Second, 20*time.Millisecond, "%s", log)
	_, text = get("/livez")
	assert.Equal(t, "ok\n", text)
	status, text := get("/metrics")
	assert.Equal(t, http.StatusOK, status)
	for _, line := range []string{
		`slurm_nodes{cluster="tide",state="powered_down"} 1`, `slurm_node_state{cluster="tide",node="g0",state="down"} 1`, `slurm_jobs{cluster="tide",state="running"} 4`,
		`slurm_partition_state{cluster="tide",partition="all",state="up"} 1`, `slurm_controller_dbd_queue{cluster="tide"} 17`, `slurmtide_exporter_readable{cluster="tide",what="jobs"} 1`,
		`slurmtide_exporter_slurm_info{cluster="tide",data_parser="v0.0.45",slurm="`, `slurm_job_state{cluster="tide",job_id="33",state="configuring"} 1`,
		`slurm_jobs_left_out{cluster="tide",what="jobs"} 2`, `slurm_job_node{cluster="tide",job_id="33",node="cpu-1"} 1`, "go_goroutines ",
	} {
		assert.Contains(t, text, line)
	}
	assert.NotContains(t, text, "slurm_user_", "nobody has asked for users")
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?m)^# TYPE (slurm[a-z_]+) ").FindAllStringSubmatch(text, -1)
	assert.Greater(t, len(shown), 50)
	for _, m := range shown {
		assert.Contains(t, string(page), "\n| `"+m[1]+"` |", "docs/metrics.md lists what a daemon shows")
	}

	refuses.Store(true)
	require.Eventually(t, func() bool {
		_, text = get("/metrics")
		return !strings.Contains(text, "\nslurm_nodes{") && !strings.Contains(text, `slurmtide_exporter_read_failures_total{cluster="tide",what="nodes",why="token"} 0`)
	}, 30*time.Second, 50*time.Millisecond, "%s", log)
	status, _ = get("/readyz")
	assert.Equal(t, http.StatusOK, status, "Prometheus is to see that")
	assert.Contains(t, log.String(), "the token was refused")
	refused := text
	refuses.Store(false)
	require.Eventually(t, func() bool { _, text := get("/metrics"); return strings.Contains(text, "\nslurm_nodes{") }, 30*time.Second, 50*time.Millisecond, "%s", log)

	cancel()
	select {
	case c := <-code:
		assert.Zero(t, c, log)
	case <-time.After(10 * time.Second):
		require.Fail(t, "it does not end", log)
	}
	assert.Contains(t, log.String(), "exporter ends")
	assert.Empty(t, leaks.Secrets{"token": []byte("secret-token")}.In(log.String()+refused), "%s%s", log, refused)
}

// The label of a failure is one of few words, whatever the message.
func TestWhy(t *testing.T) {
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for want, cfg := range map[string]slurmrest.Config{
		"token":       {Server: away.URL, Token: slurmrest.KeyFile{Path: "no such file", User: "slurm"}},
		"unreachable": {Server: away.URL, Token: slurmrest.Static("t")},
		"error":       {Server: other.URL, Token: slurmrest.Static("t")},
	} {
		cfg.Retries, cfg.Log = -1, slog.New(slog.DiscardHandler)
		client, err := slurmrest.New(cfg)
		require.NoError(t, err)
		defer client.Close()
		_, err = client.Diag(t.Context())
		require.Error(t, err)
		assert.Equal(t, want, why(err), err)
	}
}
