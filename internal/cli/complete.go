package cli

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
)

// What programs answer to beside their commands: shells and make generate call them so.
const (
	// CompleteCall is followed by the words after the program's name; the last is the one that is being written.
	CompleteCall = "__complete"
	manCall      = "__man" // and the directory to write manual pages to
)

// Completion is what may stand where the last of some words stands.
type Completion struct {
	Words []Candidate
	Files bool // the names of files, too
	// Elsewhere is a command of another program, which knows what may stand behind it, and Rest the words from there on.
	Elsewhere *urfave.Command
	Rest      []string
}

// Candidate is one word, and what it is for.
type Candidate struct{ Word, Usage string }

// Complete says how the last of words may go on. A command with a BashComplete is another program's: that is called with the words behind it.
func Complete(app *urfave.App, words []string) Completion {
	words = joined(words)
	if len(words) > 1 && words[0] == "help" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	current, before := words[len(words)-1], words[:len(words)-1]
	commands, flags := app.Commands, []urfave.Flag{urfave.VersionFlag}
	args, flagsEnd := "", false
	for i := 0; i < len(before); i++ {
		word := before[i]
		switch {
		case flagsEnd:
		case word == "--":
			flagsEnd = true
		case len(word) > 1 && word[0] == '-':
			name, _, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
			f := findFlag(flags, name)
			if f == nil || given || !takesValue(f) {
				break
			}
			if i++; i == len(before) {
				return complete(values(f, "", current), current)
			}
		default:
			at := slices.IndexFunc(commands, func(c *urfave.Command) bool { return c.HasName(word) })
			if at < 0 {
				commands = nil // behind an argument there are no commands
				break
			}
			c := commands[at]
			if c.BashComplete != nil {
				return Completion{Elsewhere: c, Rest: words[i+1:]}
			}
			commands, flags, args = c.Subcommands, c.Flags, c.ArgsUsage
		}
	}
	var found Completion
	if strings.HasPrefix(current, "-") && !flagsEnd {
		if dashes, _, given := strings.Cut(current, "="); given {
			if f := findFlag(flags, strings.TrimLeft(dashes, "-")); f != nil && takesValue(f) {
				found = values(f, dashes+"=", current)
			}
			return complete(found, current)
		}
		found.Words = append(found.Words, Candidate{"--help", "show help"})
		for _, f := range flags {
			if doc, ok := f.(urfave.DocGenerationFlag); ok {
				found.Words = append(found.Words, Candidate{dashed(f.Names()[0]), doc.GetUsage()})
			}
		}
		return complete(found, current)
	}
	for _, c := range commands {
		if !c.Hidden {
			found.Words = append(found.Words, Candidate{c.Name, c.Usage})
		}
	}
	found.Files = strings.Contains(args, "FILE") || strings.Contains(args, "DIRECTORY")
	return complete(found, current)
}

// joined puts together what bash takes apart: --output = json.
func joined(words []string) []string {
	var out []string
	for i := 0; i < len(words); i++ {
		if last := len(out) - 1; words[i] == "=" && last >= 0 && strings.HasPrefix(out[last], "--") && !strings.Contains(out[last], "=") {
			out[last] += "="
			if i++; i < len(words) {
				out[last] += words[i]
			}
			continue
		}
		out = append(out, words[i])
	}
	return out
}

// complete leaves what current may become.
func complete(c Completion, current string) Completion {
	c.Words = slices.DeleteFunc(c.Words, func(w Candidate) bool { return !strings.HasPrefix(w.Word, current) })
	slices.SortFunc(c.Words, func(a, b Candidate) int { return strings.Compare(a.Word, b.Word) })
	return c
}

// values are those of a flag, each behind a prefix.
func values(f urfave.Flag, prefix, current string) Completion {
	var found Completion
	if spool, ok := f.(spoolFlag); ok {
		f = spool.StringFlag
	}
	switch f := f.(type) {
	case *urfave.StringFlag:
		found.Files = f.TakesFile
	case *urfave.GenericFlag:
		if o, ok := f.Value.(*oneOf); ok {
			for _, word := range o.words {
				found.Words = append(found.Words, Candidate{prefix + word, ""})
			}
		}
	}
	return complete(found, current)
}

func findFlag(flags []urfave.Flag, name string) urfave.Flag {
	i := slices.IndexFunc(flags, func(f urfave.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return nil
	}
	return flags[i]
}

func takesValue(f urfave.Flag) bool {
	doc, ok := f.(urfave.DocGenerationFlag)
	return ok && doc.TakesValue()
}

// printCompletion writes one word a line, and behind a tab what it is for; ":files" in the end asks for the names of files.
func printCompletion(app *urfave.App, words []string, w io.Writer) error {
	found := Complete(app, words)
	if c := found.Elsewhere; c != nil {
		set := flag.NewFlagSet(c.Name, flag.ContinueOnError)
		if err := set.Parse(append([]string{"--"}, found.Rest...)); err != nil {
			return err
		}
		c.BashComplete(urfave.NewContext(app, set, nil))
		return nil
	}
	var out strings.Builder
	for _, word := range found.Words {
		out.WriteString(word.Word)
		if word.Usage != "" {
			out.WriteString("\t" + strings.ReplaceAll(word.Usage, "\n", " "))
		}
		out.WriteString("\n")
	}
	if found.Files {
		fmt.Fprintln(&out, ":files")
	}
	_, err := io.WriteString(w, out.String())
	return err
}
