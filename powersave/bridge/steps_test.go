//go:build !faults

package bridge

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// What kills the bridge in tests of faults is not in the program that is released.
func TestNothingKillsTheReleasedBridge(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	file := filepath.Join(dir, "die-at")
	require.NoError(t, os.WriteFile(file, []byte(StepCreate), 0o600))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		b, stop := w.start(t, dir)
		defer stop()
		pass(time.Second)
		w.set(booting, "cpu-0", "cpu-1")
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		b.Poked()
		pass(5 * time.Second)
		w.look(func() { assert.Equal(t, 2, w.creates) })
	})
	assert.FileExists(t, file)
}
