package inplace

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program writes a shell script.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	return path
}

func local(t *testing.T) Local {
	t.Helper()
	keys := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(keys, "jwt"), []byte("key"), 0o600))
	return Local{Etc: "/etc/slurm", Keys: keys, JWTKey: "jwt"}
}

func TestCheck(t *testing.T) {
	tests := map[string]struct{ program, want string }{
		"good":    {"echo '[2026] error: something small' >&2\necho '[2026-11-21T09:41:20.123] Running as primary controller' >&2\nexec sleep 60", ""},
		"refused": {"echo \"[2026-11-21T09:41:20.123] error: Parsing error at unrecognized key: x in $3\" >&2\necho '[2026] fatal: Unable to process configuration file' >&2\nexit 1", "error: Parsing error at unrecognized key: x in /etc/slurm/slurm.conf; fatal: Unable to process configuration file"},
		"silent":  {"exit 3", "it ended without a word: exit status 3"},
		"reads":   {"test -r \"$(dirname \"$3\")/gres.conf\" && test -r \"$(dirname \"$3\")/jwt\" && echo 'Running as primary controller' >&2", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := local(t)
			l.Slurmctld = program(t, test.program)
			began := time.Now()
			err := l.Check(t.Context(), map[string]string{"slurm.conf": "ClusterName=c\n", "gres.conf": ""})
			assert.Less(t, time.Since(began), 20*time.Second, "it is ended")
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			var refused *Rejected
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, test.want, refused.Reason)
		})
	}
	t.Run("names others", func(t *testing.T) {
		l := local(t)
		l.Slurmctld = program(t, `grep -qx "Include $(dirname "$3")/more.conf" "$3" && test -x "$(dirname "$3")/script" && echo 'Running as primary controller' >&2`)
		require.NoError(t, l.Check(t.Context(), map[string]string{"slurm.conf": "Include /etc/slurm/more.conf\n", "more.conf": "", "script": "#!/bin/sh\n"}))
	})
	l := local(t)
	l.Slurmctld = "/no/such"
	err := l.Check(t.Context(), map[string]string{"slurm.conf": ""})
	require.ErrorContains(t, err, "starting slurmctld to try the configuration")
	assert.NotErrorAs(t, err, new(*Rejected), "a slurmctld that is not there has refused nothing")
}

func TestBootTime(t *testing.T) {
	l := local(t)
	l.Scontrol = program(t, `test "$*" = "show config" && test -n "$SLURM_JWT" && printf 'Configuration data as of x\nBatchStartTimeout = 10\nBOOT_TIME               = 2026-11-21T19:18:27\n'`)
	boot, err := l.BootTime(t.Context())
	require.NoError(t, err)
	assert.Equal(t, time.Date(2026, 11, 21, 19, 18, 27, 0, time.UTC), boot)
	l.Scontrol = program(t, "echo slurm_load_ctl_conf error: Unable to contact slurm controller >&2; exit 1")
	_, err = l.BootTime(t.Context())
	require.ErrorContains(t, err, "scontrol show config: exit status 1: slurm_load_ctl_conf error")
}

func TestNodesByScontrol(t *testing.T) {
	l := local(t)
	l.Scontrol = program(t, `test "$*" = "show node --oneliner" && echo "NodeName=a State=IDLE BootTime=None SlurmdStartTime=2026-11-21T19:18:27 "`)
	nodes, err := l.Nodes(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []Node{{Name: "a", State: "IDLE", Start: time.Date(2026, 11, 21, 19, 18, 27, 0, time.UTC)}}, nodes)
	l.Scontrol = program(t, "exit 1")
	_, err = l.Nodes(t.Context())
	require.ErrorContains(t, err, "scontrol show node --oneliner: exit status 1")
}

func TestToken(t *testing.T) {
	now := time.Now()
	parsed, err := jwt.Parse(token([]byte("key"), "slurm", now), func(*jwt.Token) (any, error) { return []byte("key"), nil })
	require.NoError(t, err)
	claims, ok := parsed.Claims.(jwt.MapClaims)
	require.True(t, ok)
	assert.Equal(t, "slurm", claims["sun"])
}

