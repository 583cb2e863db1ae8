// Package daemon is what our daemons have in common: logging, ways to Kubernetes and slurmrestd, parts that run together.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	urfave "github.com/urfave/cli/v2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
)

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

// Tokens chooses where slurmrestd tokens come from: the key file, if one is named, or $SLURM_JWT, or scontrol.
func Tokens(keyFile, user string) slurmrest.TokenSource {
	switch {
	case keyFile != "":
		return slurmrest.KeyFile{Path: keyFile, User: user}
	case os.Getenv("SLURM_JWT") != "":
		return slurmrest.Static(os.Getenv("SLURM_JWT"))
	default:
		return slurmrest.Scontrol{User: user}
	}
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
