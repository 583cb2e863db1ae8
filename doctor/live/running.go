package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/groups"
	"github.com/slurmtide/slurmtide/powersave"
)

// Bounds of what is asked of the name service.
const (
	mostNames     = 3 // of nodes that are up; the others' names are made in the same way
	serverTimeout = 2 * time.Second
	mostServers   = 3 // resolv.conf(5): MAXNS
)

// otherNetworks is where Multus says which more networks a pod is in. slurmd may register from one of these.
const otherNetworks = "k8s.v1.cni.cncf.io/network-status"

// off are the states of nodes whose address is not that of a living slurmd.
const off = powersave.NodePowerUp | powersave.NodePowerDown | powersave.NodePoweringUp | powersave.NodePoweringDown | powersave.NodePoweredDown | powersave.NodeDown |
	powersave.NodeNotResponding | powersave.NodeUnknown

// readSlurmrestd negotiates a version, and reads slurmctld's clock and nodes, for which the token has to be good: any will do for a version.
func readSlurmrestd(ctx context.Context, c Config, f *doctor.Facts) {
	over := c.waits("slurmrestd at " + c.Slurmrestd.Server)
	defer over()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := slurmrest.Dial(ctx, *c.Slurmrestd)
	if err != nil {
		f.Access.SlurmrestdError = err.Error()
		return
	}
	defer client.Close()
	_, release := client.Version()
	f.Access.Release = version(release)
	start := time.Now()
	if diag, err := client.Diag(ctx); err != nil {
		f.Unread = append(f.Unread, "slurmctld's clock: "+err.Error())
	} else if !diag.Now.IsZero() {
		f.Access.SlurmSkew = apart(diag.Now, start, time.Now())
	}
	nodes, err := client.Nodes(ctx)
	switch {
	case slurmrest.IsAuth(err):
		f.Access.SlurmrestdError = err.Error()
		return
	case err != nil:
		f.Unread = append(f.Unread, "nodes of slurmctld: "+err.Error())
		return
	}
	if len(nodes) == 0 {
		f.Unread = append(f.Unread, "nodes of slurmctld: it shows none to this user (PrivateData=nodes)")
	}
	pods, err := podAddresses(ctx, c)
	if err != nil {
		f.Unread = append(f.Unread, "addresses of pods: "+err.Error())
	}
	f.Access.Running = running(nodes, pods)
	over()
	resolve(ctx, c, nodes, f)
}

// apart is how much a clock that shows whole seconds was ahead of ours between two moments.
func apart(theirs, start, end time.Time) time.Duration {
	return theirs.Add(time.Second / 2).Sub(start.Add(end.Sub(start) / 2))
}

// running puts the nodes and their pods together: slurmd tells slurmctld the UID of the pod that it runs in.
func running(nodes []powersave.SlurmNode, pods map[string][]string) *doctor.RunningFacts {
	r := &doctor.RunningFacts{}
	for _, n := range nodes {
		node := doctor.RunningNode{Name: n.Name, Cloud: n.State.Has(powersave.NodeCloud), Address: n.Address}
		if n.InstanceID != "" && !n.State.Any(off) {
			node.Pod = pods[n.InstanceID]
		}
		r.Nodes = append(r.Nodes, node)
	}
	return r
}

// podAddresses are those of each pod of the cluster, by UID.
func podAddresses(ctx context.Context, c Config) (map[string][]string, error) {
	client, err := groups.New(c.Kubernetes)
	if err != nil {
		return nil, fmt.Errorf("making a client for pods: %w", err)
	}
	list, err := client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1alpha1.LabelCluster: c.Cluster}.String(), ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	addresses := map[string][]string{}
	for _, pod := range list.Items {
		if pod.Annotations[otherNetworks] != "" {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			addresses[string(pod.UID)] = append(addresses[string(pod.UID)], ip.IP)
		}
	}
	return addresses, nil
}

// resolve looks up the names of some nodes that are up. Only "there is no such name" is an answer that says there is none.
func resolve(ctx context.Context, c Config, nodes []powersave.SlurmNode, f *doctor.Facts) {
	if c.Lookup == nil || f.Cluster == nil {
		return
	}
	if s, _ := f.Cluster.Get("SlurmctldParameters"); !slices.ContainsFunc(s.Words(), func(word string) bool { return strings.EqualFold(word, "cloud_dns") }) {
		return
	}
	asked := 0
	for _, n := range nodes {
		if !n.State.Has(powersave.NodeCloud) || n.State.Any(off) || asked == mostNames {
			continue
		}
		asked++
		over := c.waits("the name service, which looks up " + n.Name)
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		addresses, err := c.Lookup(ctx, n.Name)
		cancel()
		over()
		if dns, ok := errors.AsType[*net.DNSError](err); err == nil || ok && dns.IsNotFound {
			f.Access.Running.Names = append(f.Access.Running.Names, doctor.ResolvedName{Name: n.Name, Addresses: addresses})
			continue
		}
		f.Unread = append(f.Unread, fmt.Sprintf("the name %s: %v", n.Name, err))
	}
	if asked == 0 {
		f.Unread = append(f.Unread, "names of nodes, for cloud_dns: none is up")
	}
}

// NameServers are those of a resolv.conf, as host:port. One that cannot be read has none; glibc then asks the host itself.
func NameServers(resolvConf string) []string {
	text, err := os.ReadFile(resolvConf)
	if err != nil {
		return nil
	}
	var servers []string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" && len(servers) < mostServers {
			servers = append(servers, net.JoinHostPort(words[1], "53"))
		}
	}
	return servers
}

// askServers asks each name server by itself for a node's name. Any answer will do, and so will a refusal.
func askServers(ctx context.Context, servers []string, name string) []doctor.NameServer {
	var all []doctor.NameServer
	for _, server := range servers {
		resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server)
		}}
		ctx, cancel := context.WithTimeout(ctx, serverTimeout)
		_, err := resolver.LookupTXT(ctx, strings.TrimSuffix(name, ".")+".") // no address, which /etc/hosts might have, and no search list
		cancel()
		dns, ok := errors.AsType[*net.DNSError](err)
		host, _, _ := net.SplitHostPort(server)
		all = append(all, doctor.NameServer{Address: host, Silent: ok && dns.IsTimeout})
	}
	return all
}
