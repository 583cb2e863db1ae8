// Package doctorcli is the command line of package doctor: its flags, what it prints, and its exit status.
package doctorcli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/doctor/gather"
	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// exitFound is for findings of severity error.
const exitFound = cli.ExitFailed

// ExitStatus is what help says of it.
const ExitStatus = "Exit status: 0 nothing is wrong, or there are warnings and hints alone; 1 errors were found, or slurm.conf cannot be read; 2 wrong usage."

// Flags are those of every doctor.
func Flags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "slurm-conf", TakesFile: true, EnvVars: []string{"SLURM_CONF"}, DefaultText: "/etc/slurm/slurm.conf", Usage: "the file to look at; gres.conf, cgroup.conf and slurmtide.conf are looked for beside it"},
		&urfave.StringFlag{Name: "slurm-version", DefaultText: "what scontrol on this host says, or " + gather.Newest.String(), Usage: "version of slurmctld, such as 24.11"},
		&urfave.GenericFlag{Name: "host", Value: cli.OneOf(string(gather.HostAuto), string(gather.HostYes), string(gather.HostNo), string(gather.HostAuto)),
			Usage: "whether this is slurmctld's host, so that programs, spool and keys are looked at: yes, no or auto"},
		cli.OutputFlag("text", "table", "json", "yaml"),
		&urfave.BoolFlag{Name: "fix", Usage: "print a unified diff (for patch -p1) that mends what an edit of slurm.conf can mend; the rest goes to standard error"},
	}
}

// Run looks, prints and returns the exit status as an error. more adds facts that files do not tell; nil: there are none.
func Run(c *urfave.Context, more func(*doctor.Facts) error) error {
	if err := cli.NoArguments(c, "name a file with --slurm-conf"); err != nil {
		return err
	}
	format, look := c.String("output"), gather.Host(c.String("host"))
	if c.Bool("fix") && c.IsSet("output") {
		return cli.UsageError("--fix prints a diff: leave --output out")
	}
	name := c.String("slurm-conf")
	if name == "" {
		settings, _ := spool.LoadSettings(os.Getenv)
		name = settings.SlurmConf
	}
	waits := cli.Waits(c.App.ErrWriter)
	over := waits("scontrol, which says its version")
	version, how, err := slurmVersion(c, name)
	over()
	if err != nil {
		return err
	}
	over = waits("the name service, which looks up nodes")
	facts, err := gather.Files(name, version, look)
	over()
	if err != nil {
		return err
	}
	if more != nil {
		if err := more(&facts); err != nil {
			return err
		}
	}
	r := Report{SlurmConf: name, SlurmVersion: version.String(), VersionFrom: how, Host: facts.Host != nil, Unread: facts.Unread, Findings: []Finding{}}
	findings := doctor.Check(facts)
	for _, f := range findings {
		r.Findings = append(r.Findings, finding(f))
	}
	if c.Bool("fix") {
		err = fix(facts, findings, r, c.App.Writer, c.App.ErrWriter)
	} else {
		err = r.print(c.App.Writer, format, cli.Draws(c.App.Writer, os.Getenv))
	}
	if err != nil {
		return err
	}
	if worst, ok := doctor.Worst(findings); ok && worst == doctor.Error {
		return urfave.Exit("", exitFound)
	}
	return nil
}

// slurmVersion is the version to look by, and where it is from.
func slurmVersion(c *urfave.Context, slurmConf string) (v slurmconf.Version, how string, err error) {
	if text := c.String("slurm-version"); text != "" {
		v, err := slurmconf.ParseVersion(text)
		if err != nil {
			return v, "", cli.UsageError("--slurm-version: %v", err)
		}
		return v, "as given", nil
	}
	if v, ok := gather.Version(c.Context, slurmConf); ok {
		return v, "scontrol says", nil
	}
	return gather.Newest, "a guess; --slurm-version says which", nil
}

