// Command cluster measures Slurmtide with the real daemons, on the cluster KUBECONFIG names,
// and prints one JSON object; see type results. Every figure of a comparison comes from the
// same run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/generated/clientset/versioned"
)

// results is what is printed. Times are in seconds unless a name says otherwise.
type results struct {
	Slurm     string       `json:"slurm"`
	Latencies []*latency   `json:"latencies"`
	Direct    []*bare      `json:"direct"`
	Storms    []storm      `json:"storms"`
	Fleets    []fleet      `json:"fleets"`
	Idle      idle         `json:"idle"`
	Hostlist  []comparison `json:"hostlist"`
	Queue     queueCost    `json:"queue"`
	// GivenBack is from the resume request of a 3-node job that has room for one until its record says why and no node of it boots.
	GivenBack samples `json:"given_back_s"`
	// GoesOn is from the start of a bridge, after the last one was killed while four nodes booted, until it did something for each.
	GoesOn samples `json:"goes_on_s"`
	Check  *check  `json:"check,omitempty"`
}

type samples struct {
	Runs   int       `json:"runs"`
	Min    float64   `json:"min"`
	Median float64   `json:"median"`
	P95    float64   `json:"p95"` // with fewer than 20 runs the largest
	P99    float64   `json:"p99"` // with fewer than 100 runs the largest
	Values []float64 `json:"values"`
}

func (s *samples) add(v float64) { *s = summarise(append(s.Values, v)) }

func summarise(values []float64) samples {
	s := samples{Runs: len(values), Values: slices.Clone(values)}
	if len(values) == 0 {
		return s
	}
	sorted := slices.Sorted(slices.Values(values))
	s.Min = sorted[0]
	s.Median = (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
	s.P95 = sorted[min(len(sorted)-1, len(sorted)*95/100)]
	s.P99 = sorted[min(len(sorted)-1, len(sorted)*99/100)]
	return s
}

// plan is what is measured, and how much of it.
type plan struct {
	version           string
	lives, slowLives  int
	sizes             []int
	stormJobs, storms int
	fleets            []int
	kwok              string
	idleNodes         int
	idleFor           time.Duration
	queued            int
	gangs, kills      int
	program, only     string
	rounds            int
}

func main() {
	var p plan
	flag.StringVar(&p.version, "slurm", "26.05", "Slurm version")
	flag.IntVar(&p.lives, "lives", 2, "slurmctlds that time jobs with the start gate")
	flag.IntVar(&p.slowLives, "lives-without-gate", 1, "slurmctlds that time jobs without the start gate")
	flag.IntVar(&p.stormJobs, "storm-jobs", 1000, "jobs of one node each, all at once")
	flag.IntVar(&p.storms, "storms", 2, "how often, of each kind")
	flag.IntVar(&p.idleNodes, "idle-nodes", 100, "nodes powered up while the idle bridge is measured")
	flag.DurationVar(&p.idleFor, "idle-for", time.Minute, "how long the idle bridge is measured")
	flag.StringVar(&p.kwok, "kwok", "", "the directory of kwok (hack/kwok/build.sh prints it)")
	flag.StringVar(&p.only, "only", "", "measure only these, with commas: gate, no-gate, storm, fleet, idle, hostlist, queue, gang, kill; or check: what make bench-check wants, which is not part of the rest")
	flag.IntVar(&p.rounds, "rounds", 5, "rounds of check")
	flag.IntVar(&p.gangs, "gangs", 3, "jobs that are given back because one of their nodes has no room")
	flag.IntVar(&p.kills, "kills", 6, "times that the bridge is killed while nodes boot")
	flag.IntVar(&p.queued, "queued-jobs", 20_000, "pending jobs of the long queue, besides an array")
	flag.StringVar(&p.program, "program", "bin/slurmtide", "slurmtide, for the hostlist comparison")
	flag.Func("sizes", "nodes of the jobs that are timed, with commas (default all: 1,2,10,50,100)", numbers(&p.sizes))
	flag.Func("fleets", "how many pretended nodes, with commas (default 1000,10000)", numbers(&p.fleets))
	flag.Parse()
	if len(p.sizes) == 0 {
		p.sizes = []int{1, 2, 10, 50, 100}
	}
	if len(p.fleets) == 0 {
		p.fleets = []int{1000, 10_000}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := run(ctx, p)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench cluster:", err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "bench cluster:", err)
		os.Exit(1)
	}
}

// numbers reads positive numbers with commas between them.
func numbers(into *[]int) func(string) error {
	return func(text string) error {
		*into = nil
		for one := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(one)
			if err != nil || n < 1 {
				return errors.New("want positive numbers")
			}
			*into = append(*into, n)
		}
		return nil
	}
}

// step is a part of what is measured.
type step struct {
	name  string
	gate  bool
	lives int // how many slurmctlds are measured one after the other
	do    func(*bench) error
	more  func(*stack.Options)
}

