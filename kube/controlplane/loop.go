package controlplane

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/events"
	"github.com/slurmtide/slurmtide/kube/generated/clientset/versioned"
	tideinformers "github.com/slurmtide/slurmtide/kube/generated/informers/externalversions"
	listers "github.com/slurmtide/slurmtide/kube/generated/listers/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/groups"
)

const (
	// resyncEvery is how often each object is looked at again: what users refer to, ConfigMaps and Secrets, is not watched.
	resyncEvery = time.Minute
	// mendedWithin is the same for objects that cannot be carried out.
	mendedWithin = 10 * time.Second
	// nodesGoneWithin is the same while nodes are kept in slurm.conf for their pods.
	nodesGoneWithin = 5 * time.Second
	// readsWithin is after how long the log says what has not been read.
	readsWithin = 10 * time.Second
	// Waits after failures.
	retryFirst = 250 * time.Millisecond
	retryMost  = time.Minute
	// callFor bounds the handling of one object.
	callFor = 30 * time.Second
)

// Options of a Loop. Zero fields get their defaults.
type Options struct {
	Settings
	// Namespace is the only one that is looked at; "" for all.
	Namespace string
	// Workers handle so many objects at once; default 4.
	Workers int
	// Kinds are those whose objects are carried out; empty for all. See ParseKinds.
	Kinds   []string
	Metrics *Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// key is an object in the queue.
type key struct{ kind, namespace, name string }

// Loop carries out Controllers, Accountings, RestApis, LoginSets and Tokens.
type Loop struct {
	o       Options
	kube    groups.Interface
	tide    versioned.Interface
	applier applier
	queue   workqueue.TypedRateLimitingInterface[key]
	events  events.Recorder
	tenants tenants
	refused sync.Map // of refusal, by claim and size

	tideFactory tideinformers.SharedInformerFactory
	made        map[string]cache.SharedIndexInformer // of objects with our label, and of leases
	kinds       map[string]cache.Store               // of what is carried out
	synced      map[string]cache.InformerSynced      // of both, as long as nothing is done
	controllers listers.ControllerLister
	accountings listers.AccountingLister
	restApis    listers.RestApiLister
	tokens      listers.TokenLister
	nodeSets    listers.NodeSetLister
	loginSets   listers.LoginSetLister
	pods        cache.Store
	deployments cache.Store
	leases      cache.Store // of daemons of one namespace; nil in such a daemon

	hosts     cache.SharedIndexInformer
	readHosts func() // has hosts run; may be called often
	unread    unread
}

// New makes a Loop.
func New(config *rest.Config, o Options) (*Loop, error) {
	kube, err := groups.New(config)
	if err != nil {
		return nil, fmt.Errorf("making Kubernetes client: %w", err)
	}
	tide, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making Slurmtide client: %w", err)
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making dynamic client: %w", err)
	}
	return newLoop(kube, tide, d, o), nil
}

