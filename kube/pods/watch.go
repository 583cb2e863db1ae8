package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// Handler is told what happens in Kubernetes. Calls come one at a time and hold up all that
// follow, so they should only pass the news on.
type Handler interface {
	// NodeSets replaces all that is known of the cluster's NodeSets. The first call comes before
	// any about pods.
	NodeSets([]powersave.NodeSet)
	// PodsSynced is called once, with every pod of the cluster, before any Pod or PodGone.
	PodsSynced([]powersave.Pod)
	// Pod says that a pod is new or that something the engine looks at has changed.
	Pod(powersave.Pod)
	// PodGone says that the pod with this UID exists no longer. It is certain: it comes from a deletion seen, from a complete list
	// without the pod, or, for one that Create told of and no watch, from the answer that it is not there.
	PodGone(node, uid string)
	// HostsSynced is called once, after PodsSynced, with every Kubernetes node, before any Host.
	HostsSynced([]powersave.Host)
	// Host says that a Kubernetes node has got into or out of trouble.
	Host(powersave.Host)
	// HostsUnread says why Kubernetes nodes may not be read. All else works without.
	HostsUnread(error)
}

// Health says how well the Client sees Kubernetes.
type Health struct {
	// Synced: NodeSets and pods have been read completely once.
	Synced bool
	// LastContact is when the API server last answered a list or watch, or sent an event.
	LastContact time.Time
	// Err is why something cannot be read now; nil when all is well.
	Err error
}

// Health may be called at any time.
func (c *Client) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.health
}

// Run watches NodeSets and pods and calls h until ctx ends; it returns after the last call. Lost
// connections are made good with a complete list, so that h misses no end of a pod.
//
// It also watches events about pods, and calls Handler.Pod when they tell more of a pod than its status. If they may not
// be read, the log says so and the rest works on.
func (c *Client) Run(ctx context.Context, h Handler) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return errors.New("the Kubernetes client runs already")
	}
	c.running = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running, c.health.Synced = false, false
	}()
	stopRecorder, err := c.startRecorder(ctx)
	if err != nil {
		return err
	}
	defer stopRecorder()

	w := newWatcher(c, h)
	defer w.end()
	nodeSets := cache.NewSharedIndexInformer(w.nodeSetSource(), &v1alpha1.NodeSet{}, 0, cache.Indexers{})
	pods := cache.NewSharedIndexInformer(w.podSource(), &corev1.Pod{}, 0, cache.Indexers{})
	if err := errors.Join(
		nodeSets.SetTransform(slimNodeSet), nodeSets.SetWatchErrorHandlerWithContext(w.watchEnded),
		pods.SetTransform(slimPod), pods.SetWatchErrorHandlerWithContext(w.watchEnded),
	); err != nil {
		return fmt.Errorf("setting up the watches: %w", err)
	}
	nodeSetsRead, err := nodeSets.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.nodeSetsChanged(nodeSets.GetStore()) },
		UpdateFunc: func(_, _ any) { w.nodeSetsChanged(nodeSets.GetStore()) },
		DeleteFunc: func(any) { w.nodeSetsChanged(nodeSets.GetStore()) },
	})
	if err != nil {
		return fmt.Errorf("watching NodeSets: %w", err)
	}
	podsRead, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.podChanged,
		UpdateFunc: func(_, obj any) { w.podChanged(obj) },
		DeleteFunc: w.podGone,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}

	var running sync.WaitGroup
	running.Go(func() { nodeSets.RunWithContext(ctx) })
	running.Go(func() { pods.RunWithContext(ctx) })
	defer running.Wait()

	for _, step := range []struct {
		read cache.DoneChecker
		then func()
	}{
		{nodeSetsRead.HasSyncedChecker(), func() { w.nodeSetsSynced(nodeSets.GetStore()) }},
		{podsRead.HasSyncedChecker(), w.podsSynced},
	} {
		select {
		case <-step.read.Done():
			step.then()
		case <-ctx.Done():
			return nil
		}
	}
	running.Go(func() {
		if err := w.watchHosts(ctx); err != nil {
			c.log.Error("watching hosts", "error", err)
		}
	})
	running.Go(func() { w.findUnseen(ctx) })
	// Events come last: those of pods that are known can be told from the others.
	w.eventController().RunWithContext(ctx)
	return nil
}

