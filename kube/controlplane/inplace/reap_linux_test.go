package inplace

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A trial must leave nothing behind: as the first process of its container reconfigure inherits slurmscriptd.
func TestCheckReaps(t *testing.T) {
	const setSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	subreaper := func(on uintptr) {
		_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setSubreaper, on, 0)
		require.Zero(t, errno)
	}
	subreaper(1)
	defer subreaper(0)
	l := local(t)
	pids := filepath.Join(t.TempDir(), "pids")
	l.Slurmctld = program(t, "sleep 60 &\necho $! >"+pids+"\necho 'Running as primary controller' >&2\nwait")
	require.NoError(t, l.Check(t.Context(), map[string]string{"slurm.conf": "ClusterName=c\n"}))
	text, err := os.ReadFile(pids)
	require.NoError(t, err)
	_, err = os.Stat("/proc/" + strings.TrimSpace(string(text)))
	require.ErrorIs(t, err, os.ErrNotExist)
}
