package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
)

// daemons are described in section 8 of the manual, all else in section 1.
var daemons = []string{"bridge", "controller", "exporter", "scaler"}

// ManPages are the manual pages of a program's commands by file name, in roff, and, if the app has a UsageText, that of the program itself. Commands that are
// other programs' (they have a BashComplete) are left to those.
func ManPages(app *urfave.App) map[string]string {
	pages := map[string]string{}
	var all []string
	for _, c := range app.Commands {
		if c.Hidden {
			continue
		}
		all = append(all, page(app.Name, c))
		if c.BashComplete == nil {
			pages[page(app.Name, c)] = manPage(app.Name, c)
		}
	}
	if app.UsageText == "" {
		return pages
	}
	var b strings.Builder
	head(&b, app.Name, "1", app.Usage)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", roff(app.UsageText))
	paragraphs(&b, ".SH DESCRIPTION", app.Description)
	b.WriteString(".SH COMMANDS\n")
	for i, c := range slices.DeleteFunc(slices.Clone(app.Commands), func(c *urfave.Command) bool { return c.Hidden }) {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s: %s.\n", roff(c.Name), roff(c.Usage), reference(all[i]))
	}
	b.WriteString(".SH ENVIRONMENT\n.TP\n\\fBNO_COLOR\\fR\nIf it is set and not empty there are no colours. There are none either where output is no terminal.\n" +
		".TP\n\\fBSLURM_CONF\\fR\nslurm.conf, if not /etc/slurm/slurm.conf; slurmtide.conf lies beside it.\n")
	b.WriteString(".SH EXIT STATUS\n0: it is done. 1: it has failed. 2: wrong usage. Commands may have more.\n")
	pages[app.Name+".1"] = b.String()
	return pages
}

// page is the file name of a command's page.
func page(program string, c *urfave.Command) string {
	section := "1"
	if slices.Contains(daemons, c.Name) {
		section = "8"
	}
	return program + "-" + strings.ReplaceAll(cmp.Or(c.HelpName, c.Name), " ", "-") + "." + section
}

func manPage(program string, c *urfave.Command) string {
	name, section, _ := strings.Cut(page(program, c), ".")
	var b strings.Builder
	head(&b, name, section, c.Usage)
	b.WriteString(".SH SYNOPSIS\n")
	command(&b, ".SH ", program+" "+cmp.Or(c.HelpName, c.Name), c)
	fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", reference(program+".1"))
	return b.String()
}

// command writes what a page, or a section of it, says of a command.
func command(b *strings.Builder, section, name string, c *urfave.Command) {
	flags := c.VisibleFlags()
	fmt.Fprintf(b, "\\fB%s\\fR", roff(name))
	if len(flags) > 0 {
		b.WriteString(" [\\fIoptions\\fR]")
	}
	if args := c.ArgsUsage; args != "" {
		fmt.Fprintf(b, " %s", roff(args))
	} else if len(c.Subcommands) > 0 {
		b.WriteString(" [\\fIcommand\\fR]")
	}
	b.WriteString("\n")
	if section == ".SS " {
		fmt.Fprintf(b, ".PP\n%s.\n", roff(c.Usage))
		paragraphs(b, ".PP", c.Description)
	} else {
		paragraphs(b, ".SH DESCRIPTION", c.Description)
		if len(flags) > 0 {
			b.WriteString(".SH OPTIONS\n")
		}
	}
	for _, f := range flags {
		option(b, f)
	}
	for _, sub := range c.Subcommands {
		if sub.Hidden {
			continue
		}
		if section == ".SH " {
			b.WriteString(".SH COMMANDS\n")
			section = ".SS "
		}
		fmt.Fprintf(b, ".SS %s\n", roff(name+" "+sub.Name))
		if sub.BashComplete != nil {
			fmt.Fprintf(b, "%s: %s.\n", roff(sub.Usage), reference(strings.ReplaceAll(name+" "+sub.Name, " ", "-")+".1"))
			continue
		}
		command(b, ".SS ", name+" "+sub.Name, sub)
	}
}

// option writes what there is to say of a flag.
func option(b *strings.Builder, f urfave.Flag) {
	doc, ok := f.(urfave.DocGenerationFlag)
	if !ok {
		return
	}
	var names []string
	for _, n := range f.Names() {
		names = append(names, "\\fB"+roff(dashed(n))+"\\fR")
	}
	b.WriteString(".TP\n" + strings.Join(names, ", "))
	if doc.TakesValue() {
		b.WriteString(" \\fIvalue\\fR")
	}
	text := doc.GetUsage()
	if value := strings.Trim(cmp.Or(doc.GetDefaultText(), doc.GetValue()), `"`); doc.TakesValue() && value != "" {
		text += " (default: " + value + ")"
	}
	if env := doc.GetEnvVars(); len(env) > 0 {
		text += " [$" + strings.Join(env, ", $") + "]"
	}
	b.WriteString("\n" + roff(text) + "\n")
}

func head(b *strings.Builder, name, section, usage string) {
	fmt.Fprintf(b, ".\\\" Made from the command line: make generate\n.TH %s %s \"\" Slurmtide\n.SH NAME\n%s \\- %s\n", roff(strings.ToUpper(name)), section, roff(name), roff(usage))
}

// reference names another page.
func reference(page string) string {
	name, section, _ := strings.Cut(page, ".")
	return fmt.Sprintf("\\fB%s\\fR(%s)", roff(name), section)
}

// paragraphs writes a text of paragraphs, which empty lines part.
func paragraphs(b *strings.Builder, heading, text string) {
	for _, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if p == "" {
			continue
		}
		b.WriteString(heading + "\n")
		for _, line := range strings.Split(p, "\n") {
			b.WriteString(roff(strings.TrimSpace(line)) + "\n")
		}
		heading = ".PP"
	}
}

// roff is text that roff takes as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

func writeManPages(app *urfave.App, dir string) error {
	for name, text := range ManPages(app) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing manual pages: %w", err)
		}
	}
	return nil
}
