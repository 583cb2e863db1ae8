package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// runningRules hold what runs against slurm.conf: the nodes that slurmctld knows, their pods, and the names of those that are up.
func runningRules() []Rule {
	return []Rule{
		{
			Name: "address-translation", Severity: Error, Wants: Live,
			Why: "slurmctld reaches a node by the address that its registration came from. Where that is not the pod's own, but that of a host that forwards for it, " +
				"launches and pings go to the wrong place: jobs do not start, and the node becomes DOWN",
			Remedy: "a network in which pods reach slurmctld without masquerading (the CNI's ipMasq or non-masquerade ranges, a Service without SNAT)",
			Source: "docs/slurm-conf.md#network; src/slurmctld/node_mgr.c set_node_comm_name",
			check:  addressTranslation,
		},
		{
			Name: "cloud-dns-names", Severity: Error, Wants: Live,
			Why:    "with cloud_dns Slurm's commands and daemons look node names up themselves: srun and the messages between nodes fail where a name has no address, or another node's",
			Remedy: "SlurmctldParameters without cloud_dns, or names that follow the pods",
			Source: "slurm.conf(5) SlurmctldParameters cloud_dns; src/slurmctld/node_scheduler.c set_job_alias_list",
			check:  cloudDNSNames,
		},
		{
			Name: "not-reconfigured", Severity: Warning, Wants: Live,
			Why:    "slurmctld goes by the slurm.conf that it has read: nodes that it does not know get no jobs, and those without State=CLOUD are never powered up",
			Remedy: "scontrol reconfigure, or the slurm.conf that slurmctld has read",
			Source: "scontrol(1) reconfigure",
			check:  notReconfigured,
		},
		{
			Name: "name-server", Severity: Warning, Wants: Live,
			Why: "each look-up that comes to a name server which does not answer waits until its time is over (5 s, twice, unless resolv.conf says otherwise) before the next one is asked; " +
				"slurmctld 24.11 looks names up while it serves requests",
			Remedy: "/etc/resolv.conf without it",
			Source: "resolv.conf(5); docs/slurm-conf.md#network",
			check:  silentNameServers,
		},
		{
			Name: "request-rate", Severity: Warning, Wants: Live,
			Why:    "a pod is a request to the API server, and the bridge makes so many a second: NodeSets share them, and where all nodes are resumed at once a good part of ResumeTimeout is over before the last pod is made",
			Remedy: "--kube-qps and --kube-burst of the bridge (defaults 200 and 400)",
			Source: "docs/operate.md; slurm.conf(5) ResumeTimeout, ResumeRate",
			check:  requestRate,
		},
	}
}

// RunningFacts are what slurmctld and Kubernetes show of the nodes at one time.
type RunningFacts struct {
	Nodes []RunningNode // all that slurmctld knows
	// Names are those of nodes that are up and were looked up on this host.
	Names []ResolvedName
}

// RunningNode is a node of slurmctld's.
type RunningNode struct {
	Name    string
	Cloud   bool     // has the state CLOUD
	Address string   // what slurmctld reaches it by; its name while it is off
	Pod     []string // addresses of the pod whose slurmd has registered as it; nil: there is none, or it is not known
}

// ResolvedName is what this host finds for the name of a node. A look-up without an answer is none.
type ResolvedName struct {
	Name      string
	Addresses []string // nil: there is no such name
}

// NameServer is one of /etc/resolv.conf.
type NameServer struct {
	Address string
	Silent  bool // it was asked for a node's name and did not answer in time
}

// running are the nodes that slurmctld shows; nil if it was not asked.
func (f *Facts) running() []RunningNode {
	if f.Access == nil || f.Access.Running == nil {
		return nil
	}
	return f.Access.Running.Nodes
}

// sameAddress tells whether an address is one of some; what is no address, a name for instance, cannot be told.
func sameAddress(one string, of []string) (same, known bool) {
	address, err := netip.ParseAddr(one)
	if err != nil {
		return false, false
	}
	return slices.ContainsFunc(of, func(other string) bool {
		parsed, err := netip.ParseAddr(other)
		return err == nil && parsed.Unmap() == address.Unmap()
	}), true
}

// addressTranslation looks at nodes whose pod is known. One finding has them all, with the first as an example: there are thousands, and one reason.
func addressTranslation(f *Facts) []Finding {
	var first RunningNode
	count, compared := 0, 0
	for _, n := range f.running() {
		same, known := sameAddress(n.Address, n.Pod)
		if !known || len(n.Pod) == 0 {
			continue
		}
		if compared++; same {
			continue
		}
		if count++; count == 1 {
			first = n
		}
	}
	if count == 0 {
		return nil
	}
	return []Finding{found(slurmconf.Position{}, fmt.Sprintf("see what forwards from %s to slurmctld, and have it leave the sender's address alone", first.Pod[0]), nil,
		"%d of %d registered pods have another address in Slurm than their own: %s has %s, and its pod %s", count, compared, first.Name, first.Address, first.Pod[0])}
}

