// Package clitest runs testscripts of our programs.
package clitest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
)

// Run runs the scripts in testdata/script. They have one more command, which wants an exit
// code of a program: exitcode 2 slurmtide nonsense. A program that testscript.Main installs
// is there by its path, too, as the environment's $PROGRAM.
func Run(t *testing.T, program string) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			path, err := exec.LookPath(program)
			env.Setenv("PROGRAM", path)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitCode,
		},
	})
}

func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode CODE PROGRAM [ARGUMENT...]")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("running %s: %v", args[1], err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// ManPages fails t if the manual pages in the repository are not those of a program in cmd.
func ManPages(t *testing.T, app *urfave.App) {
	t.Helper()
	pages := cli.ManPages(app)
	require.NotEmpty(t, pages)
	for name, want := range pages {
		have, err := os.ReadFile(filepath.Join("../../man", name))
		require.NoError(t, err, "make generate writes it")
		assert.Equal(t, want, string(have), "%s: make generate writes it anew", name)
	}
}
