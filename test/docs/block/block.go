// Package block reads the commands of the user guide, so that tests can run them. A fence of commands (```console) has a mark on the line before:
//
//	<!-- run -->                         TestRun of test/docs runs it
//	<!-- run by TestX: words, words -->  TestX runs it: each word stands in the block and among the files of that test, each command has one
//	<!-- run on a cluster -->            TestGuideCommands of test/integration runs it, before the cluster that the charts make
//	<!-- not run: why -->
//
// A fence of output (```text) has <!-- output of TestX -->, whose files have its lines, or says why not (<!-- not run: … -->).
package block

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// OnCluster is the mark of what TestGuideCommands runs.
const OnCluster = "run on a cluster"

// Block is what a fence encloses.
type Block struct {
	Page string // from the repository's root, with slashes
	Line int    // of the fence
	Lang string // "console"; empty if the fence does not say
	Mark string // what the comment on the line before says; empty if there is none
	Text string // without the fence's indentation
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Shell says whether the block is of commands for a shell.
func (b Block) Shell() bool {
	return slices.Contains([]string{"console", "sh", "bash", "shell"}, b.Lang)
}

// Command is one command of a block: several lines if it goes on with | or \, and the output that the block shows of it.
type Command struct{ Text, Output string }

// prompt is that of users who show where they are; a block with "$ " or "alice@login$ " has output on its other lines.
var prompt = regexp.MustCompile(`^([a-z]+@[a-z]+)?\$ `)

// Commands are the block's.
func (b Block) Commands() []Command {
	lines := strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n")
	prompts := slices.ContainsFunc(lines, prompt.MatchString)
	var all []Command
	goesOn := false
	for _, line := range lines {
		at := prompt.FindString(line)
		switch {
		case goesOn:
			all[len(all)-1].Text += "\n" + line
		case prompts && at == "":
			if len(all) > 0 {
				all[len(all)-1].Output += line + "\n"
			}
			continue
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			continue
		default:
			all = append(all, Command{Text: strings.TrimPrefix(line, at)})
		}
		goesOn = strings.HasSuffix(line, "|") || strings.HasSuffix(line, "\\")
	}
	return all
}

var mark = regexp.MustCompile(`^\s*<!-- (.+) -->\s*$`)

// Read returns the blocks of a page's text.
func Read(page, text string) []Block {
	var all []Block
	var open *Block
	fence, indent := "", ""
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		if open != nil {
			if trimmed == fence {
				all, open = append(all, *open), nil
				continue
			}
			open.Text += strings.TrimPrefix(line, indent) + "\n"
			continue
		}
		ticks := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		if len(ticks) < 3 {
			continue
		}
		open = &Block{Page: page, Line: i + 1, Lang: strings.TrimPrefix(trimmed, ticks)}
		fence, indent = ticks, line[:strings.Index(line, ticks)]
		if i > 0 {
			if m := mark.FindStringSubmatch(lines[i-1]); m != nil {
				open.Mark = m[1]
			}
		}
	}
	return all
}

// Pages are the pages of the guide below root: README.md, CONTRIBUTING.md, all of docs/, and each README.md of helm/ and hack/.
func Pages(root string) ([]string, error) {
	pages := []string{"README.md", "CONTRIBUTING.md"}
	for _, dir := range []string{"docs", "helm", "hack"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(file string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(file, ".md") && (dir == "docs" || filepath.Base(file) == "README.md") {
				page, inside := filepath.Rel(root, file)
				pages, err = append(pages, filepath.ToSlash(page)), inside
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// All are the blocks of all pages, in their order.
func All(root string) ([]Block, error) {
	pages, err := Pages(root)
	var all []Block
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return nil, err
		}
		all = append(all, Read(page, string(text))...)
	}
	return all, err
}
