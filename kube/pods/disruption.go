package pods

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

const (
	busy        = "true"
	budgetRetry = time.Minute
)

// budgetMade says for which NodeSet a PodDisruptionBudget was made, or when that is to be tried again.
type budgetMade struct {
	nodeSet types.UID
	again   time.Time
}

// Mark puts the label v1alpha1.LabelBusy on the pod with exactly this UID, or takes it off. Pods that have it are
// covered by the NodeSet's PodDisruptionBudget, which Mark makes when it is missing. It may be repeated.
func (c *Client) Mark(ctx context.Context, a powersave.MarkPod) error {
	if a.Busy {
		c.protect(ctx, a.NodeSet)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	label := map[string]any{v1alpha1.LabelBusy: nil}
	if a.Busy {
		label[v1alpha1.LabelBusy] = busy
	}
	// The API server refuses to change a UID, so that a newer pod of that name is left alone.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": a.UID, "labels": label}})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Pods(c.namespace).Patch(ctx, a.Node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // of a conflict the watch tells
	}
	return classify(err, "marking pod "+a.Node, "patch pods", c.namespace)
}

// protect makes the NodeSet's budget, once. A budget that is missing costs protection and nothing else, so that what
// goes wrong is said and not returned.
func (c *Client) protect(ctx context.Context, nodeSet string) {
	ns, missing := c.nodeSet(nodeSet)
	if missing != nil {
		return
	}
	now := c.opts.Now()
	c.mu.Lock()
	last := c.budgets[nodeSet]
	if last.nodeSet == ns.UID && (last.again.IsZero() || last.again.After(now)) {
		c.mu.Unlock()
		return
	}
	c.budgets[nodeSet] = budgetMade{nodeSet: ns.UID}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	if err := c.ensureBudget(ctx, budget(ns, c.opts.Cluster)); err != nil {
		c.log.Warn("busy pods are not protected against eviction", "nodeset", nodeSet, "error", err)
		c.mu.Lock()
		c.budgets[nodeSet] = budgetMade{nodeSet: ns.UID, again: now.Add(budgetRetry)}
		c.mu.Unlock()
	}
}

func (c *Client) ensureBudget(ctx context.Context, want *policyv1.PodDisruptionBudget) error {
	const resource = "poddisruptionbudgets.policy"
	doing := "making PodDisruptionBudget " + want.Name
	budgets := c.kube.PolicyV1().PodDisruptionBudgets(c.namespace)
	_, err := budgets.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return classify(err, doing, "create "+resource, c.namespace)
	}
	have, err := budgets.Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return classify(err, doing, "get "+resource, c.namespace)
	}
	if have.Labels[v1alpha1.LabelCluster] != c.opts.Cluster {
		return &Error{Class: Conflict, Doing: doing, Err: errors.New("somebody else's has that name")}
	}
	if equality.Semantic.DeepEqual(have.Spec, want.Spec) && equality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"ownerReferences": want.OwnerReferences}, "spec": want.Spec,
	})
	if err != nil {
		return err
	}
	if _, err := budgets.Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return classify(err, doing, "patch "+resource, c.namespace)
	}
	return nil
}

// budget allows no eviction of busy pods. It says so by asking for more pods than there can be: a maxUnavailable of 0
// would be counted against the NodeSet's replicas, its floor, and let all pods above that go (Kubernetes disruption
// controller, getExpectedPodCount).
func budget(ns *v1alpha1.NodeSet, cluster string) *policyv1.PodDisruptionBudget {
	selector := podLabels(cluster, ns.Name)
	selector[v1alpha1.LabelBusy] = busy
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Name: "slurmtide-" + ns.Name, Namespace: ns.Namespace, Labels: podLabels(cluster, ns.Name),
			OwnerReferences: []metav1.OwnerReference{ownerReference(ns)},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(math.MaxInt32)),
			Selector:     &metav1.LabelSelector{MatchLabels: selector},
		},
	}
}
