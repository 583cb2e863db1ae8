// Package live reads the facts of package doctor that Kubernetes, slurmrestd and the name service tell. It changes nothing there.
package live

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/generated/clientset/versioned"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Time that each of these may take.
const (
	timeout       = 15 * time.Second
	lookupTimeout = 5 * time.Second
)

// Config says whom to ask.
type Config struct {
	Kubernetes         *rest.Config
	Namespace, Cluster string            // no Cluster: ClusterName of slurm.conf
	Slurmrestd         *slurmrest.Config // nil: it is not asked
	Lookup             func(ctx context.Context, name string) ([]string, error)
	NameServers        []string // host:port of each that this host asks
	QPS                float64  // requests per second that the bridge may make to the API server, and Burst at once
	Burst              int
	// Waits is told what is waited for from now on, and by what it returns that it is over; nil: nobody wants to know.
	Waits func(what string) (over func())
}

// waits tells what is waited for. To say twice that it is over does no harm.
func (c Config) waits(what string) (over func()) {
	if c.Waits == nil {
		return func() {}
	}
	return c.Waits(what)
}

// Read adds what they say to the facts of slurm.conf. What cannot be reached is a fact, too; an error is a configuration that cannot be used.
func Read(ctx context.Context, c Config, f *doctor.Facts) error {
	if c.Cluster == "" {
		if f.Cluster == nil {
			return nil // slurm.conf has to be mended first, and that is said
		}
		c.Cluster = f.Cluster.Name.V
	}
	f.Access = &doctor.AccessFacts{QPS: c.QPS, Burst: c.Burst}
	if err := readKubernetes(ctx, c, f); err != nil {
		return err
	}
	if c.Slurmrestd != nil {
		readSlurmrestd(ctx, c, f)
	} else {
		f.Unread = append(f.Unread, "slurmrestd, and with it slurmctld's version, clock and nodes: --slurmrestd says where it is")
	}
	lookUp(ctx, c, f)
	return nil
}

func readKubernetes(ctx context.Context, c Config, f *doctor.Facts) error {
	defer c.waits("the API server at " + c.Kubernetes.Host)()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	config := rest.CopyConfig(c.Kubernetes)
	clock := &clock{now: time.Now}
	config.Wrap(clock.wrap)
	tide, err := versioned.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for NodeSets: %w", err)
	}
	client, err := pods.New(config, c.Namespace, c.Cluster, pods.Options{})
	if err != nil {
		return err
	}
	list, err := tide.SlurmtideV1alpha1().NodeSets(c.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.clusterRef.name=" + c.Cluster})
	f.Access.Skew = clock.skew()
	if err != nil {
		f.Access.KubernetesError = err.Error()
		return nil
	}
	var sets []*v1alpha1.NodeSet
	for i := range list.Items {
		sets = append(sets, &list.Items[i])
	}
	f.Kubernetes = &doctor.KubernetesFacts{Cluster: c.Cluster, NodeSets: NodeSets(sets)}
	if f.Access.MissingRights, err = client.MissingRights(ctx, sets); err == nil {
		f.Access.MissingHostRights, err = client.MissingClusterRights(ctx)
	}
	if err != nil {
		f.Access.KubernetesError = err.Error()
	}
	return nil
}

// NodeSets are those of one cluster, as rules look at them.
func NodeSets(sets []*v1alpha1.NodeSet) []doctor.NodeSet {
	problems := map[string]string{}
	for _, checked := range pods.Validate(sets) {
		problems[checked.Name] = checked.Problem
	}
	var all []doctor.NodeSet
	for _, ns := range sets {
		nodes, _ := slurmconf.ParseHostlist(ns.Spec.NodeNames) // Validate says what is wrong with it
		set := doctor.NodeSet{
			Name: ns.Namespace + "/" + ns.Name, Dynamic: ns.Spec.Mode == v1alpha1.ModeDynamic, Nodes: nodes,
			CPUs: int(ns.Spec.Shape.CPUs), RealMemory: int(ns.Spec.Shape.RealMemory), Gres: ns.Spec.Shape.Gres, Features: ns.Spec.Shape.Features,
			Partitions: ns.Spec.Partitions, Memory: int(pods.MemoryLimitMiB(&ns.Spec)), Topology: ns.Spec.Topology != nil, Problem: problems[ns.Name],
		}
		if ns.Spec.Replicas != nil {
			set.Floor = int(*ns.Spec.Replicas)
		}
		if b := ns.Spec.Boot; b != nil && b.Deadline != nil {
			set.Deadline = b.Deadline.Duration
		}
		if b := ns.Status.Boots; b != nil {
			if seconds, err := strconv.ParseFloat(b.P95Seconds, 64); err == nil {
				set.P95 = time.Duration(seconds * float64(time.Second))
			}
		}
		all = append(all, set)
	}
	slices.SortFunc(all, func(a, b doctor.NodeSet) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// version is zero if a release does not say.
func version(release string) slurmconf.Version {
	v, err := slurmconf.ParseVersion(release)
	if err != nil {
		return slurmconf.Version{}
	}
	return v
}

// lookUp measures how long the name service takes for a node, which may well have no name now.
func lookUp(ctx context.Context, c Config, f *doctor.Facts) {
	if f.Cluster == nil || c.Lookup == nil {
		return
	}
	for _, n := range f.Cluster.Nodes {
		if !slurmconf.IsCloud(n.State.V) || n.Names.Len() == 0 {
			continue
		}
		f.Access.Name = n.Address(0)
		defer c.waits("the name service, which looks up " + f.Access.Name)()
		limited, cancel := context.WithTimeout(ctx, lookupTimeout)
		start := time.Now()
		_, _ = c.Lookup(limited, f.Access.Name) // refused is an answer, too
		f.Access.NameTook = time.Since(start)
		cancel()
		f.Access.NameServers = askServers(ctx, c.NameServers, f.Access.Name) // each has a time of its own, however long that took
		return
	}
}

// clock compares the Date of answers with this host's time.
type clock struct {
	now func() time.Time

	mu   sync.Mutex
	diff time.Duration
}

func (c *clock) wrap(next http.RoundTripper) http.RoundTripper { return roundTripper{c, next} }

func (c *clock) skew() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.diff
}

type roundTripper struct {
	clock *clock
	next  http.RoundTripper
}

// RoundTrip notes the difference: the answer was written in the middle of the exchange, and its Date is cut to the second.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	start := r.clock.now()
	answer, err := r.next.RoundTrip(req)
	if err != nil {
		return answer, err
	}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		r.clock.mu.Lock()
		r.clock.diff = apart(date, start, r.clock.now())
		r.clock.mu.Unlock()
	}
	return answer, nil
}
