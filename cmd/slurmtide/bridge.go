package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	urfave "github.com/urfave/cli/v2"
)

// bridgeProgram is the daemon. It is not part of this program because the clients of
// Kubernetes and slurmrestd would slow down the start of every command.
const bridgeProgram = "slurmtide-bridge"

func bridgeCommand() *urfave.Command {
	return &urfave.Command{
		Name:            "bridge",
		Usage:           "turn the requests of slurmctld's programs into slurmd pods",
		SkipFlagParsing: true, // flags, --help among them, are the daemon's
		Action: func(c *urfave.Context) error {
			program, err := findBridge()
			if err == nil {
				// The name stays, so that ps shows what was typed.
				argv := append([]string{os.Args[0], c.Command.Name}, c.Args().Slice()...)
				err = syscall.Exec(program, argv, os.Environ())
			}
			return fmt.Errorf("starting the bridge: %w", err)
		},
	}
}

// findBridge looks for the daemon beside this program, and then on PATH.
func findBridge() (string, error) {
	dir, err := ownDir()
	if err != nil {
		return "", err
	}
	program, err := exec.LookPath(filepath.Join(dir, bridgeProgram))
	if !errors.Is(err, fs.ErrNotExist) {
		return program, err
	}
	if program, err = exec.LookPath(bridgeProgram); err != nil {
		return "", fmt.Errorf("%s is neither beside slurmtide in %s nor on PATH; install it there", bridgeProgram, dir)
	}
	return program, nil
}
