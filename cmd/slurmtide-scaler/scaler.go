package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/slurmtide/slurmtide/internal/certs"
	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/daemon"
	"github.com/slurmtide/slurmtide/internal/daemon/slurmrestd"
	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/kube/nodesets"
	"github.com/slurmtide/slurmtide/scaler/ask"
	"github.com/slurmtide/slurmtide/scaler/external"
	"github.com/slurmtide/slurmtide/scaler/watch"
)

// threads that run Go code at once, at least.
const threads = 6

func scalerCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "scaler",
		Usage: "tell KEDA and Prometheus how many nodes Slurm's queue needs",
		Description: "Runs until it gets SIGTERM. It reads Slurm's queue and the NodeSets, and changes neither. It keeps nothing, so\n" +
			"there may be several of them.",
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "cluster", EnvVars: []string{"SLURMTIDE_CLUSTER"}, Usage: "Slurm's ClusterName; NodeSets with this spec.clusterRef are known (required without --clusters)"},
			&urfave.StringFlag{Name: "namespace", EnvVars: []string{"SLURMTIDE_NAMESPACE"}, Usage: "namespace of the NodeSets; empty: there are none, and triggers give partition and node shape"},
			&urfave.StringFlag{Name: "kubeconfig", TakesFile: true, EnvVars: []string{"KUBECONFIG"}, Usage: "how to reach Kubernetes (default: as a pod in the cluster)"},
			slurmrestd.ServerFlag("(required without --clusters)"),
			slurmrestd.KeyFlag(),
			slurmrestd.UserFlag("SlurmUser, or another operator who sees all jobs"),
			&urfave.StringFlag{Name: "select-type-parameters", Usage: "SelectTypeParameters of slurm.conf, where slurmrestd does not tell, before 26.05 (default: CR_Core_Memory)"},
			&urfave.StringFlag{Name: "clusters", TakesFile: true, Usage: "YAML file of several clusters, in place of the flags above but --kubeconfig"},
			&urfave.StringFlag{Name: "listen", Value: ":9442", Usage: "where KEDA is answered (gRPC)"},
			daemon.TLSCertFlag("listen"),
			daemon.TLSKeyFlag(),
			daemon.TLSClientCAFlag("clients"),
			&urfave.StringFlag{Name: "metrics-address", Value: ":9443", Usage: "where /metrics, /explain, /demand, /livez and /readyz are served; empty: nowhere"},
			&urfave.BoolFlag{Name: "metrics-tls", Usage: "serve --metrics-address with TLS, too; with --tls-client-ca only /livez and /readyz are for clients without a certificate"},
			daemon.PprofFlag(),
			&urfave.StringFlag{Name: "external-metrics", Usage: "where external.metrics.k8s.io/v1beta1 is served over HTTPS, for a plain HPA without KEDA, for example :6443 (default: nowhere)"},
			&urfave.DurationFlag{Name: "max-age", Value: watch.DefaultMaxAge, Usage: "figures that are older are an error; when reads take long, three times as long as they take"},
			&urfave.Float64Flag{Name: "rest", Value: watch.DefaultRest, Usage: "how long Slurm is left alone after a read, as a multiple of what the read took"},
			daemon.LogLevelFlag(),
			daemon.LogFormatFlag(),
		},
		Action: runScaler,
	}
}