func newLoop(kube groups.Interface, tide versioned.Interface, d dynamic.Interface, o Options) *Loop {
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Loop{
		o: o, kube: kube, tide: tide,
		queue:       workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryFirst, retryMost)),
		tideFactory: tideinformers.NewSharedInformerFactoryWithOptions(tide, 0, tideinformers.WithNamespace(o.Namespace), tideinformers.WithTransform(slim)),
	}
	api := l.tideFactory.Slurmtide().V1alpha1()
	l.accountings = api.Accountings().Lister()
	l.controllers, l.restApis, l.tokens, l.nodeSets = api.Controllers().Lister(), api.RestApis().Lister(), api.Tokens().Lister(), api.NodeSets().Lister()
	l.loginSets = api.LoginSets().Lister()
	core, apps, in := kube.CoreV1(), kube.AppsV1(), o.Namespace
	pods := informer(kube, core.Pods(in), &corev1.Pod{}, ours)
	l.pods = pods.GetStore()
	own := map[string]cache.SharedIndexInformer{
		"ConfigMap": informer(kube, core.ConfigMaps(in), &corev1.ConfigMap{}, ours), "Service": informer(kube, core.Services(in), &corev1.Service{}, ours),
		"ServiceAccount": informer(kube, core.ServiceAccounts(in), &corev1.ServiceAccount{}, ours),
		"RoleBinding":    informer(kube, kube.RbacV1().RoleBindings(in), &rbacv1.RoleBinding{}, ours),
		"StatefulSet":    informer(kube, apps.StatefulSets(in), &appsv1.StatefulSet{}, ours), "Deployment": informer(kube, apps.Deployments(in), &appsv1.Deployment{}, ours),
	}
	l.made = maps.Clone(own)
	l.made["Pod"] = pods
	if in == metav1.NamespaceAll {
		leases := informer(kube, kube.CoordinationV1().Leases(in), &coordinationv1.Lease{}, metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + NamespaceLease})
		l.leases, l.made["Lease"] = leases.GetStore(), leases
	}
	l.deployments = own["Deployment"].GetStore()
	l.applier = applier{dynamic: d, metrics: o.Metrics, known: map[string]cache.Store{}}
	for kind, informer := range own {
		l.applier.known[kind] = informer.GetStore()
		l.watch(informer, l.ownersOf, always)
	}
	l.kinds, l.synced = map[string]cache.Store{}, map[string]cache.InformerSynced{}
	for kind, informer := range map[string]cache.SharedIndexInformer{
		"Controller": api.Controllers().Informer(), "Accounting": api.Accountings().Informer(), "RestApi": api.RestApis().Informer(),
		"Token": api.Tokens().Informer(), "LoginSet": api.LoginSets().Informer(), kindNodeSet: api.NodeSets().Informer(),
	} {
		l.kinds[kind], l.synced[kind] = informer.GetStore(), informer.HasSynced
	}
	for kind, informer := range l.made {
		l.synced[kind] = informer.HasSynced
	}
	l.watch(pods, l.ownersOf, always)
	l.watch(api.Controllers().Informer(), l.controllerAndFriends, always)
	l.watch(api.Accountings().Informer(), l.accountingAndFriends, always)
	l.watch(api.NodeSets().Informer(), l.nodeSetAndFriends, inSpec)
	l.watch(api.NodeSets().Informer(), itself(kindNodeSet), hostsToldOtherwise)
	l.watch(api.RestApis().Informer(), itself("RestApi"), always)
	l.watch(api.Tokens().Informer(), itself("Token"), always)
	l.watch(api.LoginSets().Informer(), itself("LoginSet"), always)
	l.hosts = l.watchHosts()
	return l
}

// Run works until ctx is done.
func (l *Loop) Run(ctx context.Context) error {
	recorder, stop, err := events.Start(ctx, l.kube, "slurmtide.io/controller", func() { l.o.Metrics.wrote("events") })
	if err != nil {
		return err
	}
	defer stop()
	l.events = recorder
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.tideFactory.Start(ctx.Done())
	var informers sync.WaitGroup
	for _, informer := range l.made {
		informers.Go(func() { informer.RunWithContext(ctx) })
	}
	l.readHosts = sync.OnceFunc(func() { informers.Go(func() { l.hosts.RunWithContext(ctx) }) })
	defer l.tideFactory.Shutdown()
	defer informers.Wait()
	defer cancel()
	late := time.AfterFunc(readsWithin, l.tellUnread)
	defer late.Stop()
	if !cache.WaitForCacheSync(ctx.Done(), slices.Collect(maps.Values(l.synced))...) {
		return nil
	}
	late.Stop()
	l.o.Log.Info("control plane runs", "namespace", l.o.Namespace)
	done := make(chan struct{})
	for range l.o.Workers {
		go func() {
			for l.next(ctx) {
			}
			done <- struct{}{}
		}()
	}
	l.resync(ctx)
	l.queue.ShutDown()
	for range l.o.Workers {
		<-done
	}
	return nil
}

// tellUnread names the kinds that cannot be read: nothing is done before.
func (l *Loop) tellUnread() {
	var kinds []string
	for kind, synced := range l.synced {
		if !synced() {
			kinds = append(kinds, kind)
		}
	}
	if slices.Sort(kinds); len(kinds) > 0 {
		l.o.Log.Warn("waiting for objects to be read; nothing is carried out before: see that the service account may list and watch them, and that their CRDs are there", "kinds", kinds)
	}
}

// resync looks at everything again, until ctx is done. Each object has its moment of the minute: all at once would wait for each other.
func (l *Loop) resync(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second := 0; ; second++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for kind, store := range l.kinds {
			for _, object := range store.ListKeys() {
				namespace, name, _ := cache.SplitMetaNamespaceKey(object) // fails for no key of a store
				k := key{kind, namespace, name}
				if its, after := k.turn(); its == second%int(resyncEvery/time.Second) {
					l.queue.AddAfter(k, after)
				}
			}
		}
	}
}

