package pods

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Times of the lease. A holder that cannot renew it knows after leaseRenew and two calls at most, and so before
// another one may take it.
const (
	leaseFor   = 20 * time.Second // how long others wait for a holder that is silent
	leaseRenew = 10 * time.Second // how long the holder tries
	leaseRetry = 2 * time.Second
	leaseCall  = 4 * time.Second // one call
)

const leaseResource = "leases.coordination.k8s.io"

// LeaseName is the Lease of a Slurm cluster's bridges.
func LeaseName(cluster string) string {
	const prefix = "slurmtide-bridge-"
	name := strings.ReplaceAll(cluster, "_", "-")
	if name == cluster {
		return prefix + name
	}
	h := fnv.New32a() // a_b and a-b are two clusters
	fmt.Fprint(h, cluster)
	return fmt.Sprintf("%s%s-%08x", prefix, name, h.Sum32())
}

// Leadership says which of a cluster's bridges is to reconcile.
type Leadership struct {
	Leading bool
	Holder  string // identity of who has the lease, as last seen; "" if nobody
	// Err is why the lease cannot be read or written now; nil when all is well.
	Err error
}

// Lead tries to get and keep the lease of the cluster's bridges until ctx is done, and gives it up then. told is called
// whenever something has changed, one call at a time, and must not block. While Run works its Handler is given the NodeSets with their present
// statuses right before told says that we lead.
//
// The identity of a bridge survives its restart, so that it takes over its own lease at once. Two bridges must not share one.
func (c *Client) Lead(ctx context.Context, identity string, told func(Leadership)) error {
	e := &election{ctx: ctx, identity: identity, namespace: c.namespace, told: told, takeOver: c.takeOver}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: LeaseName(c.opts.Cluster),
		Lock: watchedLock{election: e, Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.namespace, Name: LeaseName(c.opts.Cluster)},
			Client:     c.kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}},
		LeaseDuration: leaseFor, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {}, // it comes too late, and not each time: see write
			OnStoppedLeading: func() { e.change(func(l *Leadership) { l.Leading = false }) },
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the lease: %w", err)
	}
	ctx = klog.NewContext(ctx, klog.Logger{}) // told says what there is to say, once
	for ctx.Err() == nil {
		elector.Run(ctx) // until the lease is lost
	}
	return nil
}

// election is what is known of the lease.
type election struct {
	ctx       context.Context
	identity  string
	namespace string
	told      func(Leadership)
	takeOver  func(context.Context) error // comes before we are told to lead

	mu     sync.Mutex
	now    Leadership
	record string // as last read
}

// change changes what is known and tells if it is something new. The words of one trouble vary; only its kind is news.
func (e *election) change(f func(*Leadership)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.now.kind()
	f(&e.now)
	if e.now.kind() != before {
		e.told(e.now)
	}
}

// kind is all of l that is worth telling.
func (l Leadership) kind() string {
	kind := fmt.Sprintf("%v %q", l.Leading, l.Holder)
	if err, ok := errors.AsType[*Error](l.Err); ok {
		kind += fmt.Sprintf(" %s %q", err.Class, err.Missing)
	}
	return kind
}

func (e *election) last() Leadership {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

var errNotOurs = errors.New("the lease is another bridge's")

// failed notes what a call came to: nobody's fault is that the lease does not exist yet, or that another bridge was faster.
func (e *election) failed(verb string, err error) {
	if e.ctx.Err() != nil || verb == "get" && apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return
	}
	doing := map[string]string{"get": "reading", "create": "creating", "update": "writing"}[verb] + " the lease of the bridges"
	e.change(func(l *Leadership) { l.Err = classify(err, doing, verb+" "+leaseResource, e.namespace) })
}

// watchedLock sees what becomes of every call, and lets none hang.
type watchedLock struct {
	resourcelock.Interface
	*election
}

func (w watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseCall)
	defer cancel()
	record, raw, err := w.Interface.Get(ctx)
	if err != nil {
		w.failed("get", err)
		return nil, nil, err
	}
	w.change(func(l *Leadership) {
		l.Holder = record.HolderIdentity
		if l.Holder != w.identity {
			l.Leading = false
		}
		if w.record != string(raw) && l.Holder != "" && l.Holder != w.identity {
			l.Err = nil // another bridge is well; what we may not write shows when it is our turn
		}
		w.record = string(raw)
	})
	return record, raw, nil
}

func (w watchedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return w.write(ctx, "create", record, w.Interface.Create)
}

func (w watchedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return w.write(ctx, "update", record, w.Interface.Update)
}

func (w watchedLock) write(
	ctx context.Context, verb string, record resourcelock.LeaderElectionRecord, call func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if record.HolderIdentity == "" && w.last().Holder != w.identity {
		return errNotOurs // one that was frozen would give back what another one has taken meanwhile
	}
	timed, cancel := context.WithTimeout(ctx, leaseCall)
	defer cancel()
	if err := call(timed, record); err != nil {
		w.failed(verb, err)
		return err
	}
	now := Leadership{Leading: record.HolderIdentity == w.identity, Holder: record.HolderIdentity}
	if now.Leading && !w.last().Leading {
		if err := w.takeOver(ctx); err != nil { // the lease is ours, and the next try is soon
			now.Leading, now.Err = false, err
			w.change(func(l *Leadership) { *l = now })
			return err
		}
	}
	w.change(func(l *Leadership) { *l = now })
	return nil
}
