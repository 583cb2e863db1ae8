package main

import (
	"context"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/exporter"
	"github.com/slurmtide/slurmtide/exporter/collect"
	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/daemon"
	"github.com/slurmtide/slurmtide/internal/daemon/slurmrestd"
	"github.com/slurmtide/slurmtide/internal/measure"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
)

func exporterCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "exporter",
		Usage: "serve Prometheus metrics of Slurm's nodes, jobs, partitions and scheduler",
		Description: "Runs until it gets SIGTERM. It reads Slurm at its own pace, however often it is scraped, and changes nothing. It\n" +
			"keeps nothing but sums of its own, so it may be stopped at any moment.",
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "cluster", EnvVars: []string{"SLURMTIDE_CLUSTER"}, Usage: "value of the label cluster on every metric of Slurm (default: no such label)"},
			slurmrestd.ServerFlag("(required)"),
			slurmrestd.KeyFlag(),
			slurmrestd.UserFlag("SlurmUser, or another operator who sees all jobs"),
			&urfave.DurationFlag{Name: "interval", Value: collect.DefaultInterval, Usage: "how often nodes, jobs and statistics are read"},
			&urfave.Float64Flag{Name: "rest", Value: collect.DefaultRest, Usage: "how long Slurm is left alone after a read, as a multiple of what the read took"},
			&urfave.DurationFlag{Name: "max-age", Value: collect.DefaultMaxAge, Usage: "figures that are older are not shown; when reads take long, twice as long as all of them take with their rests"},
			&urfave.DurationFlag{Name: "timeout", Value: slurmrest.DefaultTimeout, Usage: "how long an answer of slurmrestd may take; those with all nodes or jobs four times as long"},
			&urfave.BoolFlag{Name: "per-node", Usage: "metrics of each node, about 15 for each"},
			&urfave.IntFlag{Name: "per-job", Usage: "metrics of single jobs that have nodes, eight and one for each of its nodes, for as many jobs as this: they show who does what"},
			&urfave.BoolFlag{Name: "per-user", Usage: "metrics of each user and account: they show who does what"},
			&urfave.StringFlag{Name: "metrics-address", Value: ":9446", Usage: "where /metrics, /livez and /readyz are served"},
			daemon.TLSCertFlag("metrics-address"),
			daemon.TLSKeyFlag(),
			daemon.TLSClientCAFlag("whoever reads metrics"),
			daemon.PprofFlag(),
			daemon.LogLevelFlag(),
			daemon.LogFormatFlag(),
		},
		Action: runExporter,
	}
}

// mostJobs may have series of their own: 20 each, with their nodes, are what Prometheus takes from one page in a few seconds.
const mostJobs = 20_000

func runExporter(c *urfave.Context) error {
	if err := cli.NoArguments(c, ""); err != nil {
		return err
	}
	if err := cli.Require(c, "slurmrestd", "metrics-address"); err != nil {
		return err
	}
	switch {
	case c.Duration("interval") < time.Second:
		return cli.UsageError("--interval %v is too short: 1s is the least, %v is usual", c.Duration("interval"), collect.DefaultInterval)
	case c.Duration("max-age") < 2*c.Duration("interval"):
		return cli.UsageError("--max-age %v is too short: figures would come and go; twice --interval %v is the least", c.Duration("max-age"), c.Duration("interval"))
	case c.Int("per-job") < 0 || c.Int("per-job") > mostJobs:
		return cli.UsageError("--per-job %d: it must be from 0 to %d", c.Int("per-job"), mostJobs)
	case c.Duration("timeout") < time.Second:
		return cli.UsageError("--timeout %v is too short: 1s is the least, %v is usual", c.Duration("timeout"), slurmrest.DefaultTimeout)
	}
	if err := daemon.CheckTLS(c); err != nil {
		return err
	}
	if err := daemon.CheckRest(c, collect.DefaultRest); err != nil {
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
	slurm, err := slurmrest.New(slurmrest.Config{
		Server: c.String("slurmrestd"), Token: slurmrestd.Tokens(c.String("jwt-key"), c.String("jwt-user")), Timeout: c.Duration("timeout"), Log: log,
		Retries:   -1, // the next read comes anyhow
		OnRequest: measure.NewSlurmrestd(registry).Request,
	})
	if err != nil {
		return err
	}
	defer slurm.Close()
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	cfg := collect.Config{
		Slurm: slurm, Options: exporter.Options{PerNode: c.Bool("per-node"), PerUser: c.Bool("per-user"), PerJob: c.Int("per-job")},
		Interval: c.Duration("interval"), MaxAge: c.Duration("max-age"), Rest: c.Float64("rest"), Why: why, Version: slurm.Version, Log: log,
	}
	if name := c.String("cluster"); name != "" {
		cfg.Labels = prometheus.Labels{"cluster": name}
	}
	collector := collect.New(cfg)
	registry.MustRegister(collector)
	serve, err := daemon.Metrics(c.String("metrics-address"), tls, registry, map[string]http.Handler{
		"GET /livez": http.HandlerFunc(daemon.OK), "GET /readyz": readiness(collector),
	})
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{collector.Run, serve}
	return daemon.Run(ctx, c, log, parts, "slurmrestd", c.String("slurmrestd"), "listen", c.String("metrics-address"), "tls", tls != nil, "client_certificates", c.String("tls-client-ca") != "", "interval", cfg.Interval.String())
}

// why is the label of a failure.
func why(err error) string {
	switch {
	case slurmrest.IsAuth(err):
		return "token"
	case slurmrest.IsTransient(err):
		return "unreachable"
	}
	return "error"
}

// readiness is that of an exporter that has asked Slurm for everything once. Without an answer it is ready, too: Prometheus is to see that.
func readiness(c *collect.Collector) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.Tried() {
			http.Error(w, "Slurm has not been read yet", http.StatusServiceUnavailable)
			return
		}
		daemon.OK(w, r)
	}
}
