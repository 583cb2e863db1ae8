// Command check compares figures that no machine's speed is in, ratios of one run and counts, with those of a baseline, and fails when one
// has become worse by more than a fifth. With -write it makes the baseline.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/slurmtide/slurmtide/hack/bench/gobench"
)

// worse is how much worse than the baseline's a figure may be.
const worse = 1.2

// rounds is how many a mean wants at least.
const rounds = 5

// figure is the mean of several rounds. Less is better.
type figure struct {
	Name   string    `json:"name"`
	Mean   float64   `json:"mean"`
	Values []float64 `json:"values,omitempty"`
}

type baseline struct {
	Machine string   `json:"machine"` // for the reader: what it was made on
	Figures []figure `json:"figures"`
}

func main() {
	against := flag.String("baseline", "hack/bench/baseline.json", "what to compare with")
	write := flag.String("write", "", "write the figures to this file, as a baseline, and compare nothing")
	clusterFile := flag.String("cluster", "", "JSON of bench/cluster -only check")
	machine := flag.String("machine", "", "what to say of the machine in a baseline")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "check [flags] FILE...   (files with the output of go test -bench, and JSON files of bench/resume)")
		flag.PrintDefaults()
	}
	flag.Parse()
	failed, err := run(*clusterFile, *against, *write, *machine, flag.Args(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench check:", err)
		os.Exit(1)
	}
	if failed > 0 {
		fmt.Fprintf(os.Stderr, "%d figures are more than %.0f %% worse than the baseline\n", failed, (worse-1)*100)
		os.Exit(1)
	}
}

func run(clusterFile, against, write, machine string, files []string, out io.Writer) (failed int, err error) {
	now, err := measured(clusterFile, files)
	if err != nil {
		return 0, err
	}
	if write != "" {
		text, err := json.MarshalIndent(baseline{Machine: machine, Figures: now}, "", "  ")
		if err != nil {
			return 0, err
		}
		return 0, os.WriteFile(write, append(text, '\n'), 0o644)
	}
	text, err := os.ReadFile(against)
	if err != nil {
		return 0, err
	}
	var was baseline
	if err := json.Unmarshal(text, &was); err != nil {
		return 0, fmt.Errorf("reading %s: %w", against, err)
	}
	return compare(was.Figures, now, out)
}

// compare prints all figures and counts those that are too much worse. Both must have the same ones, or a figure that is not measured
// any more would never be missed.
func compare(was, now []figure, out io.Writer) (failed int, err error) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tBASELINE\tLIMIT\tNOW\t")
	for _, old := range was {
		i := slices.IndexFunc(now, func(f figure) bool { return f.Name == old.Name })
		if i < 0 {
			return 0, fmt.Errorf("%q of the baseline was not measured", old.Name)
		}
		limit, verdict := old.Mean*worse, ""
		if now[i].Mean > limit {
			verdict = "WORSE"
			failed++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", old.Name, short(old.Mean), short(limit), short(now[i].Mean), verdict)
	}
	for _, f := range now {
		if !slices.ContainsFunc(was, func(old figure) bool { return old.Name == f.Name }) {
			return 0, fmt.Errorf("%q is not in the baseline: make a new one (BASELINE=1 hack/bench/check.sh)", f.Name)
		}
	}
	return failed, w.Flush()
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// cluster is what bench/cluster -only check prints: a value for each round.
type cluster struct {
	Check struct {
		TenNodes  []float64            `json:"ten_nodes_s"`
		TenPods   []float64            `json:"ten_pods_s"`
		Fleet     []float64            `json:"fleet_created_s"`
		FleetPods []float64            `json:"fleet_pods_created_s"`
		Requests  []float64            `json:"kubernetes_requests_per_node"`
		Calls     []float64            `json:"slurm_calls_per_1000_nodes"`
		Hostlist  map[string][]float64 `json:"hostlist_ratio"`
	} `json:"check"`
}

// measured reads the figures of all rounds.
func measured(clusterFile string, files []string) ([]figure, error) {
	var all []figure
	var failed error
	add := func(name string, mean float64, values []float64) {
		if len(values) < rounds {
			failed = cmp.Or(failed, fmt.Errorf("%s: %d rounds, want %d", name, len(values), rounds))
		}
		all = append(all, figure{Name: name, Mean: mean, Values: values})
	}
	// The ratio of the means: single runs are by chance short or long, on either side.
	over := func(name string, ours, reference []float64) {
		if len(ours) != len(reference) {
			failed = cmp.Or(failed, fmt.Errorf("%s: %d values, and %d to compare with", name, len(ours), len(reference)))
			return
		}
		values := make([]float64, len(ours))
		for i := range ours {
			values[i] = ours[i] / reference[i]
		}
		add(name, mean(ours)/mean(reference), values)
	}
	var c cluster
	if err := read(clusterFile, &c); err != nil {
		return nil, err
	}
	over("10-node batch job from zero / 10 bare pods Running", c.Check.TenNodes, c.Check.TenPods)
	over("pods of pretended nodes: created by the bridge / directly", c.Check.Fleet, c.Check.FleetPods)
	add("API requests of the bridge for each node", mean(c.Check.Requests), c.Check.Requests)
	add("calls of the bridge for slurmrestd for 1,000 nodes", mean(c.Check.Calls), c.Check.Calls)
	for _, task := range slices.Sorted(maps.Keys(c.Check.Hostlist)) {
		add("hostlist "+task+" / scontrol", mean(c.Check.Hostlist[task]), c.Check.Hostlist[task])
	}

	var texts []string
	var ours, nothing []float64
	for _, file := range files {
		var r struct {
			P50  float64 `json:"p50_ms"`
			Exec float64 `json:"exec_p50_ms"`
		}
		if read(file, &r) != nil { // not JSON
			texts = append(texts, file)
			continue
		}
		ours, nothing = append(ours, r.P50), append(nothing, r.Exec)
	}
	over("resume, 10,000 nodes / true", ours, nothing)
	goBench, err := gobench.Read(texts...)
	if err != nil {
		return nil, err
	}
	reference := goBench["BenchmarkReference"]["ns/op"]
	for _, b := range []struct{ name, benchmark, unit string }{
		{"engine, plan of 10,000 nodes", "BenchmarkTenThousandNodes", "plan-ms/op"},
		{"engine, a step with 10,000 nodes", "BenchmarkTenThousandNodes", "us/step"},
		{"demand of 20,000 jobs", "BenchmarkDemand/requests=20000", "ns/op"},
		{"demand of 20,000 jobs of 500 kinds", "BenchmarkDemand/requests=500", "ns/op"},
		{"exporter's scrape", "BenchmarkScrape/series=all", "ns/op"},
	} {
		over(b.name+" / reference", goBench[b.benchmark][b.unit], reference)
	}
	bytes := goBench["BenchmarkDemand/requests=20000"]["B/op"]
	add("demand of 20,000 jobs, bytes", mean(bytes), bytes)
	return all, failed
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func read(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}
