package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"slurmtide": func() {
		// The daemon gets slurmtide's name, so only its file tells which of the two this is.
		if self, err := os.Executable(); err == nil && strings.HasPrefix(filepath.Base(self), "slurmtide-") {
			fakeDaemon()
		}
		main()
	}})
}

func TestManPages(t *testing.T) { clitest.ManPages(t, newApp()) }

func TestScripts(t *testing.T) { clitest.Run(t, "slurmtide") }

// What these packages do at initialisation is what made every command slow.
func TestLeavesClientsToTheDaemon(t *testing.T) {
	deps, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	assert.Contains(t, string(deps), "slurmtide/powersave\n")
	assert.NotContains(t, string(deps), "k8s.io/client-go/")
	assert.NotContains(t, string(deps), "SlinkyProject/slurm-client/")
}

// fakeDaemon prints its command line as ps would show it, and ends in 7.
func fakeDaemon() {
	line, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s\n", bytes.ReplaceAll(bytes.TrimSuffix(line, []byte{0}), []byte{0}, []byte(" ")))
	os.Exit(7)
}
