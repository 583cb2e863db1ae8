package inplace

import (
	"context"
	"errors"
	"fmt"
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
)

func TestProbe(t *testing.T) {
	const silent = "nobody answers"
	tests := map[string]struct {
		version        string
		status         map[string]int // by path; 0: nobody answers
		noHTTP         bool
		ping           string
		busy           bool
		asked          string // what was asked
		ready, standby string // errors
		live           string
	}{
		"in control":         {version: "slurm 26.05.3", status: map[string]int{"/readyz": 204, "/livez": 204}, asked: "/readyz /livez /livez"},
		"a backup":           {version: "slurm 25.11.0", status: map[string]int{"/readyz": 500, "/livez": 204}, asked: "/readyz /livez /livez", ready: "slurmctld answers /readyz with status 500"},
		"old":                {version: "slurm 25.05.4", ping: "", asked: "ping ping ping"},
		"old, of Debian":     {version: "slurm-wlm 24.11.5\n", ping: "", asked: "ping ping ping"},
		"old and silent":     {version: "slurm 24.11.7", ping: silent, asked: "ping ping ping", ready: silent, standby: silent, live: silent},
		"old and busy":       {version: "slurm 24.11.7", ping: silent, busy: true, asked: "ping ping ping", ready: silent, standby: silent},
		"HTTP is off":        {version: "slurm 26.05.3", noHTTP: true, asked: "/readyz ping /livez ping /livez ping"},
		"silent":             {version: "slurm 26.05.3", status: map[string]int{}, asked: "/readyz /livez /livez", ready: silent, standby: silent, live: silent},
		"it reads its state": {version: "slurm 26.05.3", status: map[string]int{}, busy: true, asked: "/readyz /livez /livez", ready: silent, standby: silent},
		"a name of its own":  {version: "slurm mine", status: map[string]int{"/readyz": 204, "/livez": 204}, asked: "/readyz /livez /livez"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var asked []string
			p := Probe{
				Version: func(context.Context) (string, error) { return test.version + "\n", nil },
				Get: func(_ context.Context, path string) (int, error) {
					asked = append(asked, path)
					if test.noHTTP {
						return 0, errNoHTTP
					}
					if test.status[path] == 0 {
						return 0, errors.New(silent)
					}
					return test.status[path], nil
				},
				Ping: func(context.Context) error {
					asked = append(asked, "ping")
					if test.ping != "" {
						return errors.New(test.ping)
					}
					return nil
				},
				Busy: func() (bool, error) { return test.busy, nil },
			}
			said := func(err error) string {
				if err == nil {
					return ""
				}
				return err.Error()
			}
			assert.Equal(t, test.ready, said(p.Ready(t.Context(), false)))
			assert.Equal(t, test.standby, said(p.Ready(t.Context(), true)))
			assert.Equal(t, test.live, said(p.Live(t.Context())))
			assert.Equal(t, test.asked, strings.Join(asked, " "))
		})
	}
}

func TestGet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	where := server.Listener.Addr().String()
	status, err := get(t.Context(), where, "/livez")
	require.NoError(t, err)
	assert.Equal(t, 204, status)
	status, err = get(t.Context(), where, "/readyz")
	require.NoError(t, err)
	assert.Equal(t, 500, status)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_ = c.Close()
		}
	}()
	_, err = get(t.Context(), l.Addr().String(), "/livez")
	require.ErrorIs(t, err, errNoHTTP, "whoever hangs up at once")
	require.NoError(t, l.Close())
	_, err = get(t.Context(), l.Addr().String(), "/livez")
	require.ErrorContains(t, err, "connection refused")
}

// With CommunicationParameters=NoCtldInAddrAny slurmctld listens on its host's own address alone.
func TestOwnAddress(t *testing.T) {
	const own = "127.0.0.2"
	l, err := net.Listen("tcp", own+":0")
	require.NoError(t, err)
	server := &httptest.Server{Listener: l, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}}
	server.Start()
	defer server.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	etc := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(etc, "slurm.conf"), []byte("SlurmctldPort="+port+"\n"), 0o644))
	status, err := localProbe("scontrol", etc, own, t.TempDir(), time.Now).Get(t.Context(), "/livez")
	require.NoError(t, err)
	assert.Equal(t, 200, status)
}