// turn is when in resyncEvery an object is looked at: in a second of it, and so long after that has begun.
func (k key) turn() (second int, after time.Duration) {
	h := fnv.New32a()
	_, _ = io.WriteString(h, k.kind+"/"+k.namespace+"/"+k.name)
	const seconds = uint32(resyncEvery / time.Second)
	return int(h.Sum32() % seconds), time.Duration(h.Sum32()/seconds%900) * time.Millisecond
}

// next handles one object.
func (l *Loop) next(ctx context.Context) bool {
	k, stop := l.queue.Get()
	if stop {
		return false
	}
	defer l.queue.Done(k)
	if !l.carriesOut(k.kind) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	began, kind := l.o.Now(), k.kind
	var err error
	again := l.leave(k.namespace)
	if again > 0 {
		kind = "" // another daemon's
	}
	switch kind {
	case "Controller":
		again, err = l.controller(ctx, k.namespace, k.name)
	case "Accounting":
		again, err = l.accounting(ctx, k.namespace, k.name)
	case "RestApi":
		again, err = l.restAPI(ctx, k.namespace, k.name)
	case "Token":
		again, err = l.token(ctx, k.namespace, k.name)
	case "LoginSet":
		again, err = l.loginSet(ctx, k.namespace, k.name)
	case kindNodeSet:
		again, err = l.nodeSet(ctx, k.namespace, k.name)
	}
	l.o.Metrics.took(k.kind, l.o.Now().Sub(began), err != nil)
	log := l.o.Log.With("kind", k.kind, "namespace", k.namespace, "name", k.name)
	switch {
	case err == nil:
		l.queue.Forget(k)
		if again > 0 {
			l.queue.AddAfter(k, again)
		}
		log.Debug("handled", "took", l.o.Now().Sub(began))
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
	case apierrors.IsConflict(err):
		l.queue.AddRateLimited(k) // somebody was faster; what changed comes by the watch
	default:
		log.Error("handling", "error", err)
		l.queue.AddRateLimited(k)
	}
	return true
}

// ours are objects with our label.
var ours = metav1.ListOptions{LabelSelector: LabelManagedBy + "=" + ManagedBy}

// informer keeps the objects of a kind that are selected.
func informer[L runtime.Object](kube groups.Interface, of interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}, example runtime.Object, selected metav1.ListOptions) cache.SharedIndexInformer {
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
			return of.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = selected.LabelSelector, selected.FieldSelector
			return of.Watch(ctx, o)
		},
	}, kube), example, 0, cache.Indexers{})
	_ = i.SetTransform(slim) // fails only when the informer runs already
	return i
}

// slim leaves out what nobody here looks at, and is half of a small object: who set which field, kubectl's copy of the whole, what a pod is made of, and what
// pods of a NodeSet are to be made of, but for what follow needs. Statuses can be written with what is left, since the API server takes nothing but the status
// from that.
func slim(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		fields := o.GetManagedFields()
		o.SetManagedFields(nil)
		if set, ok := object.(*v1alpha1.NodeSet); ok && set.Spec.EachHost != nil {
			set.ManagedFields = namers(fields)
		}
		delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	switch o := object.(type) {
	case *v1alpha1.NodeSet:
		var places corev1.PodSpec
		if t := o.Spec.Template.Spec; o.Spec.EachHost != nil {
			places.NodeSelector, places.Tolerations = t.NodeSelector, t.Tolerations
			if t.Affinity != nil {
				places.Affinity = &corev1.Affinity{NodeAffinity: t.Affinity.NodeAffinity}
			}
		}
		o.Spec.Template = corev1.PodTemplateSpec{Spec: places}
	case *corev1.Node:
		o.Annotations, o.Status = nil, corev1.NodeStatus{}
		o.Spec = corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints}
	case *corev1.Pod:
		o.Spec = corev1.PodSpec{}
		for _, all := range [][]corev1.ContainerStatus{o.Status.InitContainerStatuses, o.Status.ContainerStatuses} {
			for i, s := range all {
				all[i] = corev1.ContainerStatus{Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState, Ready: s.Ready}
			}
		}
	}
	return object, nil
}

func always(_, _ metav1.Object) bool { return true }

// inSpec passes over changes of the status alone: bridges write those of NodeSets often.
func inSpec(before, now metav1.Object) bool {
	return before.GetGeneration() != now.GetGeneration() || before.GetUID() != now.GetUID()
}

