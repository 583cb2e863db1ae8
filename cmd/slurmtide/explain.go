package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/internal/cli"
)

func explainCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "explain",
		Usage: "say why a job counts as demand for nodes, or does not",
		Subcommands: []*urfave.Command{{
			Name: "job", ArgsUsage: "ID",
			Usage: "a pending job, or the pending rest of an array",
			Description: "Asks the scaler, where it serves its metrics.\n\n" +
				"Exit status: 0 it is said; 1 the scaler does not answer, cannot read Slurm, or knows no such job; 2 wrong usage.",
			Flags: []urfave.Flag{
				&urfave.StringFlag{Name: "scaler", EnvVars: []string{"SLURMTIDE_SCALER"}, Value: "http://localhost:9443", Usage: "the scaler's --metrics-address"},
				&urfave.StringFlag{Name: "cluster", EnvVars: []string{"SLURMTIDE_CLUSTER"}, Usage: "Slurm's ClusterName, where the scaler serves several (default: all)"},
				&urfave.DurationFlag{Name: "timeout", Value: 5 * time.Second, Usage: "how long to wait for the scaler"},
				cli.OutputFlag("text", "json", "yaml"),
			},
			Action: func(c *urfave.Context) error {
				if c.NArg() != 1 {
					return cli.UsageError("explain job wants the number of one job, got %d arguments", c.NArg())
				}
				id, err := strconv.ParseUint(c.Args().First(), 10, 32)
				if err != nil {
					return cli.UsageError("%q is not the number of a job", c.Args().First())
				}
				ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
				defer cancel()
				return explainJob(ctx, c.String("scaler"), c.String("cluster"), c.String("output"), id, c.App.Writer)
			},
		}},
	}
}

// maxExplained is more than a scaler says of a job in thousands of clusters.
const maxExplained = 1 << 20

func explainJob(ctx context.Context, scaler, cluster, output string, id uint64, w io.Writer) error {
	base, err := url.Parse(scaler)
	if err != nil || base.Host == "" {
		return cli.UsageError("--scaler %q: expected a URL such as http://localhost:9443", scaler)
	}
	at := base.JoinPath("explain", "job", strconv.FormatUint(id, 10))
	query := url.Values{}
	if cluster != "" {
		query.Set("cluster", cluster)
	}
	if output != "text" {
		query.Set("output", "json")
	}
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return fmt.Errorf("asking the scaler: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the scaler: %w; is it running there? --scaler says where to ask", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxExplained))
	if err != nil {
		return fmt.Errorf("reading the scaler's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	if output != "text" && answer.Header.Get("Content-Type") != "application/json" {
		return errors.New("the scaler answers in text alone: it is of an older version; leave --output out")
	}
	if output == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return fmt.Errorf("reading the scaler's answer: %w", err)
		}
	}
	_, err = w.Write(text)
	return err
}
