package spool

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Vars = append(e.Vars, raceAtOnce)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// exits <status> <program> [args...]: runs a program that must end with this status.
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				err = ts.Exec(args[1], args[2:]...)
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != want {
					ts.Fatalf("%s: %v, want exit status %d", args[1], err, want)
				}
			},
			// waitfor <file>: waits until the file exists.
			"waitfor": func(ts *testscript.TestScript, _ bool, args []string) {
				for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
					if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
						return
					}
					if time.Now().After(deadline) {
						ts.Fatalf("%s did not appear", args[0])
					}
				}
			},
		},
	})
}

// slurmctld's hosts have no Go modules: the programs are made of the standard library and this package.
func TestProgramsAreSmall(t *testing.T) {
	const own = "github.com/slurmtide/slurmtide/"
	for _, name := range []string{"resume", "suspend", "resume-fail", "start-gate"} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", own+"cmd/"+name).Output()
		require.NoError(t, err)
		for _, path := range strings.Fields(string(out)) {
			assert.Contains(t, []string{own + "cmd/" + name, own + "powersave/spool", own + "slurmconf"}, path)
		}
	}
}
