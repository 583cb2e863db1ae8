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

	"github.com/slurmtide/slurmtide/internal/cli"
)

func bridgeCommand() *urfave.Command {
	return daemonCommand("bridge", "turn the requests of slurmctld's programs into slurmd pods")
}

func scalerCommand() *urfave.Command {
	return daemonCommand("scaler", "tell KEDA and Prometheus how many nodes Slurm's queue needs")
}

func controllerCommand() *urfave.Command {
	return daemonCommand("controller", "run Slurm control planes on Kubernetes")
}

func exporterCommand() *urfave.Command {
	return daemonCommand("exporter", "serve Prometheus metrics of Slurm's nodes, jobs, partitions and scheduler")
}

// daemonCommand starts the daemon slurmtide-NAME. Daemons are not part of this program because the clients of
// Kubernetes and slurmrestd would slow down the start of every command.
func daemonCommand(name, usage string) *urfave.Command {
	return &urfave.Command{
		Name:            name,
		Usage:           usage,
		SkipFlagParsing: true, // flags, --help among them, are the daemon's
		BashComplete:    func(c *urfave.Context) { elsewhere("slurmtide-"+name, name, c) },
		Action: func(c *urfave.Context) error {
			return fmt.Errorf("starting the %s: %w", name, become("slurmtide-"+name, c.Command.Name, c.Args().Slice()))
		},
	}
}

// renderCommand is the controller's program's, which makes the same of live objects.
func renderCommand() *urfave.Command {
	c := daemonCommand("controller", "print slurm.conf and Kubernetes objects, for files that you manage yourself")
	c.Name = "render"
	c.BashComplete = func(c *urfave.Context) { elsewhere("slurmtide-controller", "render", c) }
	return c
}

// elsewhere lets a daemon's program complete what stands behind one of its commands. Where there is none nothing is proposed.
func elsewhere(daemon, command string, c *urfave.Context) {
	if err := become(daemon, cli.CompleteCall, append([]string{command}, c.Args().Slice()...)); err != nil {
		return
	}
}

// become runs a command of a daemon's program in the place of this one. It returns only if that fails.
func become(daemon, command string, args []string) error {
	program, err := findDaemon(daemon)
	if err != nil {
		return err
	}
	// The name stays, so that ps shows what was typed.
	return syscall.Exec(program, append([]string{os.Args[0], command}, args...), os.Environ())
}

// findDaemon looks for the daemon beside this program, and then on PATH.
func findDaemon(name string) (string, error) {
	dir, err := ownDir()
	if err != nil {
		return "", err
	}
	program, err := exec.LookPath(filepath.Join(dir, name))
	if !errors.Is(err, fs.ErrNotExist) {
		return program, err
	}
	if program, err = exec.LookPath(name); err != nil {
		return "", fmt.Errorf("%s is neither beside slurmtide in %s nor on PATH; install it there", name, dir)
	}
	return program, nil
}
