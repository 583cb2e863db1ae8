package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slurmtide/slurmtide/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"slurmtide": main})
}

func TestScripts(t *testing.T) { clitest.Run(t, "slurmtide") }
