// Command report joins the results of the benchmarks into one JSON file and prints a table
// of the figures with their limits. It fails when a limit is missed.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/slurmtide/slurmtide/hack/bench/gobench"
)

// row is a figure and the most, or the least, it may be; no limit is 0.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit,omitempty"`
	Least float64 `json:"least,omitempty"`
	Unit  string  `json:"unit"`
	Met   bool    `json:"met"`
}

func (r row) value() string {
	if r.Value >= 1000 {
		return strconv.FormatFloat(r.Value, 'f', 0, 64)
	}
	return strconv.FormatFloat(r.Value, 'g', 3, 64)
}

func (r row) limit() string {
	switch {
	case r.Limit != 0:
		return strconv.FormatFloat(r.Limit, 'g', 4, 64)
	case r.Least != 0:
		return "at least " + strconv.FormatFloat(r.Least, 'g', 4, 64)
	}
	return ""
}

// report is what out/bench.json holds.
type report struct {
	When       time.Time       `json:"when"`
	CPUs       int             `json:"cpus"`
	Rows       []row           `json:"rows"`
	Resume     json.RawMessage `json:"resume"`
	Cluster    json.RawMessage `json:"cluster"`
	Scaler     json.RawMessage `json:"scaler"`
	Controller json.RawMessage `json:"controller"`
}

type spread struct {
	Runs                  int
	Min, Median, P95, P99 float64
}

type resume struct {
	P99Millis float64 `json:"p99_ms"`
	P50Millis float64 `json:"p50_ms"`
	RSS       float64 `json:"max_rss_kb"`
	Lost      float64 `json:"lost"`
	ExecP99   float64 `json:"exec_p99_ms"`
}

