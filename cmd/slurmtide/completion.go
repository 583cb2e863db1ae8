package main

import (
	"embed"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
)

// The scripts ask this program what may stand where the cursor is.
//
//go:embed completion
var completions embed.FS

func completionCommand() *urfave.Command {
	shell := func(name, usage, example string) *urfave.Command {
		return &urfave.Command{
			Name: name, Usage: usage, Description: example,
			Action: func(c *urfave.Context) error {
				if err := cli.NoArguments(c, ""); err != nil {
					return err
				}
				script, err := completions.ReadFile("completion/slurmtide." + name)
				if err == nil {
					_, err = c.App.Writer.Write(script)
				}
				return err
			},
		}
	}
	return &urfave.Command{
		Name:  "completion",
		Usage: "print what makes a shell complete commands, flags and their values",
		Subcommands: []*urfave.Command{
			shell("bash", "for bash", "Once: slurmtide completion bash > /etc/bash_completion.d/slurmtide\nIn this shell alone: source <(slurmtide completion bash)"),
			shell("zsh", "for zsh", "Once, into a directory of $fpath: slurmtide completion zsh > /usr/local/share/zsh/site-functions/_slurmtide\nIn this shell alone, after compinit: source <(slurmtide completion zsh)"),
			shell("fish", "for fish", "Once: slurmtide completion fish > ~/.config/fish/completions/slurmtide.fish\nIn this shell alone: slurmtide completion fish | source"),
		},
	}
}
