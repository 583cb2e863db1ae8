package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/events"
	"github.com/slurmtide/slurmtide/kube/generated/clientset/versioned"
	"github.com/slurmtide/slurmtide/kube/groups"
	"github.com/slurmtide/slurmtide/powersave"
)

// Defaults of Options. client-go's own limit of 5 requests a second would take over three minutes
// for a resume of 1,000 nodes; 200 with bursts of 400 is what other node provisioners use, and
// API priority and fairness on the server keeps it from harming others.
const (
	DefaultQPS     = 200
	DefaultBurst   = 400
	DefaultTimeout = 15 * time.Second
)

// Options of a Client. Zero fields get their defaults.
type Options struct {
	PodOptions

	// HostTaint is what TaintHost puts on hosts. Nil: it does nothing.
	HostTaint *corev1.Taint
	// HostConditions are those with which a host gets no new jobs and no new pods.
	HostConditions []HostCondition
	// QPS and Burst limit the requests per second to the API server, for pods and for NodeSets separately.
	QPS   float32
	Burst int
	// Timeout bounds one call, retries on 429 included. Watches are not bounded.
	Timeout time.Duration
	// WatchError is told every time the API server cannot be read, and why; nil says that it
	// can be again. The default writes to Log.
	WatchError func(error)
	Log        *slog.Logger
	// Now is the clock; it stamps conditions and Health.
	Now func() time.Time
}

// Client carries out what the engine wants done in Kubernetes, and tells what happens there. It works in
// one namespace, for one Slurm cluster, and touches no pod without that cluster's label. Its
// methods may be called concurrently.
type Client struct {
	kube      groups.Interface
	tide      versioned.Interface
	namespace string
	opts      Options
	log       *slog.Logger

	mu        sync.Mutex
	running   bool
	nodeSets  cache.Store // of *v1alpha1.NodeSet; nil until they have been read
	watcher   *watcher    // that has handed them over; nil unless Run
	hosts     cache.Store // of *corev1.Node, slim; nil until they are watched
	written   map[string]statusKey
	left      map[string]*v1alpha1.NodeSet // with the status that we wrote last, or found to be right
	budgets   map[string]budgetMade        // by NodeSet
	histories map[string]historyKept       // the same
	unseen    map[string]unseenPod         // by node
	health    Health
	recorder  events.Recorder // nil unless Run
}

// New returns a Client for the NodeSets of a Slurm cluster in a namespace. It makes no request yet.
func New(cfg *rest.Config, namespace, cluster string, o Options) (*Client, error) {
	if namespace == "" || cluster == "" {
		return nil, errors.New("a Kubernetes client needs a namespace and the Slurm cluster's name")
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	if cfg.QPS == 0 {
		cfg.QPS = DefaultQPS
	}
	if cfg.Burst == 0 {
		cfg.Burst = DefaultBurst
	}
	tide, err := versioned.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for NodeSets: %w", err)
	}
	// Protobuf halves the cost of decoding pods; custom resources have JSON only.
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	kube, err := groups.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for pods: %w", err)
	}
	return newClient(kube, tide, namespace, cluster, o), nil
}

