// Package daemon is what our daemons have in common: logging, the way to Kubernetes, parts that run together.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	urfave "github.com/urfave/cli/v2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/internal/certs"
	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/measure"
)

// App is the program of daemons, whose commands people know as those of slurmtide.
func App(version string, commands ...*urfave.Command) *urfave.App {
	return &urfave.App{Name: "slurmtide", Usage: "the daemons of Slurmtide", Version: version, Commands: commands}
}

// Run is the daemon of command c from its start to its end: the parts, and what --pprof-address asks for. The log has both, with the attributes.
func Run(ctx context.Context, c *urfave.Context, log *slog.Logger, parts []func(context.Context) error, attributes ...any) error {
	if address := c.String("pprof-address"); address != "" {
		part, err := Profiles(address)
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	log.Info(c.Command.Name+" starts", append([]any{"version", c.App.Version}, attributes...)...)
	if err := RunAll(ctx, parts); err != nil {
		log.Error(c.Command.Name+" ends", "error", err)
		return err
	}
	log.Info(c.Command.Name + " ends")
	return nil
}

// RunAll runs the parts until ctx is done or one of them fails, and waits for all to end.
func RunAll(ctx context.Context, parts []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(parts))
	for _, part := range parts {
		go func() {
			err := part(ctx)
			if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
				cancel()
			} else {
				err = nil
			}
			results <- err
		}()
	}
	var all error
	for range parts {
		all = errors.Join(all, <-results)
	}
	return all
}

// Kubernetes says how to reach Kubernetes. It uses the file when one is named, and the pod's service account otherwise.
func Kubernetes(file string) (*rest.Config, error) {
	if file != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			return nil, fmt.Errorf("reading kubeconfig %s: %w", file, err)
		}
		return cfg, nil
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding Kubernetes: %w; outside a cluster, give --kubeconfig", err)
	}
	return cfg, nil
}

// CheckRest sees that --rest is a multiple that one can wait for.
func CheckRest(c *urfave.Context, usual float64) error {
	if rest := c.Float64("rest"); !(rest >= 0.1 && rest <= 1000) { // NaN neither
		return cli.UsageError("--rest %v: it must be from 0.1 to 1000; %v is usual", rest, usual)
	}
	return nil
}

// TLSCertFlag is --tls-cert, of the server at the address of a flag.
func TLSCertFlag(address string) urfave.Flag {
	return &urfave.StringFlag{Name: "tls-cert", TakesFile: true, Usage: "certificate for --" + address + "; files may be replaced at any time (default: no TLS)"}
}

// TLSKeyFlag is --tls-key.
func TLSKeyFlag() urfave.Flag {
	return &urfave.StringFlag{Name: "tls-key", TakesFile: true, Usage: "its key"}
}

// TLSClientCAFlag is --tls-client-ca.
func TLSClientCAFlag(clients string) urfave.Flag {
	return &urfave.StringFlag{Name: "tls-client-ca", TakesFile: true, Usage: "CA of the certificates that " + clients + " must have (default: they need none)"}
}

// CheckTLS checks the three.
func CheckTLS(c *urfave.Context) error {
	switch {
	case (c.String("tls-cert") == "") != (c.String("tls-key") == ""):
		return cli.UsageError("--tls-cert and --tls-key go together")
	case c.String("tls-client-ca") != "" && c.String("tls-cert") == "":
		return cli.UsageError("--tls-client-ca needs --tls-cert and --tls-key")
	}
	return nil
}

// TLS reads their files, and has metrics tell when the certificate ends; nil: none were given.
func TLS(c *urfave.Context, log *slog.Logger, registry prometheus.Registerer) (*certs.TLS, error) {
	if c.String("tls-cert") == "" {
		return nil, nil
	}
	tls, err := certs.Load(certs.Files{Cert: c.String("tls-cert"), Key: c.String("tls-key"), ClientCA: c.String("tls-client-ca")}, log)
	if err != nil {
		return nil, err
	}
	measure.ShowExpiry(registry, c.Command.Name, tls.Ends)
	return tls, nil
}

// PprofFlag is what Run looks at.
func PprofFlag() urfave.Flag {
	return &urfave.StringFlag{Name: "pprof-address", Usage: "where Go's profiles of this daemon are served, 127.0.0.1:6060 for example; empty: nowhere"}
}

// LogLevelFlag is --log-level.
func LogLevelFlag() urfave.Flag {
	return &urfave.GenericFlag{Name: "log-level", Value: cli.OneOf("info", "debug", "info", "warn", "error"), Usage: "debug, info, warn or error"}
}

// LogFormatFlag is --log-format.
func LogFormatFlag() urfave.Flag {
	return &urfave.GenericFlag{Name: "log-format", Value: cli.OneOf("text", "text", "json"), Usage: "text or json"}
}

// NewLogger makes the logger for --log-level and --log-format.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, cli.UsageError("unknown log level %q: use debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch strings.ToLower(format) {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, cli.UsageError("unknown log format %q: use text or json", format)
}
