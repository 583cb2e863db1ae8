package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/slurmconf"
)

func hostlistCommand() *urfave.Command {
	const list = "[HOSTLIST...]"
	const input = "Hostlists and names come from the arguments, or from standard input when there are none (or only \"-\"):\n" +
		"separated by commas, blanks or lines. Order and duplicates are kept.\n\n"
	return &urfave.Command{
		Name:      "hostlist",
		Usage:     "expand, compress and count Slurm hostlists such as n[01-20,35]",
		UsageText: "slurmtide hostlist COMMAND [options] [HOSTLIST...]",
		Subcommands: []*urfave.Command{
			{
				Name: "expand", ArgsUsage: list,
				Usage:       "print every name, one a line (as `scontrol show hostnames`)",
				Description: input + "Example: slurmtide hostlist expand 'r[1-2]n[08-10]'",
				Flags: []urfave.Flag{
					&urfave.StringFlag{Name: "separator", Aliases: []string{"s"}, Value: "\n", DefaultText: "newline", Usage: "what stands between two names, such as a comma for mpirun --host"},
				},
				Action: func(c *urfave.Context) error {
					h, err := readHostlist(c)
					if err != nil {
						return err
					}
					return h.WriteNames(c.App.Writer, c.String("separator"))
				},
			},
			{
				Name: "compress", ArgsUsage: list,
				Usage:       "print the names as one hostlist (as `scontrol show hostlist`)",
				Description: input + "Example: kubectl get pods -o name | cut -d/ -f2 | slurmtide hostlist compress",
				Action: func(c *urfave.Context) error {
					h, err := readHostlist(c)
					if err != nil {
						return err
					}
					_, err = fmt.Fprintln(c.App.Writer, h)
					return err
				},
			},
			{
				Name: "count", ArgsUsage: list,
				Usage:       "print the number of names",
				Description: input + "Example: sinfo -h -o %N | slurmtide hostlist count",
				Action: func(c *urfave.Context) error {
					h, err := readHostlist(c)
					if err != nil {
						return err
					}
					_, err = fmt.Fprintln(c.App.Writer, h.Len())
					return err
				},
			},
		},
	}
}

// readHostlist reads the arguments or standard input as one list.
func readHostlist(c *urfave.Context) (slurmconf.Hostlist, error) {
	args := c.Args().Slice()
	if len(args) == 0 || len(args) == 1 && args[0] == "-" {
		return readHostlistFrom(c.App.Reader)
	}
	var none slurmconf.Hostlist
	var lists []slurmconf.Hostlist
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			return none, cli.UsageError("argument %q looks like a flag: flags come before the hostlists; see `%s --help`", arg, c.Command.HelpName)
		}
		h, err := slurmconf.ParseHostlist(arg)
		switch {
		case err != nil && len(args) > 1:
			return none, fmt.Errorf("argument %d: %w", i+1, err)
		case err != nil:
			return none, err
		}
		lists = append(lists, h)
	}
	return none.Append(lists...), nil
}

func readHostlistFrom(r io.Reader) (slurmconf.Hostlist, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return slurmconf.Hostlist{}, fmt.Errorf("reading standard input: %w", err)
	}
	in := string(data)
	h, err := slurmconf.ParseHostlist(in)
	if bad, ok := errors.AsType[*slurmconf.HostlistError](err); ok {
		before := in[:bad.Offset]
		bad.Offset -= strings.LastIndexByte(before, '\n') + 1
		return h, fmt.Errorf("standard input, line %d: %w", strings.Count(before, "\n")+1, bad)
	}
	return h, err
}
