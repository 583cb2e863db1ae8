package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

const (
	// ReasonNoController is why a NodeSet is not Accepted that nobody looks at.
	ReasonNoController = "ControllerMissing"
	// aloneFor is how long a NodeSet may be before its Controller, or before the bridge of a slurmctld elsewhere has looked at it.
	aloneFor = 30 * time.Second
)

// nodeSet has a NodeSet with spec.eachHost follow hosts, and tells of one that nobody looks at. Everything else of its status is the bridge's. It tells when to
// look again.
func (l *Loop) nodeSet(ctx context.Context, namespace, name string) (time.Duration, error) {
	set, err := l.nodeSets.NodeSets(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && set.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	given := namesGiven(set)
	set = set.DeepCopy()
	set.ManagedFields = nil // slim has changed them, and the API server would take them
	next := set.DeepCopy()
	wait := l.alone(set, next)
	again, err := l.eachHost(ctx, set, next, given)
	if err != nil && !lasting(err) {
		return 0, err
	}
	return sooner(wait, again), errors.Join(err, writeStatus(ctx, l, "NodeSet", l.tide.SlurmtideV1alpha1().NodeSets(namespace), set, next, set.Status.Conditions, next.Status.Conditions))
}

// alone says so in next if nobody looks at a NodeSet: it names no Controller of its namespace, and no bridge has said a word about it, as one of a slurmctld elsewhere
// would.
func (l *Loop) alone(set, next *v1alpha1.NodeSet) (wait time.Duration) {
	said := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionAccepted)
	ours := said != nil && said.Reason == ReasonNoController
	switch {
	case said != nil && !ours:
	case len(l.controllersOfNodeSet(set)) > 0:
		meta.RemoveStatusCondition(&next.Status.Conditions, v1alpha1.ConditionAccepted) // its bridge will say
	default:
		if wait = set.CreationTimestamp.Add(aloneFor).Sub(l.o.Now()); wait > 0 {
			return wait
		}
		setCondition(&next.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: ReasonNoController,
			Message: fmt.Sprintf("there is no Controller of the cluster %s in this namespace, and no bridge has looked at this NodeSet: create the Controller, make the NodeSet anew with the name of a cluster "+
				"that is there in spec.clusterRef, or, if its slurmctld runs elsewhere, start the bridge beside it", set.Spec.ClusterRef.Name),
		}, set.Generation)
	}
	return 0
}

// nodeSetAndFriends are a NodeSet, the Controllers in whose slurm.conf it is, and those of its cluster that leave names to it.
func (l *Loop) nodeSetAndFriends(o metav1.Object) []key {
	keys := append(l.controllersOfNodeSet(o), key{kindNodeSet, o.GetNamespace(), o.GetName()})
	if set, ok := o.(*v1alpha1.NodeSet); ok {
		for _, other := range l.besides(set) {
			if other.Spec.EachHost != nil {
				keys = append(keys, key{kindNodeSet, other.Namespace, other.Name})
			}
		}
	}
	return keys
}

// hostsToldOtherwise is whether somebody has changed the condition HostsFollowed: a bridge writes all conditions, and this one as it has read it last.
func hostsToldOtherwise(before, now metav1.Object) bool {
	b, ok1 := before.(*v1alpha1.NodeSet)
	n, ok2 := now.(*v1alpha1.NodeSet)
	if !ok1 || !ok2 {
		return false
	}
	was := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionHostsFollowed)
	return was != nil && !equality.Semantic.DeepEqual(was, meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionHostsFollowed))
}
