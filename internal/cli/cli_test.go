package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	urfave "github.com/urfave/cli/v2"
)

// testApp has a command "run" that prints its --spool and its arguments.
func testApp(action error) *urfave.App {
	return &urfave.App{
		Name: "prog", Version: "v1",
		Commands: []*urfave.Command{{
			Name: "run",
			Flags: []urfave.Flag{
				SpoolFlag(),
				&urfave.StringFlag{Name: "from", Aliases: []string{"f"}, EnvVars: []string{"TEST_FROM"}},
				&urfave.StringFlag{Name: "to"},
				&urfave.DurationFlag{Name: "wait"},
				&urfave.IntFlag{Name: "many"},
				OutputFlag("table", "json", "yaml"),
			},
			Action: func(c *urfave.Context) error {
				if err := Require(c, "from", "to"); err != nil {
					return err
				}
				if _, err := c.App.Writer.Write([]byte(c.String("spool") + "\n" + c.String("output") + "\n")); err != nil {
					return err
				}
				return action
			},
		}, {
			Name: "none", Subcommands: []*urfave.Command{{Name: "live"}},
			Action: func(c *urfave.Context) error { return NoArguments(c, "say it with a flag") },
		}, {
			Name: "group", Subcommands: []*urfave.Command{{Name: "member"}},
		}},
	}
}

func TestRun(t *testing.T) {
	tests := map[string]struct {
		args   string
		env    string
		action error
		code   int
		stdout string // what it contains; "" is nothing at all
		stderr string
	}{
		"runs":                   {args: "run --from a --to b", stdout: "/from/environment\ntable\n"},
		"spool given":            {args: "run --from a --to b --spool /x", stdout: "/x\ntable\n"},
		"fails":                  {args: "run --from a --to b", action: errors.New("broke"), code: ExitFailed, stdout: "\n", stderr: "prog: broke\n"},
		"own code":               {args: "run --from a --to b", action: urfave.Exit("odd", 7), code: 7, stdout: "\n", stderr: "prog: odd\n"},
		"only a code":            {args: "run --from a --to b", action: urfave.Exit("", 3), code: 3, stdout: "\n"},
		"nothing given":          {args: "run", code: ExitUsage, stderr: "prog: missing --from, --to; see `prog run --help`\n"},
		"one missing":            {args: "run --from a", code: ExitUsage, stderr: "prog: missing --to; see `prog run --help`\n"},
		"from the environment":   {args: "run --to b", env: "a", stdout: "\n"},
		"empty is missing":       {args: "run --from= --to b", code: ExitUsage, stderr: "prog: missing --from; see `prog run --help`\n"},
		"unknown flag":           {args: "run --form a", code: ExitUsage, stderr: "prog: unknown flag --form (did you mean --from?); see `prog run --help`\n"},
		"flag without its value": {args: "run --from", code: ExitUsage, stderr: "prog: flag --from needs a value; see `prog run --help`\n"},
		"no duration":            {args: "run --wait 5", code: ExitUsage, stderr: "prog: wrong value \"5\" for flag --wait: write a duration such as 500ms, 5s or 2m; see `prog run --help`\n"},
		"no such output":         {args: "run -o jsno", code: ExitUsage, stderr: "prog: wrong value \"jsno\" for flag -o: use table, json or yaml (did you mean json?); see `prog run --help`\n"},
		"output far from all":    {args: "run --output picture", code: ExitUsage, stderr: "prog: wrong value \"picture\" for flag --output: use table, json or yaml; see `prog run --help`\n"},
		"output in capitals":     {args: "run --from a --to b -o JSON", stdout: "\njson\n"},
		"an argument too many":   {args: "none x", code: ExitUsage, stderr: "prog: none takes no arguments, got \"x\"; say it with a flag\n"},
		"nearly a subcommand":    {args: "none lvie", code: ExitUsage, stderr: "prog: none takes no arguments, got \"lvie\" (did you mean live?); say it with a flag\n"},
		"no number":              {args: "run --many few", code: ExitUsage, stderr: "prog: wrong value \"few\" for flag --many: it cannot be read; see `prog run --help`\n"},
		"unknown short flag":     {args: "run -x", code: ExitUsage, stderr: "prog: unknown flag -x; see `prog run --help`\n"},
		"unknown command":        {args: "rnu", code: ExitUsage, stderr: "prog: unknown command \"rnu\" (did you mean run?); see `prog --help`\n"},
		"unknown subcommand":     {args: "group x", code: ExitUsage, stderr: "prog: unknown command \"x\"; see `prog group --help`\n"},
		"no command":             {stdout: "COMMANDS:\n   run"},
		"no subcommand":          {args: "group", stdout: "COMMANDS:\n   member"},
		"help, default of spool": {args: "run --help", stdout: `(default: "/from/environment")`},
		"help as a command":      {args: "help group member", stdout: "prog group member"},
		"version":                {args: "--version", stdout: "prog version v1\n"},
		"version as a command":   {args: "version", stdout: "prog version v1\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			app := testApp(tt.action)
			// Only now: settings are read by the command that needs them, not by making its flags.
			t.Setenv("SLURMTIDE_SPOOL", "/from/environment")
			t.Setenv("TEST_FROM", tt.env)
			var stdout, stderr bytes.Buffer
			code := Run(t.Context(), app, append([]string{"prog"}, strings.Fields(tt.args)...), nil, &stdout, &stderr)
			assert.Equal(t, tt.code, code)
			assert.Equal(t, tt.stderr, stderr.String())
			assert.Contains(t, stdout.String(), tt.stdout)
			assert.Equal(t, tt.stdout == "", stdout.Len() == 0, "standard output: %s", stdout.String())
		})
	}
}

func TestDidYouMean(t *testing.T) {
	tests := map[string]struct{ given, want string }{
		"one letter missing":  {"statu", " (did you mean status?)"},
		"two letters swapped": {"brigde", " (did you mean bridge?)"},
		"exactly":             {"status", " (did you mean status?)"},
		"far from all":        {"frobnicate", ""},
		"short":               {"x", ""},
		"empty":               {"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, didYouMean(tt.given, []string{"bridge", "status", "hostlist"}))
		})
	}
}

// What people type to a daemon's program, with its command's name and without, says what they want.
func TestDaemonArguments(t *testing.T) {
	tests := map[string]struct{ given, want string }{
		"nothing":             {"", "run"},
		"flags":               {"--from a", "run --from a"},
		"the command":         {"run --from a", "run --from a"},
		"another command":     {"none x", "none x"},
		"help":                {"help", "run --help"},
		"help of a command":   {"help none", "help none"},
		"help flag":           {"--help", "run --help"},
		"help, named":         {"run help", "run --help"},
		"version":             {"version", "--version"},
		"version flag":        {"--version", "--version"},
		"short version flag":  {"-v", "--version"},
		"version, named":      {"run version", "--version"},
		"version flag, named": {"run --version", "--version"},
		"a flag's value":      {"--from version", "run --from version"},
		"of another command":  {"none version", "none version"},
		"completion":          {CompleteCall + " run", CompleteCall + " run"},
		"an argument":         {"x", "run x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"prog"}, strings.Fields(tt.given)...)
			assert.Equal(t, append([]string{"prog"}, strings.Fields(tt.want)...), Daemon(args, "run", "none"))
			assert.Equal(t, append([]string{"prog"}, strings.Fields(tt.given)...), args, "left alone")
		})
	}
}
