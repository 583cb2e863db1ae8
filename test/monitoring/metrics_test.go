package monitoring

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/exporter/collect"
	"github.com/slurmtide/slurmtide/internal/daemon"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	aheadloop "github.com/slurmtide/slurmtide/scaler/ahead/loop"
	dynamicloop "github.com/slurmtide/slurmtide/scaler/dynamic/loop"
	"github.com/slurmtide/slurmtide/scaler/external"
)

// metric is what is known of one.
type metric struct {
	labels []string
	words  map[string][]string // of a label, as the golden page has them; none where the words are anybody's, or there is no page
}

type metrics map[string]*metric

// Register implements prometheus.Registerer.
func (m metrics) Register(c prometheus.Collector) error {
	m.MustRegister(c)
	return nil
}

// Unregister implements prometheus.Registerer.
func (m metrics) Unregister(prometheus.Collector) bool { return false }

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)".* constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// MustRegister notes what collectors have, whether they have a sample yet or not.
func (m metrics) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			c.Describe(descs)
			close(descs)
		}()
		for d := range descs {
			parts := described.FindStringSubmatch(d.String())
			var labels []string
			for label := range strings.FieldsFuncSeq(parts[2]+","+parts[3], func(r rune) bool { return r == ',' }) {
				name, _, _ := strings.Cut(label, "=")
				labels = append(labels, name)
			}
			m[parts[1]] = &metric{labels: labels, words: map[string][]string{}}
			if _, is := c.(*prometheus.HistogramVec); is {
				m.histogram(parts[1])
			}
		}
	}
}

func (m metrics) histogram(name string) {
	of := m[name]
	m[name+"_bucket"] = &metric{labels: append(slices.Clone(of.labels), "le"), words: of.words}
	m[name+"_sum"], m[name+"_count"] = of, of
	delete(m, name)
}

// pages are those that tests of the daemons compare with what is served.
var pages = []string{"powersave/bridge/testdata/metrics.golden.txt", "kube/controlplane/testdata/metrics.golden.txt", "exporter/collect/testdata/26.05-all.golden.txt", "exporter/collect/testdata/24.11.golden.txt"}

var (
	sample  = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+$`)
	matcher = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"`)
	// Words of these are chosen by people, by Slurm, or counted without end.
	free = []string{"nodeset", "offering", "le", "node", "partition", "user", "account", "type", "gres", "cluster", "kind", "resource", "slurm", "data_parser", "verb", "code", "why", "scheduler", "reason", "flag"}
)

// registered are the metrics of all daemons, as their own code registers them.
func registered(t *testing.T) metrics {
	t.Helper()
	all := metrics{}
	all.MustRegister(daemon.NewRegistry())
	bridge.NewMetrics(all)
	aheadloop.NewMetrics(all)
	dynamicloop.NewMetrics(all)
	external.NewMetrics(all, nil)
	external.ShowExpiry(all, time.Now)
	controlplane.NewMetrics(all)
	controlplane.ShowLeading(all, "one", func() bool { return true })
	all.MustRegister(collect.New(collect.Config{Labels: prometheus.Labels{"cluster": "one"}}))
	for _, page := range pages {
		file, err := os.Open(root + page)
		require.NoError(t, err)
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			if name, ok := strings.CutSuffix(lines.Text(), " histogram"); ok {
				if name = strings.TrimPrefix(name, "# TYPE "); all[name] != nil {
					all.histogram(name)
				}
				continue
			}
			parts := sample.FindStringSubmatch(lines.Text())
			if parts == nil {
				continue
			}
			of := all[parts[1]]
			require.NotNil(t, of, "%s has %s, which no code registers", page, parts[1])
			for _, label := range matcher.FindAllStringSubmatch(parts[2], -1) {
				if !slices.Contains(free, label[1]) {
					of.words[label[1]] = append(of.words[label[1]], label[3])
				}
			}
		}
		require.NoError(t, lines.Err())
		require.NoError(t, file.Close())
	}
	return all
}

var (
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

// Each page of the daemons' metrics in the repository is among those that are looked at.
func TestPages(t *testing.T) {
	for _, pattern := range []string{"*/testdata/metrics.golden.txt", "*/*/testdata/metrics.golden.txt"} {
		files, err := filepath.Glob(root + pattern)
		require.NoError(t, err)
		for _, file := range files {
			assert.Contains(t, pages, strings.TrimPrefix(filepath.ToSlash(file), root))
		}
	}
}
