package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/test/unitfile"
)

const examples = "../../docs/examples/"

// TestUnit: the unit that users get starts the program with flags that it has, as the user that they mean, and lets it write where it writes.
func TestUnit(t *testing.T) {
	u, err := unitfile.Read(examples + "slurmtide-bridge.service")
	require.NoError(t, err)
	args := strings.Fields(u.Get("Service", "ExecStart"))
	require.Greater(t, len(args), 2)
	require.Equal(t, []string{"/usr/local/bin/slurmtide", "bridge"}, args[:2], "where install.md puts it")

	got := map[string]string{}
	command := bridgeCommand()
	command.Action = func(c *urfave.Context) error {
		require.Zero(t, c.NArg(), "%v", c.Args())
		require.NoError(t, cli.Require(c, "cluster", "namespace", "slurmrestd"))
		for _, flag := range command.Flags {
			got[flag.Names()[0]] = fmt.Sprint(c.Value(flag.Names()[0]))
		}
		return nil
	}
	app := &urfave.App{Commands: []*urfave.Command{command}}
	require.NoError(t, app.Run(append([]string{"slurmtide"}, args[1:]...)))

	assert.Equal(t, u.Get("Service", "User"), got["jwt-user"], "SlurmUser, for whom the tokens are")
	assert.Equal(t, u.Get("Service", "User"), u.Get("Service", "Group"))
	assert.Equal(t, "strict", u.Get("Service", "ProtectSystem"))
	assert.Equal(t, []string{got["spool"]}, u.Words("Service", "ReadWritePaths"), "all that it writes")
	assert.Equal(t, "always", u.Get("Service", "Restart"))
	assert.Equal(t, "0", u.Get("Unit", "StartLimitIntervalSec"), "or systemd gives up")
	for _, path := range []string{got["kubeconfig"], got["jwt-key"]} {
		assert.True(t, filepath.IsAbs(path), path)
		for _, hidden := range []string{"/home/", "/root/", "/run/user/", "/tmp/"} {
			assert.False(t, strings.HasPrefix(path, hidden), "%s is hidden by ProtectHome or PrivateTmp", path)
		}
	}

	// slurmrestd listens where the bridge asks, and is started before it.
	r, err := unitfile.Read(examples + "slurmtide-slurmrestd.service")
	require.NoError(t, err)
	listens := strings.Fields(r.Get("Service", "ExecStart"))
	assert.Equal(t, got["slurmrestd"], "http://"+listens[len(listens)-1])
	assert.Contains(t, u.Words("Unit", "After"), "slurmtide-slurmrestd.service")
	assert.Contains(t, u.Words("Unit", "Wants"), "slurmtide-slurmrestd.service")
}
