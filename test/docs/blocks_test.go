package docs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/test/docs/block"
)

var (
	runBy    = regexp.MustCompile(`^run by (Test\w+): (.+)$`)
	outputOf = regexp.MustCompile(`^output of (Test\w+)$`)
	notRun   = regexp.MustCompile(`^not run: \S.{10,}`)
	aTest    = regexp.MustCompile(`\bTest[A-Z]\w*`)
)

// badMark is what is wrong with the mark of a block; empty if nothing is. files has, by test, what stands in the files of its package.
func badMark(b block.Block, files map[string]string) string {
	if b.Lang == "" {
		return "the fence does not say what it encloses: console, text, conf, yaml, …"
	}
	if !b.Shell() && b.Lang != "text" {
		return ""
	}
	for _, test := range aTest.FindAllString(b.Mark, -1) {
		if _, known := files[test]; !known {
			return "there is no " + test
		}
	}
	by, of := runBy.FindStringSubmatch(b.Mark), outputOf.FindStringSubmatch(b.Mark)
	switch {
	case notRun.MatchString(b.Mark), (b.Mark == "run" || b.Mark == block.OnCluster) && b.Shell():
		return ""
	case of != nil && b.Lang == "text":
		for line := range strings.Lines(b.Text) {
			if line = strings.TrimSpace(line); line != "…" && !strings.Contains(files[of[1]], line) {
				return fmt.Sprintf("%s has no %q", of[1], line)
			}
		}
		return ""
	case by == nil || !b.Shell():
		return fmt.Sprintf("%q: see package block for the marks that there are", b.Mark)
	}
	words := strings.Split(by[2], ", ")
	for _, word := range words {
		if !strings.Contains(b.Text, word) {
			return fmt.Sprintf("it has no %q itself", word)
		}
		if !strings.Contains(files[by[1]], word) {
			return fmt.Sprintf("%s has no %q", by[1], word)
		}
	}
	for _, c := range b.Commands() {
		if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(c.Text, word) }) {
			return fmt.Sprintf("no word is of %q", c.Text)
		}
	}
	return ""
}

// near is what stands in the files of each test's package, by the test's name: sources, with arguments as a shell has them, and testdata.
func near(t *testing.T) map[string]string {
	t.Helper()
	inDir := map[string]string{}
	all := map[string]string{}
	for dir, of := range repository(t) {
		for name := range of {
			if !strings.HasPrefix(name, "Test") {
				continue
			}
			if inDir[dir] == "" {
				inDir[dir] = filesOf(t, dir)
			}
			all[name] += inDir[dir]
		}
	}
	return all
}

func filesOf(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	require.NoError(t, filepath.WalkDir(root+dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && file != root+dir && d.Name() != "testdata" && !strings.Contains(file, "testdata/") {
				return fs.SkipDir
			}
			return err
		}
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata/") {
			content, err := os.ReadFile(file)
			text.WriteString(strings.ReplaceAll(string(content), `", "`, " ") + "\n")
			return err
		}
		return nil
	}))
	return text.String()
}

func blocks(t *testing.T) []block.Block {
	t.Helper()
	all, err := block.All(root)
	require.NoError(t, err)
	require.Greater(t, len(all), 100)
	return all
}

// Each block of commands is run by a test, or says why not.
func TestMarks(t *testing.T) {
	files := near(t)
	for _, b := range blocks(t) {
		assert.Empty(t, badMark(b, files), "%s", b)
	}
}

