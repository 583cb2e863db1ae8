// Command slurmtide-bridge is the daemon behind `slurmtide bridge`. It is a program of its
// own because the clients of Kubernetes and slurmrestd cost every start 15 ms, also that
// of commands that use neither.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // windows of NodeSets have time zones, images often none

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/daemon"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	os.Exit(cli.Run(context.Background(), newApp(), cli.Daemon(os.Args, "bridge", "doctor"), os.Stdin, os.Stdout, os.Stderr))
}

func newApp() *urfave.App { return daemon.App(version, bridgeCommand(), doctorCommand()) }
