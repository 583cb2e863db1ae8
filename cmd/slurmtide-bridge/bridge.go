package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/slurmtide/slurmtide/internal/address"
	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/daemon"
	"github.com/slurmtide/slurmtide/internal/daemon/slurmrestd"
	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/page"
	"github.com/slurmtide/slurmtide/powersave/place"
	"github.com/slurmtide/slurmtide/powersave/reserve"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/powersave/traces"
	"github.com/slurmtide/slurmtide/scaler"
	aheadloop "github.com/slurmtide/slurmtide/scaler/ahead/loop"
	"github.com/slurmtide/slurmtide/scaler/ask"
	"github.com/slurmtide/slurmtide/scaler/dynamic"
	"github.com/slurmtide/slurmtide/scaler/dynamic/loop"
)

// accessEvery is how often missing rights are looked for again.
const accessEvery = time.Minute

// tracedHistory is how many bytes of the history are read for the traces of boots under way: all that are kept.
const tracedHistory = 16 << 20

// pageHistory is how many bytes of the history the page shows: some thousand entries, the newest.
const pageHistory = 2 << 20

// badHardware matches what people, and health checks such as NHC, write when a node's hardware is bad.
const badHardware = `(?i)\b(hardware|gpu|ecc|xid|nvlink|nhc|health[ _-]?check)`

func bridgeCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "bridge",
		Usage: "turn the requests of slurmctld's programs into slurmd pods",
		Description: "Runs until it gets SIGTERM. It shares the spool directory with slurmctld's programs, so it runs on the slurmctld host,\n" +
			"or in its pod, as SlurmUser. It may be stopped and started at any moment: nothing is lost.",
		Flags: []urfave.Flag{
			cli.SpoolFlag(),
			&urfave.StringFlag{Name: "cluster", EnvVars: []string{"SLURMTIDE_CLUSTER"}, Usage: "Slurm's ClusterName; NodeSets with this spec.clusterRef are served (required)"},
			&urfave.StringFlag{Name: "namespace", EnvVars: []string{"SLURMTIDE_NAMESPACE"}, Usage: "namespace of the NodeSets and pods (required)"},
			&urfave.StringFlag{Name: "kubeconfig", TakesFile: true, EnvVars: []string{"KUBECONFIG"}, Usage: "how to reach Kubernetes (default: as a pod in the cluster)"},
			slurmrestd.ServerFlag("(required)"),
			slurmrestd.KeyFlag(),
			slurmrestd.UserFlag("SlurmUser"),
			&urfave.StringFlag{Name: "conf-server", EnvVars: []string{"SLURMTIDE_CONF_SERVER"}, Usage: "slurmd --conf-server for the pods: host[:port] of slurmctld as pods reach it (default: slurm.conf comes with the pod template)"},
			&urfave.StringFlag{Name: "pod-service", Usage: "headless service that gives the pods DNS names"},
			&urfave.StringFlag{Name: "host-taint", Value: pods.DefaultHostTaint, Usage: "key[=value]:Effect, put on the Kubernetes node under a Slurm node that is drained for bad hardware; empty: none is"},
			&urfave.StringFlag{Name: "host-taint-reason", Value: badHardware, Usage: "regular expression: reasons that tell of bad hardware"},
			&urfave.StringSliceFlag{Name: "host-conditions", Usage: "TYPE or TYPE=STATUS (default: True), separated by commas: conditions of a Kubernetes node with which it gets no new jobs and no new pods, KernelDeadlock for example"},
			&urfave.StringFlag{Name: "select-type-parameters", EnvVars: []string{"SLURMTIDE_SELECT_TYPE_PARAMETERS"}, Usage: "SelectTypeParameters of slurm.conf, for NodeSets of mode Dynamic and look-ahead, where slurmrestd does not tell, before 26.05 (default: CR_Core_Memory)"},
			&urfave.IntFlag{Name: "max-node-count", EnvVars: []string{"SLURMTIDE_MAX_NODE_COUNT"}, Usage: "MaxNodeCount of slurm.conf, for NodeSets of mode Dynamic, where slurmrestd does not tell, before 26.05 (default: no limit is known)"},
			&urfave.StringFlag{Name: "metrics-address", Value: ":9441", Usage: "where /metrics and /healthz are served; empty: nowhere"},
			&urfave.StringFlag{Name: "page-address", EnvVars: []string{"SLURMTIDE_PAGE_ADDRESS"}, Usage: "where a page for browsers is served that shows nodes, boots and stories, 127.0.0.1:9445 for example; empty: nowhere"},
			&urfave.StringFlag{Name: "scaler", EnvVars: []string{"SLURMTIDE_SCALER"}, Usage: "where the scaler serves its metrics, http://slurmtide-scaler.slurmtide-system:9443 for example: the page shows what pending jobs ask for; empty: it does not"},
			cli.ScalerCAFlag(),
			cli.ScalerCertFlag(),
			cli.ScalerKeyFlag(),
			&urfave.StringFlag{Name: "otlp-endpoint", Usage: "http://host:port or https://host:port of an OpenTelemetry collector, that traces of boots are sent to by OTLP over HTTP (default: $OTEL_EXPORTER_OTLP_ENDPOINT when set, or else nowhere)"},
			daemon.TLSCertFlag("metrics-address and --page-address"),
			daemon.TLSKeyFlag(),
			daemon.TLSClientCAFlag("whoever reads metrics or the page"),
			daemon.PprofFlag(),
			&urfave.Float64Flag{Name: "kube-qps", Value: pods.DefaultQPS, Usage: "requests per second to the API server"},
			&urfave.IntFlag{Name: "kube-burst", Value: pods.DefaultBurst, Usage: "requests to the API server that may come at once"},
			daemon.LogLevelFlag(),
			daemon.LogFormatFlag(),
		},
		Action: runBridge,
	}
}

