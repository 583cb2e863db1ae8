package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeProc makes a /proc with one process.
func fakeProc(t *testing.T, boot, command, state string, start int) string {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "42"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sys/kernel/random"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sys/kernel/random/boot_id"), []byte(boot+"\n"), 0o644))
	stat := fmt.Sprintf("42 (%s) %s %s%d 0 0", command, state, strings.Repeat("7 ", 18), start)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "42/stat"), []byte(stat), 0o644))
	return dir
}

func TestAlive(t *testing.T) {
	t.Parallel()
	id := identity{PID: 42, Start: 1000, Boot: "b1"}
	cases := map[string]struct {
		boot, command, state string
		start                int
		want                 bool
	}{
		"the same process":         {"b1", "localcluster", "S", 1000, true},
		"a name with parentheses":  {"b1", "a) Z 1 (b", "R", 1000, true},
		"the id was given again":   {"b1", "localcluster", "S", 1001, false},
		"the machine was booted":   {"b2", "localcluster", "S", 1000, false},
		"a zombie nobody reaps":    {"b1", "localcluster", "Z", 1000, false},
		"dead and about to vanish": {"b1", "localcluster", "X", 1000, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, id.alive(fakeProc(t, c.boot, c.command, c.state, c.start)))
		})
	}
	assert.False(t, id.alive(t.TempDir()), "no such process")
	assert.False(t, identity{}.alive("/proc"), "nothing recorded")
	assert.False(t, identity{PID: 1}.alive("/proc"), "never the machine's own init")
}

func TestKillOnlyTheSameProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	exited := make(chan struct{})
	go func() { defer close(exited); cmd.Wait() }() //nolint:errcheck // killed on purpose
	id, err := identify("/proc", cmd.Process.Pid)
	require.NoError(t, err)

	stranger := id
	stranger.Start++
	require.NoError(t, stranger.kill(time.Second))
	assert.True(t, id.alive("/proc"), "a process with another start time is left alone")

	require.NoError(t, id.kill(10*time.Second))
	assert.False(t, id.alive("/proc"))
	<-exited
}
