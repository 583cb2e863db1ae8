//go:build integration

package integration

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// process is a program that runs beside the test.
type process struct {
	*os.Process
	log *lockedBuffer
}

// start runs a program until the test ends, and shows its log when the test fails.
func (c *cluster) start(program string, args ...string) *process {
	c.t.Helper()
	log := &lockedBuffer{}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() {
		assert.NoError(c.t, cmd.Process.Signal(os.Interrupt))
		assert.NoError(c.t, cmd.Wait(), "it ends in good order")
		if c.t.Failed() {
			c.t.Log(log)
		}
	})
	return &process{cmd.Process, log}
}

// hang stops a process until the test ends.
func (p *process) hang(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { assert.NoError(t, p.Signal(syscall.SIGCONT)) })
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// freeAddress is one on the loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