func runScaler(c *urfave.Context) error {
	if err := cli.NoArguments(c, ""); err != nil {
		return err
	}
	clusters, err := clustersOf(c)
	if err != nil {
		return err
	}
	if err := daemon.CheckTLS(c); err != nil {
		return err
	}
	switch {
	case c.String("external-metrics") != "" && c.String("tls-cert") == "":
		return cli.UsageError("--external-metrics needs --tls-cert and --tls-key")
	case c.Bool("metrics-tls") && c.String("tls-cert") == "":
		return cli.UsageError("--metrics-tls needs --tls-cert and --tls-key")
	case c.Duration("max-age") < 2*time.Second:
		return cli.UsageError("--max-age %v is too short: 2s is the least, %v is usual", c.Duration("max-age"), watch.DefaultMaxAge)
	}
	if err := daemon.CheckRest(c, watch.DefaultRest); err != nil {
		return err
	}
	log, err := daemon.NewLogger(c.App.ErrWriter, c.String("log-level"), c.String("log-format"))
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log)
	// The reckoning and garbage collection keep two CPUs busy, and answers would wait for their turn in Go's own queue: with
	// more threads than CPUs the kernel lets them in at once.
	runtime.GOMAXPROCS(max(threads, runtime.GOMAXPROCS(0)))
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	registry := daemon.NewRegistry()
	s := &setup{log: log, slurmrestd: measure.NewSlurmrestd(registry), kubernetes: measure.NewKubernetes(registry),
		maxAge: c.Duration("max-age"), rest: c.Float64("rest"), kubeconfig: c.String("kubeconfig"), sources: map[string]external.Source{}, watchers: map[string]watch.Latester{}}
	s.metrics = external.NewMetrics(registry, s.sources)
	defer s.close()
	for _, cluster := range clusters {
		if err := s.add(cluster); err != nil {
			return err
		}
	}
	options := external.Options{Metrics: s.metrics, Log: log}
	if options.TLS, err = daemon.TLS(c, log, registry); err != nil {
		return err
	}
	service := external.NewService(s.sources)
	listener, err := net.Listen("tcp", c.String("listen"))
	if err != nil {
		return fmt.Errorf("listening for KEDA: %w; choose another --listen", err)
	}
	s.parts = append(s.parts, func(ctx context.Context) error { return service.Serve(ctx, listener, options) })
	if address := c.String("external-metrics"); address != "" {
		if err := s.serveExternalMetrics(address, service, options.TLS); err != nil {
			return err
		}
	}
	if address := c.String("metrics-address"); address != "" {
		var tls *certs.TLS
		var explain, demand http.Handler = watch.ExplainJobs(s.watchers), watch.TellDemand(s.watchers)
		if c.Bool("metrics-tls") {
			tls = options.TLS
			explain, demand = tls.Known(explain), tls.Known(demand)
		}
		part, err := daemon.Metrics(address, tls, registry, map[string]http.Handler{
			"GET /explain/": explain, "GET " + ask.DemandPath: demand, "GET /livez": http.HandlerFunc(daemon.OK), "GET /readyz": readiness(service),
		})
		if err != nil {
			return err
		}
		s.parts = append(s.parts, part)
	}
	return daemon.Run(ctx, c, log, s.parts, "clusters", strings.Join(s.names, ","), "listen", listener.Addr().String(), "tls", options.TLS != nil, "metrics_tls", c.Bool("metrics-tls"), "client_certificates", c.String("tls-client-ca") != "")
}

// setup puts the clusters together.
type setup struct {
	log        *slog.Logger
	metrics    *external.Metrics
	maxAge     time.Duration
	rest       float64
	kubeconfig string
	kube       *rest.Config
	slurmrestd measure.Slurmrestd
	kubernetes measure.Kubernetes

	names    []string
	sources  map[string]external.Source
	watchers map[string]watch.Latester
	parts    []func(context.Context) error
	closers  []func()
}

func (s *setup) close() {
	for _, f := range s.closers {
		f()
	}
}

func (s *setup) add(c cluster) error {
	log := s.log.With("cluster", c.Name)
	slurm, err := slurmrest.New(slurmrest.Config{Server: c.Slurmrestd, Token: slurmrestd.Tokens(c.JWTKey, c.JWTUser), Log: log, OnRequest: s.slurmrestd.Request})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, slurm.Close)
	cfg := watch.Config{Queue: slurm, MaxAge: s.maxAge, Rest: s.rest, Log: log, OnRead: s.metrics.Read(c.Name)}
	cfg.Select = c.choose
	if c.Namespace != "" {
		if err := s.reachKubernetes(); err != nil {
			return err
		}
		sets, err := nodesets.New(s.kube, c.Namespace, c.Name, log)
		if err != nil {
			return err
		}
		cfg.NodeSets = sets
		s.parts = append(s.parts, sets.Run)
	}
	w := watch.New(cfg)
	s.names, s.sources[c.Name], s.watchers[c.Name], s.parts = append(s.names, c.Name), w, w, append(s.parts, w.Run)
	return nil
}

func (s *setup) reachKubernetes() error {
	if s.kube != nil {
		return nil
	}
	var err error
	if s.kube, err = daemon.Kubernetes(s.kubeconfig); err != nil {
		return err
	}
	s.kube.Wrap(s.kubernetes.Transport)
	return nil
}

// readiness is that of a scaler that has had figures once: after that it answers KEDA, with an error if need be, rather than leave it without an answer.
func readiness(service *external.Service) http.HandlerFunc {
	var ready atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		if err := service.Ready(); err == nil {
			ready.Store(true)
		} else if !ready.Load() {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		daemon.OK(w, r)
	}
}