// What commands name of the repository is there.
func TestPaths(t *testing.T) {
	named := regexp.MustCompile(`(?:^|[\s=])((?:docs|helm|hack|man|bin|test)/[\w./*-]+)`)
	n := 0
	for _, b := range blocks(t) {
		if !b.Shell() {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(b.Text, -1) {
			n++
			found, err := filepath.Glob(root + strings.Replace(m[1], "bin/", "cmd/", 1)) // make build makes the programs of these
			require.NoError(t, err)
			assert.NotEmpty(t, found, "%s: there is no %s", b, m[1])
		}
	}
	assert.Greater(t, n, 20)
}

// command is what a manual page says of one: its flags, those that want a value true, and whether arguments may follow.
type command struct {
	flags     map[string]bool
	arguments bool
	commands  bool
}

// manual has all commands of slurmtide by name, "render kube".
func manual(t *testing.T) map[string]*command {
	t.Helper()
	pages, err := filepath.Glob(root + "man/*")
	require.NoError(t, err)
	all := map[string]*command{"": {flags: map[string]bool{}, commands: true}}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		var c *command
		for line := range strings.Lines(strings.ReplaceAll(string(text), `\-`, "-")) {
			line = strings.TrimSpace(line)
			if usage, ok := strings.CutPrefix(line, `\fBslurmtide`); ok && c == nil {
				name, rest, _ := strings.Cut(usage, `\fR`)
				rest = strings.TrimPrefix(rest, ` [\fIoptions\fR]`)
				c = &command{map[string]bool{}, rest != "", strings.Contains(rest, `\fIcommand\fR`)}
				all[strings.TrimSpace(name)] = c
			}
			if strings.HasPrefix(line, ".SS ") {
				c = nil
			}
			if c != nil && strings.HasPrefix(line, `\fB-`) {
				names, value, _ := strings.Cut(line, ` \fI`)
				for name := range strings.SplitSeq(names, ", ") {
					c.flags[strings.TrimSuffix(strings.TrimPrefix(name, `\fB`), `\fR`)] = value != ""
				}
			}
		}
	}
	require.Greater(t, len(all), 15)
	for _, c := range all {
		c.flags["--help"], c.flags["-h"] = false, false
	}
	all[""].flags["--version"] = false
	return all
}

var calls = regexp.MustCompile(`(?m)(?:^|-- |\| |bin/|\()slurmtide ([^|;<>#)\n]*)`)

// misuse is what is wrong with the arguments of slurmtide, as a guide writes them; empty if nothing is.
func misuse(line string, all map[string]*command) string {
	c, name, args, took := all[""], "", 0, false
	for _, word := range strings.Fields(strings.ReplaceAll(line, "…", "")) {
		if took {
			took = false
			continue
		}
		if strings.HasPrefix(word, "-") && word != "-" {
			flag, _, given := strings.Cut(word, "=")
			value, known := c.flags[flag]
			switch {
			case !known:
				return fmt.Sprintf("slurmtide %s has no flag %s", name, flag)
			case args > 0:
				return fmt.Sprintf("flags come before arguments: %s", flag)
			}
			took = value && !given
			continue
		}
		sub := strings.TrimSpace(name + " " + word)
		switch next := all[sub]; {
		case next != nil && args == 0:
			c, name = next, sub
		case !c.arguments || c.commands:
			return fmt.Sprintf("slurmtide %s takes no %q", name, word)
		default:
			args++
		}
	}
	return ""
}

// Commands and flags of slurmtide, in blocks and in sentences, are those of its manual, which is made of the program.
func TestFlags(t *testing.T) {
	all := manual(t)
	n := 0
	look := func(where, text string) {
		for _, m := range calls.FindAllStringSubmatch(text, -1) {
			n++
			assert.Empty(t, misuse(m[1], all), "%s: slurmtide %s", where, m[1])
		}
	}
	for _, page := range guide(t) {
		text, err := os.ReadFile(root + page)
		require.NoError(t, err)
		for _, b := range block.Read(page, string(text)) {
			if !b.Shell() {
				continue
			}
			for _, c := range b.Commands() {
				look(b.String(), strings.ReplaceAll(c.Text, "\\\n", " "))
			}
		}
		for _, span := range code.FindAllString(prose(string(text)), -1) {
			if inside := strings.Trim(span, "`"); strings.HasPrefix(inside, "slurmtide ") && page != "CHANGELOG.md" {
				look(page, inside)
			}
		}
	}
	assert.Greater(t, n, 100)
	assert.Contains(t, slices.Collect(maps.Keys(all)), "doctor live")
}

