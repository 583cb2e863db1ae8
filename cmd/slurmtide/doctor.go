package main

import (
	"fmt"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/doctorcli"
)

func doctorCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "doctor",
		Usage: "look for what in slurm.conf keeps nodes from coming and going",
		Description: "Reads slurm.conf with what it includes, and gres.conf, cgroup.conf and slurmtide.conf beside it; on slurmctld's host also the modes and\n" +
			"owners of programs, spool and keys. docs/doctor.md has all rules.\n\n" + doctorcli.ExitStatus,
		Flags: doctorcli.Flags(),
		Subcommands: []*urfave.Command{{
			Name:            "live",
			Usage:           "look at NodeSets, rights, slurmrestd, clocks and name service, too",
			SkipFlagParsing: true, // flags, --help among them, are the bridge's program's, which has the clients
			BashComplete:    func(c *urfave.Context) { elsewhere("slurmtide-bridge", "doctor", c) },
			Action: func(c *urfave.Context) error {
				return fmt.Errorf("starting the doctor: %w", become("slurmtide-bridge", "doctor", c.Args().Slice()))
			},
		}},
		Action: func(c *urfave.Context) error { return doctorcli.Run(c, nil) },
	}
}
