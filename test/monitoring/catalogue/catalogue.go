// Package catalogue knows all metrics of the daemons: those that their own code registers, whether there are samples of them yet or not, with the types
// and words that the golden pages of their tests show. docs/metrics.md is made of it (metricsdoc), and alerts and dashboards are held against it.
package catalogue

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/exporter/collect"
	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	aheadloop "github.com/slurmtide/slurmtide/scaler/ahead/loop"
	dynamicloop "github.com/slurmtide/slurmtide/scaler/dynamic/loop"
	"github.com/slurmtide/slurmtide/scaler/external"
)

// Daemon is one of the daemons, with its metrics by name. Those of the Go runtime, the process and the page itself are the same for all, and left out.
type Daemon struct {
	Name    string
	Pages   []string // golden pages that show its metrics
	Metrics []*Metric

	register func(prometheus.Registerer)
}

// Metric is one of a daemon.
type Metric struct {
	Name, Help string
	Type       string // counter, gauge or histogram
	Labels     []Label
	Needs      string // the flag that asks for it, if one must
}

// Label is one of a metric.
type Label struct {
	Name  string
	Words []string // it may be, in order; none: anything
}

// shared is the page of what several daemons show: requests to slurmrestd and Kubernetes, and when certificates end.
const shared = "internal/measure/testdata/metrics.golden.txt"

func daemons() []*Daemon {
	return []*Daemon{
		{
			Name: "bridge",
			Pages: []string{
				"powersave/bridge/testdata/metrics.golden.txt", "scaler/ahead/loop/testdata/metrics.golden.txt", "scaler/dynamic/loop/testdata/metrics.golden.txt", shared,
			},
			register: func(r prometheus.Registerer) {
				bridge.NewMetrics(r)
				bridge.ShowSpool(r, nil)
				aheadloop.NewMetrics(r)
				dynamicloop.NewMetrics(r)
				measure.ShowExpiry(r, "bridge", time.Now)
				measure.NewSlurmrestd(r)
				measure.NewKubernetes(r)
			},
		},
		{
			Name: "scaler", Pages: []string{"scaler/external/testdata/metrics.golden.txt", shared},
			register: func(r prometheus.Registerer) {
				external.NewMetrics(r, nil)
				measure.ShowExpiry(r, "scaler", time.Now)
				measure.NewSlurmrestd(r)
				measure.NewKubernetes(r)
			},
		},
		{
			Name: "controller", Pages: []string{"kube/controlplane/testdata/metrics.golden.txt", shared},
			register: func(r prometheus.Registerer) {
				controlplane.NewMetrics(r)
				controlplane.ShowLeading(r, "one", func() bool { return true })
				measure.ShowExpiry(r, "controller", time.Now)
				measure.NewKubernetes(r)
			},
		},
		{
			Name: "exporter", Pages: []string{"exporter/collect/testdata/26.05-all.golden.txt", "exporter/collect/testdata/24.11.golden.txt", shared},
			register: func(r prometheus.Registerer) {
				r.MustRegister(collect.New(collect.Config{Labels: prometheus.Labels{"cluster": "one"}}))
				measure.ShowExpiry(r, "exporter", time.Now)
				measure.NewSlurmrestd(r)
			},
		},
	}
}

var (
	// free are labels whose words people choose, or Slurm, or that are counted without end; of those with a dot only that of the metric.
	free = []string{
		"nodeset", "offering", "le", "node", "partition", "user", "account", "type", "gres", "cluster", "slurm", "data_parser", "code", "miss", "works_in",
		"job_id", "qos", "array_job", "array_task", "slurm_job_info.name", "slurm_job_state.state",
		"address", "instance", "reservation", "comment", "slurm_node_info.reason", "slurm_jobs_pending.reason", "slurm_jobs_flagged.flag", "slurm_scheduler_exits_total.why",
		"slurmtide_controller_writes_total.resource", "slurmtide_slurmrestd_requests_total.verb", "slurmtide_slurmrestd_request_seconds.verb",
	}
	// same are those that pages show few words of, since only what is not 0 has a series; they have those of another metric.
	same = map[string]string{
		"slurm_node_state.state": "slurm_nodes", "slurm_node_flag.flag": "slurm_nodes_flagged", "slurm_partition_jobs.state": "slurm_jobs",
		"slurm_node_gpu_seconds_total.use": "slurm_gpu_seconds_total",
		"slurm_user_jobs.state":            "slurm_jobs_cpus", "slurm_user_cpus.state": "slurm_jobs_cpus", "slurm_user_gpus.state": "slurm_jobs_cpus",
		"slurmtide_controller_handling_seconds.kind": "slurmtide_controller_failures_total",
	}
)

