// Command slurmtide-scaler is the daemon behind `slurmtide scaler`. It is a program of its own, as slurmtide-bridge is,
// and for the same reason.
package main

import (
	"context"
	"os"
	"slices"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	app := &urfave.App{
		Name:     "slurmtide",
		Usage:    "the daemons of Slurmtide",
		Version:  version,
		Commands: []*urfave.Command{scalerCommand()},
	}
	os.Exit(cli.Run(context.Background(), app, commandLine(os.Args), os.Stdin, os.Stdout, os.Stderr))
}

// commandLine is what slurmtide was called with, which passes it on as it is: slurmtide
// scaler --cluster c. Somebody who starts this program directly need not say scaler.
func commandLine(args []string) []string {
	if len(args) > 1 && (args[1] == "scaler" || args[1] == "--version") {
		return args
	}
	return slices.Insert(slices.Clone(args), min(1, len(args)), "scaler")
}
