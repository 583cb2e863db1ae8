// Command demo shows Slurmtide at work on a Kubernetes cluster: it deploys Slurm, submits jobs to nodes that are off, shows live what
// happens, waits until all is back at zero and sums up. Nothing in it is mocked. `make demo` starts it by way of run.sh.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Exit codes.
const (
	exitFail        = 1
	exitUsage       = 2
	exitInterrupted = 130
)

type settings struct {
	kubeconfig, namespace, slurm, out, kubectl string
}

func main() {
	var s settings
	flag.StringVar(&s.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "how to reach the cluster")
	flag.StringVar(&s.namespace, "namespace", "demo", "namespace to deploy to; what an earlier demo left there is deleted")
	flag.StringVar(&s.slurm, "slurm", "26.05", "Slurm version: 24.11 or 26.05")
	flag.StringVar(&s.out, "out", "out/demo.json", "where the figures go")
	flag.StringVar(&s.kubectl, "kubectl", "kubectl", "how people call kubectl for this cluster, for the hints")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q\n", flag.Arg(0))
		os.Exit(exitUsage)
	}
	// client-go tells on stderr about every exec that is cut short, in the middle of the table.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(run(s))
}

// errInterrupted ends the demo when people press Ctrl-C.
var errInterrupted = errors.New("interrupted")

// run ends with a line that is exactly "demo: PASS" or "demo: FAIL".
func run(s settings) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // a second one kills
		cancel(errInterrupted)
	}()

	d, err := newDemo(s, newScreen(os.Stdout, os.Getenv, time.Now()))
	if err == nil {
		err = d.play(ctx)
		d.screen.end()
	}
	switch {
	case errors.Is(err, errInterrupted) || errors.Is(context.Cause(ctx), errInterrupted):
		fmt.Println("demo: interrupted; the cluster stays up, `make demo` begins anew, `make demo-down` removes it")
		fmt.Println("demo: FAIL")
		return exitInterrupted
	case err != nil:
		fmt.Printf("\ndemo: %v\n", err)
		if d != nil {
			fmt.Print(d.diagnose(context.WithoutCancel(ctx)))
		}
		fmt.Println("demo: FAIL")
		return exitFail
	}
	fmt.Print(d.report.text())
	fmt.Print(d.hints())
	fmt.Println("demo: PASS")
	return 0
}

func newDemo(s settings, screen *screen) (*demo, error) {
	if s.kubeconfig == "" {
		return nil, errors.New("no cluster: set KUBECONFIG or --kubeconfig, or start with `make demo`, which makes a cluster")
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", s.kubeconfig, err)
	}
	return openDemo(s, config, screen)
}
