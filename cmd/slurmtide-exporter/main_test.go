package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slurmtide/slurmtide/internal/cli/clitest"
)

// The scripts use the daemon under both names: slurmtide starts it under its own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"slurmtide": main, "slurmtide-exporter": main})
}

func TestManPages(t *testing.T) { clitest.ManPages(t, newApp()) }

func TestScripts(t *testing.T) { clitest.Run(t, "slurmtide") }
