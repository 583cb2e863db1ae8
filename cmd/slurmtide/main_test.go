package main

import (
	"errors"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"slurmtide": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitCode,
		},
	})
}

// exitCode runs a program and wants its exit code: exitcode 2 slurmtide nonsense.
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode CODE PROGRAM [ARGUMENT...]")
	}
	code := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("running %s: %v", args[1], err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func TestDidYouMean(t *testing.T) {
	tests := map[string]struct{ given, want string }{
		"one letter missing":  {"statu", " (did you mean status?)"},
		"two letters swapped": {"brigde", " (did you mean bridge?)"},
		"exactly":             {"status", " (did you mean status?)"},
		"far from all":        {"frobnicate", ""},
		"short":               {"x", ""},
		"empty":               {"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, didYouMean(tt.given, []string{"bridge", "status", "hostlist"}))
		})
	}
}
