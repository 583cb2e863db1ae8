// Command slurmtide is the program of Slurmtide: its daemons and what people use.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// commands lists what slurmtide can do. Each lives in a file of its own.
func commands() []*cli.Command {
	return []*cli.Command{
		bridgeCommand(),
		statusCommand(),
		hostlistCommand(),
		installProgramsCommand(),
	}
}

// Exit codes of every command; a command may add its own above them.
const (
	exitFailed = 1
	exitUsage  = 2
)

// run returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := &cli.App{
		Name:            "slurmtide",
		Usage:           "run Slurm nodes as Kubernetes pods, from zero and back",
		UsageText:       "slurmtide COMMAND [options]",
		Version:         version,
		Commands:        commands(),
		HideHelpCommand: true,
		Reader:          stdin,
		Writer:          stdout,
		ErrWriter:       stderr,
		// Errors come back to us instead of ending the process.
		ExitErrHandler: func(*cli.Context, error) {},
		Action:         helpOrUnknown,
		OnUsageError:   explainFlagError,
	}
	for _, c := range app.Commands {
		prepare(c)
	}
	if len(args) > 1 && args[1] == "help" {
		args = append(append([]string{args[0]}, args[2:]...), "--help")
	}
	err := app.RunContext(ctx, args)
	if err == nil {
		return 0
	}
	if err.Error() != "" { // an exit code may be all there is to say
		fmt.Fprintf(stderr, "slurmtide: %v\n", err)
	}
	var coded cli.ExitCoder
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	if strings.HasPrefix(err.Error(), "Required flag") { // cli does not export the type
		return exitUsage
	}
	return exitFailed
}

// prepare gives c and its subcommands the same answers to wrong usage.
func prepare(c *cli.Command) {
	c.HideHelpCommand = true
	c.OnUsageError = explainFlagError
	if c.Action == nil {
		c.Action = helpOrUnknown
	}
	for _, sub := range c.Subcommands {
		prepare(sub)
	}
}

// usageError is for wrong flags and arguments; it ends in exit code 2.
func usageError(format string, args ...any) error {
	return cli.Exit(fmt.Sprintf(format, args...), exitUsage)
}

// helpOrUnknown is what a command does that has only subcommands.
func helpOrUnknown(c *cli.Context) error {
	if !c.Args().Present() {
		return cli.ShowSubcommandHelp(c)
	}
	var names []string
	for _, sub := range c.Command.VisibleCommands() {
		names = append(names, sub.Name)
	}
	return usageError("unknown command %q%s; see `%s --help`", c.Args().First(), didYouMean(c.Args().First(), names), c.Command.HelpName)
}

// explainFlagError adds the flag that was probably meant, and where to read more.
func explainFlagError(c *cli.Context, err error, _ bool) error {
	problem := err.Error()
	if name, ok := strings.CutPrefix(problem, "flag provided but not defined: -"); ok {
		names := []string{"help"}
		for _, f := range c.Command.Flags {
			names = append(names, f.Names()...)
		}
		for i, n := range names {
			names[i] = dashed(n)
		}
		name = dashed(strings.TrimLeft(name, "-"))
		problem = fmt.Sprintf("unknown flag %s%s", name, didYouMean(name, names))
	}
	return usageError("%s; see `%s --help`", problem, c.Command.HelpName)
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// didYouMean returns a remark with the name nearest to given, "" when none is near.
func didYouMean(given string, names []string) string {
	best, least := "", len(given)/3+2
	for _, n := range names {
		if d := distance(given, n); d < least {
			best, least = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// distance counts the letters to insert, remove or replace on the way from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := []int{i + 1}
		for j := range len(b) {
			replace := row[j]
			if a[i] != b[j] {
				replace++
			}
			next = append(next, min(replace, row[j+1]+1, next[j]+1))
		}
		row = next
	}
	return row[len(b)]
}