// watch puts what keys gives for an object into the queue whenever it changes in a way that matters.
func (l *Loop) watch(informer cache.SharedIndexInformer, keys func(metav1.Object) []key, matters func(before, now metav1.Object) bool) {
	add := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(metav1.Object); ok {
			for _, k := range keys(o) {
				l.queue.Add(k)
			}
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only when the informer has ended
		AddFunc: add, DeleteFunc: add,
		UpdateFunc: func(before, now any) {
			b, ok1 := before.(metav1.Object)
			n, ok2 := now.(metav1.Object)
			if ok1 && ok2 && matters(b, n) {
				add(now)
			}
		},
	})
}

func itself(kind string) func(metav1.Object) []key {
	return func(o metav1.Object) []key { return []key{{kind, o.GetNamespace(), o.GetName()}} }
}

// ownersOf finds whose an object is by its labels: pods are owned by others in between.
func (l *Loop) ownersOf(o metav1.Object) (keys []key) {
	if name := o.GetLabels()[LabelController]; name != "" {
		keys = append(keys, key{"Controller", o.GetNamespace(), name})
	}
	if name := o.GetLabels()[LabelAccounting]; name != "" {
		keys = append(keys, key{"Accounting", o.GetNamespace(), name})
	}
	if name := o.GetLabels()[LabelRestApi]; name != "" {
		keys = append(keys, key{"RestApi", o.GetNamespace(), name})
	}
	if name := o.GetLabels()[LabelLoginSet]; name != "" {
		keys = append(keys, key{"LoginSet", o.GetNamespace(), name})
	}
	return keys
}

// controllerAndFriends are a Controller and what depends on it, others of its cluster name included.
func (l *Loop) controllerAndFriends(o metav1.Object) []key {
	keys := append([]key{{"Controller", o.GetNamespace(), o.GetName()}}, l.loginSetsOf(o)...)
	restApis, _ := l.restApis.RestApis(o.GetNamespace()).List(everything)
	for _, r := range restApis {
		if r.Spec.ControllerRef.Name == o.GetName() {
			keys = append(keys, key{"RestApi", r.Namespace, r.Name})
		}
	}
	tokens, _ := l.tokens.Tokens(o.GetNamespace()).List(everything)
	for _, t := range tokens {
		if t.Spec.ControllerRef != nil && t.Spec.ControllerRef.Name == o.GetName() {
			keys = append(keys, key{"Token", t.Namespace, t.Name})
		}
	}
	if c, ok := o.(*v1alpha1.Controller); ok {
		others, _ := l.controllers.Controllers(c.Namespace).List(everything)
		for _, other := range others {
			if other.Name != c.Name && ClusterName(other) == ClusterName(c) {
				keys = append(keys, key{"Controller", other.Namespace, other.Name})
			}
		}
	}
	return keys
}

// controllersOfNodeSet are those in whose slurm.conf it is.
func (l *Loop) controllersOfNodeSet(o metav1.Object) (keys []key) {
	set, ok := o.(*v1alpha1.NodeSet)
	if !ok {
		return nil
	}
	all, _ := l.controllers.Controllers(set.Namespace).List(everything)
	for _, c := range all {
		if ClusterName(c) == set.Spec.ClusterRef.Name {
			keys = append(keys, key{"Controller", c.Namespace, c.Name})
		}
	}
	return keys
}

func find[T any](store cache.Store, namespace, name string) *T {
	obj, _, _ := store.GetByKey(namespace + "/" + name) // fails for no key of this form
	t, _ := obj.(*T)
	return t
}

func (l *Loop) slurmctldPods(c *v1alpha1.Controller) (pods []*corev1.Pod) {
	for _, name := range podNames(c) {
		if pod := find[corev1.Pod](l.pods, c.Namespace, name); pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// statefulSet is the one that was made for a Controller, nil if there is none.
func (l *Loop) statefulSet(c *v1alpha1.Controller) *appsv1.StatefulSet {
	set := find[appsv1.StatefulSet](l.applier.known["StatefulSet"], c.Namespace, workload(c.Name))
	if set == nil || !metav1.IsControlledBy(set, c) {
		return nil
	}
	return set
}

func (l *Loop) deployment(r *v1alpha1.RestApi) *appsv1.Deployment {
	return find[appsv1.Deployment](l.deployments, r.Namespace, restApiName(r.Name))
}
