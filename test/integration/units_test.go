//go:build integration

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/test/unitfile"
)

// TestUnits has systemd look at the units for hosts: it knows every line, and what is left exposed is little.
func TestUnits(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "../../hack/need.sh", "systemd-analyze", "systemd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	files, err := filepath.Glob(guide + "*.service")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	// A root of its own, where the programs are that the units name: systemd looks for them.
	root := t.TempDir()
	put := func(path, text string, mode os.FileMode) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		put("etc/systemd/system/"+filepath.Base(file), string(text), 0o644)
		u, err := unitfile.Parse(string(text))
		require.NoError(t, err)
		put(strings.Fields(u.Get("Service", "ExecStart"))[0], "#!/bin/sh\n", 0o755)
	}
	put("etc/systemd/system/wrong.service", "[Service]\nExecStart=/usr/local/bin/slurmtide\nRestarted=always\n", 0o644)
	verify := func(unit string) (said string, err error) {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--root="+root, "--recursive-errors=no", unit).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	said, _ := verify("wrong.service")
	assert.Contains(t, said, "Unknown key", "it says what it does not know")
	for _, file := range files {
		unit := filepath.Base(file)
		said, err := verify(unit)
		require.NoError(t, err, said)
		assert.Empty(t, said, unit)
		// 0 to 10, times ten; a service that says nothing of itself has 96.
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold=20", "--root="+root, "--no-pager", unit).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
