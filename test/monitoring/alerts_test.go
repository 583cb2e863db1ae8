// Package monitoring keeps alerts, their runbooks and the dashboards honest: they speak of metrics that there are, each alert has a runbook and a
// test, and Prometheus's promtool understands and runs them all (make alerts).
package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const root = "../../"

// rule is an alert of a file.
type rule struct {
	File        string            `json:"-"`
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type ruleFile struct {
	Groups []group `json:"groups"`
}

// ruleFiles are the files of alerts, one for each kind of daemon.
func ruleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(root + "helm/*/alerts/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 4)
	return files
}

func readRules(t *testing.T, file string) (read ruleFile) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &read), file)
	return read
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	for _, file := range ruleFiles(t) {
		for _, g := range readRules(t, file).Groups {
			for _, r := range g.Rules {
				r.File = file
				all = append(all, r)
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

func TestAlerts(t *testing.T) {
	var chart struct{ Home string }
	text, err := os.ReadFile(root + "helm/slurmtide/Chart.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &chart))
	require.NotEmpty(t, chart.Home)
	seen := map[string]bool{}
	for _, r := range rules(t) {
		assert.False(t, seen[r.Alert], "%s is there twice", r.Alert)
		seen[r.Alert] = true
		assert.Regexp(t, `^Slurm[A-Za-z]+$`, r.Alert)
		assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		wait, err := time.ParseDuration(r.For)
		require.NoError(t, err, r.Alert)
		assert.Positive(t, wait, r.Alert)
		require.Len(t, r.Annotations, 3, r.Alert)
		for _, name := range []string{"summary", "description"} {
			assert.Greater(t, len(r.Annotations[name]), 20, "%s: %s", r.Alert, name)
		}
		assert.Equal(t, chart.Home+"/blob/main/docs/runbooks/"+r.Alert+".md", r.Annotations["runbook_url"])
		for _, f := range asked.FindAllString(r.Expr, -1) {
			assert.Contains(t, f, "{", "%s: the chart puts its matchers into the braces of each metric", r.Alert)
		}
	}
}

// sections are those of each runbook, in this order.
var sections = []string{"What it means", "What to look at first", "What to do", "When it ends"}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link    = regexp.MustCompile(`\]\(([^)]+)\)`)
	// unspoken is what anchors leave out of a heading.
	unspoken = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// faults are what is wrong with a runbook's form.
func faults(text, alert, severity string) (found []string) {
	say := func(is bool, what string) {
		if is {
			found = append(found, what)
		}
	}
	head, rest, _ := strings.Cut(text, "\n## ")
	say(!strings.HasPrefix(head, "# "+alert+"\n"), "its title is not the alert's name")
	say(!strings.Contains(head, "Severity: "+severity+"."), "it does not say the alert's severity")
	var titles []string
	for part := range strings.SplitSeq(rest, "\n## ") {
		title, body, _ := strings.Cut(part, "\n")
		titles = append(titles, title)
		say(len(strings.TrimSpace(body)) < 20, title+": nothing stands there")
		if title == sections[1] {
			_, commands, console := strings.Cut(body, "```console\n")
			commands, _, closed := strings.Cut(commands, "\n```")
			say(!console || !closed || strings.TrimSpace(commands) == "", title+": there is no command")
		}
	}
	say(!slices.Equal(titles, sections), "its sections are "+strings.Join(titles, ", "))
	say(strings.Count(text, "\n") > 60, "it is longer than a page")
	return found
}

func TestRunbooks(t *testing.T) {
	have, err := filepath.Glob(root + "docs/runbooks/*")
	require.NoError(t, err)
	list, err := os.ReadFile(root + "docs/monitoring.md")
	require.NoError(t, err)
	var want []string
	for _, r := range rules(t) {
		file := root + "docs/runbooks/" + r.Alert + ".md"
		want = append(want, file)
		text, err := os.ReadFile(file)
		require.NoError(t, err, "%s has no runbook", r.Alert)
		assert.Empty(t, faults(string(text), r.Alert, r.Labels["severity"]), file)
		assert.Contains(t, string(list), "| ["+r.Alert+"](runbooks/"+r.Alert+".md) | "+r.Labels["severity"]+" |", "docs/monitoring.md lists all alerts")
	}
	assert.ElementsMatch(t, want, have, "each alert has a runbook, and each runbook an alert")
}

func TestFaults(t *testing.T) {
	const good = "# A\n\nSeverity: info.\n\n## What it means\n\nIt means a lot to all of us.\n\n## What to look at first\n\n```console\nslurmtide status\n```\n\n## What to do\n\nSomething that is of help.\n\n## When it ends\n\nAs soon as it has ended.\n"
	assert.Empty(t, faults(good, "A", "info"))
	for _, test := range []struct{ old, new, want string }{
		{"# A\n", "# B\n", "its title is not the alert's name"},
		{"info.", "grave.", "it does not say the alert's severity"},
		{"Something that is of help.", "", "What to do: nothing stands there"},
		{"```console\nslurmtide status\n```", "look at it closely, and then again", "What to look at first: there is no command"},
		{"```console\nslurmtide status\n```", "```console\n\n```\nand many words", "What to look at first: there is no command"},
		{"## What to do", "## Do", "its sections are What it means, What to look at first, Do, When it ends"},
		{"As soon", strings.Repeat("\n", 60) + "As soon", "it is longer than a page"},
	} {
		assert.Equal(t, []string{test.want}, faults(strings.Replace(good, test.old, test.new, 1), "A", "info"), test.want)
	}
}

// anchors are those that the headings of a page have on GitHub.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		anchor := unspoken.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(anchor, " ", "-"))
	}
	return all
}

// At night nobody looks for where a page has gone.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob(root + "docs/runbooks/*.md")
	require.NoError(t, err)
	links := 0
	for _, page := range append(pages, root+"docs/monitoring.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			to := page
			if path != "" {
				to = filepath.Join(filepath.Dir(page), path)
			}
			there, err := os.ReadFile(to)
			if info, statErr := os.Stat(to); statErr == nil && info.IsDir() {
				continue
			}
			if assert.NoError(t, err, "%s links to %s", page, m[1]) && anchor != "" {
				assert.Contains(t, anchors(string(there)), anchor, "%s links to %s", page, m[1])
			}
		}
	}
	assert.Positive(t, links)
}
