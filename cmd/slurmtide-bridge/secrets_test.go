package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/cli/clitest"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/test/leaks"
)

// TestSecrets: whatever those that it speaks to do, the bridge shows no key, token or password: not in its log, not in its files, not on its metrics, its page and in its status.
func TestSecrets(t *testing.T) {
	secrets := leaks.Secrets{
		"jwt_hs256.key":         []byte("\x80\xff the key that slurmrestd's tokens are signed with"),
		"scontrol's token":      []byte("opaque-token-of-scontrol"),
		"Kubernetes' token":     []byte("opaque-token-of-a-kubeconfig"),
		"scaler's password":     []byte("password-of-the-scaler"),
		"collector's token":     []byte("token-of-the-collector"),
		"collector's path":      []byte("token-in-the-collector's-path"),
		"slurmrestd's password": []byte("password-of-slurmrestd"),
	}
	scontrol := func(prints string) string {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\necho '"+prints+"'\n"), 0o755))
		return dir
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401,"errors":[{"error_number":1007,"error":"Protocol authentication error"}]}`)
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc // of all that it speaks to; nil: nobody answers
		key    bool             // it has slurmctld's key
		path   string           // where scontrol is
		says   string
	}{
		"nobody answers":        {key: true, says: "connection refused"},
		"all refuse":            {answer: refuse, key: true, says: "the token was refused"},
		"a token of scontrol's": {answer: refuse, path: scontrol("SLURM_JWT=opaque-token-of-scontrol"), says: "the token was refused"},
		"a token without more":  {answer: refuse, path: scontrol("opaque-token-of-scontrol"), says: "what it printed does not begin with SLURM_JWT="},
		"others are there": {answer: func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/v1/traces") {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprintf(w, "<html>you have asked for %s</html>", r.URL.Path)
		}, key: true, says: "invalid character '<'"},
		"they send on": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://user:password-of-slurmrestd@127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, key: true, says: "HTTP 307"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, base := t.TempDir(), gone.URL
			if tc.answer != nil {
				there := httptest.NewServer(tc.answer)
				defer there.Close()
				base = there.URL
			}
			write := func(name, text string) string {
				file := filepath.Join(dir, name)
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
				return file
			}
			free, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			metrics := free.Addr().String()
			require.NoError(t, free.Close())
			free, err = net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			page := free.Addr().String()
			require.NoError(t, free.Close())
			t.Setenv("SLURM_JWT", "")
			t.Setenv("PATH", tc.path+":"+os.Getenv("PATH"))
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token-of-the-collector")
			t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "500")
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "5")
			files := filepath.Join(dir, "spool")
			args := []string{"slurmtide-bridge", "bridge", "--log-level=debug", "--cluster=tide", "--namespace=slurm", "--spool=" + files, "--slurmrestd=" + base,
				"--kubeconfig=" + write("kubeconfig", strings.NewReplacer("http://127.0.0.1:1", base, "users: [{name: u}]", "users: [{name: u, user: {token: opaque-token-of-a-kubeconfig}}]").Replace(nowhere)),
				"--otlp-endpoint=" + base + "/token-in-the-collector's-path", "--scaler=" + strings.Replace(base, "//", "//user:password-of-the-scaler@", 1),
				"--metrics-address=" + metrics, "--page-address=" + page}
			if tc.key {
				args = append(args, "--jwt-key="+write("jwt_hs256.key", string(secrets["jwt_hs256.key"])))
			}
			_, err = spool.Submit(files, spool.Request{Kind: spool.KindResume, Nodes: "cpu-0", Started: time.Now()})
			require.NoError(t, err)
			_, err = spool.Submit(files, spool.Request{Kind: spool.KindSuspend, Nodes: "cpu-0", Started: time.Now()})
			require.NoError(t, err)

			log := &clitest.Log{}
			app := newApp()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan int, 1)
			go func() { ended <- cli.Run(ctx, app, args, nil, log, log) }()
			get := func(url string) string {
				answer, err := http.Get(url)
				if err != nil {
					return ""
				}
				defer answer.Body.Close()
				text, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				return string(text)
			}
			var shown string
			require.Eventually(t, func() bool {
				answer, err := http.Get("http://" + page + "/events")
				if err != nil {
					return false
				}
				defer answer.Body.Close()
				lines := bufio.NewScanner(answer.Body)
				lines.Buffer(nil, 1<<20)
				for lines.Scan() {
					if shown = lines.Text(); strings.Contains(shown, `"error":`) {
						break // it has asked the scaler
					}
				}
				return strings.Contains(log.String(), tc.says) && strings.Contains(log.String(), "spans are dropped")
			}, 30*time.Second, 20*time.Millisecond, "%s\n%s", log, &shown)
			shown += get("http://" + metrics + "/metrics")
			status, err := spool.AskStatus(t.Context(), files)
			require.NoError(t, err)
			shown += string(status)
			cancel()
			select {
			case code := <-ended:
				require.Zero(t, code, log.String())
			case <-time.After(20 * time.Second):
				t.Fatal("the bridge does not end")
			}
			require.NoError(t, filepath.WalkDir(files, func(file string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				text, err := os.ReadFile(file)
				shown += "\n" + file + "\n" + string(text)
				return err
			}))
			assert.Contains(t, shown, "slurmtide_trace_spans_dropped_total")
			assert.Contains(t, shown, "history.jsonl\n")
			for where, text := range map[string]string{"log": log.String(), "page, metrics, status or files": shown} {
				lines := strings.Split(text, "\n")
				for _, leak := range secrets.In(text) {
					var line int
					_, err := fmt.Sscanf(leak, "line %d", &line)
					require.NoError(t, err)
					assert.Fail(t, leak, "of %s: %s", where, lines[line-1])
				}
			}
		})
	}
}
