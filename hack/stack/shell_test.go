package stack

import (
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// localShell serves on this machine.
func localShell(t *testing.T) *shell {
	const mark = "MARK"
	sh := newShell(mark, func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
		c := exec.CommandContext(ctx, "bash", "-c", serve, mark)
		c.Stdout, c.Stderr = stdout, stderr
		c.WaitDelay = 100 * time.Millisecond // what the shell has started may live on
		in, err := c.StdinPipe()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(in, stdin) }() // with c.Stdin, Run would wait for more
		return c.Run()
	})
	t.Cleanup(sh.stop)
	return sh
}

func TestShell(t *testing.T) {
	sh := localShell(t)
	for _, test := range []struct {
		script, stdout, stderr string
		status                 int
	}{
		{script: "exec true"},
		{script: "exec false", status: 1},
		{script: "echo out; echo err >&2; exit 7", stdout: "out\n", stderr: "err\n", status: 7},
		{script: "exec printf 'no end'", stdout: "no end"},
		{script: "printf 'two\nlines' >&2", stderr: "two\nlines"},
		{script: "exec " + quoted([]string{"printf", "%s|", "it's", "", "a  b", "$HOME\n"}), stdout: "it's||a  b|$HOME\n|"},
		{script: "exec cat"}, // what serves keeps its own input
		{script: "printf %s " + quote("#!/bin/sh\n'x'\n") + " | cat", stdout: "#!/bin/sh\n'x'\n"},
		{script: "kill -KILL $BASHPID", status: 137},
		{script: "cd /; status=3; exec seq 20000", stdout: seq(t)},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		stdout, stderr, status, err := sh.run(ctx, test.script)
		cancel()
		require.NoError(t, err, test.script)
		assert.Equal(t, test.stdout, stdout, test.script)
		assert.Equal(t, test.stderr, stderr, test.script)
		assert.Equal(t, test.status, status, test.script)
	}
}

func seq(t *testing.T) string {
	out, err := exec.Command("seq", "20000").Output()
	require.NoError(t, err)
	return string(out)
}

// A shell that ends, with its container for instance, is an error for who waits, and is not taken again.
func TestShellEnds(t *testing.T) {
	sh := localShell(t)
	stdout, _, _, err := sh.run(t.Context(), "echo before; kill -KILL $$; sleep 0.1")
	require.ErrorContains(t, err, "killed")
	assert.Equal(t, "before\n", stdout)
	<-sh.ended
	all := &shells{}
	all.give(sh)
	assert.Nil(t, all.take())
	_, _, _, err = sh.run(t.Context(), "true")
	require.ErrorContains(t, err, "killed")

	good := localShell(t)
	all.give(good)
	all.give(sh)
	assert.Same(t, good, all.take())
	assert.Nil(t, all.take(), "it is busy")
}

// A command ends with the context that it was given.
func TestShellContext(t *testing.T) {
	sh := localShell(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, _, _, err := sh.run(ctx, "exec sleep 10")
	require.ErrorIs(t, err, context.Canceled)
	select {
	case <-sh.ended:
	case <-time.After(time.Minute):
		t.Fatal("the shell stays")
	}
}

func TestNULIsRefused(t *testing.T) {
	s := &Stack{}
	_, _, err := s.runInShell(t.Context(), "pod", strings.NewReader("a\x00b"), "slurmctld", []string{"sbatch"})
	assert.ErrorContains(t, err, "sbatch: neither arguments nor input may have a NUL")
}