type scaler struct {
	Objects int     `json:"scaled_objects"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Health  float64 `json:"health_p99_ms"`
}

type controller struct {
	Clusters int     `json:"clusters"`
	NodeSets int     `json:"nodesets"`
	Ready    float64 `json:"ready_s"`
	RSS      float64 `json:"rss_mib"`
	Making   float64 `json:"making_p99_ms"`
	Handling float64 `json:"handling_p99_ms"`
	Median   float64 `json:"handling_median_ms"`
	Reading  float64 `json:"reading_p99_ms"`
	Handled  int     `json:"handled"`
	Idle     float64 `json:"idle_s"`
	Writes   float64 `json:"idle_writes"`
}

type cluster struct {
	Latencies []latency `json:"latencies"`
	Direct    []bare    `json:"direct"`
	Storms    []storm   `json:"storms"`
	Fleets    []fleet   `json:"fleets"`
	Idle      struct {
		Nodes    int     `json:"nodes"`
		RSS      float64 `json:"rss_mib"`
		CPU      float64 `json:"cpu_percent"`
		Requests float64 `json:"slurmrestd_requests_per_minute"`
	} `json:"idle"`
	GivenBack spread `json:"given_back_s"`
	GoesOn    spread `json:"goes_on_s"`
	Hostlist  []struct {
		Task  string  `json:"task"`
		Ratio float64 `json:"ratio"`
	} `json:"hostlist"`
	Queue struct {
		Jobs       int     `json:"jobs"`
		ArrayTasks int     `json:"array_tasks"`
		Nodes      int     `json:"nodes"`
		Read       spread  `json:"read_s"`
		DecodeCPU  float64 `json:"decode_cpu_s"`
		DecodeMiB  float64 `json:"decode_mib"`
		Demand     float64 `json:"demand_s"`
		DemandMiB  float64 `json:"demand_mib"`
		RPC        map[string]struct {
			Average float64 `json:"average_ms"`
		} `json:"slurmctld_rpcs"`
	} `json:"queue"`
}

func main() {
	resumeFile := flag.String("resume", "", "JSON of bench/resume")
	clusterFile := flag.String("cluster", "", "JSON of bench/cluster")
	engineFile := flag.String("engine", "", "output of the engine's Go benchmark")
	scalerFile := flag.String("scaler", "", "JSON of bench/scaler")
	controllerFile := flag.String("controller", "", "JSON of bench/controller")
	simFile := flag.String("sim", "", "output of the simulator's Go benchmark")
	demandFile := flag.String("demand", "", "output of the demand model's Go benchmark")
	exporterFile := flag.String("exporter", "", "output of the exporter's Go benchmark")
	out := flag.String("out", "", "where the joined JSON goes")
	table := flag.String("table", "", "where the table goes as Markdown, for docs/benchmarks.md")
	only := flag.Bool("tables", false, "print the tables of what the cluster's JSON has, and look at no limits")
	flag.Parse()
	if *only {
		var c cluster
		if _, err := read(*clusterFile, &c); err != nil {
			fmt.Fprintln(os.Stderr, "bench report:", err)
			os.Exit(1)
		}
		fmt.Print(c.tables())
		return
	}
	missed, err := run(*resumeFile, *clusterFile, *controllerFile, *engineFile, *scalerFile, *demandFile, *simFile, *exporterFile, *out, *table)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench report:", err)
		os.Exit(1)
	}
	if missed > 0 {
		fmt.Fprintf(os.Stderr, "%d limits missed\n", missed)
		os.Exit(1)
	}
}

func run(resumeFile, clusterFile, controllerFile, engineFile, scalerFile, demandFile, simFile, exporterFile, out, table string) (missed int, err error) {
	rep := report{When: time.Now().UTC(), CPUs: runtime.NumCPU()}
	var r resume
	if rep.Resume, err = read(resumeFile, &r); err != nil {
		return 0, err
	}
	var c cluster
	if rep.Cluster, err = read(clusterFile, &c); err != nil {
		return 0, err
	}
	if len(c.Storms) < 2 || len(c.Latencies) == 0 || c.Latencies[0].FromZeroLoad.Runs == 0 {
		return 0, fmt.Errorf("%s has no storms, or not what slurmctld did", clusterFile)
	}
	if c.GivenBack.P99 == 0 || c.GoesOn.P99 == 0 {
		return 0, fmt.Errorf("%s has no times of jobs given back, or of a bridge that was killed", clusterFile)
	}
	var k controller
	if rep.Controller, err = read(controllerFile, &k); err != nil {
		return 0, err
	}
	if k.Handled == 0 {
		return 0, fmt.Errorf("%s: nothing was handled", controllerFile)
	}
	var s scaler
	if rep.Scaler, err = read(scalerFile, &s); err != nil {
		return 0, err
	}
	engine, err := gobench.Read(engineFile)
	if err != nil {
		return 0, err
	}
	demand, err := gobench.Read(demandFile)
	if err != nil {
		return 0, err
	}
	sim, err := gobench.Read(simFile)
	if err != nil {
		return 0, err
	}
	exporter, err := gobench.Read(exporterFile)
	if err != nil {
		return 0, err
	}
	add := func(name string, value, limit float64, unit string) {
		met := limit == 0 || value <= limit
		if !met {
			missed++
		}
		rep.Rows = append(rep.Rows, row{Name: name, Value: value, Limit: limit, Unit: unit, Met: met})
	}
	add("resume, 10,000 nodes and 1,000 jobs, exec to exit, median", r.P50Millis, 0, "ms")
	add("the same, p99", r.P99Millis, 10, "ms")
	add("/bin/true, p99 (the machine's noise)", r.ExecP99, 0, "ms")
	add("resume, memory", r.RSS/1024, 20, "MiB")
	add("lost of 100 copies at once", r.Lost, 0.5, "requests")
	two, err := c.latency("batch", 2, true)
	if err != nil {
		return 0, err
	}
	slow, err := c.latency("batch", 2, false)
	if err != nil {
		return 0, err
	}
	fifty, err := c.latency("batch", 50, true)
	if err != nil {
		return 0, err
	}
	pods, err := c.bare(50)
	if err != nil {
		return 0, err
	}
	add("2-node batch job from zero, median", two.FromZero.Median, 2, "s")
	add("the same, p99", two.FromZero.P99, 3.5, "s")
	add("the same without the start gate, median", slow.FromZero.Median, 0, "s")
	for _, t := range c.Storms {
		if t.Submitted.Runs > 0 && t.Kind == "jobs" {
			add(fmt.Sprintf("%d jobs submitted one by one while nodes boot, until the last sbatch is done, median", t.Jobs), t.Submitted.Median, 0, "s")
		}
	}
	add("50 pods created directly, median", pods.Running.Median, 0, "s")
	add("50-node batch job from zero, median", fifty.FromZero.Median, 1.25*pods.Running.Median+2, "s")
	add(fmt.Sprintf("bridge at %d nodes, memory", c.Idle.Nodes), c.Idle.RSS, 80, "MiB")
	add("bridge idle, CPU", c.Idle.CPU, 1, "% of a core")
	add("bridge idle, slurmrestd requests", c.Idle.Requests, 2, "a minute")
	add("3-node job with room for one: from the resume request until all is given back and the job says why, longest", c.GivenBack.P99, 15, "s")
	add("bridge killed while nodes boot: from its start until all of them go on, longest", c.GoesOn.P99, 3, "s")
	for _, h := range c.Hostlist {
		add("hostlist "+h.Task+", ratio to scontrol", h.Ratio, 1, "×")
	}
	q := c.Queue
	add(fmt.Sprintf("%d pending jobs and an array of %d tasks: slurmctld's time to list jobs (sdiag)", q.Jobs, q.ArrayTasks), q.RPC["REQUEST_JOB_INFO"].Average, 500, "ms")
	add(fmt.Sprintf("the same, to list %d nodes", q.Nodes), q.RPC["REQUEST_NODE_INFO"].Average, 250, "ms")
	add("reading all of it through slurmrestd, median", q.Read.Median, 0, "s")
	add("decoding the jobs, CPU time", q.DecodeCPU, 0, "s")
	add("memory of what was decoded", q.DecodeMiB, 0, "MiB")
	add("demand reckoned from it", q.Demand*1000, 300, "ms")
	add("the same, memory", q.DemandMiB, 200, "MiB")
	add(fmt.Sprintf("controller with %d clusters and %d NodeSets, memory", k.Clusters, k.NodeSets), k.RSS*1.048576, 60, "MB")
	add("the same, an object handled when all are up, p99 (a bucket's bound)", k.Handling, 50, "ms")
	add("the same, median", k.Median, 0, "ms")
	add("one Secret read meanwhile, p99 (the API server and the machine)", k.Reading, 0, "ms")
	add("an object handled while they are made, p99", k.Making, 0, "ms")
	add(fmt.Sprintf("the same, writes in %.0f s in which nothing changes", k.Idle), k.Writes, 0.5, "")
	add("the same, until all clusters answer with their configuration in force", k.Ready, 0, "s")
	const ten, model, harder = "BenchmarkTenThousandNodes", "BenchmarkDemand/requests=", "BenchmarkDemand/queue="
	const scrape = "BenchmarkScrape/series="
	for _, b := range []struct {
		name      string
		from      gobench.Results
		benchmark string
		in        string
		by, limit float64
		unit      string
	}{
		{"engine, plan of a 10,000-node request with 1,000 jobs", engine, ten, "plan-ms/op", 1, 200, "ms"},
		{"the same, with two offerings that have limits", engine, ten + "Offerings", "plan-ms/op", 1, 200, "ms"},
		{"engine, a step with 10,000 nodes and 1,000 jobs in flight", engine, ten, "us/step", 1000, 1, "ms"},
		{"the same, no room for any of them: all jobs given back at once", engine, ten + "Fail/AllOrNothing", "us/step", 1000, 1, "ms"},
		{"the same with strategy Greedy: one after the other, the youngest first", engine, ten + "Fail/Greedy", "us/step", 1000, 1, "ms"},
		{"demand, 5,000 nodes in 20 NodeSets, an array of 100,000 tasks and 20,000 jobs, no two alike", demand, model + "20000", "ns/op", 1e6, 300, "ms"},
		{"the same, memory", demand, model + "20000", "B/op", 1e6, 200, "MB"},
		{"the same, jobs of 500 kinds", demand, model + "500", "ns/op", 1e6, 300, "ms"},
		{"the same, all of them eligible", demand, harder + "eligible", "ns/op", 1e6, 0, "ms"},
		{"the same, arrays with limits", demand, harder + "array-limits", "ns/op", 1e6, 0, "ms"},
		{"the same, --exclusive=user", demand, harder + "exclusive=user", "ns/op", 1e6, 0, "ms"},
		{"the same, all nodes busy", demand, harder + "busy", "ns/op", 1e6, 0, "ms"},
		{"the same, 100 het jobs among them", demand, harder + "het", "ns/op", 1e6, 0, "ms"},
		{"the same, --exclude on each job", demand, harder + "exclude", "ns/op", 1e6, 0, "ms"},
		{"the same, 500 reservations", demand, harder + "reservations", "ns/op", 1e6, 0, "ms"},
		{"the same, --oversubscribe", demand, harder + "oversubscribe", "ns/op", 1e6, 0, "ms"},
		{"exporter, 10,000 nodes and 100,000 jobs, a scrape", exporter, scrape + "few", "ns/op", 1e6, 2000, "ms"},
		{"the same with series of each node and user", exporter, scrape + "all", "ns/op", 1e6, 2000, "ms"},
		{"the same, memory", exporter, scrape + "all", "kept-MB", 1, 0, "MB"},
		{"the same, summing up one read of everything", exporter, scrape + "all", "read-ms", 1, 0, "ms"},
	} {
		v, err := b.from.Mean(b.benchmark, b.in)
		if err != nil {
			return 0, err
		}
		add(b.name, v/b.by, b.limit, b.unit)
	}
	schedules, err := sim.Mean("BenchmarkSchedules", "schedules/core-s")
	if err != nil {
		return 0, err
	}
	tried := row{Name: "simulator, on one core", Value: schedules, Least: 2000, Unit: "schedules a second"}
	if tried.Met = tried.Value >= tried.Least; !tried.Met {
		missed++
	}
	rep.Rows = append(rep.Rows, tried)

	add(fmt.Sprintf("scaler, %d ScaledObjects polling, median answer", s.Objects), s.P50, 0, "ms")
	add("the same, p99", s.P99, 5, "ms")
	add("health checks among them, p99 (gRPC and the machine's noise)", s.Health, 0, "ms")

	joined, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(out, append(joined, '\n'), 0o644); err != nil {
		return 0, err
	}
	if err := os.WriteFile(table, []byte(markdown(rep.Rows)+"\n"+c.tables()), 0o644); err != nil {
		return 0, err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tVALUE\tLIMIT\tUNIT\t")
	for _, row := range rep.Rows {
		limit, verdict := cmp.Or(row.limit(), "-"), ""
		if !row.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", row.Name, row.value(), limit, row.Unit, verdict)
	}
	return missed, w.Flush()
}

func read(file string, into any) (json.RawMessage, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return data, nil
}
