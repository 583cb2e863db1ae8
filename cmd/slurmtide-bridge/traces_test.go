package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/powersave/traces/tracestest"
)

// output is written by the bridge while it is read.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestOTLP: the bridge sends traces where the flag or OpenTelemetry's environment says, and none of its own accord. What is wrong with the environment keeps it from
// nothing. Slurm and Kubernetes are away, so the boots that are asked for end when slurmctld takes them back.
func TestOTLP(t *testing.T) {
	const secret = "hunter2"
	for name, tc := range map[string]struct {
		flag, env string // COLLECTOR is its URL
		sent      bool
		logged    string
	}{
		"off":                  {logged: "msg=request "},
		"flag":                 {flag: "COLLECTOR", sent: true, logged: "traces are sent"},
		"environment":          {env: "COLLECTOR", sent: true, logged: "traces are sent"},
		"flag and environment": {flag: "COLLECTOR", env: "http://127.0.0.1:1", sent: true, logged: "traces are sent"},
		"wrong environment":    {env: "http://user:" + secret + "@collector", logged: `msg="no traces are sent" error="OTEL_EXPORTER_OTLP_ENDPOINT: it must have no user`},
	} {
		t.Run(name, func(t *testing.T) {
			c := tracestest.Start(t)
			dir := t.TempDir()
			put := func(s string) string {
				if s == "COLLECTOR" {
					return c.Server.URL
				}
				return s
			}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", put(tc.env))
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization="+secret)
			t.Setenv("SLURM_JWT", "no token")
			free, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := free.Addr().String()
			require.NoError(t, free.Close())
			kubeconfig := filepath.Join(dir, "kubeconfig")
			require.NoError(t, os.WriteFile(kubeconfig, []byte(nowhere), 0o600))
			args := []string{"slurmtide-bridge", "bridge", "--cluster=tide", "--namespace=slurm", "--spool=" + filepath.Join(dir, "spool"), "--kubeconfig=" + kubeconfig,
				"--slurmrestd=http://127.0.0.1:1", "--metrics-address=" + address}
			if tc.flag != "" {
				args = append(args, "--otlp-endpoint="+put(tc.flag))
			}
			id, err := spool.Submit(filepath.Join(dir, "spool"), spool.Request{Kind: spool.KindResume, Nodes: "cpu-0", Started: time.Now()})
			require.NoError(t, err)
			_, err = spool.Submit(filepath.Join(dir, "spool"), spool.Request{Kind: spool.KindSuspend, Nodes: "cpu-0", Started: time.Now()})
			require.NoError(t, err)

			var log output
			app := newApp()
			app.Writer, app.ErrWriter = io.Discard, &log
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- app.RunContext(ctx, args) }()
			var metrics string
			require.Eventually(t, func() bool {
				answer, err := http.Get("http://" + address + "/metrics")
				if err != nil {
					return false
				}
				defer answer.Body.Close()
				text, err := io.ReadAll(answer.Body)
				metrics = string(text)
				return err == nil && bytes.Contains([]byte(log.String()), []byte("msg=request request="+id))
			}, 20*time.Second, 10*time.Millisecond, "%s", &log)
			assert.Contains(t, metrics, "\nslurmtide_trace_spans_dropped_total 0\n")
			cancel()
			select {
			case err := <-ended:
				require.NoError(t, err)
			case <-time.After(20 * time.Second):
				t.Fatal("the bridge does not end")
			}
			assert.Contains(t, log.String(), tc.logged)
			assert.NotContains(t, log.String(), secret)
			if !tc.sent {
				assert.Empty(t, c.Requests())
				assert.NotContains(t, log.String(), "trace=")
				return
			}
			require.NotEmpty(t, c.Requests(), log.String())
			assert.Equal(t, secret, c.Requests()[0].Header.Get("Authorization"))
			assert.Equal(t, "tide", c.Resource()["slurm.cluster.name"])
			require.NotEmpty(t, c.Spans())
			assert.Equal(t, []string{"boot", id}, []string{c.Spans()[0].Name, c.Spans()[0].Attributes["slurmtide.request.id"]})
			assert.Contains(t, log.String(), "msg=request request="+id+" kind=resume nodes=cpu-0 jobs=0 age=")
			assert.Contains(t, log.String(), " trace="+c.Spans()[0].Trace+"\n")
		})
	}
}