// registry is a prometheus.Registerer that notes what collectors describe.
type registry struct {
	metrics []*Metric
	err     error
}

// Register implements prometheus.Registerer.
func (r *registry) Register(c prometheus.Collector) error {
	r.MustRegister(c)
	return r.err
}

// Unregister implements prometheus.Registerer.
func (r *registry) Unregister(prometheus.Collector) bool { return false }

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"),.* constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// MustRegister implements prometheus.Registerer.
func (r *registry) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			c.Describe(descs)
			close(descs)
		}()
		for d := range descs {
			parts := described.FindStringSubmatch(d.String())
			if parts == nil {
				r.err = fmt.Errorf("cannot read %s", d)
				continue
			}
			m := &Metric{Name: parts[1]}
			if m.Help, r.err = strconv.Unquote(parts[2]); r.err != nil {
				continue
			}
			for label := range strings.FieldsFuncSeq(parts[3]+","+parts[4], func(r rune) bool { return r == ',' }) {
				name, _, _ := strings.Cut(label, "=")
				m.Labels = append(m.Labels, Label{Name: name})
			}
			r.metrics = append(r.metrics, m)
		}
	}
}

// Read makes the catalogue; root is the directory of the repository. What is registered must be on a page, and what is on a page registered.
func Read(root string) ([]*Daemon, error) {
	all := daemons()
	for _, d := range all {
		r := &registry{}
		if d.register(r); r.err != nil {
			return nil, fmt.Errorf("%s: %w", d.Name, r.err)
		}
		d.Metrics = r.metrics
		slices.SortFunc(d.Metrics, func(a, b *Metric) int { return strings.Compare(a.Name, b.Name) })
		for _, page := range d.Pages {
			if err := d.read(root, page); err != nil {
				return nil, err
			}
		}
		for _, m := range d.Metrics {
			for _, of := range exporter.Catalogue { // some of which recorded answers have no sample of
				if of.Name == m.Name {
					m.Needs, m.Type = of.Needs, of.Type()
				}
			}
			if m.Type == "" {
				return nil, fmt.Errorf("%s: no page shows %s: let the test of %s have it", d.Name, m.Name, strings.Join(d.Pages, " or "))
			}
			for i := range m.Labels {
				l := &m.Labels[i]
				if of := d.Metric(same[m.Name+"."+l.Name]); of != nil {
					l.Words = of.Words(l.Name)
				}
				slices.Sort(l.Words)
			}
		}
	}
	return all, nil
}

// Words are those that a label may be; none: anything, or it has no such label.
func (m *Metric) Words(label string) []string {
	for _, l := range m.Labels {
		if l.Name == label {
			return l.Words
		}
	}
	return nil
}

// Metric finds one by its name; nil if there is none.
func (d *Daemon) Metric(name string) *Metric {
	i, ok := slices.BinarySearchFunc(d.Metrics, name, func(m *Metric, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return nil
	}
	return d.Metrics[i]
}

var (
	sample = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+$`)
	pair   = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
)

// read adds what a page shows.
func (d *Daemon) read(root, page string) error {
	file, err := os.Open(filepath.Join(root, page))
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); words[0] == "#" && words[1] == "TYPE" {
			m := d.Metric(words[2])
			if m == nil && page != shared {
				return fmt.Errorf("%s has %s, which %s does not register", page, words[2], d.Name)
			}
			if m != nil {
				m.Type = words[3]
			}
			continue
		}
		parts := sample.FindStringSubmatch(lines.Text())
		if parts == nil {
			continue
		}
		m := d.Metric(parts[1])
		for _, of := range []string{"_bucket", "_sum", "_count"} {
			if m == nil {
				m = d.Metric(strings.TrimSuffix(parts[1], of))
			}
		}
		if m != nil {
			m.note(parts[2])
		}
	}
	return lines.Err()
}

// note takes in the words of a sample's labels.
func (m *Metric) note(labels string) {
	for _, p := range pair.FindAllStringSubmatch(labels, -1) {
		name, word := p[1], p[2]
		if slices.Contains(free, name) || slices.Contains(free, m.Name+"."+name) {
			continue
		}
		for i := range m.Labels {
			if l := &m.Labels[i]; l.Name == name && !slices.Contains(l.Words, word) {
				l.Words = append(l.Words, word)
			}
		}
	}
}
