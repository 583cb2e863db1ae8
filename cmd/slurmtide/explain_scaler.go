package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/scaler/ask"
)

// scalerFlags say which scaler is asked, and of which cluster; byDefault says of which without --cluster.
func scalerFlags(byDefault string) []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "scaler", EnvVars: []string{"SLURMTIDE_SCALER"}, Value: "http://localhost:9443", Usage: "the scaler's --metrics-address"},
		cli.ScalerCAFlag(),
		cli.ScalerCertFlag(),
		cli.ScalerKeyFlag(),
		&urfave.StringFlag{Name: "cluster", EnvVars: []string{"SLURMTIDE_CLUSTER"}, Usage: "Slurm's ClusterName, where the scaler serves several (default: " + byDefault + ")"},
	}
}

// explainDemand is what the scaler makes of a job: lines for people, or JSON if it is asked for.
func explainDemand(ctx context.Context, scaler ask.Scaler, cluster string, id uint32, asJSON bool) ([]byte, error) {
	query := url.Values{"cluster": {cluster}}
	if asJSON {
		query.Set("output", "json")
	}
	text, err := scaler.Get(ctx, ask.JobPath+strconv.FormatUint(uint64(id), 10), query)
	if err != nil {
		return nil, err
	}
	if asJSON && !json.Valid(text) {
		return nil, errors.New("the scaler answers in text alone: it is of an older version; leave --output out")
	}
	return text, nil
}
