// Package nodesets tells what scaler has to know of the NodeSets in Kubernetes: which there are, how many nodes of what
// shape each can have, and whose a node is. It only reads.
package nodesets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/generated/clientset/versioned"
	"github.com/slurmtide/slurmtide/kube/generated/informers/externalversions"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Cache holds the NodeSets of one Slurm cluster in one namespace. Its methods may be called at any time.
type Cache struct {
	tide               versioned.Interface
	namespace, cluster string
	log                *slog.Logger

	mu      sync.Mutex
	known   bool
	failed  error  // why they cannot be read
	version string // of the specs that sets and owners come from
	sets    []scaler.NodeSet
	owners  map[string]string
	changed chan struct{}
}

// New makes a Cache; Run fills it.
func New(cfg *rest.Config, namespace, cluster string, log *slog.Logger) (*Cache, error) {
	tide, err := versioned.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making the client for NodeSets: %w", err)
	}
	return newCache(tide, namespace, cluster, log), nil
}

func newCache(tide versioned.Interface, namespace, cluster string, log *slog.Logger) *Cache {
	if log == nil {
		log = slog.Default()
	}
	return &Cache{tide: tide, namespace: namespace, cluster: cluster, log: log, changed: make(chan struct{})}
}

// NodeSets returns the NodeSets, ordered by name, and what tells the name of the NodeSet of a node ("" if it is in none).
// Do not change them. It fails until they have been read once; after that what was read last counts, for NodeSets do not change often.
func (c *Cache) NodeSets() ([]scaler.NodeSet, func(node string) string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return nil, nil, fmt.Errorf("the NodeSets in namespace %s have not been read yet: %w", c.namespace, cmp.Or(c.failed, errors.New("waiting for Kubernetes")))
	}
	owners := c.owners
	return c.sets, func(node string) string { return owners[node] }, nil
}

// Changed is closed when NodeSets will say something new.
func (c *Cache) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Run watches the NodeSets until ctx is done. It needs the rights to list and watch nodesets.
func (c *Cache) Run(ctx context.Context) error {
	factory := externalversions.NewSharedInformerFactoryWithOptions(c.tide, 0, externalversions.WithNamespace(c.namespace),
		externalversions.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "spec.clusterRef.name=" + c.cluster }))
	informer := factory.Slurmtide().V1alpha1().NodeSets().Informer()
	if err := errors.Join(
		informer.SetTransform(slim),
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { c.note(err) }),
	); err != nil {
		return fmt.Errorf("setting up the watch of NodeSets: %w", err)
	}
	read, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.update(informer.GetStore(), false) },
		UpdateFunc: func(_, _ any) { c.update(informer.GetStore(), false) },
		DeleteFunc: func(any) { c.update(informer.GetStore(), false) },
	})
	if err != nil {
		return fmt.Errorf("watching NodeSets: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	if cache.WaitForCacheSync(ctx.Done(), read.HasSynced) {
		c.update(informer.GetStore(), true)
	}
	<-ctx.Done()
	return nil
}

func (c *Cache) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil || c.failed.Error() != err.Error() {
		c.log.Warn("reading NodeSets", "namespace", c.namespace, "error", err)
	}
	c.failed = err
}

// slim drops what is large and not needed.
func slim(obj any) (any, error) {
	if set, ok := obj.(*v1alpha1.NodeSet); ok {
		set.ManagedFields, set.Spec.Template = nil, v1alpha1.NodeSet{}.Spec.Template
		set.Status = v1alpha1.NodeSetStatus{}
	}
	return obj, nil
}

// update takes over what the store holds, once all of it has been read.
func (c *Cache) update(store cache.Store, synced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known && !synced {
		return
	}
	var list []*v1alpha1.NodeSet
	for _, obj := range store.List() {
		if set, ok := obj.(*v1alpha1.NodeSet); ok && set.Spec.ClusterRef.Name == c.cluster {
			list = append(list, set)
		}
	}
	version := versionOf(list)
	if c.known && version == c.version {
		return
	}
	c.sets, c.owners = Sets(list)
	c.known, c.version, c.failed = true, version, nil
	close(c.changed)
	c.changed = make(chan struct{})
}

// versionOf changes with any spec, and not with a status.
func versionOf(list []*v1alpha1.NodeSet) string {
	var all []string
	for _, set := range list {
		all = append(all, fmt.Sprintf("%s %d %v", set.UID, set.Generation, set.DeletionTimestamp != nil))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Sets turns NodeSets into scaler's, ordered by name, and tells whose each node is. A node that two of them name is the
// older one's. NodeSets with mistakes in them are among them: what jobs need does not change with that.
func Sets(list []*v1alpha1.NodeSet) ([]scaler.NodeSet, map[string]string) {
	specs := map[string]*v1alpha1.NodeSetSpec{}
	for _, set := range list {
		specs[set.Name] = &set.Spec
	}
	sets := make([]scaler.NodeSet, 0, len(list))
	owners := map[string]string{}
	for _, set := range pods.Validate(list) {
		for name := range set.Nodes.All() {
			owners[name] = set.Name
		}
		sets = append(sets, scaler.NodeSet{Name: set.Name, Max: set.Nodes.Len(), Shape: shape(&specs[set.Name].Shape), Partitions: slices.Clone(specs[set.Name].Partitions)})
	}
	return sets, owners
}

func shape(s *v1alpha1.Shape) *scaler.Shape {
	number := func(n *int32) uint32 {
		if n == nil {
			return 0
		}
		return uint32(max(0, *n))
	}
	gres := s.Gres
	if _, err := slurmconf.ParseGres(gres); err != nil {
		gres = ""
	}
	return &scaler.Shape{
		CPUs: number(&s.CPUs), Sockets: number(s.Sockets), Cores: number(s.CoresPerSocket), Threads: number(s.ThreadsPerCore),
		Memory: uint64(max(0, s.RealMemory)), Gres: gres, Features: slices.Clone(s.Features), Weight: number(s.Weight),
	}
}
