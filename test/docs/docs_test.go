// Package docs keeps the documentation honest: the tests that it names are there.
package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../"

// function is what a function of tests has: the names of subtests, and of what it may call.
type function struct{ subtests, uses map[string]bool }

// tests are the functions of a package's tests.
type tests map[string]function

// has says whether a test has a subtest, itself or by what it calls. Methods go by their names alone.
func (of tests) has(test, subtest string) bool {
	seen := map[string]bool{}
	var look func(name string) bool
	look = func(name string) bool {
		f, known := of[name]
		if !known || seen[name] {
			return false
		}
		seen[name] = true
		return f.subtests[subtest] || slices.ContainsFunc(slices.Collect(maps.Keys(f.uses)), look)
	}
	return look(test)
}

// repository reads the tests of every package, whatever their build tags, by directory.
func repository(t *testing.T) map[string]tests {
	t.Helper()
	all := map[string]tests{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if all[dir] == nil {
			all[dir] = tests{}
		}
		for _, decl := range file.Decls {
			all[dir].add(decl)
		}
		return nil
	}))
	return all
}

// add notes a function, or a table that stands outside of one.
func (of tests) add(decl ast.Decl) {
	f := function{map[string]bool{}, map[string]bool{}}
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if of[decl.Name.Name].uses != nil { // the same in a file with other tags, or of another type
			f = of[decl.Name.Name]
		}
		of[decl.Name.Name] = f
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range values.Names {
					of[name.Name] = f
				}
			}
		}
	}
	called := func(name ast.Expr) {
		if literal, ok := name.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				f.subtests[text] = true
			}
		}
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			f.uses[n.Name] = true
		case *ast.KeyValueExpr: // of a table
			called(n.Key)
		case *ast.CallExpr: // t.Run, or what the package has in its place
			if len(n.Args) == 2 {
				called(n.Args[0])
			}
		}
		return true
	})
}

// word is something that tells of tests: a package, "real", a test, a subtest.
var word = regexp.MustCompile("`([a-z0-9/-]+)`:|\\b(real):|`(Test\\w+)`|\"([^\"]+)\"")

// missing are the tests in a text that are not where it says. named is how many there are.
func missing(text string, have map[string]tests) (named int, problems []string) {
	dir, test := "", ""
	for _, m := range word.FindAllStringSubmatch(text, -1) {
		switch {
		case m[1] != "":
			dir, test = m[1], ""
		case m[2] != "":
			dir, test = "test/integration", ""
		case m[3] != "":
			named, test = named+1, m[3]
			if _, ok := have[dir][test]; !ok {
				problems = append(problems, fmt.Sprintf("package %q has no %s", dir, test))
			}
		case test == "":
			problems = append(problems, fmt.Sprintf("%q is a subtest of no test", m[4]))
		case !have[dir].has(test, m[4]):
			problems = append(problems, fmt.Sprintf("package %q has no test %s, %q", dir, test, m[4]))
		}
	}
	return named, problems
}

// wrong is what is wrong with a table of features: `| number | feature | others | others | here | by what |`.
func wrong(table string, have map[string]tests) (rows int, problems []string) {
	numbers := map[string]bool{}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		number, by := strings.TrimSpace(cells[0]), cells[len(cells)-1]
		say := func(format string, args ...any) {
			problems = append(problems, "line "+number+": "+fmt.Sprintf(format, args...))
		}
		named, bad := missing(by, have)
		for _, b := range bad {
			say("%s", b)
		}
		if _, err := strconv.Atoi(number); err != nil {
			continue // another table, or a head
		}
		rows++
		if numbers[number] {
			say("there are two")
		}
		numbers[number] = true
		if len(cells) != 6 {
			say("it has %d cells, not 6", len(cells))
			continue
		}
		switch here := strings.TrimSpace(cells[4]); {
		case !slices.Contains([]string{"Y", "other way", "N"}, here):
			say("%q is neither Y nor other way nor N", here)
		case here != "N" && named == 0:
			say("%s without a test", here)
		case strings.TrimSpace(by) == "":
			say("it does not say what is missing")
		}
	}
	return rows, problems
}

func TestFeatures(t *testing.T) {
	text, err := os.ReadFile(root + "docs/features.md")
	require.NoError(t, err)
	rows, problems := wrong(string(text), repository(t))
	assert.Empty(t, problems)
	assert.Positive(t, rows)
}

var testName = regexp.MustCompile("`(Test[A-Z]\\w*)`")

// Of the other pages only the names are looked at.
func TestNamedTests(t *testing.T) {
	known := map[string]bool{}
	for _, of := range repository(t) {
		for name := range of {
			known[name] = true
		}
	}
	pages, err := filepath.Glob(root + "docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range testName.FindAllSubmatch(text, -1) {
			assert.True(t, known[string(m[1])], "%s: there is no test %s", page, m[1])
		}
	}
}

func TestWrong(t *testing.T) {
	have := map[string]tests{
		"kube/a":           {"TestA": {map[string]bool{"one": true}, nil}},
		"test/integration": {"TestB": {nil, map[string]bool{"helper": true}}, "helper": {map[string]bool{"two": true}, nil}, "TestC": {}},
	}
	for name, test := range map[string]struct {
		line string
		want []string
	}{
		"good":              {"| 1 | x | Y | N | Y | `f`. `kube/a`: `TestA`, \"one\"; real: `TestB`, \"two\" |", nil},
		"missing, and said": {"| 1 | x | Y | N | N | no field |", nil},
		"no test":           {"| 1 | x | Y | N | Y | `f` |", []string{"line 1: Y without a test"}},
		"another way":       {"| 1 | x | Y | N | other way | somehow |", []string{"line 1: other way without a test"}},
		"no such test":      {"| 1 | x | Y | N | Y | `kube/a`: `TestB` |", []string{`line 1: package "kube/a" has no TestB`}},
		"no package":        {"| 1 | x | Y | N | Y | `TestA` |", []string{`line 1: package "" has no TestA`}},
		"no such subtest":   {"| 1 | x | Y | N | N | real: `TestB`, \"one\" |", []string{`line 1: package "test/integration" has no test TestB, "one"`}},
		"another's subtest": {"| 1 | x | Y | N | N | real: `TestC`, \"two\" |", []string{`line 1: package "test/integration" has no test TestC, "two"`}},
		"subtest of none":   {"| 1 | x | Y | N | N | real: \"two\" |", []string{`line 1: "two" is a subtest of no test`}},
		"nothing said":      {"| 1 | x | Y | N | N | |", []string{"line 1: it does not say what is missing"}},
		"in part":           {"| 1 | x | Y | N | P | real: `TestB` |", []string{`line 1: "P" is neither Y nor other way nor N`}},
		"cells":             {"| 1 | x | Y | Y | real: `TestB` |", []string{"line 1: it has 5 cells, not 6"}},
		"twice":             {"| 1 | x | Y | N | N | no |\n| 1 | y | Y | N | N | no |", []string{"line 1: there are two"}},
		"another table":     {"| Token | rule | rule | real: `TestA` |", []string{`line Token: package "test/integration" has no TestA`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := wrong(test.line, have)
			assert.Equal(t, test.want, got)
		})
	}
}
