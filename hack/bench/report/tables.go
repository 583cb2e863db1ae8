package main

import (
	"fmt"
	"strconv"
	"strings"
)

// latency is a row of bench/cluster's latencies; see there for what the times are.
type latency struct {
	Kind     string `json:"kind"`
	Nodes    int    `json:"nodes"`
	Gate     bool   `json:"gate"`
	FromZero spread `json:"from_zero_s"`
	Up       spread `json:"up_s"`
	Zero     spread `json:"zero_s"`
	loads
}

// loads are what slurmctld did for the three, all runs together.
type loads struct {
	FromZeroLoad load `json:"from_zero_load"`
	UpLoad       load `json:"up_load"`
	ZeroLoad     load `json:"zero_load"`
}

type load struct {
	Runs     float64 `json:"runs"`
	Requests float64 `json:"requests"`
	Time     float64 `json:"ms"`
	Main     cycles  `json:"main_scheduler"`
	Backfill cycles  `json:"backfill"`
}

type cycles struct {
	Count float64 `json:"cycles"`
	Time  float64 `json:"ms"`
	Max   float64 `json:"longest_ms"`
}

type bare struct {
	Nodes   int    `json:"nodes"`
	Running spread `json:"running_s"`
}

type storm struct {
	Kind      string `json:"kind"`
	Jobs      int    `json:"jobs"`
	Nodes     int    `json:"nodes"`
	FromZero  spread `json:"from_zero_s"`
	Up        spread `json:"up_s"`
	Submitted spread `json:"submitted_s"`
	Zero      spread `json:"zero_s"`
	loads
}

func (s storm) name() string {
	if s.Kind == "array" {
		return fmt.Sprintf("an array of %d", s.Jobs)
	}
	return fmt.Sprintf("%d jobs", s.Jobs)
}

type made struct {
	Created   float64 `json:"created_s"`
	Running   float64 `json:"running_s"`
	PerSecond float64 `json:"created_per_second"`
}

type fleet struct {
	Nodes      int                `json:"nodes"`
	Jobs       int                `json:"jobs"`
	Direct     made               `json:"direct"`
	Bridge     made               `json:"bridge"`
	Gone       float64            `json:"gone_s"`
	Requests   map[string]float64 `json:"kubernetes_requests_per_node"`
	SlurmCalls float64            `json:"slurm_calls"`
	CPU        float64            `json:"cpu_s"`
	RSS        float64            `json:"rss_mib"`
	RPC        float64            `json:"slurmctld_rpc_s"`
	Load       load               `json:"slurmctld_load"`
}

// latency is one of the rows, which must be there: a limit must not be met because nothing was measured.
func (c *cluster) latency(kind string, nodes int, gate bool) (latency, error) {
	for _, l := range c.Latencies {
		if l.Kind == kind && l.Nodes == nodes && l.Gate == gate && l.FromZero.Runs > 0 {
			return l, nil
		}
	}
	return latency{}, fmt.Errorf("there are no times of %s jobs on %d nodes (start gate: %v)", kind, nodes, gate)
}

func (c *cluster) bare(nodes int) (bare, error) {
	for _, b := range c.Direct {
		if b.Nodes == nodes && b.Running.Runs > 0 {
			return b, nil
		}
	}
	return bare{}, fmt.Errorf("there are no times of %d pods created directly", nodes)
}