// Report is what is printed as JSON or YAML.
type Report struct {
	SlurmConf    string `json:"slurmConf"`
	SlurmVersion string `json:"slurmVersion"`
	VersionFrom  string `json:"versionFrom"` // where that is from
	Host         bool   `json:"host"`        // programs, spool and keys of this host were looked at
	// Unread says what could not be looked at, and why: rules about it found nothing, which says nothing.
	Unread   []string  `json:"unread,omitempty"`
	Findings []Finding `json:"findings"` // errors first
}

// Finding is one of a Report.
type Finding struct {
	Rule     string          `json:"rule"`
	Severity doctor.Severity `json:"severity"`
	File     string          `json:"file,omitempty"`
	Line     int             `json:"line,omitempty"`
	Column   int             `json:"column,omitempty"`
	Seen     string          `json:"seen"`
	Why      string          `json:"why"`
	Remedy   string          `json:"remedy"`
	Fixable  bool            `json:"fixable"` // --fix mends it
	place    string
}

func finding(f doctor.Finding) Finding {
	return Finding{Rule: f.Rule, Severity: f.Severity, File: f.Position.File, Line: f.Position.Line, Column: f.Position.Column,
		Seen: f.Seen, Why: f.Why, Remedy: f.Remedy, Fixable: f.Fixable(), place: f.Position.String()}
}

func (r Report) print(w io.Writer, format string, colour bool) error {
	var text []byte
	var err error
	switch format {
	case "json":
		text, err = json.MarshalIndent(r, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(r)
	case "table":
		text, err = r.table()
	default:
		text = []byte(r.text(colour))
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// table is for people who look through many findings.
func (r Report) table() ([]byte, error) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SEVERITY\tRULE\tWHERE\tSEEN\tDO")
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.Severity, f.Rule, cmp.Or(f.place, "-"), f.Seen, f.Remedy)
	}
	err := w.Flush()
	return b.Bytes(), err
}

// text is for people.
func (r Report) text(colour bool) string {
	paint := func(code, text string) string {
		if !colour {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	codes := map[doctor.Severity]string{doctor.Error: "1;31", doctor.Warning: "1;33", doctor.Hint: "1;36"}
	var b strings.Builder
	count, fixable := map[doctor.Severity]int{}, 0
	for _, f := range r.Findings {
		count[f.Severity]++
		if f.Fixable {
			fixable++
		}
		if f.place != "" {
			b.WriteString(paint("1", f.place) + ": ")
		}
		fmt.Fprintf(&b, "%s: %s (%s)\n  why: %s\n  %s %s\n", paint(codes[f.Severity], f.Severity.String()), f.Seen, f.Rule, f.Why, paint("32", "do:"), f.Remedy)
	}
	if len(r.Findings) > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s, Slurm %s (%s): ", r.SlurmConf, r.SlurmVersion, r.VersionFrom)
	if len(r.Findings) == 0 {
		b.WriteString("nothing found.")
	} else {
		fmt.Fprintf(&b, "%s, %s, %s", plural(count[doctor.Error], "error"), plural(count[doctor.Warning], "warning"), plural(count[doctor.Hint], "hint"))
		if fixable > 0 {
			fmt.Fprintf(&b, "; --fix prints a diff for %d of them", fixable)
		}
		b.WriteString(".")
	}
	if !r.Host {
		b.WriteString(" Programs, spool and keys were not looked at; --host=yes does, on slurmctld's host.")
	}
	b.WriteString("\n")
	for _, what := range r.Unread {
		b.WriteString("Not looked at: " + what + "\n")
	}
	return b.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// fix prints the diff, and to stderr what it does not mend.
func fix(facts doctor.Facts, findings []doctor.Finding, r Report, stdout, stderr io.Writer) error {
	diff, err := doctor.Diff(facts, findings)
	if err != nil {
		return err
	}
	rest := r
	rest.Findings = nil
	for _, f := range r.Findings {
		if !f.Fixable {
			rest.Findings = append(rest.Findings, f)
		}
	}
	if len(rest.Findings) > 0 {
		if _, err := io.WriteString(stderr, rest.text(cli.Draws(stderr, os.Getenv))); err != nil {
			return err
		}
	}
	_, err = io.WriteString(stdout, diff)
	return err
}
