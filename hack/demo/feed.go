package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/slurmtide/slurmtide/hack/demo/printed"
	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave/bridge"
)

const (
	// The looks must not cost what they measure: both cost some 50 ms of CPU each.
	slurmEvery  = 300 * time.Millisecond
	bridgeEvery = 700 * time.Millisecond
	// A look that takes longer than this has failed.
	lookTimeout = 30 * time.Second
	retryAfter  = time.Second
)

// lookScript answers every line of input with one look at Slurm. One process for all looks: a new exec for each would cost more than
// the look. It ends with its input.
const lookScript = `while read -r _; do scontrol show jobs --json && scontrol show nodes --json || exit 1; done`

// feed keeps a world's facts up to date.
type feed struct {
	stack  *stack.Stack
	config *rest.Config
	kube   kubernetes.Interface
	world  *world
}

// run returns when ctx has ended and everything it started, too.
func (f *feed) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { f.watchPods(ctx) })
	wg.Go(func() { f.pollSlurm(ctx) })
	wg.Go(func() { f.pollBridge(ctx) })
	wg.Wait()
}

func (f *feed) watchPods(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(f.kube, 0, informers.WithNamespace(f.stack.Options.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = v1alpha1.LabelCluster + "=" + f.stack.Options.ClusterName
		}))
	see := func(obj any) {
		if p, ok := obj.(*corev1.Pod); ok {
			f.world.update(func(facts *facts) { facts.seePod(p, time.Now()) })
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, obj any) { see(obj) },
		DeleteFunc: func(obj any) {
			if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = lost.Obj
			}
			if p, ok := obj.(*corev1.Pod); ok {
				f.world.update(func(facts *facts) { facts.losePod(p.Name, string(p.UID), time.Now()) })
			}
		},
	})
	if err != nil {
		return // only an informer that was stopped refuses
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

// pollSlurm looks at Slurm again and again. When the looks end, slurmctld's container having been restarted for instance, it starts over.
func (f *feed) pollSlurm(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.lookAtSlurm(ctx)
		if ctx.Err() != nil {
			return
		}
		f.world.update(func(facts *facts) { facts.SlurmErr = err })
		pause(ctx, retryAfter)
	}
}

func (f *feed) lookAtSlurm(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request := f.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(f.stack.Options.Namespace).Name(controlPlanePod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: stack.ContainerSlurmctld, Command: []string{"bash", "-c", lookScript}, Stdin: true, Stdout: true,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(f.config, "GET", request.URL().String())
	if err != nil {
		return fmt.Errorf("preparing to look at Slurm: %w", err)
	}
	stdin, ask := io.Pipe()
	answer, stdout := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout})
		if err == nil {
			err = errors.New("scontrol ended")
		}
		stdin.CloseWithError(err)
		stdout.CloseWithError(err)
	}()
	defer func() {
		ask.Close() // the end of its input ends the script
		answer.Close()
		defer time.AfterFunc(time.Second, func() { cancel(nil) }).Stop()
		<-ended
	}()

	dec := json.NewDecoder(answer)
	for {
		late := time.AfterFunc(lookTimeout, func() { cancel(fmt.Errorf("slurmctld did not answer within %v", lookTimeout)) })
		if _, err := io.WriteString(ask, "\n"); err != nil {
			late.Stop()
			return err
		}
		l, err := printed.ReadLook(dec)
		late.Stop()
		if err != nil {
			return err
		}
		f.world.update(func(facts *facts) { facts.seeSlurm(l, time.Now()) })
		if !pause(ctx, slurmEvery) {
			return ctx.Err()
		}
	}
}

func (f *feed) pollBridge(ctx context.Context) {
	for ctx.Err() == nil {
		st, err := askBridge(ctx, f.stack)
		if ctx.Err() != nil {
			return
		}
		f.world.update(func(facts *facts) {
			if err != nil {
				facts.BridgeErr = err
				return
			}
			facts.Bridge, facts.BridgeErr = st, nil
		})
		pause(ctx, bridgeEvery)
	}
}

func askBridge(ctx context.Context, s *stack.Stack) (bridge.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	out, _, err := s.Exec(ctx, stack.ContainerBridge, "slurmtide", "status", "-o", "json")
	// It has printed its state also when it exits with 3: it cannot read Slurm or Kubernetes.
	if exit, ok := errors.AsType[*stack.ExitError](err); err != nil && (!ok || exit.Status != 3) {
		return bridge.Status{}, err
	}
	return parseStatus(out)
}

func parseStatus(text string) (bridge.Status, error) {
	var st bridge.Status
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		return st, fmt.Errorf("reading slurmtide status: %w", err)
	}
	return st, nil
}

// pause waits, and reports whether it was for the whole time.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
