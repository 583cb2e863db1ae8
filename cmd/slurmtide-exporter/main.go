// Command slurmtide-exporter is the daemon behind `slurmtide exporter`. It is a program of its own, as slurmtide-bridge is,
// and for the same reason.
package main

import (
	"context"
	"os"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/daemon"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	os.Exit(cli.Run(context.Background(), newApp(), cli.Daemon(os.Args, "exporter"), os.Stdin, os.Stdout, os.Stderr))
}

func newApp() *urfave.App { return daemon.App(version, exporterCommand()) }
