package monitoring

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/test/monitoring/catalogue"
)

// metric is what is known of one, under each name that its series have.
type metric struct {
	labels []string
	words  map[string][]string // of a label; none where it may be anything
}

type metrics map[string]*metric

// registered are the metrics of all daemons.
func registered(t *testing.T) metrics {
	t.Helper()
	daemons, err := catalogue.Read(root)
	require.NoError(t, err)
	all := metrics{}
	for _, d := range daemons {
		for _, m := range d.Metrics {
			of := &metric{words: map[string][]string{}}
			for _, l := range m.Labels {
				of.labels = append(of.labels, l.Name)
				of.words[l.Name] = l.Words
			}
			if m.Type != "histogram" {
				all[m.Name] = of
				continue
			}
			all[m.Name+"_bucket"] = &metric{labels: append(slices.Clone(of.labels), "le"), words: of.words}
			all[m.Name+"_sum"], all[m.Name+"_count"] = of, of
		}
	}
	return all
}

var (
	matcher = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"`)
	asked   = regexp.MustCompile(`\b(slurm(?:tide)?_[a-z_]+)\b(?:\{([^}]*)\})?`)
	grouped = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	// target has the labels that Prometheus gives to what it scrapes.
	target = []string{"namespace", "job", "service", "pod", "instance"}
)

// unknown is what an expression asks for that there is not. Words that are variables of a dashboard are anybody's.
func (m metrics) unknown(expr string) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	labels := slices.Clone(target)
	found := asked.FindAllStringSubmatch(expr, -1)
	if len(found) == 0 {
		say("asks for no metric of ours")
	}
	for _, f := range found {
		of := m[f[1]]
		if of == nil {
			say("there is no metric %s", f[1])
			continue
		}
		labels = append(labels, of.labels...)
		for _, match := range matcher.FindAllStringSubmatch(f[2], -1) {
			label, words := match[1], []string{match[3]}
			if slices.Contains(target, label) {
				continue
			}
			if !slices.Contains(of.labels, label) {
				say("%s has no label %s", f[1], label)
				continue
			}
			if strings.HasSuffix(match[2], "~") {
				words = strings.Split(match[3], "|")
			}
			for _, word := range words {
				if known := of.words[label]; len(known) > 0 && !strings.HasPrefix(word, "$") && !slices.Contains(known, word) {
					say("%s has no %s=%q", f[1], label, word)
				}
			}
		}
	}
	for _, g := range grouped.FindAllStringSubmatch(expr, -1) {
		for label := range strings.FieldsFuncSeq(g[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if !slices.Contains(labels, label) {
				say("nothing has a label %s", label)
			}
		}
	}
	return problems
}

// Alerts and dashboards ask for metrics, labels and words that the daemons have.
func TestMetrics(t *testing.T) {
	all := registered(t)
	for _, r := range rules(t) {
		assert.Empty(t, all.unknown(r.Expr), r.Alert)
		for name, text := range r.Annotations {
			for _, f := range asked.FindAllStringSubmatch(text, -1) {
				assert.Contains(t, all, f[1], "%s: %s", r.Alert, name)
			}
		}
	}
	boards(t, func(file string, b board) {
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				assert.Empty(t, all.unknown(target.Expr), "%s: %s", file, p.Title)
			}
		}
		for _, v := range b.Templating.List {
			if v.Type == "query" {
				assert.Empty(t, all.unknown(v.Query), "%s: %s", file, v.Name)
			}
		}
	})
}

