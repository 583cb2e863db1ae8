package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

const (
	// claimsAgain is when claims are looked at again that could not be; twice as long each time, up to claimsSeldom.
	claimsAgain  = 2 * time.Second
	claimsSeldom = 5 * time.Minute
)

// Claims has the claims that are there follow the policies of their NodeSets: whether they go with them. Only the bridge that leads does; nodes may be powered down for
// ever, and their claims are to follow all the same. Its methods may be called from any goroutine.
type Claims struct {
	client *Client

	mu      sync.Mutex
	leading bool
	news    chan struct{}

	settled map[types.UID]v1alpha1.ClaimRetentionPolicy // of Run alone
}

// NewClaims returns Claims for a Client; Run starts it.
func NewClaims(c *Client) *Claims { return &Claims{client: c, news: make(chan struct{}, 1)} }

// Lead takes whether this bridge leads. One that begins to looks at all claims.
func (l *Claims) Lead(leading bool) {
	l.mu.Lock()
	l.leading = leading
	l.mu.Unlock()
	l.NodeSets()
}

// NodeSets takes that NodeSets have changed.
func (l *Claims) NodeSets() {
	select {
	case l.news <- struct{}{}:
	default: // it is told already
	}
}

// Run works until ctx is done.
func (l *Claims) Run(ctx context.Context) error {
	again := time.NewTimer(claimsSeldom)
	again.Stop() // until something fails
	defer again.Stop()
	var wait time.Duration
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.news:
		case <-again.C:
		}
		err := l.round(ctx)
		if err == nil || ctx.Err() != nil {
			wait = 0
			again.Stop()
			continue
		}
		wait = min(max(2*wait, claimsAgain), claimsSeldom)
		again.Reset(wait)
		l.client.log.Warn("claims may not follow spec.persistentVolumeClaimRetentionPolicy of their NodeSets", "error", err, "again", wait)
	}
}

// round looks at claims if a policy is another than when it last did.
func (l *Claims) round(ctx context.Context) error {
	l.mu.Lock()
	leading := l.leading
	l.mu.Unlock()
	if !leading {
		l.settled = nil
		return nil
	}
	sets, wanted := l.client.withClaims()
	if len(sets) > 0 && !maps.Equal(wanted, l.settled) {
		if err := l.client.settleClaims(ctx, sets); err != nil {
			return err
		}
	}
	l.settled = wanted
	return nil
}

// withClaims are the NodeSets whose nodes have volumes of their own, by name, and their policies.
func (c *Client) withClaims() (sets map[string]*v1alpha1.NodeSet, policies map[types.UID]v1alpha1.ClaimRetentionPolicy) {
	sets, policies = map[string]*v1alpha1.NodeSet{}, map[types.UID]v1alpha1.ClaimRetentionPolicy{}
	for _, ns := range c.known() {
		if len(ns.Spec.VolumeClaimTemplates) > 0 && ns.Spec.ClusterRef.Name == c.opts.Cluster {
			sets[ns.Name] = ns
			policies[ns.UID] = v1alpha1.ClaimRetentionPolicy{WhenDeleted: whenDeleted(&ns.Spec), WhenScaled: whenScaled(&ns.Spec)}
		}
	}
	return sets, policies
}

// settleClaims has each claim of the NodeSets go with its NodeSet, or not, and tells of those that nobody will use any more.
func (c *Client) settleClaims(ctx context.Context, sets map[string]*v1alpha1.NodeSet) error {
	const doing = "looking at the claims of nodes"
	ctx, cancel := context.WithTimeout(ctx, claimsSeldom)
	defer cancel()
	claims, err := c.kube.CoreV1().PersistentVolumeClaims(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelCluster + "=" + c.opts.Cluster})
	if err != nil {
		return classifyClaim(err, doing, "list", c.namespace)
	}
	var problems []error
	unused := map[string]int{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		ns := sets[claim.Labels[v1alpha1.LabelNodeSet]]
		if ns == nil || !c.keptFor(claim, ns) {
			continue
		}
		if err := c.own(ctx, claim, ns); err != nil && !apierrors.IsNotFound(err) {
			problems = append(problems, err)
		}
		if whenScaled(&ns.Spec) == v1alpha1.DeleteClaim && whenDeleted(&ns.Spec) != v1alpha1.DeleteClaim {
			unused[ns.Name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		c.Warn(name, "", "", "ClaimsLeft", fmt.Sprintf("%d claims from before whenScaled was Delete stay, and are not used when their nodes are next powered up: "+
			"copy what is wanted, and delete them, or have them go with the NodeSet (whenDeleted: Delete)", unused[name]))
	}
	return errors.Join(problems...)
}

// keptFor says whether a claim is one that Create has made for a node of the NodeSet. Those of pods are Kubernetes' business.
func (c *Client) keptFor(claim *corev1.PersistentVolumeClaim, ns *v1alpha1.NodeSet) bool {
	node := claim.Labels[v1alpha1.LabelNode]
	if !slices.ContainsFunc(ns.Spec.VolumeClaimTemplates, func(t v1alpha1.VolumeClaimTemplate) bool { return claimName(t.Metadata.Name, node) == claim.Name }) {
		return false
	}
	ours, refused := isNodes(claim, ns, c.opts.Cluster, node)
	return ours && refused == nil
}

// own has a node's claim go with its NodeSet, or not. It writes only what is to change.
func (c *Client) own(ctx context.Context, claim *corev1.PersistentVolumeClaim, ns *v1alpha1.NodeSet) error {
	with := whenDeleted(&ns.Spec) == v1alpha1.DeleteClaim
	owner := ownedBy(claim)
	if (owner != nil) == with {
		return nil
	}
	owners := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(o metav1.OwnerReference) bool { return owner != nil && o.UID == owner.UID })
	if with {
		owners = append(owners, ownerReference(ns))
	}
	// The version keeps what others have written meanwhile.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion, "ownerReferences": owners}})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().PersistentVolumeClaims(c.namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return classifyClaim(err, "changing the owner of claim "+claim.Name, "patch", c.namespace)
	}
	return nil
}