func runBridge(c *urfave.Context) error {
	if err := cli.NoArguments(c, ""); err != nil {
		return err
	}
	if err := cli.Require(c, "cluster", "namespace", "slurmrestd"); err != nil {
		return err
	}
	if err := daemon.CheckTLS(c); err != nil {
		return err
	}
	log, err := daemon.NewLogger(c.App.ErrWriter, c.String("log-level"), c.String("log-format"))
	if err != nil {
		return err
	}
	registry := daemon.NewRegistry()
	tls, err := daemon.TLS(c, log, registry)
	if err != nil {
		return err
	}
	taint, reasons, err := hostMarks(c.String("host-taint"), c.String("host-taint-reason"))
	if err != nil {
		return err
	}
	conditions, err := pods.ParseHostConditions(c.StringSlice("host-conditions"))
	if err != nil {
		return cli.UsageError("--host-conditions: %v", err)
	}
	selects, err := scaler.ParseSelect(c.String("select-type-parameters"))
	if err != nil {
		return cli.UsageError("--select-type-parameters: %v", err)
	}
	if selects.MaxNodeCount = c.Int("max-node-count"); selects.MaxNodeCount < 0 {
		return cli.UsageError("--max-node-count: %d is no number of nodes", selects.MaxNodeCount)
	}
	var demand func(context.Context) (ask.Demand, error)
	if c.String("scaler") != "" {
		from, err := cli.Scaler(c)
		if err != nil {
			return err
		}
		demand = func(ctx context.Context) (ask.Demand, error) { return from.Demand(ctx, c.String("cluster")) }
	}
	endpoint, err := collector(c, log)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log)
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	dir := c.String("spool")
	sp, err := spool.Open(dir)
	if err != nil {
		return err
	}
	kubeConfig, err := daemon.Kubernetes(c.String("kubeconfig"))
	if err != nil {
		return err
	}
	kubeConfig.Wrap(measure.NewKubernetes(registry).Transport)
	var b *bridge.Bridge // set before kube.Run can report anything
	var d *loop.Loop     // likewise
	var a *aheadloop.Loop
	var r *reserve.Loop
	kube, err := pods.New(kubeConfig, c.String("namespace"), c.String("cluster"), pods.Options{
		PodOptions: pods.PodOptions{ConfServer: c.String("conf-server"), Service: c.String("pod-service")},
		QPS:        float32(c.Float64("kube-qps")), Burst: c.Int("kube-burst"), Log: log,
		WatchError: func(err error) { b.WatchError(err); d.WatchError(err) }, HostTaint: taint, HostConditions: conditions,
	})
	if err != nil {
		return err
	}
	rooms, err := pods.NewRooms(kubeConfig, kube)
	if err != nil {
		return err
	}
	metrics := bridge.NewMetrics(registry)
	bridge.ShowSpool(registry, sp.Stats)
	slurm, err := slurmrest.New(slurmrest.Config{Server: c.String("slurmrestd"), Token: slurmrestd.Tokens(c.String("jwt-key"), c.String("jwt-user")), Log: log, OnRequest: measure.NewSlurmrestd(registry).Request})
	if err != nil {
		return err
	}
	defer slurm.Close()
	socket, err := spool.Listen(dir)
	if err != nil {
		return err
	}
	identity, err := identity(sp)
	if err != nil {
		return err
	}
	told := history.NewStore(dir, log, metrics.HistoryLost)
	config := bridge.Config{
		Spool: sp, SpoolDir: dir, Slurm: slurm, Kubernetes: kube, Rooms: rooms, Log: log, Metrics: metrics, History: told, Version: c.App.Version,
		Engine: powersave.Config{BadHardware: reasons},
		Others: func() []powersave.NodeSetCounts { return d.Counts() }, OthersBoots: func() []powersave.Boot { return d.Boots() }, OthersHosted: func() []powersave.Hosted { return d.Hosted() },
		OnCounts: func(counts []powersave.NodeSetCounts) { a.Counts(counts); r.Counts(counts) },
	}
	var traced *traces.Traces
	if endpoint != "" {
		if traced = newTraces(c, endpoint, identity, log, metrics); traced != nil {
			config.Traces = traced
		}
	}
	b = bridge.New(config)
	a = aheadloop.New(aheadloop.Config{
		Slurm: slurm, Log: log, Metrics: aheadloop.NewMetrics(registry), Options: scaler.Options{Select: selects},
		Tell: func(w powersave.WarmWished) { b.WarmWished(w) },
	})
	r = reserve.New(reserve.Config{
		Slurm: slurm, Namespace: c.String("namespace"), Log: log, Tell: func(t powersave.UpdateReserved) { b.UpdateReserved(t) },
	})
	d = loop.New(loop.Config{
		Slurm: slurm, Kubernetes: kube, Log: log.With("mode", "Dynamic"), Metrics: loop.NewMetrics(registry),
		Plan: dynamic.Config{Owner: "slurmtide: NodeSet " + c.String("namespace") + "/"}, Options: scaler.Options{Select: selects},
		Passed: b.Passed,
	})
	places := place.New(place.Config{
		Slurm: slurm, Place: kube.Place, Log: log,
		Warn: func(nodeSet, reason, text string) { kube.Warn(nodeSet, "", "", reason, text) },
	})
	claims := pods.NewClaims(kube)
	parts := []func(context.Context) error{
		b.Run,
		told.Run,
		func(ctx context.Context) error { return spool.Serve(ctx, socket, b, log) },
		d.Run,
		a.Run,
		r.Run,
		places.Run,
		claims.Run,
		func(ctx context.Context) error { return kube.Run(ctx, newSplit(b, d, a, places, claims)) },
		func(ctx context.Context) error { return watchAccess(ctx, kube, log) },
		func(ctx context.Context) error {
			return lead(ctx, kube, identity, c.String("cluster"), b, d, a, r, places, claims)
		},
	}
	if traced != nil {
		parts = append(parts, traced.Run)
	}
	if taint != nil {
		parts = append(parts, func(ctx context.Context) error { return watchHostMarks(ctx, kube, log) })
	}
	if address := c.String("metrics-address"); address != "" {
		part, err := daemon.Metrics(address, tls, registry, map[string]http.Handler{"GET /healthz": http.HandlerFunc(daemon.OK)})
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	if address := c.String("page-address"); address != "" {
		shown := page.New(page.Config{Bridge: b, Recent: history.NewTail(dir, pageHistory), Cluster: c.String("cluster"), Log: log.With("part", "page"), Demand: demand})
		part, err := daemon.Page(address, tls, shown.Handler())
		if err != nil {
			return err
		}
		parts = append(parts, shown.Run, part)
	}
	return daemon.Run(ctx, c, log, parts, "spool", dir, "cluster", c.String("cluster"), "namespace", c.String("namespace"), "slurmrestd", c.String("slurmrestd"))
}