func TestBadMark(t *testing.T) {
	files := map[string]string{"TestA": "kubectl apply -f x.yaml\none\n  two 12:00"}
	for name, test := range map[string]struct{ lang, mark, text, want string }{
		"run":                    {"console", "run", "ls", ""},
		"another language":       {"yaml", "", "a: b", ""},
		"output":                 {"text", "output of TestA", "one\n…\ntwo 12:00", ""},
		"run by":                 {"console", "run by TestA: x.yaml", "kubectl apply -f x.yaml\n\n# a comment\n", ""},
		"its output":             {"console", "run by TestA: x.yaml", "$ kubectl apply -f x.yaml\nmade\n", ""},
		"a command that goes on": {"console", "run by TestA: x.yaml", "cat x.yaml |\n  tail", ""},
		"run on a cluster":       {"console", "run on a cluster", "kubectl get pods", ""},
		"not run":                {"sh", "not run: wants a cluster", "ls", ""},
		"no language":            {"", "run", "ls", "the fence does not say what it encloses: console, text, conf, yaml, …"},
		"no mark":                {"bash", "", "ls", `"": see package block for the marks that there are`},
		"no reason":              {"console", "not run: no", "ls", `"not run: no": see package block for the marks that there are`},
		"no words":               {"console", "run by TestA", "ls", `"run by TestA": see package block for the marks that there are`},
		"no such test":           {"console", "run by TestB: x", "x", "there is no TestB"},
		"nor in a reason":        {"console", "not run: TestB does it", "x", "there is no TestB"},
		"a word of neither":      {"console", "run by TestA: x.yaml, y.yaml", "x.yaml", `it has no "y.yaml" itself`},
		"a word of no test":      {"console", "run by TestA: y.yaml", "y.yaml", `TestA has no "y.yaml"`},
		"one without a word":     {"console", "run by TestA: x.yaml", "cat x.yaml\ncat y.yaml", `no word is of "cat y.yaml"`},
		"other output":           {"text", "output of TestA", "three", `TestA has no "three"`},
		"output of a cluster":    {"text", "run on a cluster", "one", `"run on a cluster": see package block for the marks that there are`},
		"output that is run":     {"text", "run", "one", `"run": see package block for the marks that there are`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, badMark(block.Block{Lang: test.lang, Mark: test.mark, Text: test.text}, files))
		})
	}
}

func TestMisuse(t *testing.T) {
	all := manual(t)
	for line, want := range map[string]string{
		"doctor": "", "explain job -o json 7": "", "bridge … --page-address=127.0.0.1:9445": "", "hostlist count n[1-3] m": "", "render scaledobject --push -": "", "--version": "",
		"explain job 7 -o json":  "flags come before arguments: -o",
		"explain -o json":        "slurmtide explain has no flag -o",
		"render kube --push":     "slurmtide render kube has no flag --push",
		"doctor --namespace=x":   "slurmtide doctor has no flag --namespace",
		"explain nothing":        `slurmtide explain takes no "nothing"`,
		"status cpu-0":           `slurmtide status takes no "cpu-0"`,
		"doctor live --host=yes": "",
	} {
		assert.Equal(t, want, misuse(line, all), line)
	}
}

func TestRead(t *testing.T) {
	const page = "text\n\n   <!-- run -->\n   ```console\n   $ a |\n     b\n   out\n   alice@login$ c\n   ```\n````text\n```\n````\n"
	all := block.Read("p.md", page)
	require.Len(t, all, 2)
	assert.Equal(t, block.Block{Page: "p.md", Line: 4, Lang: "console", Mark: "run", Text: "$ a |\n  b\nout\nalice@login$ c\n"}, all[0])
	assert.Equal(t, []block.Command{{Text: "a |\n  b", Output: "out\n"}, {Text: "c"}}, all[0].Commands())
	assert.Equal(t, block.Block{Page: "p.md", Line: 10, Lang: "text", Text: "```\n"}, all[1])
}

// Objects, containers and labels that commands of kubectl name are those that the charts and the controller make.
func TestNames(t *testing.T) {
	made := ""
	for _, dir := range []string{"test/charts", "kube/controlplane", "kube/render", "kube/pods"} {
		made += filesOf(t, dir)
	}
	require.NoError(t, filepath.WalkDir(root+"docs/examples", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		made += string(text)
		return err
	}))
	object := regexp.MustCompile(`[ /]((?:tide|slurmtide)-[a-z-]+?)(?:-0)?(?:[ \n|.]|$)`)
	ofPod := regexp.MustCompile(` -c ([a-z]+)`)
	label := regexp.MustCompile(`-l ([\w./-]+)=([\w-]+)`)
	n := 0
	is := func(b block.Block, line string) {
		n++
		assert.True(t, regexp.MustCompile(regexp.QuoteMeta(line)+`[,}\s]`).MatchString(made), "%s: nothing has %s", b, line)
	}
	for _, b := range blocks(t) {
		if !b.Shell() {
			continue
		}
		for _, c := range b.Commands() {
			if !strings.HasPrefix(c.Text, "kubectl ") {
				continue
			}
			for _, m := range append(object.FindAllStringSubmatch(c.Text, -1), ofPod.FindAllStringSubmatch(c.Text, -1)...) {
				is(b, "ame: "+strings.Replace(m[1], "tide-accounting", "records-accounting", 1)) // name, secretName; the Accounting of the golden files is records
			}
			for _, m := range label.FindAllStringSubmatch(c.Text, -1) {
				is(b, m[1]+": "+m[2])
			}
		}
	}
	assert.Greater(t, n, 60)
}
