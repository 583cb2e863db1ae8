// Command slurmtide is the program of Slurmtide that people use. Its daemons are programs
// of their own, which it starts.
package main

import (
	"context"
	"os"
	"path/filepath"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	os.Exit(cli.Run(context.Background(), newApp(), os.Args, os.Stdin, os.Stdout, os.Stderr))
}

func newApp() *urfave.App {
	return &urfave.App{
		Name:      "slurmtide",
		Usage:     "run Slurm nodes as Kubernetes pods, from zero and back",
		UsageText: "slurmtide COMMAND [options]",
		Version:   version,
		// Each lives in a file of its own.
		Commands: []*urfave.Command{
			bridgeCommand(),
			scalerCommand(),
			controllerCommand(),
			exporterCommand(),
			statusCommand(),
			topCommand(),
			explainCommand(),
			doctorCommand(),
			renderCommand(),
			hostlistCommand(),
			installProgramsCommand(),
			completionCommand(),
		},
	}
}

// ownDir is where this program lies; the other programs lie beside it.
func ownDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	// Linux answers with the file itself, other systems may answer with a link to it.
	self, err = filepath.EvalSymlinks(self)
	return filepath.Dir(self), err
}
