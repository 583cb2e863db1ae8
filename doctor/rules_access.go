package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Limits of what is well.
const (
	mostSkew = 3 * time.Second // docs/install.md: the hosts' clocks must agree within a few seconds
	mostWait = time.Second     // a name server answers, or refuses, at once
)

// accessRules are about what the bridge reaches, and may do.
func accessRules() []Rule {
	return []Rule{
		{
			Name: "kubernetes", Severity: Error, Wants: Live,
			Why:    "the bridge makes and deletes pods through the API server",
			Remedy: "--kubeconfig of the bridge, or its service account",
			Source: "docs/install.md",
			check: func(f *Facts) []Finding {
				return unreachable(f, "the API server", func(a AccessFacts) string { return a.KubernetesError })
			},
		},
		{
			Name: "slurmrestd", Severity: Error, Wants: Live,
			Why:    "the bridge reads and updates nodes and jobs through slurmrestd, of a version that both know (data_parser v0.0.42 to v0.0.45), with a token that slurmctld takes",
			Remedy: "--slurmrestd and --jwt-key of the bridge, AuthAltTypes of slurm.conf",
			Source: "docs/install.md#2-slurmrestd; slurmrestd(8)",
			check: func(f *Facts) []Finding {
				return unreachable(f, "slurmrestd", func(a AccessFacts) string { return a.SlurmrestdError })
			},
		},
		{
			Name: "rights", Severity: Error, Wants: Live,
			Why:    "the bridge cannot do its work, or only part of it",
			Remedy: "the rights of docs/examples/rbac.yaml for the bridge's service account",
			Source: "docs/operate.md",
			check: func(f *Facts) []Finding {
				return missingRights(f, "the bridge may not", func(a AccessFacts) []string { return a.MissingRights })
			},
		},
		{
			Name: "host-rights", Severity: Warning, Wants: Live,
			Why:    "the bridge does not see that a host is cordoned, tainted or silent, and cannot mark one with bad hardware",
			Remedy: "the ClusterRole of docs/examples/rbac.yaml for the bridge's service account",
			Source: "docs/operate.md",
			check: func(f *Facts) []Finding {
				return missingRights(f, "of hosts the bridge may not", func(a AccessFacts) []string { return a.MissingHostRights })
			},
		},
		{
			Name: "slurm-version", Severity: Warning, Wants: Live,
			Why:    "what holds for one version of slurm.conf does not for another; slurmrestd and slurmctld should be of the same",
			Remedy: "--slurm-version as slurmrestd says",
			Source: "docs/doctor.md",
			check:  otherVersion,
		},
		{
			Name: "clock-skew", Severity: Warning, Wants: Live,
			Why:    "tokens are refused before their time, or after it, and requests of several spools are put into order by the hosts' clocks",
			Remedy: "the same time on slurmctld's hosts and those of Kubernetes (chrony, systemd-timesyncd)",
			Source: "docs/install.md#3c-slurmctld-with-backups",
			check:  clockSkew,
		},
		{
			Name: "slow-names", Severity: Warning, Wants: Live,
			Why: "slurmctld 24.11 looks node names up while it serves requests, and waits for the answer: a 2-node job took 70 s instead of 2. " +
				"The name server must answer, or refuse, at once, also for nodes that are off",
			Remedy: "a name server in /etc/resolv.conf that answers, without long search lists",
			Source: "docs/slurm-conf.md#network",
			check:  slowNames,
		},
	}
}

// AccessFacts are what the bridge's own access shows.
type AccessFacts struct {
	KubernetesError   string // why NodeSets could not be read
	MissingRights     []string
	MissingHostRights []string
	SlurmrestdError   string            // why slurmrestd could not be asked; empty also if it was not
	Release           slurmconf.Version // of slurmrestd; zero: not known
	Skew              time.Duration     // the API server's clock less ours; good to about a second
	SlurmSkew         time.Duration     // slurmctld's clock less ours; likewise
	Running           *RunningFacts     // nil: slurmctld was not asked, or did not answer
	NameServers       []NameServer      // of this host, each asked for itself
	QPS               float64           // requests per second that the bridge may make to the API server; 0: not known
	Burst             int               // of them at once
	Name              string            // of a node that was looked up
	NameTook          time.Duration
}

func unreachable(f *Facts, what string, of func(AccessFacts) string) []Finding {
	if f.Access == nil || of(*f.Access) == "" {
		return nil
	}
	return []Finding{found(slurmconf.Position{}, "mend that first: findings that need it are missing here", nil, "%s: %s", what, of(*f.Access))}
}

func missingRights(f *Facts, what string, of func(AccessFacts) []string) []Finding {
	if f.Access == nil || len(of(*f.Access)) == 0 {
		return nil
	}
	return []Finding{found(slurmconf.Position{}, "add them to the role of its service account (docs/examples/rbac.yaml)", nil, "%s: %s", what, strings.Join(of(*f.Access), ", "))}
}

func otherVersion(f *Facts) []Finding {
	if f.Access == nil || f.Access.Release == (slurmconf.Version{}) || f.Access.Release == f.Version {
		return nil
	}
	return []Finding{found(slurmconf.Position{}, "give --slurm-version="+f.Access.Release.String(), nil, "slurmrestd is of Slurm %s, and slurm.conf was looked at by %s", f.Access.Release, f.Version)}
}

func clockSkew(f *Facts) []Finding {
	if f.Access == nil {
		return nil
	}
	var out []Finding
	for _, clock := range []struct {
		of   string
		skew time.Duration
	}{{"the API server", f.Access.Skew}, {"slurmctld", f.Access.SlurmSkew}} {
		if clock.skew.Abs() > mostSkew {
			out = append(out, found(slurmconf.Position{}, "set the clocks by one server", nil, "%s's clock and this host's differ by %s", clock.of, clock.skew.Abs().Round(time.Second)))
		}
	}
	return out
}

func slowNames(f *Facts) []Finding {
	if f.Access == nil || f.Access.NameTook <= mostWait {
		return nil
	}
	return []Finding{found(slurmconf.Position{}, fmt.Sprintf("correct /etc/resolv.conf until `getent hosts %s` returns at once", f.Access.Name), nil,
		"looking up %s took %s", f.Access.Name, f.Access.NameTook.Round(100*time.Millisecond))}
}