// collector is where traces are sent to; empty: nowhere. What is wrong with the environment's settings, which others may have put there, keeps no bridge from starting.
func collector(c *urfave.Context, log *slog.Logger) (endpoint string, err error) {
	endpoint, err = traces.Endpoint(c.String("otlp-endpoint"), os.Getenv)
	switch {
	case err != nil && c.String("otlp-endpoint") != "":
		return "", cli.UsageError("--otlp-endpoint: %v", err)
	case err != nil:
		log.Warn("no traces are sent", "error", err)
	}
	return endpoint, nil
}

// newTraces goes on with the boots that the bridge before has left.
func newTraces(c *urfave.Context, endpoint, identity string, log *slog.Logger, metrics *bridge.Metrics) *traces.Traces {
	past, err := history.NewTail(c.String("spool"), tracedHistory).Newest()
	if err != nil {
		log.Warn("traces of boots under way lack what was before", "error", err)
	}
	t, err := traces.New(c.Context, traces.Config{
		Endpoint: endpoint, Cluster: c.String("cluster"), Namespace: c.String("namespace"), Instance: identity, Version: c.App.Version,
		Log: log, Dropped: metrics.SpansDropped, Past: past,
	})
	if err != nil {
		log.Warn("no traces are sent", "error", err)
		return nil
	}
	log.Info("traces are sent", "to", address.Host(endpoint)) // vendors have tokens in the path
	return t
}