// markdown is the table of figures with their limits.
func markdown(rows []row) string {
	var b strings.Builder
	b.WriteString("| figure | value | limit | unit |\n|---|---|---|---|\n")
	for _, r := range rows {
		name := r.Name
		if !r.Met {
			name += ", **missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, r.value(), r.limit(), r.Unit)
	}
	return b.String()
}

func figure(v float64) string { return row{Value: v}.value() }

// tables are those of what was measured.
func (c *cluster) tables() string {
	var all []string
	if len(c.Latencies)+len(c.Storms) > 0 {
		all = append(all, c.latencies(), c.loads())
	}
	if len(c.Fleets) > 0 {
		all = append(all, c.fleets())
	}
	return strings.Join(all, "\n")
}

// latencies is the table of what jobs of all kinds take.
func (c *cluster) latencies() string {
	var b strings.Builder
	b.WriteString("| job | nodes | start gate | runs | p50 | p95 | p99 | nodes up, p50 | bare pods, p50 | to zero, p50 |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, l := range c.Latencies {
		pods := ""
		if d, err := c.bare(l.Nodes); err == nil {
			pods = figure(d.Running.Median)
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %s | %s | %s | %s | %s | %s |\n", l.Kind, l.Nodes, yes(l.Gate), l.FromZero.Runs, figure(l.FromZero.Median),
			figure(l.FromZero.P95), figure(l.FromZero.P99), figure(l.Up.Median), pods, figure(l.Zero.Median))
	}
	for _, s := range c.Storms {
		fmt.Fprintf(&b, "| %s | %d | yes | %d | %s | %s | %s | %s | | %s |\n", s.name(), s.Nodes, s.FromZero.Runs, figure(s.FromZero.Median),
			figure(s.FromZero.P95), figure(s.FromZero.P99), figure(s.Up.Median), figure(s.Zero.Median))
	}
	return b.String()
}

// loads is the table of what slurmctld did for the same jobs, a run.
func (c *cluster) loads() string {
	var b strings.Builder
	b.WriteString("| job | nodes | start gate | runs | requests from zero | nodes up | to zero | their ms from zero | nodes up | to zero | schedulers' ms from zero | nodes up | longest cycle, ms, from zero | nodes up |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	line := func(name string, nodes int, gate string, l loads) {
		zero, up, down := l.FromZeroLoad, l.UpLoad, l.ZeroLoad
		fmt.Fprintf(&b, "| %s | %d | %s | %.0f |", name, nodes, gate, zero.Runs)
		for _, v := range []float64{
			zero.Requests / zero.Runs, up.Requests / up.Runs, down.Requests / down.Runs, zero.Time / zero.Runs, up.Time / up.Runs, down.Time / down.Runs,
			zero.scheduling(), up.scheduling(), zero.longest(), up.longest(),
		} {
			b.WriteString(" " + figure(v) + " |")
		}
		b.WriteString("\n")
	}
	for _, l := range c.Latencies {
		line(l.Kind, l.Nodes, yes(l.Gate), l.loads)
	}
	for _, s := range c.Storms {
		line(s.name(), s.Nodes, "yes", s.loads)
	}
	return b.String()
}

// scheduling is the time of both schedulers in a run.
func (l load) scheduling() float64 { return (l.Main.Time + l.Backfill.Time) / l.Runs }

func (l load) longest() float64 { return max(l.Main.Max, l.Backfill.Max) }

func yes(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

// fleets is the table of many pretended nodes.
func (c *cluster) fleets() string {
	var b strings.Builder
	head, line := "| nodes, jobs |", "|---|"
	for _, f := range c.Fleets {
		head += fmt.Sprintf(" %s, %s |", strconv.Itoa(f.Nodes), strconv.Itoa(f.Jobs))
		line += "---|"
	}
	b.WriteString(head + "\n" + line + "\n")
	for _, r := range []struct {
		name  string
		value func(fleet) float64
	}{
		{"bare pods created, a second", func(f fleet) float64 { return f.Direct.PerSecond }},
		{"bare pods: all Running, s", func(f fleet) float64 { return f.Direct.Running }},
		{"the bridge's pods created, a second", func(f fleet) float64 { return f.Bridge.PerSecond }},
		{"the bridge's pods: all Running, s", func(f fleet) float64 { return f.Bridge.Running }},
		{"powered down until the last pod is gone, s", func(f fleet) float64 { return f.Gone }},
		{"API requests of the bridge for each node, up and down", func(f fleet) float64 {
			sum := 0.0
			for _, n := range f.Requests {
				sum += n
			}
			return sum
		}},
		{"its calls for slurmrestd, all together", func(f fleet) float64 { return f.SlurmCalls }},
		{"its CPU time, s", func(f fleet) float64 { return f.CPU }},
		{"its memory, MiB", func(f fleet) float64 { return f.RSS }},
		{"slurmctld's time for all requests of SlurmUser (sdiag), s", func(f fleet) float64 { return f.RPC }},
		{"requests to slurmctld, of anybody", func(f fleet) float64 { return f.Load.Requests }},
		{"its schedulers' time, s", func(f fleet) float64 { return f.Load.scheduling() / 1000 }},
		{"their longest cycle, s", func(f fleet) float64 { return f.Load.longest() / 1000 }},
	} {
		fmt.Fprintf(&b, "| %s |", r.name)
		for _, f := range c.Fleets {
			b.WriteString(" " + figure(r.value(f)) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