// watchEnded is quiet: what cannot be read is reported by contact, with the right that is missing.
func (w *watcher) watchEnded(_ context.Context, _ *cache.Reflector, err error) {
	w.client.log.Debug("a watch ended", "error", err)
}

// watcher turns informer notifications into calls of a Handler.
type watcher struct {
	client  *Client
	handler Handler

	mu            sync.Mutex // held during every call of handler and of Options.WatchError
	nodeSetsReady bool
	podsReady     bool
	version       string // of the NodeSets last handed over
	pods          map[string]podSeen
	stories       *stories
	hosts         hosts
	pinned        []pinnedSet
	deaf          bool             // events may not be read
	failing       map[string]error // by right, as in "watch pods"
}

// podSeen is a pod by its own status, and as it was handed over.
type podSeen struct {
	observed, told powersave.Pod
	sandboxReady   bool
	tolerations    []corev1.Toleration
}

func newWatcher(c *Client, h Handler) *watcher {
	return &watcher{client: c, handler: h, pods: map[string]podSeen{}, stories: newStories(), hosts: hosts{seen: map[string]*hostSeen{}}, failing: map[string]error{}}
}

func (w *watcher) podSource() cache.ListerWatcher {
	c := w.client
	return source(w, c.kube, "pods", c.kube.CoreV1().Pods(c.namespace), metav1.ListOptions{LabelSelector: v1alpha1.LabelCluster + "=" + c.opts.Cluster})
}

// nodeSetSource reads all NodeSets of the namespace. They are few, and reading the foreign ones too
// lets the log say that a clusterRef matches nobody.
func (w *watcher) nodeSetSource() cache.ListerWatcher {
	c := w.client
	return source(w, c.tide, "nodesets."+v1alpha1.GroupName, c.tide.SlurmtideV1alpha1().NodeSets(c.namespace), metav1.ListOptions{})
}

// source lists and watches what is selected, and tells w.contact how it went.
func source[L runtime.Object](w *watcher, client any, resource string, of interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}, selected metav1.ListOptions) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
			list, err := of.List(ctx, o)
			w.contact(ctx, "list", resource, o, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
			events, err := of.Watch(ctx, o)
			w.contact(ctx, "watch", resource, o, err)
			return events, err
		},
	}, client)
}

// contact notes the outcome of a list or watch.
func (w *watcher) contact(ctx context.Context, verb, resource string, o metav1.ListOptions, err error) {
	switch {
	case ctx.Err() != nil:
		return // we are going down, or the informer gave up waiting
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		err = nil // the reflector lists afresh: the API server is fine
	case apierrors.IsInvalid(err) && o.SendInitialEvents != nil:
		return // an API server without streaming lists; the reflector falls back
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch resource {
	case eventResource:
		w.eventsRead(verb, err)
		return
	case hostResource:
		w.hostsRead(verb, err)
		return
	}
	before := len(w.failing)
	right := verb + " " + resource
	if err != nil {
		err = classify(err, verb+"ing "+resource, right, w.client.namespace)
		w.failing[right] = err
	} else {
		delete(w.failing, right)
		if o.SendInitialEvents != nil { // a watch that does a list's work
			delete(w.failing, "list "+resource)
		}
	}
	c := w.client
	c.mu.Lock()
	c.health.Err = nil
	for _, e := range w.failing {
		c.health.Err = errors.Join(c.health.Err, e)
	}
	if err == nil {
		c.health.LastContact = c.opts.Now()
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		c.opts.WatchError(err)
	case before > 0 && len(w.failing) == 0:
		c.opts.WatchError(nil)
	}
}

func (w *watcher) newsReceived() {
	c := w.client
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health.LastContact = c.opts.Now()
}

func (w *watcher) podChanged(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	w.newsReceived()
	seen := podSeen{observed: Observe(pod), sandboxReady: sandboxReady(pod), tolerations: pod.Spec.Tolerations}
	w.mu.Lock()
	defer w.mu.Unlock()
	old, known := w.pods[pod.Name]
	if known && old.observed.UID != seen.observed.UID {
		// An informer reports a pod that was replaced while it did not look as an update.
		w.forget(old)
	}
	w.client.seen(pod.Name, seen.observed.UID)
	w.stories.adopt(seen.observed.UID)
	w.tell(seen)
	if seen.observed.Host != old.observed.Host {
		w.reviewHost(seen.observed.Host)
	}
}

// tell hands over a pod, with what events tell of it, if there is news.
func (w *watcher) tell(p podSeen) {
	p.told = p.observed
	w.stories.known[p.told.UID].tell(&p.told, p.sandboxReady)
	old, known := w.pods[p.told.Node]
	w.pods[p.told.Node] = p
	if w.podsReady && (!known || old.told != p.told) {
		w.handler.Pod(p.told)
	}
}

func (w *watcher) forget(p podSeen) {
	delete(w.pods, p.told.Node)
	w.stories.forget(p.told.UID)
	if w.podsReady {
		w.handler.PodGone(p.told.Node, p.told.UID)
	}
}

func (w *watcher) podGone(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	w.newsReceived()
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, known := w.pods[pod.Name]; known {
		w.forget(old)
	}
}

func (w *watcher) podsSynced() {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]powersave.Pod, 0, len(w.pods))
	for _, p := range w.pods {
		all = append(all, p.told)
	}
	slices.SortFunc(all, func(a, b powersave.Pod) int { return strings.Compare(a.Node, b.Node) })
	w.podsReady = true
	w.client.mu.Lock()
	w.client.health.Synced = true
	w.client.mu.Unlock()
	w.handler.PodsSynced(all)
}