func cloudDNSNames(f *Facts) []Finding {
	if _, ok := f.word("SlurmctldParameters", "cloud_dns"); !ok || f.Access == nil || f.Access.Running == nil {
		return nil
	}
	for _, name := range f.Access.Running.Names {
		seen := ""
		i := slices.IndexFunc(f.running(), func(n RunningNode) bool { return n.Name == name.Name })
		if len(name.Addresses) == 0 {
			seen = fmt.Sprintf("node %s is up, and this host finds no address for its name", name.Name)
		} else if i >= 0 {
			address := f.running()[i].Address
			if same, known := sameAddress(address, name.Addresses); known && !same {
				seen = fmt.Sprintf("node %s is up at %s, and this host finds %s for its name", name.Name, address, name.Addresses[0])
			}
		}
		if seen != "" {
			return []Finding{found(f.where("SlurmctldParameters"), "remove cloud_dns, or correct the name service", []edit{f.removeWords("SlurmctldParameters", "cloud_dns")},
				"SlurmctldParameters has cloud_dns, %s", seen)}
		}
	}
	return nil
}

func notReconfigured(f *Facts) []Finding {
	if len(f.running()) == 0 {
		return nil // one who sees none may not be allowed to
	}
	var all, cloud []string
	for _, n := range f.running() {
		if all = append(all, n.Name); n.Cloud {
			cloud = append(cloud, n.Name)
		}
	}
	known, powered := slurmconf.NewHostlist(all...), slurmconf.NewHostlist(cloud...)
	var out []Finding
	for _, n := range f.cloud() {
		if missing := n.Names.Minus(known); missing.Len() > 0 {
			out = append(out, found(n.Setting.Position, "scontrol reconfigure, if this is slurmctld's file", nil, "slurmctld knows no %s", missing))
		}
		if other := n.Names.Intersect(known).Minus(powered); other.Len() > 0 {
			out = append(out, found(n.Setting.Position, "restart slurmctld, if this is its file", nil, "slurmctld has %s without State=CLOUD", other))
		}
	}
	return out
}

func silentNameServers(f *Facts) []Finding {
	if f.Access == nil {
		return nil
	}
	var out []Finding
	for _, server := range f.Access.NameServers {
		if server.Silent {
			out = append(out, found(slurmconf.Position{File: "/etc/resolv.conf"}, "remove the server, or have it answer", nil, "name server %s does not answer", server.Address))
		}
	}
	return out
}

// requestRate: where slurmctld hands nodes over more slowly than the bridge makes pods, ResumeRate is what holds jobs up, and that is another rule's.
func requestRate(f *Facts) []Finding {
	if f.Access == nil || f.Access.QPS <= 0 {
		return nil
	}
	if rate := float64(f.Cluster.ResumeRate.V) / 60; rate > 0 && rate <= f.Access.QPS {
		return nil
	}
	var names []string
	count, shortest := 0, slurmconf.Infinite
	f.pairs(func(n slurmconf.NodeLine, s NodeSet) {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
		count, shortest = count+n.Names.Intersect(s.Nodes).Len(), min(shortest, f.resumeTimeout(n).V)
	})
	seen := "NodeSet " + strings.Join(names, ", ") + " has"
	if len(names) > 1 {
		seen = "NodeSets " + strings.Join(names, ", ") + " have"
	}
	seen += fmt.Sprintf(" %d nodes", count)
	value, _ := f.word("SlurmctldParameters", "max_powered_nodes")
	if most, err := strconv.Atoi(value); err == nil && most < count {
		count, seen = most, seen+fmt.Sprintf(", of which %d may be up", most)
	}
	last := time.Duration(float64(count-f.Access.Burst) / f.Access.QPS * float64(time.Second))
	if shortest == slurmconf.Infinite || last <= shortest/10 {
		return nil
	}
	need := float64(count-f.Access.Burst) / (shortest / 10).Seconds()
	return []Finding{found(slurmconf.Position{}, fmt.Sprintf("give the bridge --kube-qps=%d", int(need)+1), nil,
		"%s: with --kube-qps=%g the last pod is made after %s, and ResumeTimeout is %s", seen, f.Access.QPS, last.Round(time.Second), number(shortest))}
}
