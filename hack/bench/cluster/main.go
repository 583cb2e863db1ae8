// Command cluster measures Slurmtide with the real daemons, on the cluster KUBECONFIG names,
// and prints one JSON object; see type results. Every figure of a comparison comes from the
// same run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	Slurm       string       `json:"slurm"`
	WithGate    samples      `json:"two_nodes_gate_s"`    // sbatch to RUNNING, 2-node batch job from zero
	WithoutGate samples      `json:"two_nodes_no_gate_s"` // the same without the start gate
	Scale       scale        `json:"scale"`
	Idle        idle         `json:"idle"`
	Hostlist    []comparison `json:"hostlist"`
	Queue       queueCost    `json:"queue"`
	// GivenBack is from the resume request of a 3-node job that has room for one until its record says why and no node of it boots.
	GivenBack samples `json:"given_back_s"`
	// GoesOn is from the start of a bridge, after the last one was killed while four nodes booted, until it did something for each.
	GoesOn samples `json:"goes_on_s"`
}

type samples struct {
	Runs   int       `json:"runs"`
	Min    float64   `json:"min"`
	Median float64   `json:"median"`
	P99    float64   `json:"p99"` // with fewer than 100 runs the largest
	Values []float64 `json:"values"`
}

func summarise(values []float64) samples {
	s := samples{Runs: len(values), Values: slices.Clone(values)}
	if len(values) == 0 {
		return s
	}
	sorted := slices.Sorted(slices.Values(values))
	s.Min = sorted[0]
	s.Median = (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
	s.P99 = sorted[min(len(sorted)-1, len(sorted)*99/100)]
	return s
}

func main() {
	version := flag.String("slurm", "26.05", "Slurm version")
	runs := flag.Int("runs", 20, "runs of the 2-node job with the start gate")
	slow := flag.Int("runs-without-gate", 6, "runs of the 2-node job without the start gate")
	nodes := flag.Int("nodes", 50, "nodes of the large job")
	idleNodes := flag.Int("idle-nodes", 100, "nodes powered up while the idle bridge is measured")
	idleFor := flag.Duration("idle-for", time.Minute, "how long the idle bridge is measured")
	only := flag.String("only", "", "measure only this: gate, no-gate, scale, idle, hostlist, queue, gang or kill")
	gangs := flag.Int("gangs", 3, "jobs that are given back because one of their nodes has no room")
	kills := flag.Int("kills", 6, "times that the bridge is killed while nodes boot")
	queued := flag.Int("queued-jobs", 20_000, "pending jobs of the long queue, besides an array")
	program := flag.String("program", "bin/slurmtide", "slurmtide, for the hostlist comparison")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := run(ctx, *version, *runs, *slow, *nodes, *idleNodes, *idleFor, *queued, *gangs, *kills, *program, *only)
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

func run(ctx context.Context, version string, runs, slow, nodes, idleNodes int, idleFor time.Duration, queued, gangs, kills int, program, only string) (results, error) {
	r := results{Slurm: version}
	var gate, noGate, givenBack, goesOn []float64
	steps := []struct {
		name string
		gate bool
		// lives is how many slurmctlds are measured one after the other: when in a second one looks for nodes to resume is
		// settled by when it started, and is good or bad luck for all its jobs.
		lives int
		do    func(*bench) error
		more  func(*stack.Options)
	}{
		{"gate", true, (runs + runsPerLife - 1) / runsPerLife, func(b *bench) error { return b.twoNodes(runs, &gate) }, nil},
		{"no-gate", false, (slow + runsPerLife - 1) / runsPerLife, func(b *bench) error { return b.twoNodes(slow, &noGate) }, nil},
		{"scale", true, 1, func(b *bench) (err error) { r.Scale, err = b.scale(nodes); return err }, nil},
		{"idle", true, 1, func(b *bench) (err error) { r.Idle, err = b.idle(idleNodes, idleFor); return err }, nil},
		{"hostlist", true, 1, func(b *bench) (err error) { r.Hostlist, err = b.hostlists(program); return err }, nil},
		{"gang", true, 1, func(b *bench) (err error) { givenBack, err = b.giveBacks(gangs); return err }, withNarrow},
		{"kill", true, 1, func(b *bench) (err error) { goesOn, err = b.goesOn(kills); return err }, nil},
		{"queue", false, 1, func(b *bench) (err error) { r.Queue, err = b.queue(version, queued); return err }, longQueue},
	}
	for _, s := range steps {
		if only != "" && only != s.name {
			continue
		}
		for life := range s.lives {
			fmt.Fprintf(os.Stderr, "bench: %s (%d of %d)\n", s.name, life+1, s.lives)
			if err := within(ctx, version, s.gate, s.more, s.do); err != nil {
				return r, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	r.WithGate, r.WithoutGate = summarise(gate), summarise(noGate)
	r.GivenBack, r.GoesOn = summarise(givenBack), summarise(goesOn)
	return r, nil
}

// bench is one stack to measure on.
type bench struct {
	*stack.Stack
	ctx  context.Context
	kube kubernetes.Interface
	tide versioned.Interface
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
	ns := &v1alpha1.NodeSet{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}, Spec: v1alpha1.NodeSetSpec{
		ClusterRef: v1alpha1.ClusterRef{Name: s.Options.ClusterName},
		NodeNames:  fmt.Sprintf("cpu-[0-%d]", poolSize-1),
		Shape:      v1alpha1.Shape{CPUs: 2, RealMemory: 400},
		Template:   b.template(),
	}}
	_, err = b.tide.SlurmtideV1alpha1().NodeSets(s.Options.Namespace).Create(ctx, ns, metav1.CreateOptions{})
	return b, err
}

// template asks for nothing, so that any number of pods fits the one machine.
func (b *bench) template() corev1.PodTemplateSpec {
	t := stack.PodTemplate(b.Options)
	t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: *newQuantity("1m"), corev1.ResourceMemory: *newQuantity("1Mi"),
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
