package catalogue

import (
	"fmt"
	"strings"
)

const head = `# Metrics

What the daemons show under ` + "`/metrics`" + `. This page is made of their code by ` + "`make generate`" + `: do not change it by hand. [monitoring.md](monitoring.md) has alerts and dashboards;
where each daemon serves them is in [operate.md](operate.md#metrics), [scaler.md](scaler.md#metrics), [control-plane.md](control-plane.md#running-the-daemon) and [exporter.md](exporter.md).
Each has metrics of its process and of Go's runtime besides (` + "`process_*`, `go_*`, `promhttp_*`" + `).

- A label is one of the words in brackets; where there are none it is a name that people or Slurm have chosen. Their number is that of NodeSets, partitions and the like. Nodes and users are labels
  only where a flag of the exporter asks for them; jobs and pods never are. Label ` + "`cluster`" + ` of the exporter is there with its ` + "`--cluster`, `works_in` of the controller with `--namespace`" + `.
- Series whose words are known exist from the start, with 0: so ` + "`rate()` and `increase()`" + ` see the first event, too.
- Histograms have classic buckets and native ones. A Prometheus that takes the native ones (` + "`scrape_native_histograms: true`, before 3.8 the feature flag `native-histograms`" + `) leaves the classic ones
  away unless it has ` + "`always_scrape_classic_histograms: true`, too (before 3.0 `scrape_classic_histograms`)" + `: alerts and dashboards need those.
- ` + "`slurmtide_boot_phase_seconds`" + ` has exemplars with ` + "`request_id`" + `, the name of slurmctld's request as ` + "`slurmtide status`" + ` and the log say it. They are in OpenMetrics and protobuf alone,
  which Prometheus asks for by itself, and keeps with its feature flag ` + "`exemplar-storage`" + `.
- In OpenMetrics a bound of a classic bucket is written ` + "`le=\"10.0\"`" + `, on the plain page ` + "`le=\"10\"`" + `. Since version 3 Prometheus makes them the same.
`

// mostWords of a label are named.
const mostWords = 24

// Page is docs/metrics.md.
func Page(daemons []*Daemon) string {
	var b strings.Builder
	b.WriteString(head)
	for _, d := range daemons {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | unit | labels | |\n|---|---|---|---|---|\n", strings.ToUpper(d.Name[:1])+d.Name[1:])
		for _, m := range d.Metrics {
			help := m.Help
			if m.Needs != "" {
				help += " With `" + m.Needs + "`."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, m.unit(), m.labels(), strings.ReplaceAll(help, "|", "\\|"))
		}
	}
	return b.String()
}

// unit is what the name says of it, by the conventions of Prometheus.
func (m *Metric) unit() string {
	name := strings.TrimSuffix(m.Name, "_total")
	switch {
	case strings.HasSuffix(name, "_info"):
		return ""
	case strings.HasSuffix(name, "_timestamp_seconds"):
		return "seconds since 1970"
	case strings.HasSuffix(name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	}
	return "number"
}

func (m *Metric) labels() string {
	var all []string
	for _, l := range m.Labels {
		text := "`" + l.Name + "`"
		switch n := len(l.Words); {
		case n > mostWords:
			text += fmt.Sprintf(" (%d words)", n)
		case n > 0:
			text += " (" + strings.Join(l.Words, ", ") + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}
