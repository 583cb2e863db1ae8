package main

import (
	"fmt"
	"os"

	urfave "github.com/urfave/cli/v2"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/scaler"
)

// cluster is one Slurm cluster to watch, as it stands in the file of --clusters.
type cluster struct {
	Name       string `json:"name"`
	Namespace  string `json:"namespace,omitempty"` // of its NodeSets; empty: it has none
	Slurmrestd string `json:"slurmrestd"`
	JWTKey     string `json:"jwtKey,omitempty"`
	JWTUser    string `json:"jwtUser,omitempty"`
	// SelectTypeParameters is that of slurm.conf, for slurmrestd before 26.05, which does not tell.
	SelectTypeParameters string `json:"selectTypeParameters,omitempty"`

	choose scaler.Select
}

// clustersOf reads the clusters from the flags, or from the file that --clusters names.
func clustersOf(c *urfave.Context) ([]cluster, error) {
	file := c.String("clusters")
	if file == "" {
		if err := cli.Require(c, "cluster", "slurmrestd"); err != nil {
			return nil, err
		}
		one := cluster{
			Name: c.String("cluster"), Namespace: c.String("namespace"), Slurmrestd: c.String("slurmrestd"), JWTKey: c.String("jwt-key"),
			JWTUser: c.String("jwt-user"), SelectTypeParameters: c.String("select-type-parameters"),
		}
		var err error
		if one.choose, err = scaler.ParseSelect(one.SelectTypeParameters); err != nil {
			return nil, cli.UsageError("--select-type-parameters: %v", err)
		}
		return []cluster{one}, nil
	}
	for _, flag := range []string{"cluster", "namespace", "slurmrestd", "jwt-key", "jwt-user", "select-type-parameters"} {
		if c.IsSet(flag) && c.String(flag) != "" {
			return nil, cli.UsageError("--%s and --clusters exclude each other: write it into %s", flag, file)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading --clusters: %w", err)
	}
	all, err := parseClusters(text)
	if err != nil {
		return nil, fmt.Errorf("reading --clusters: %s: %w", file, err)
	}
	return all, nil
}

// parseClusters reads a file of clusters.
func parseClusters(text []byte) ([]cluster, error) {
	var doc struct {
		Clusters []cluster `json:"clusters"`
	}
	if err := yaml.UnmarshalStrict(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Clusters) == 0 {
		return nil, fmt.Errorf("there are no clusters in it; write\nclusters:\n- name: one\n  namespace: slurm\n  slurmrestd: http://slurmrestd.slurm:6820")
	}
	seen := map[string]bool{}
	for i := range doc.Clusters {
		c := &doc.Clusters[i]
		switch {
		case c.Name == "":
			return nil, fmt.Errorf("clusters[%d].name is missing", i)
		case c.Slurmrestd == "":
			return nil, fmt.Errorf("clusters[%d].slurmrestd is missing (cluster %s)", i, c.Name)
		case seen[c.Name]:
			return nil, fmt.Errorf("cluster %s stands there twice", c.Name)
		}
		seen[c.Name] = true
		var err error
		if c.choose, err = scaler.ParseSelect(c.SelectTypeParameters); err != nil {
			return nil, fmt.Errorf("clusters[%d].selectTypeParameters: %w", i, err)
		}
		if c.JWTUser == "" {
			c.JWTUser = "slurm"
		}
	}
	return doc.Clusters, nil
}