func TestPing(t *testing.T) {
	etc, scratch := t.TempDir(), filepath.Join(t.TempDir(), "probe")
	require.NoError(t, os.WriteFile(filepath.Join(etc, "slurm.conf"), []byte("ClusterName=c\nSlurmctldHost=a(a.x)\nSlurmctldHost=b(b.x)\nAuthType=auth/slurm\nInclude more\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(etc, "slurm.key"), []byte("key"), 0o600))
	up := program(t, `grep -q key "$(dirname $SLURM_CONF)/slurm.key" && sed -n 's/^SlurmctldHost=\(.*\)/Slurmctld(primary) at \1 is UP/p' $SLURM_CONF`)
	require.NoError(t, ping(t.Context(), up, etc, "b", scratch))
	text, err := os.ReadFile(filepath.Join(scratch, "slurm.conf"))
	require.NoError(t, err)
	assert.Equal(t, "SlurmctldHost=b\nClusterName=c\nAuthType=auth/slurm\n", string(text), "only this host is asked")
	require.NoError(t, ping(t.Context(), up, etc, "a", scratch))
	require.EqualError(t, ping(t.Context(), program(t, "echo 'Slurmctld(primary) at a is DOWN'"), etc, "a", scratch), "scontrol ping: Slurmctld(primary) at a is DOWN")
	require.EqualError(t, ping(t.Context(), up, etc, "c", scratch), "slurm.conf has no SlurmctldHost c")
}

func TestWorked(t *testing.T) {
	proc, file := t.TempDir(), filepath.Join(t.TempDir(), "probe", "work")
	write := func(ticks int, state string) {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, "7"), 0o755))
		stat := fmt.Sprintf("7 (slurmctld) %s 3 7 7 0 -1 0 0 0 0 0 %d 0 0 0 20 0 9 0 4321 0 0\n", state, ticks)
		require.NoError(t, os.WriteFile(filepath.Join(proc, "7", "stat"), []byte(stat), 0o644))
	}
	at := time.Unix(1000, 0)
	look := func(after time.Duration) bool {
		at = at.Add(after)
		busy, err := worked(proc, file, at)
		require.NoError(t, err)
		return busy
	}
	write(100, "S")
	assert.True(t, look(0), "there is nothing to compare with")
	write(110, "S")
	assert.False(t, look(30*time.Second), "a tenth of a second in half a minute")
	write(210, "S")
	assert.True(t, look(30*time.Second))
	write(210, "D")
	assert.True(t, look(30*time.Second), "it waits for its disk")
	write(5, "S")
	assert.True(t, look(30*time.Second), "another process")
}

func TestProcesses(t *testing.T) {
	p, ok := parseStat("17 (slurmctld) R 3 7 7 0 -1 0 0 0 0 0 20 22 0 0 20 0 9 0 4321 0 0")
	require.True(t, ok)
	assert.Equal(t, process{parent: 3, state: "R", ticks: 42, start: 4321}, p)
	for _, text := range []string{"", "17 (slurmscriptd) R 3 7 7 0 -1 0 0 0 0 0 20 22 0 0 20 0 9 0 4321 0 0", "17 (slurmctld) Z 3 7 7 0 -1 0 0 0 0 0 20 22 0 0 20 0 9 0 4321 0 0", "17 (slurmctld) R 3"} {
		_, ok := parseStat(text)
		assert.False(t, ok, text)
	}
	proc := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(proc, "stat"), []byte("cpu 1\nbtime 1000\n"), 0o644))
	at, err := started(proc, process{start: 4321})
	require.NoError(t, err)
	assert.EqualValues(t, 1043, at.Unix())
}
