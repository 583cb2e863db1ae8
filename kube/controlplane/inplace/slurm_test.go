package inplace

import (
	"encoding/json"
	"encoding/pem"
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
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "no")
			return
		}
		assert.Equal(t, "/api/v1/namespaces/ns/pods/p", r.URL.Path)
		assert.Equal(t, "application/merge-patch+json", r.Header.Get("Content-Type"))
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
	}))
	defer server.Close()
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("t\n"), 0o600))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	p := Pod{Namespace: "ns", Name: "p", Host: host, Port: port, Dir: dir}
	require.NoError(t, p.Tell(t.Context(), Report{InForce: "a", Rejected: "b", Error: "c"}))
	assert.Equal(t, map[string]any{"metadata": map[string]any{"annotations": map[string]any{Annotation: `{"inForce":"a","rejected":"b","error":"c"}`}}}, got)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("old"), 0o600))
	require.ErrorContains(t, p.Tell(t.Context(), Report{}), "patching pod p: the API server answers 403 Forbidden: no")
}