func run(ctx context.Context, p plan) (results, error) {
	r := results{Slurm: p.version}
	var l latencies
	var givenBack, goesOn []float64
	steps := []step{
		{"gate", true, p.lives, func(b *bench) error { return l.measure(b, true, p.sizes) }, nil},
		{"no-gate", false, p.slowLives, func(b *bench) error { return l.measure(b, false, p.sizes) }, nil},
		{"storm", true, 1, func(b *bench) (err error) { r.Storms, err = b.jobStorm(p.stormJobs, p.storms); return err }, nil},
		{"fleet", true, 1, func(b *bench) (err error) { r.Fleets, err = b.fleets(p.kwok, p.fleets); return err }, withFleet(slices.Max(p.fleets))},
		{"idle", true, 1, func(b *bench) (err error) { r.Idle, err = b.idle(p.idleNodes, p.idleFor); return err }, nil},
		{"hostlist", true, 1, func(b *bench) (err error) { r.Hostlist, err = b.hostlists(p.program); return err }, nil},
		{"gang", true, 1, func(b *bench) (err error) { givenBack, err = b.giveBacks(p.gangs); return err }, withNarrow},
		{"kill", true, 1, func(b *bench) (err error) { goesOn, err = b.goesOn(p.kills); return err }, nil},
		{"queue", false, 1, func(b *bench) (err error) { r.Queue, err = b.queue(p.version, p.queued); return err }, longQueue},
	}
	if p.only == "check" {
		return r, within(ctx, p.version, true, withFleet(checkedNodes), func(b *bench) error {
			c, err := b.check(p.kwok, p.program, p.rounds)
			r.Check = &c
			return err
		})
	}
	only := strings.FieldsFunc(p.only, func(r rune) bool { return r == ',' })
	for _, name := range only {
		if !slices.ContainsFunc(steps, func(s step) bool { return s.name == name }) {
			return r, fmt.Errorf("there is no part %q", name)
		}
	}
	for _, s := range steps {
		if len(only) > 0 && !slices.Contains(only, s.name) {
			continue
		}
		for life := range s.lives {
			began := time.Now()
			fmt.Fprintf(os.Stderr, "bench: %s (%d of %d)\n", s.name, life+1, s.lives)
			if err := within(ctx, p.version, s.gate, s.more, s.do); err != nil {
				return r, fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Fprintf(os.Stderr, "bench: %s took %.0f s\n", s.name, time.Since(began).Seconds())
		}
	}
	r.Latencies, r.Direct = l.rows, l.direct
	r.GivenBack, r.GoesOn = summarise(givenBack), summarise(goesOn)
	return r, nil
}

// bench is one stack to measure on.
type bench struct {
	*stack.Stack
	ctx  context.Context
	kube kubernetes.Interface
	tide versioned.Interface
	set  *v1alpha1.NodeSet // of the partition all
}

// poolSize is the number of nodes in slurm.conf.
const poolSize = 120

// within deploys a stack, measures and takes it down.
func within(ctx context.Context, version string, gate bool, more func(*stack.Options), do func(*bench) error) (err error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("reading KUBECONFIG: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	o := stack.Options{
		Namespace: "bench", SlurmVersion: version, Gate: gate, SuspendTime: 3600,
		NodeLines: []string{
			fmt.Sprintf("NodeName=cpu-[0-%d] CPUs=2 RealMemory=400 State=CLOUD", poolSize-1),
			// Names for the pods of the comparison: known to Slurm, used by nobody.
			fmt.Sprintf("NodeName=direct-[0-%d] CPUs=2 RealMemory=400 State=CLOUD", poolSize-1),
		},
		PartitionLines: []string{fmt.Sprintf("PartitionName=all Nodes=cpu-[0-%d] Default=YES", poolSize-1)},
	}
	if more != nil {
		more(&o)
	}
	s, err := stack.Open(config, o)
	if err != nil {
		return err
	}
	if err := s.Delete(ctx); err != nil {
		return err
	}
	if s, err = stack.Deploy(ctx, config, o); err != nil {
		return err
	}
	defer func() {
		if deleted := s.Delete(context.WithoutCancel(ctx)); err == nil {
			err = deleted
		}
	}()
	b, err := newBench(ctx, s, config)
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := s.WaitReady(ready); err != nil {
		return err
	}
	return do(b)
}

func newBench(ctx context.Context, s *stack.Stack, config *rest.Config) (*bench, error) {
	b := &bench{Stack: s, ctx: ctx}
	var err error
	if b.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if b.tide, err = versioned.NewForConfig(config); err != nil {
		return nil, err
	}
	b.set = &v1alpha1.NodeSet{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}, Spec: v1alpha1.NodeSetSpec{
		ClusterRef: v1alpha1.ClusterRef{Name: s.Options.ClusterName},
		NodeNames:  fmt.Sprintf("cpu-[0-%d]", poolSize-1),
		Shape:      v1alpha1.Shape{CPUs: 2, RealMemory: 400},
		Template:   b.template(),
	}}
	_, err = b.tide.SlurmtideV1alpha1().NodeSets(s.Options.Namespace).Create(ctx, b.set, metav1.CreateOptions{})
	return b, err
}

// template asks for nothing, so that any number of pods fits the one machine.
func (b *bench) template() corev1.PodTemplateSpec {
	t := stack.PodTemplate(b.Options)
	t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi"),
	}
	return t
}

// sh runs a script in slurmctld's container.
func (b *bench) sh(script string) (string, error) {
	out, stderr, err := b.Exec(b.ctx, stack.ContainerSlurmctld, "bash", "-euc", script)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr))
	}
	return strings.TrimSpace(out), nil
}
