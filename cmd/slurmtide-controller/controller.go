package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/daemon"
	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/kube/groups"
)

// namespaceFile tells a pod its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func controllerCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "controller",
		Usage: "run Slurm control planes on Kubernetes",
		Description: "Runs until it gets SIGTERM. It carries out Controllers, Accountings, RestApis, LoginSets and Tokens, and keeps nothing, so there\n" +
			"may be several of it: the one that holds the Lease works.",
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "image", EnvVars: []string{"SLURMTIDE_IMAGE"}, Usage: "image of slurmtide, for bridges (required)"},
			&urfave.StringFlag{Name: "namespace", EnvVars: []string{"SLURMTIDE_NAMESPACE"}, Usage: "the only namespace to work in (default: all)"},
			&urfave.StringFlag{Name: "lease-namespace", Usage: "namespace of the Lease (default: the pod's own; with --namespace always that one)"},
			&urfave.StringFlag{Name: "cluster-domain", Value: "cluster.local", Usage: "Kubernetes' DNS domain"},
			&urfave.StringFlag{Name: "bridge-role", Value: "slurmtide-bridge", Usage: "ClusterRole that bridges get for their namespace"},
			&urfave.StringFlag{Name: "kubeconfig", TakesFile: true, EnvVars: []string{"KUBECONFIG"}, Usage: "how to reach Kubernetes (default: as a pod in the cluster)"},
			&urfave.StringSliceFlag{Name: "kinds", Usage: "kinds whose objects are carried out, separated by commas (default: " + strings.Join(controlplane.Kinds(), ",") + ")"},
			&urfave.IntFlag{Name: "workers", Value: 4, Usage: "objects that are handled at once"},
			&urfave.StringFlag{Name: "metrics-address", Value: ":9444", Usage: "where /metrics, /livez and /readyz are served; empty: nowhere"},
			daemon.TLSCertFlag("metrics-address"),
			daemon.TLSKeyFlag(),
			daemon.TLSClientCAFlag("whoever reads metrics"),
			daemon.PprofFlag(),
			&urfave.Float64Flag{Name: "kube-qps", Value: 200, Usage: "requests per second to the API server"},
			&urfave.IntFlag{Name: "kube-burst", Value: 400, Usage: "requests to the API server that may come at once"},
			daemon.LogLevelFlag(),
			daemon.LogFormatFlag(),
		},
		Action: runController,
	}
}

func runController(c *urfave.Context) error {
	if err := cli.NoArguments(c, ""); err != nil {
		return err
	}
	if err := cli.Require(c, "image"); err != nil {
		return err
	}
	if n := c.Int("workers"); n < 1 {
		return cli.UsageError("--workers %d is too few: 1 is the least, 4 are usual", n)
	}
	if err := daemon.CheckTLS(c); err != nil {
		return err
	}
	kinds, err := controlplane.ParseKinds(c.StringSlice("kinds"))
	if err != nil {
		return cli.UsageError("--kinds: %v", err)
	}
	lease, err := leaseOf(c.String("namespace"), c.String("lease-namespace"))
	if err != nil {
		return err
	}
	log, err := daemon.NewLogger(c.App.ErrWriter, c.String("log-level"), c.String("log-format"))
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25) // it has much to keep and little to do
	}
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := daemon.Kubernetes(c.String("kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(c.Float64("kube-qps")), c.Int("kube-burst")
	registry := daemon.NewRegistry()
	config.Wrap(measure.NewKubernetes(registry).Transport)
	loop, err := controlplane.New(config, controlplane.Options{
		Settings:  controlplane.Settings{Image: c.String("image"), ClusterDomain: c.String("cluster-domain"), BridgeRole: c.String("bridge-role")},
		Namespace: c.String("namespace"), Workers: c.Int("workers"), Kinds: kinds, Log: log, Metrics: controlplane.NewMetrics(registry),
	})
	if err != nil {
		return err
	}
	var leading atomic.Bool
	controlplane.ShowLeading(registry, c.String("namespace"), leading.Load)
	parts := []func(context.Context) error{func(ctx context.Context) error {
		return lead(ctx, config, lease, log, &leading, loop.Run)
	}}
	if address := c.String("metrics-address"); address != "" {
		tls, err := daemon.TLS(c, log, registry)
		if err != nil {
			return err
		}
		part, err := daemon.Metrics(address, tls, registry, map[string]http.Handler{"GET /livez": http.HandlerFunc(daemon.OK), "GET /readyz": http.HandlerFunc(daemon.OK)})
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	return daemon.Run(ctx, c, log, parts, "image", c.String("image"), "namespace", c.String("namespace"))
}

// leaseOf is what daemons that work in the same namespaces compete for. That of one namespace lies there: by it those of all namespaces know whom to leave it to.
func leaseOf(only, home string) (types.NamespacedName, error) {
	if only != "" {
		if home != "" && home != only {
			return types.NamespacedName{}, cli.UsageError("--lease-namespace %s: with --namespace the Lease is in %s, where daemons of all namespaces look for it; leave it out", home, only)
		}
		return types.NamespacedName{Namespace: only, Name: controlplane.NamespaceLease}, nil
	}
	if home == "" {
		text, err := os.ReadFile(namespaceFile)
		if err != nil {
			return types.NamespacedName{}, cli.UsageError("missing --lease-namespace: outside a pod nothing tells it; see `slurmtide controller --help`")
		}
		home = strings.TrimSpace(string(text))
	}
	return types.NamespacedName{Namespace: home, Name: "slurmtide-controller"}, nil
}

// lead runs work while this daemon has the Lease. One that loses it ends, and is started anew by whoever started it.
func lead(ctx context.Context, config *rest.Config, lease types.NamespacedName, log *slog.Logger, leading *atomic.Bool, work func(context.Context) error) error {
	kube, err := groups.New(config)
	if err != nil {
		return fmt.Errorf("setting up the lease: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("asking for the host's name: %w", err)
	}
	result := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var started atomic.Bool
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}, Client: kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + rand.Text()[:8]},
		},
		// The times are those of the bridges.
		Name: lease.Name, LeaseDuration: 20 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				started.Store(true)
				leading.Store(true)
				log.Info("leading", "lease", lease.String())
				result <- work(ctx)
				cancel()
			},
			OnStoppedLeading: func() { leading.Store(false) },
			OnNewLeader:      func(identity string) { log.Info("leader", "identity", identity) },
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the lease: %w", err)
	}
	elector.Run(ctx)
	ended := ctx.Err() != nil
	cancel()
	if started.Load() {
		if err := <-result; err != nil {
			return err
		}
	}
	if !ended {
		return errors.New("the lease was lost: the API server was away, or this process was stopped for too long")
	}
	return nil
}
