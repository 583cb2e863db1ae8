package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
)

func TestNoBridge(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"no right":     {syscall.EACCES, "run slurmtide status as SlurmUser or root"},
		"never began":  {syscall.ENOENT, "no bridge runs on spool"},
		"was killed":   {syscall.ECONNREFUSED, "was killed: start it again"},
		"hangs":        {context.DeadlineExceeded, "did not answer within 5s"},
		"hangs in I/O": {os.ErrDeadlineExceeded, "did not answer within 5s"},
		"anything":     {syscall.EMFILE, "asking bridge: too many open files"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Contains(t, noBridge(t.TempDir(), 5*time.Second, fmt.Errorf("asking bridge: %w", tt.err)), tt.want)
		})
	}
}

func TestStatusFoldsRepeatedProblems(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	note := func(age time.Duration, node, text string) powersave.Note {
		return powersave.Note{Time: now.Add(-age), Node: node, Text: text}
	}
	var out strings.Builder
	require.NoError(t, printStatus(&out, bridge.Status{Engine: powersave.Status{Time: now, Notes: []powersave.Note{
		note(9*time.Second, "", "no answer"), note(8*time.Second, "cpu-0", "no answer"), note(4*time.Second, "", "no answer"), note(time.Second, "", "no answer"),
	}}}, false))
	_, table, _ := strings.Cut(out.String(), "RECENT PROBLEM\n")
	assert.Equal(t, "8s   cpu-0  no answer\n1s   -      no answer (3 times)\n", table)
}