// identity tells this bridge from others of the cluster, and stays the same when it is started again.
func identity(sp *spool.Spool) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("asking for the host's name: %w", err)
	}
	id, err := sp.Identity()
	if err != nil {
		return "", err
	}
	return host + "_" + id, nil
}

// lead keeps trying for the lease of the cluster's bridges.
func lead(ctx context.Context, kube *pods.Client, identity, cluster string, b *bridge.Bridge, d *loop.Loop, a *aheadloop.Loop, r *reserve.Loop, p *place.Loop, claims *pods.Claims) error {
	return kube.Lead(ctx, identity, func(l pods.Leadership) {
		lease := bridge.Lease{Name: pods.LeaseName(cluster), Identity: identity, Holder: l.Holder, Leading: l.Leading}
		if l.Err != nil {
			lease.Error = l.Err.Error()
		}
		b.Lease(lease)
		d.Lead(l.Leading)
		a.Lead(l.Leading)
		r.Lead(l.Leading)
		p.Lead(l.Leading)
		claims.Lead(l.Leading)
	})
}

// watchAccess says which rights are missing, until none is: the bridge works with what it has meanwhile.
func watchAccess(ctx context.Context, kube *pods.Client, log *slog.Logger) error {
	for {
		err := kube.CheckAccess(ctx)
		switch {
		case err == nil:
			<-ctx.Done()
			return nil
		case ctx.Err() == nil:
			log.Error("checking the rights in Kubernetes", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(accessEvery):
		}
	}
}

// watchHostMarks says once that hosts may not be marked, and when they may.
func watchHostMarks(ctx context.Context, kube *pods.Client, log *slog.Logger) error {
	said := false
	for {
		err := kube.CheckHostMarks(ctx)
		switch {
		case err == nil && said:
			log.Info("hosts of nodes with bad hardware are marked from now on")
			fallthrough
		case err == nil:
			<-ctx.Done()
			return nil
		case pods.IsForbidden(err) && !said:
			said = true
			log.Warn("hosts of nodes with bad hardware are not marked; empty --host-taint if that is not wanted", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(accessEvery):
		}
	}
}

// hostMarks reads --host-taint and --host-taint-reason; both are nil if hosts are not to be marked.
func hostMarks(taint, reason string) (*corev1.Taint, *regexp.Regexp, error) {
	if taint == "" {
		return nil, nil, nil
	}
	t, err := pods.ParseTaint(taint)
	if err != nil {
		return nil, nil, cli.UsageError("--host-taint: %v", err)
	}
	if reason == "" {
		return nil, nil, cli.UsageError("--host-taint-reason is empty, so every drained node would mark its host; to mark none, empty --host-taint")
	}
	r, err := regexp.Compile(reason)
	if err != nil {
		return nil, nil, cli.UsageError("--host-taint-reason: %v", err)
	}
	return t, r, nil
}
