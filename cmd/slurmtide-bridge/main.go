// Command slurmtide-bridge is the daemon behind `slurmtide bridge`. It is a program of its
// own because the clients of Kubernetes and slurmrestd cost every start 15 ms, also that
// of commands that use neither.
package main

import (
	"context"
	"os"
	"slices"
	_ "time/tzdata" // windows of NodeSets have time zones, images often none

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
		Commands: []*urfave.Command{bridgeCommand()},
	}
	os.Exit(cli.Run(context.Background(), app, commandLine(os.Args), os.Stdin, os.Stdout, os.Stderr))
}

// commandLine is what slurmtide was called with, which passes it on as it is: slurmtide
// bridge --cluster c. Somebody who starts this program directly need not say bridge.
func commandLine(args []string) []string {
	if len(args) > 1 && (args[1] == "bridge" || args[1] == "--version") {
		return args
	}
	return slices.Insert(slices.Clone(args), min(1, len(args)), "bridge")
}