func TestTell(t *testing.T) {
	var got map[string]any
	p := podBehind(t, func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, http.MethodPatch, r.Method)
		assert.Equal(t, "/api/v1/namespaces/ns/pods/p", r.URL.Path)
		assert.Equal(t, "application/merge-patch+json", r.Header.Get("Content-Type"))
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
	})
	require.NoError(t, p.Tell(t.Context(), Report{InForce: "a", Rejected: "b", Error: "c"}))
	assert.Equal(t, map[string]any{"metadata": map[string]any{"annotations": map[string]any{Annotation: `{"inForce":"a","rejected":"b","error":"c"}`}}}, got)
	require.NoError(t, os.WriteFile(filepath.Join(p.Dir, "token"), []byte("old"), 0o600))
	require.ErrorContains(t, p.Tell(t.Context(), Report{}), "patch pod p: the API server answers 403 Forbidden: no")
}

// podBehind is a Pod whose API server this is.
func podBehind(t *testing.T, answer http.HandlerFunc) Pod {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "no")
			return
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("t\n"), 0o600))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	return Pod{Namespace: "ns", Name: "p", Container: "slurmctld", Host: host, Port: port, Dir: dir}
}

func TestEnded(t *testing.T) {
	since := time.Date(2026, 11, 21, 10, 0, 0, 500, time.UTC)
	status := func(container, state, at string, code int, message string) string {
		return fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"other","state":{"running":{}}},{"name":%q,%q:{"terminated":{"exitCode":%d,"finishedAt":%q,"message":%q}}}]}}`,
			container, state, code, at, message)
	}
	const before, after = "2026-11-21T10:00:00Z", "2026-11-21T10:00:01Z"
	killed := func(began string) string {
		return fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"slurmctld","lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled","startedAt":%q,"finishedAt":%q}}}]}}`, began, after)
	}
	tests := map[string]struct{ status, words string }{
		"it has":                              {status("slurmctld", "state", after, 1, "[x] info: a\n[x] error: no\n[x] error: no\n[x] fatal: not at all\n"), "error: no; fatal: not at all"},
		"it runs again":                       {status("slurmctld", "lastState", after, 139, "[x] info: a"), "it ended with exit code 139"},
		"before":                              {status("slurmctld", "state", before, 1, ""), ""},
		"another one":                         {status("bridge", "state", after, 1, ""), ""},
		"it was told to":                      {status("slurmctld", "state", after, 0, ""), ""},
		"it was killed":                       {status("slurmctld", "state", after, 137, ""), ""},
		"nothing has started":                 {`{"status":{}}`, ""},
		"out of memory, with these files":     {killed(after), "it needs more memory than its limit, and was killed (OOMKilled): raise spec.slurmctld.resources.limits.memory"},
		"out of memory, with those of before": {killed(before), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := podBehind(t, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, http.MethodGet, r.Method)
				_, _ = io.WriteString(w, test.status)
			})
			words, ended, err := p.Ended(t.Context(), since, false)
			require.NoError(t, err)
			assert.Equal(t, test.words != "", ended)
			assert.Equal(t, test.words, words)
		})
	}
	_, _, err := podBehind(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }).Ended(t.Context(), since, false)
	require.ErrorContains(t, err, "get pod p: the API server answers 404 Not Found")
}

// What a slurmctld does that was told to end, for another one to read the files, is not their fault.
func TestEndedAnew(t *testing.T) {
	since := time.Date(2026, 11, 21, 10, 0, 0, 500, time.UTC)
	for began, want := range map[string]bool{"2026-11-21T09:00:00Z": false, "2026-11-21T10:00:01Z": true} {
		p := podBehind(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"status":{"containerStatuses":[{"name":"slurmctld","lastState":{"terminated":{"exitCode":139,"startedAt":%q,"finishedAt":"2026-11-21T10:00:02Z"}}}]}}`, began)
		})
		_, ended, err := p.Ended(t.Context(), since, true)
		require.NoError(t, err)
		assert.Equal(t, want, ended, began)
		_, ended, err = p.Ended(t.Context(), since, false)
		require.NoError(t, err)
		assert.True(t, ended)
	}
}

// What is left of a check that was killed, keys among it, goes; what others have in the directory stays.
func TestRemoveChecks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, checkPrefix+"1", "state"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, checkPrefix+"1", "slurm.key"), []byte("key"), 0o400))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "theirs"), nil, 0o600))
	require.NoError(t, removeChecks(dir))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Equal(t, "theirs", left[0].Name())
}
