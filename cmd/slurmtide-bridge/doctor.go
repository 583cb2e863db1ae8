package main

import (
	"log/slog"
	"net"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/doctor/live"
	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/daemon"
	"github.com/slurmtide/slurmtide/internal/daemon/slurmrestd"
	"github.com/slurmtide/slurmtide/internal/doctorcli"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/kube/pods"
)

// doctorCommand is `slurmtide doctor live`.
func doctorCommand() *urfave.Command {
	return &urfave.Command{
		Name:     "doctor",
		HelpName: "doctor live",
		Usage:    "look at slurm.conf, NodeSets, rights, slurmrestd, clocks and name service",
		Description: "What slurmtide doctor does, and: holds slurm.conf against the NodeSets of its cluster, and looks at what the bridge reaches and may do. Run it where the\n" +
			"bridge runs, as the same user and with the same flags; or, with a copy of slurm.conf, wherever there is a kubeconfig. It changes nothing.\n\n" + doctorcli.ExitStatus,
		Flags: append(doctorcli.Flags(),
			&urfave.StringFlag{Name: "cluster", EnvVars: []string{"SLURMTIDE_CLUSTER"}, DefaultText: "ClusterName of slurm.conf", Usage: "as the bridge is told"},
			&urfave.StringFlag{Name: "namespace", EnvVars: []string{"SLURMTIDE_NAMESPACE"}, Usage: "namespace of the NodeSets and pods (required)"},
			&urfave.StringFlag{Name: "kubeconfig", TakesFile: true, EnvVars: []string{"KUBECONFIG"}, Usage: "how to reach Kubernetes (default: as a pod in the cluster)"},
			&urfave.StringFlag{Name: "slurmrestd", EnvVars: []string{"SLURMTIDE_SLURMRESTD"}, Usage: "http://host:port, https://host:port or unix:///path; empty: it is not asked"},
			slurmrestd.KeyFlag(),
			slurmrestd.UserFlag("SlurmUser"),
			&urfave.Float64Flag{Name: "kube-qps", Value: pods.DefaultQPS, Usage: "as the bridge is told"},
			&urfave.IntFlag{Name: "kube-burst", Value: pods.DefaultBurst, Usage: "as the bridge is told"},
		),
		Action: runDoctor,
	}
}

func runDoctor(c *urfave.Context) error {
	if err := cli.Require(c, "namespace"); err != nil {
		return err
	}
	return doctorcli.Run(c, func(f *doctor.Facts) error {
		kubernetes, err := daemon.Kubernetes(c.String("kubeconfig"))
		if err != nil {
			return err
		}
		config := live.Config{Kubernetes: kubernetes, Namespace: c.String("namespace"), Cluster: c.String("cluster"), Lookup: net.DefaultResolver.LookupHost,
			NameServers: live.NameServers("/etc/resolv.conf"), QPS: c.Float64("kube-qps"), Burst: c.Int("kube-burst"),
			Waits: cli.Waits(c.App.ErrWriter)}
		if server := c.String("slurmrestd"); server != "" {
			config.Slurmrestd = &slurmrest.Config{Server: server, Token: slurmrestd.Tokens(c.String("jwt-key"), c.String("jwt-user")), Log: slog.New(slog.DiscardHandler)}
		}
		return live.Read(c.Context, config, f)
	})
}
