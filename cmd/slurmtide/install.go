package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
)

// programs are what slurm.conf names; they lie beside this program in every package of ours.
var programs = []string{"resume", "suspend", "resume-fail", "start-gate"}

// installProgramsCommand is for init containers: the image has no shell and no cp.
func installProgramsCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "install-programs",
		Usage:     "copy resume, suspend, resume-fail and start-gate into a directory",
		ArgsUsage: "DIRECTORY",
		Description: "For an init container of the slurmctld pod: the programs must lie in slurmctld's file system, owned by root or SlurmUser\n" +
			"and writable by nobody else, or Slurm turns power saving off.",
		Flags: []urfave.Flag{
			&urfave.BoolFlag{Name: "reconfigure", Usage: "copy reconfigure, too, which runs beside slurmctld in a pod of the control plane"},
			&urfave.StringFlag{Name: "from", TakesFile: true, Usage: "directory that holds the programs (default: where this program lies)"},
		},
		Action: func(c *urfave.Context) error {
			if c.NArg() != 1 {
				return cli.UsageError("install-programs takes one directory, got %d arguments; see `%s --help`", c.NArg(), c.Command.HelpName)
			}
			from := c.String("from")
			if from == "" {
				self, err := ownDir()
				if err != nil {
					return fmt.Errorf("finding the programs: %w; name their directory with --from", err)
				}
				from = self
			}
			if c.Bool("reconfigure") {
				return installPrograms(append(slices.Clone(programs), "reconfigure"), from, c.Args().First())
			}
			return installPrograms(programs, from, c.Args().First())
		},
	}
}

func installPrograms(programs []string, from, to string) error {
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(from, name)); err != nil {
			return fmt.Errorf("installing programs: %w; name the directory that holds them with --from", err)
		}
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("installing programs: %w", err)
	}
	for _, name := range programs {
		if err := installProgram(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("installing %s: %w", name, err)
		}
	}
	return nil
}

// installProgram replaces the file in one step: slurmctld may start it at any moment.
func installProgram(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	tmp, err := os.CreateTemp(filepath.Dir(to), ".install-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if _, err := io.Copy(tmp, src); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := errors.Join(tmp.Chmod(0o755), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), to)
}
