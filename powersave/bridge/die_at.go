//go:build faults

package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// at kills this process, as kill -9 does, when the file die-at in the spool directory names the step; the file is removed
// first, so that the next bridge lives. A step that Steps does not list would never be tested.
func (b *Bridge) at(s Step) {
	if !slices.Contains(Steps(), s) {
		panic(fmt.Sprintf("bridge: step %q is not in Steps", s))
	}
	file := filepath.Join(b.SpoolDir, "die-at")
	if named, err := os.ReadFile(file); err != nil || string(named) != string(s) {
		return
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // another call may be at the same step
		panic(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal may come a moment later
}