func newClient(kube groups.Interface, tide versioned.Interface, namespace, cluster string, o Options) *Client {
	o.Cluster = cluster
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.WatchError == nil {
		o.WatchError = func(err error) {
			if err == nil {
				o.Log.Info("the Kubernetes API server answers again")
				return
			}
			o.Log.Warn("Kubernetes cannot be read", "error", err)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Client{
		kube: kube, tide: tide, namespace: namespace, opts: o, log: o.Log,
		written:   map[string]statusKey{},
		left:      map[string]*v1alpha1.NodeSet{},
		budgets:   map[string]budgetMade{},
		histories: map[string]historyKept{},
		unseen:    map[string]unseenPod{},
	}
}

// Create makes the pod for a boot, and the claims of its node if they are not there yet, and returns its UID. It may be repeated: a pod of the same name, cluster,
// NodeSet and generation that is not being deleted counts as created, whoever created it, so a
// call that failed after the API server had done its work is healed by the next one.
//
// Any other pod of that name is a Conflict error, with Error.Existing set if the pod is the cluster's.
//
// The end of every pod that it tells of is told to the Handler of Run.
func (c *Client) Create(ctx context.Context, a powersave.CreatePod) (uid string, err error) {
	doing := "creating pod " + a.Node
	ns, missing := c.nodeSet(a.NodeSet)
	if missing != nil {
		missing.Doing = doing
		return "", missing
	}
	if a.Job != 0 {
		c.protect(ctx, a.NodeSet)
	}
	o := c.opts.PodOptions
	o.Offering, o.Job, o.HetJob, o.ProvisioningRequest, o.KeepOff = a.Offering, a.Job, a.HetJob, a.Room, c.badHosts()
	pod, err := Build(ns, a.Node, a.Generation, a.Request, o)
	if err != nil {
		return "", &Error{Class: Invalid, Doing: doing, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	if err := c.keepClaims(ctx, ns, a.Node); err != nil {
		return "", err
	}
	created, err := c.kube.CoreV1().Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: fieldManager})
	if err == nil {
		c.toldOf(a.Node, string(created.UID))
		return string(created.UID), nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", classify(err, doing, "create pods", c.namespace)
	}
	existing, err := c.kube.CoreV1().Pods(c.namespace).Get(ctx, a.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", &Error{Class: Transient, Doing: doing, Err: errors.New("a pod of that name existed a moment ago and is gone now")}
	}
	if err != nil {
		return "", classify(err, "reading pod "+a.Node, "get pods", c.namespace)
	}
	why := c.mismatch(existing, pod)
	if existing.Labels[v1alpha1.LabelCluster] == c.opts.Cluster {
		c.toldOf(a.Node, string(existing.UID))
	}
	if why == "" {
		return string(existing.UID), nil
	}
	conflict := &Error{Class: Conflict, Doing: doing, Err: errors.New("a pod of that name exists and " + why)}
	if existing.Labels[v1alpha1.LabelCluster] == c.opts.Cluster {
		seen := Observe(existing)
		conflict.Existing = &seen
	}
	return "", conflict
}

// mismatch says why the pod that exists is not the one that was wanted, "" if it is.
func (c *Client) mismatch(existing, wanted *corev1.Pod) string {
	owner := metav1.GetControllerOf(existing)
	switch {
	case existing.Labels[v1alpha1.LabelCluster] != c.opts.Cluster:
		return fmt.Sprintf("does not belong to Slurm cluster %s (label %s): rename the node or remove the pod", c.opts.Cluster, v1alpha1.LabelCluster)
	case existing.DeletionTimestamp != nil:
		return "is being deleted"
	case existing.Labels[v1alpha1.LabelNodeSet] != wanted.Labels[v1alpha1.LabelNodeSet]:
		return fmt.Sprintf("belongs to NodeSet %s", existing.Labels[v1alpha1.LabelNodeSet])
	case owner == nil || owner.UID != wanted.OwnerReferences[0].UID:
		return "is owned by an object that has been deleted or is not the NodeSet"
	case existing.Annotations[v1alpha1.AnnotationGeneration] != wanted.Annotations[v1alpha1.AnnotationGeneration]:
		return fmt.Sprintf("is of boot %q, not of boot %s", existing.Annotations[v1alpha1.AnnotationGeneration], wanted.Annotations[v1alpha1.AnnotationGeneration])
	case existing.Labels[v1alpha1.LabelOffering] != wanted.Labels[v1alpha1.LabelOffering]:
		return fmt.Sprintf("is on offering %q, not on %q", existing.Labels[v1alpha1.LabelOffering], wanted.Labels[v1alpha1.LabelOffering])
	}
	return ""
}

// Delete asks for the pod with exactly this UID to end within powersave.OwnGrace, whatever grace the pod has: no job is to be waited
// for. gone says
// that the pod exists no longer, or that another one has its name; otherwise the watch tells when it is gone.
// It may be repeated.
func (c *Client) Delete(ctx context.Context, node, uid string) (gone bool, err error) {
	doing := "deleting pod " + node
	if uid == "" {
		return false, &Error{Class: Invalid, Doing: doing, Err: errors.New("the UID is missing: a name alone could hit a newer pod")}
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	options := metav1.NewPreconditionDeleteOptions(uid)
	options.GracePeriodSeconds = new(ownGracePeriod)
	err = c.kube.CoreV1().Pods(c.namespace).Delete(ctx, node, *options)
	switch {
	case err == nil:
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case !apierrors.IsConflict(err):
		return false, classify(err, doing, "delete pods", c.namespace)
	}
	// A conflict means another UID, or a write that came in between: look which.
	current, getErr := c.kube.CoreV1().Pods(c.namespace).Get(ctx, node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(getErr), getErr == nil && string(current.UID) != uid:
		return true, nil
	case getErr != nil:
		return false, classify(getErr, "reading pod "+node, "get pods", c.namespace)
	}
	return false, classify(err, doing, "delete pods", c.namespace)
}

// nodeSet returns the cached object; callers must not change it.
func (c *Client) nodeSet(name string) (*v1alpha1.NodeSet, *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doing := "looking up NodeSet " + name
	if c.nodeSets == nil {
		return nil, &Error{Class: Transient, Doing: doing, Err: errors.New("the NodeSets have not been read yet")}
	}
	obj, found, _ := c.nodeSets.GetByKey(c.namespace + "/" + name) // a store in memory has no errors
	if ns, ok := obj.(*v1alpha1.NodeSet); found && ok {
		return ns, nil
	}
	return nil, &Error{Class: Invalid, elsewhere: true, Doing: doing, Err: fmt.Errorf("there is no NodeSet %s in namespace %s", name, c.namespace)}
}