func (w *watcher) nodeSetsChanged(store cache.Store) {
	w.newsReceived()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodeSetsReady {
		w.handOverNodeSets(store)
	}
}

func (w *watcher) nodeSetsSynced(store cache.Store) {
	w.client.mu.Lock()
	w.client.nodeSets, w.client.watcher = store, w
	w.client.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodeSetsReady = true
	w.handOverNodeSets(store)
}

// handOverNodeSets validates anew, unless only a status has changed: our own status writes come
// back as events, and a NodeSet may name 100,000 nodes. One that begins to lead gets the statuses anyhow, see takeOver.
func (w *watcher) handOverNodeSets(store cache.Store) {
	c := w.client
	sets, foreign := c.ownNodeSets(store)
	version := "foreign " + strings.Join(foreign, ",")
	for _, ns := range sets {
		version += fmt.Sprintf("|%s %d %d %t", ns.UID, ns.Generation, floorWas(ns), ns.DeletionTimestamp != nil)
	}
	if version == w.version {
		return
	}
	w.version = version
	if len(sets) == 0 {
		c.log.Warn("no NodeSet of this Slurm cluster", "cluster", c.opts.Cluster, "namespace", c.namespace, "others", foreign)
	}
	checked := Validate(sets)
	w.handler.NodeSets(checked)
	w.pin(sets, checked)
}

// ownNodeSets are those of our cluster, by name; foreign says what others there are.
func (c *Client) ownNodeSets(store cache.Store) (sets []*v1alpha1.NodeSet, foreign []string) {
	for _, obj := range store.List() {
		ns, ok := obj.(*v1alpha1.NodeSet)
		switch {
		case !ok:
		case ns.Spec.ClusterRef.Name == c.opts.Cluster:
			sets = append(sets, ns)
		default:
			foreign = append(foreign, ns.Name+" (cluster "+ns.Spec.ClusterRef.Name+")")
		}
	}
	slices.SortFunc(sets, func(a, b *v1alpha1.NodeSet) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(foreign)
	return sets, foreign
}

// slimPod drops what Observe does not read, most of a pod: the cache holds every pod of the cluster.
func slimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil // a tombstone: its pod is slim already
	}
	m := &pod.ObjectMeta
	return &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
			CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
			Labels:      pick(m.Labels, v1alpha1.LabelCluster, v1alpha1.LabelNodeSet, v1alpha1.LabelOffering, v1alpha1.LabelBusy, v1alpha1.LabelMode, v1alpha1.LabelRevision),
			Annotations: pick(m.Annotations, v1alpha1.AnnotationGeneration, v1alpha1.AnnotationRequest),
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, Tolerations: pod.Spec.Tolerations},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, Conditions: pod.Status.Conditions,
			InitContainerStatuses: pod.Status.InitContainerStatuses, ContainerStatuses: pod.Status.ContainerStatuses,
		},
	}, nil
}

func slimNodeSet(obj any) (any, error) {
	if ns, ok := obj.(*v1alpha1.NodeSet); ok {
		ns.ManagedFields = nil
	}
	return obj, nil
}

func pick(from map[string]string, keys ...string) map[string]string {
	picked := make(map[string]string, len(keys))
	for _, k := range keys {
		if v, ok := from[k]; ok {
			picked[k] = v
		}
	}
	return picked
}
