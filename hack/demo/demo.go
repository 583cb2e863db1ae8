package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/generated/clientset/versioned"
)

// How long the steps may take on a slow, busy machine.
const (
	deployTimeout  = 3 * time.Minute
	nodeSetTimeout = time.Minute
	jobTimeout     = 3 * time.Minute
	zeroTimeout    = 2 * time.Minute
)

// demo is one performance.
type demo struct {
	settings settings
	config   *rest.Config
	kube     kubernetes.Interface
	tide     versioned.Interface
	stack    *stack.Stack
	world    *world
	screen   *screen

	mu     sync.Mutex // guards what follows while steps run side by side
	report report
	title  string
}

func openDemo(s settings, config *rest.Config, screen *screen) (*demo, error) {
	// The default of 5 requests a second is for programs that run for days.
	config.QPS, config.Burst = 50, 100
	o, err := clusterOptions(s.namespace, s.slurm)
	if err != nil {
		return nil, err
	}
	st, err := stack.Open(config, o)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making Kubernetes client: %w", err)
	}
	tide, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making NodeSet client: %w", err)
	}
	return &demo{
		settings: s, config: config, kube: kube, tide: tide, stack: st, world: newWorld(), screen: screen,
		report: report{Result: resultFail, Started: screen.start.UTC(), Slurm: s.slurm, CPUs: runtime.NumCPU()},
	}, nil
}

// play goes through the steps. The report is written whatever happens; its result is PASS only if every step held.
func (d *demo) play(ctx context.Context) error {
	err := d.steps(ctx)
	d.report.Seconds = time.Since(d.screen.start).Seconds()
	d.world.read(func(f *facts) { d.report.fill(f) })
	if err == nil {
		d.report.Result = resultPass
	} else {
		d.report.Error = err.Error()
	}
	return errors.Join(err, d.report.write(d.settings.out))
}

func (d *demo) steps(ctx context.Context) error {
	version, err := d.kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("the cluster does not answer: %w", err)
	}
	d.report.Kubernetes = version.GitVersion
	d.screen.say("deploying Slurm %s and the bridge on Kubernetes %s", d.report.Slurm, version.GitVersion)
	if err := d.step(ctx, "control plane", deployTimeout, d.deploy); err != nil {
		return err
	}
	if err := d.step(ctx, "scheduler", nodeSetTimeout, d.wakeScheduler); err != nil {
		return err
	}
	if err := d.step(ctx, "NodeSets", nodeSetTimeout, d.createNodeSets); err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	var live sync.WaitGroup
	defer live.Wait()
	defer stop()
	f := feed{stack: d.stack, config: d.config, kube: d.kube, world: d.world}
	live.Go(func() { f.run(ctx) })
	live.Go(func() { d.watch(ctx) })

	d.setTitle("waiting for a first look at Slurm and the bridge")
	if err := d.step(ctx, "at zero", nodeSetTimeout, d.waitZero); err != nil {
		return err
	}
	d.setTitle("a two-node job from zero")
	if err := d.step(ctx, "two-node job", jobTimeout, d.twoNodes); err != nil {
		return err
	}
	d.setTitle("a GPU job, an array and an srun, each from zero")
	if err := d.together(ctx, map[string]func(context.Context) (string, error){
		"two-node job's end": d.finishTwoNodes, "GPU job": d.gpuJob, "array": d.arrayJob, "srun": d.srunJob,
	}); err != nil {
		return err
	}
	d.setTitle(fmt.Sprintf("all jobs are done; Slurm suspends nodes that are idle for %d s", d.stack.Options.SuspendTime))
	if err := d.step(ctx, "back to zero", zeroTimeout, d.waitZero); err != nil {
		return err
	}
	return d.step(ctx, "records", time.Minute, d.checkRecords)
}

// step runs one step and notes how it went.
func (d *demo) step(ctx context.Context, name string, timeout time.Duration, f func(context.Context) (string, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done after %v", timeout))
	defer cancel()
	began := time.Now()
	detail, err := f(ctx)
	result := stepResult{Name: name, OK: err == nil, Seconds: time.Since(began).Seconds(), Detail: detail}
	if err != nil {
		// Package stack's errors go on with a description, but there is diagnose.
		result.Detail, _, _ = strings.Cut(err.Error(), "\n")
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			result.Detail += ": " + cause.Error()
		}
		err = &stepError{name, result.Detail, err}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.Steps = append(d.report.Steps, result)
	if err == nil {
		d.screen.say("ok  %s: %s", name, detail)
	} else if d.report.FailedStep == "" {
		d.report.FailedStep = name
	}
	return err
}

// stepError says in one line which step failed and why.
type stepError struct {
	step, why string
	cause     error
}

func (e *stepError) Error() string { return fmt.Sprintf("step %q failed: %s", e.step, e.why) }
func (e *stepError) Unwrap() error { return e.cause }

// together runs steps side by side and returns the first failure, which ends the others.
func (d *demo) together(ctx context.Context, steps map[string]func(context.Context) (string, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for name, f := range steps {
		wg.Go(func() {
			if err := d.step(ctx, name, jobTimeout, f); err != nil {
				once.Do(func() { first = err })
				cancel(errors.New("another step failed"))
			}
		})
	}
	wg.Wait()
	return first
}

// waitZero returns when no pod is left, Slurm shows every node at rest, and spool and bridge have nothing in hand.
func (d *demo) waitZero(ctx context.Context) (string, error) {
	problem := ""
	nodes := map[string]bool{}
	err := d.world.wait(ctx, func(f *facts) (bool, error) {
		for _, n := range f.Slurm.Nodes {
			nodes[n.Name] = true
		}
		problem = f.atZero()
		return problem == "" && f.Bridge.Version != "", nil
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", problem, err)
	}
	return "no slurmd pod, spool empty, " + compress(nodes) + " IDLE+CLOUD+POWERED_DOWN", nil
}

// checkRecords makes sure that every job's nodes came up for it and went down again.
func (d *demo) checkRecords(ctx context.Context) (string, error) {
	st, err := askBridge(ctx, d.stack)
	if err != nil {
		return "", fmt.Errorf("asking the bridge for the power-downs: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.world.update(func(f *facts) {
		f.seeOffs(st.Engine.FinishedOffs)
		d.report.fill(f)
	})
	if err := d.report.check(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d boots for %d jobs, every job from zero; %d power-downs", len(d.report.Boots), len(d.report.Jobs), len(d.report.PowerDowns)), nil
}

// watch shows the facts until ctx ends.
func (d *demo) watch(ctx context.Context) {
	const atMostEvery = 200 * time.Millisecond
	for {
		d.mu.Lock()
		title := d.title
		d.mu.Unlock()
		var v view
		changed := d.world.read(func(f *facts) { v = newView(f, time.Since(d.screen.start), title) })
		d.screen.show(v)
		if !pause(ctx, atMostEvery) {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // the clock in the title
		case <-ctx.Done():
			return
		}
	}
}

func (d *demo) setTitle(title string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.title = title
}

func (d *demo) addRun(r jobRun) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.Jobs = append(d.report.Jobs, r)
	slices.SortFunc(d.report.Jobs, func(a, b jobRun) int { return int(a.ID) - int(b.ID) })
}

// run is the job with that name, which addRun got.
func (d *demo) run(name string) jobRun {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.report.Jobs, func(r jobRun) bool { return r.Name == name })
	return d.report.Jobs[i]
}
