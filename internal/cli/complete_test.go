package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	urfave "github.com/urfave/cli/v2"
)

// shellApp has commands of every sort; that of another program prints what it was asked for.
func shellApp() *urfave.App {
	return &urfave.App{
		Name: "prog", Version: "v1", UsageText: "prog COMMAND",
		Commands: []*urfave.Command{
			{Name: "status", Usage: "show it", Flags: []urfave.Flag{
				SpoolFlag(), OutputFlag("table", "json", "yaml"), &urfave.BoolFlag{Name: "short", Usage: "few words"}, &urfave.StringFlag{Name: "name"},
			}},
			{Name: "start", Usage: "begin\nit", ArgsUsage: "DIRECTORY"},
			{Name: "group", Subcommands: []*urfave.Command{{Name: "one"}, {Name: "two", ArgsUsage: "[HOSTLIST...]"}}},
			{Name: "daemon", SkipFlagParsing: true, BashComplete: func(c *urfave.Context) {
				_, _ = c.App.Writer.Write([]byte("asked: " + strings.Join(c.Args().Slice(), "|") + "\n"))
			}},
			{Name: "secret", Hidden: true},
		},
	}
}

func TestComplete(t *testing.T) {
	tests := map[string]struct{ typed, want string }{ // words by blanks; the last one may be empty
		"commands":           {"", "daemon\ngroup\nstart\tbegin it\nstatus\tshow it\n"},
		"some":               {"sta", "start\tbegin it\nstatus\tshow it\n"},
		"none":               {"x", ""},
		"subcommands":        {"group ", "one\ntwo\n"},
		"behind help":        {"help group t", "two\n"},
		"flags":              {"status --s", "--short\tfew words\n--spool\tspool directory shared with the programs that slurm.conf names\n"},
		"every flag":         {"status -", "--help\tshow help\n--name\n--output\ttable, json or yaml\n--short\tfew words\n--spool\tspool directory shared with the programs that slurm.conf names\n"},
		"of the program":     {"--v", "--version\tprint the version\n"},
		"values":             {"status --output ", "json\ntable\nyaml\n"},
		"behind the alias":   {"status -o j", "json\n"},
		"values with =":      {"status --output=y", "--output=yaml\n"},
		"as bash has them":   {"status --output = y", "--output=yaml\n"},
		"bash, nothing yet":  {"status --output =", "--output=json\n--output=table\n--output=yaml\n"},
		"files":              {"status --spool ", ":files\n"},
		"files with =":       {"status --spool=/var", ":files\n"},
		"any value":          {"status --name ", ""},
		"behind a value":     {"status --name x --sh", "--short\tfew words\n"},
		"behind = and value": {"status --name=x --sh", "--short\tfew words\n"},
		"behind no value":    {"status --short --sp", "--spool\tspool directory shared with the programs that slurm.conf names\n"},
		"directories":        {"start ", ":files\n"},
		"hostlists":          {"group two ", ""},
		"behind an argument": {"group x ", ""},
		"no flags any more":  {"group -- ", "one\ntwo\n"},
		"of another program": {"daemon --clu", "asked: --clu\n"},
		"all behind it":      {"daemon --output = j", "asked: --output=j\n"},
		"hidden":             {"se", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := Run(t.Context(), shellApp(), append([]string{"prog", CompleteCall}, strings.Split(tt.typed, " ")...), nil, &stdout, &stderr)
			assert.Zero(t, code)
			assert.Empty(t, stderr.String())
			assert.Equal(t, tt.want, stdout.String())
		})
	}
}

func TestManPages(t *testing.T) {
	app := shellApp()
	app.Commands[0].Description = "Asks.\n.not a request\n\nExit status: 0 all is well."
	app.Commands[2].Subcommands[0].Usage = `a-b \ c`
	app.Commands = append(app.Commands, &urfave.Command{Name: "bridge", Usage: "daemon of this program"})
	pages := ManPages(app)
	var names []string
	for name := range pages {
		names = append(names, name)
	}
	assert.ElementsMatch(t, []string{"prog.1", "prog-status.1", "prog-start.1", "prog-group.1", "prog-bridge.8"}, names)
	assert.Equal(t, `.\" Made from the command line: make generate
.TH PROG\-STATUS 1 "" Slurmtide
.SH NAME
prog\-status \- show it
.SH SYNOPSIS
\fBprog status\fR [\fIoptions\fR]
.SH DESCRIPTION
Asks.
\&.not a request
.PP
Exit status: 0 all is well.
.SH OPTIONS
.TP
\fB\-\-spool\fR \fIvalue\fR
spool directory shared with the programs that slurm.conf names
.TP
\fB\-\-output\fR, \fB\-o\fR \fIvalue\fR
table, json or yaml (default: table)
.TP
\fB\-\-short\fR
few words
.TP
\fB\-\-name\fR \fIvalue\fR

.SH SEE ALSO
\fBprog\fR(1)
`, pages["prog-status.1"])
	assert.Contains(t, pages["prog-group.1"], ".SH COMMANDS\n.SS prog group one\n\\fBprog group one\\fR\n.PP\na\\-b \\e c.\n.SS prog group two\n")
	assert.Contains(t, pages["prog.1"], ".TP\n\\fBdaemon\\fR\n: \\fBprog\\-daemon\\fR(1).\n")
	app.UsageText = ""
	assert.NotContains(t, ManPages(app), "prog.1", "another program has the overview")
}