func TestUnknown(t *testing.T) {
	all := registered(t)
	for expr, want := range map[string][]string{
		`slurmtide_nodes{state="failed",namespace="a"} > 0`:                                   nil,
		`sum by (nodeset, job) (slurmtide_nodes{nodeset=~"$nodeset",state=~"ready|booting"})`: nil,
		`rate(slurmtide_boot_phase_seconds_bucket{phase="registered",le="30"}[5m])`:           nil,
		`slurmtide_controller_leading{works_in="one"}`:                                        nil,
		`slurm_nodes{cluster="a",state="idle"} + slurm_node_load{node="a"}`:                   nil,
		`slurmtide_exporter_read_seconds_sum / slurmtide_exporter_read_seconds_count`:         nil,
		`up`:                                               {"asks for no metric of ours"},
		`slurmtide_node{state="failed"}`:                   {"there is no metric slurmtide_node"},
		`slurmtide_boot_phase_seconds`:                     {"there is no metric slurmtide_boot_phase_seconds"},
		`slurmtide_nodes_bucket{le="1"}`:                   {"there is no metric slurmtide_nodes_bucket"},
		`slurmtide_nodes{stat="failed"}`:                   {"slurmtide_nodes has no label stat"},
		`slurmtide_nodes{state=~"a|ready"}`:                {`slurmtide_nodes has no state="a"`},
		`slurm_nodes{state!="asleep"}`:                     {`slurm_nodes has no state="asleep"`},
		`sum by (class) (slurmtide_nodes{state="failed"})`: {"nothing has a label class"},
		`slurmtide_gates_waiting / on (job, node) group_left (x) slurmtide_spool_requests`: {"nothing has a label node", "nothing has a label x"},
	} {
		assert.Equal(t, want, all.unknown(expr), expr)
	}
}

// Each page of the daemons' metrics in the repository is one that the catalogue is made of, and is as promtool check metrics wants it.
func TestPages(t *testing.T) {
	daemons, err := catalogue.Read(root)
	require.NoError(t, err)
	var pages []string
	for _, d := range daemons {
		pages = append(pages, d.Pages...)
	}
	seen := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, file fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case file.IsDir() && file.Name() == ".git": // others may be at work there
			return fs.SkipDir
		case file.IsDir() || !strings.HasSuffix(path, ".golden.txt"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(text), "# HELP slurm") {
			return err
		}
		seen++
		name := strings.TrimPrefix(filepath.ToSlash(path), root)
		if name != "exporter/collect/testdata/26.05.golden.txt" { // less than 26.05-all
			assert.Contains(t, pages, name)
		}
		problems, err := promlint.New(bytes.NewReader(text)).Lint()
		require.NoError(t, err, name)
		assert.Empty(t, problems, name)
		return nil
	}))
	assert.GreaterOrEqual(t, seen, 8)
}

// Names tell whose the metric is, and help is a sentence.
func TestNames(t *testing.T) {
	daemons, err := catalogue.Read(root)
	require.NoError(t, err)
	for _, d := range daemons {
		require.NotEmpty(t, d.Metrics, d.Name)
		for _, m := range d.Metrics {
			if d.Name == "exporter" {
				assert.Regexp(t, "^slurm(tide_exporter|tide_slurmrestd)?_[a-z_]+$", m.Name)
			} else {
				assert.Regexp(t, "^slurmtide_[a-z_]+$", m.Name)
			}
			assert.Equal(t, m.Type == "counter", strings.HasSuffix(m.Name, "_total"), m.Name)
			assert.True(t, m.Type != "histogram" || strings.HasSuffix(m.Name, "_seconds"), m.Name)
			assert.Regexp(t, `^[A-Z1].{15,}\.$`, m.Help, m.Name)
			for _, l := range m.Labels {
				assert.NotContains(t, []string{"job", "jobid", "pod", "uid", "request", "request_id", "host"}, l.Name, m.Name)
				assert.False(t, l.Name == "job_id" && m.Needs != "--per-job", m.Name)
				if l.Name == "node" || l.Name == "user" || l.Name == "account" {
					assert.NotEmpty(t, m.Needs, "%s has the label %s, and no flag asks for it", m.Name, l.Name)
				}
			}
		}
	}
}

func TestDocumentation(t *testing.T) {
	daemons, err := catalogue.Read(root)
	require.NoError(t, err)
	page, err := os.ReadFile(root + "docs/metrics.md")
	require.NoError(t, err)
	want, got := strings.Split(catalogue.Page(daemons), "\n"), strings.Split(string(page), "\n")
	for i, line := range want {
		require.Less(t, i, len(got), "docs/metrics.md is old: make generate writes it")
		require.Equal(t, line, got[i], "docs/metrics.md is old: make generate writes it")
	}
	assert.Len(t, got, len(want))
}
