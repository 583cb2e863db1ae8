// Package cli is what the command lines of our programs have in common: exit codes, help
// at every depth, and answers to wrong usage that say what was wrong and what was probably
// meant. Commands themselves are plain commands of urfave/cli.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/spelling"
)

// Exit codes of every command; a command may add its own above them.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// Run runs app, of which the caller sets Name, Usage, UsageText, Version and Commands, and
// returns the exit code. An error goes to stderr as one line after the app's name; its
// code is the error's own when it is an urfave.ExitCoder, and ExitFailed otherwise.
func Run(ctx context.Context, app *urfave.App, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app.HideHelpCommand = true
	app.Reader, app.Writer, app.ErrWriter = stdin, stdout, stderr
	// Errors come back to us instead of ending the process.
	app.ExitErrHandler = func(*urfave.Context, error) {}
	app.Action = helpOrUnknown
	app.OnUsageError = explainFlagError
	for _, c := range app.Commands {
		prepare(c)
	}
	if len(args) > 1 {
		switch args[1] {
		case CompleteCall:
			return ended(app, printCompletion(app, args[2:], stdout))
		case manCall:
			return ended(app, writeManPages(app, strings.Join(args[2:], "")))
		case "help":
			args = append(append([]string{args[0]}, args[2:]...), "--help")
		case "version":
			args = []string{args[0], "--version"}
		}
	}
	return ended(app, app.RunContext(ctx, args))
}

// ended says what went wrong, if anything did, and gives the exit code.
func ended(app *urfave.App, err error) int {
	if err == nil {
		return 0
	}
	if err.Error() != "" { // an exit code may be all there is to say
		fmt.Fprintf(app.ErrWriter, "%s: %v\n", app.Name, err)
	}
	if coded, ok := errors.AsType[urfave.ExitCoder](err); ok {
		return coded.ExitCode()
	}
	return ExitFailed
}

// prepare gives c and its subcommands the same answers to wrong usage.
func prepare(c *urfave.Command) {
	c.HideHelpCommand = true
	c.OnUsageError = explainFlagError
	if c.Action == nil {
		c.Action = helpOrUnknown
	}
	for _, sub := range c.Subcommands {
		prepare(sub)
	}
}

// UsageError is for wrong flags and arguments; it ends in ExitUsage.
func UsageError(format string, args ...any) error {
	return urfave.Exit(fmt.Sprintf(format, args...), ExitUsage)
}

// Require is for the start of an action: it returns a usage error that names those of the
// string flags that are empty. The library's own required flags would print the whole help
// on standard output.
func Require(c *urfave.Context, flags ...string) error {
	var missing []string
	for _, name := range flags {
		if c.String(name) == "" {
			missing = append(missing, dashed(name))
		}
	}
	if missing == nil {
		return nil
	}
	return UsageError("missing %s; see `%s --help`", strings.Join(missing, ", "), c.Command.HelpName)
}

// helpOrUnknown is what a command does that has only subcommands.
func helpOrUnknown(c *urfave.Context) error {
	if !c.Args().Present() {
		return urfave.ShowSubcommandHelp(c)
	}
	var names []string
	for _, sub := range c.Command.VisibleCommands() {
		names = append(names, sub.Name)
	}
	return UsageError("unknown command %q%s; see `%s --help`", c.Args().First(), didYouMean(c.Args().First(), names), c.Command.HelpName)
}

// explainFlagError adds the flag that was probably meant, and where to read more.
func explainFlagError(c *urfave.Context, err error, _ bool) error {
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
	} else if name, ok := strings.CutPrefix(problem, "flag needs an argument: -"); ok {
		problem = fmt.Sprintf("flag %s needs a value", dashed(strings.TrimLeft(name, "-")))
	} else if value, name, why, ok := badValue(problem); ok {
		if why == "parse error" {
			why = "it cannot be read"
			for _, f := range c.Command.Flags {
				if _, isDuration := f.(*urfave.DurationFlag); isDuration && slices.Contains(f.Names(), name) {
					why = "write a duration such as 500ms, 5s or 2m"
				}
			}
		}
		problem = fmt.Sprintf("wrong value %s for flag %s: %s", value, dashed(name), why)
	}
	return UsageError("%s; see `%s --help`", problem, c.Command.HelpName)
}

// badValue takes apart what package flag says of a value: invalid value "5" for flag -timeout: parse error.
func badValue(problem string) (value, name, why string, ok bool) {
	rest, ok := strings.CutPrefix(problem, "invalid value ")
	if !ok {
		return "", "", "", false
	}
	value, rest, ok = strings.Cut(rest, " for flag -")
	if !ok {
		return "", "", "", false
	}
	name, why, ok = strings.Cut(rest, ": ")
	return value, name, why, ok
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// didYouMean returns a remark with the name nearest to given, "" when none is near.
func didYouMean(given string, names []string) string {
	if best := spelling.Nearest(given, names); best != "" {
		return fmt.Sprintf(" (did you mean %s?)", best)
	}
	return ""
}

// Daemon is the command line of a daemon's program. slurmtide passes on what it was called with: slurmtide
// bridge --cluster c. Somebody who starts the program directly need not say bridge. others are commands that it has, too.
// A daemon takes no arguments: help and version in their place are what they are everywhere.
func Daemon(args []string, command string, others ...string) []string {
	if len(args) < 2 {
		return append(slices.Clone(args), command)
	}
	program, rest := args[0], args[1:]
	if rest[0] == CompleteCall || rest[0] == manCall || slices.Contains(others, rest[0]) || rest[0] == "help" && len(rest) > 1 {
		return args
	}
	if rest[0] == command {
		rest = rest[1:]
	}
	if len(rest) > 0 {
		switch rest[0] {
		case "help":
			rest = []string{"--help"}
		case "version", "--version", "-v":
			return []string{program, "--version"}
		}
	}
	return append([]string{program, command}, rest...)
}
