package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

const claimRight = "persistentvolumeclaims"

// claimName is that of a node's claim, as a StatefulSet would call it.
func claimName(template, node string) string { return template + "-" + node }

func whenScaled(spec *v1alpha1.NodeSetSpec) v1alpha1.ClaimRetention {
	if p := spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		return p.WhenScaled
	}
	return v1alpha1.RetainClaim
}

func whenDeleted(spec *v1alpha1.NodeSetSpec) v1alpha1.ClaimRetention {
	if p := spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		return p.WhenDeleted
	}
	return v1alpha1.RetainClaim
}

// addClaims gives a node's pod its volumes, in place of those that the template calls the same. A claim that is to go with the pod is an ephemeral volume:
// Kubernetes makes and deletes it. The others outlive pods, and Client.Create makes them.
func addClaims(pod *corev1.Pod, ns *v1alpha1.NodeSet, cluster, node string) {
	for i := range ns.Spec.VolumeClaimTemplates {
		template := &ns.Spec.VolumeClaimTemplates[i]
		volume := corev1.Volume{Name: template.Metadata.Name}
		if whenScaled(&ns.Spec) == v1alpha1.DeleteClaim {
			volume.Ephemeral = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Labels: claimLabels(template, cluster, ns.Name, node), Annotations: maps.Clone(template.Metadata.Annotations)},
				Spec:       *template.Spec.DeepCopy(),
			}}
		} else {
			volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(template.Metadata.Name, node)}
		}
		pod.Spec.Volumes = append(slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume.Name }), volume)
	}
}

func claimLabels(template *v1alpha1.VolumeClaimTemplate, cluster, nodeSet, node string) map[string]string {
	return labels.Merge(labels.Merge(template.Metadata.Labels, podLabels(cluster, nodeSet)), labels.Set{v1alpha1.LabelNode: node})
}

// keepClaims makes the claims of a node that outlive its pods, as far as they are not there. They go with the NodeSet if that wants it, which may change.
// A claim that tells of no node and of no NodeSet is somebody's who has made it beforehand: it is used, and otherwise left alone.
func (c *Client) keepClaims(ctx context.Context, ns *v1alpha1.NodeSet, node string) error {
	if whenScaled(&ns.Spec) == v1alpha1.DeleteClaim {
		return nil
	}
	for i := range ns.Spec.VolumeClaimTemplates {
		if err := c.keepClaim(ctx, ns, &ns.Spec.VolumeClaimTemplates[i], node); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) keepClaim(ctx context.Context, ns *v1alpha1.NodeSet, template *v1alpha1.VolumeClaimTemplate, node string) error {
	want := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: claimName(template.Metadata.Name, node), Namespace: ns.Namespace,
			Labels: claimLabels(template, c.opts.Cluster, ns.Name, node), Annotations: maps.Clone(template.Metadata.Annotations),
		},
		Spec: *template.Spec.DeepCopy(),
	}
	if whenDeleted(&ns.Spec) == v1alpha1.DeleteClaim {
		want.OwnerReferences = []metav1.OwnerReference{ownerReference(ns)}
	}
	doing := "making claim " + want.Name
	claims := c.kube.CoreV1().PersistentVolumeClaims(c.namespace)
	have, err := claims.Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if _, err = claims.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
			return classifyClaim(err, doing, "create", c.namespace)
		}
		return nil
	}
	if err != nil {
		return classifyClaim(err, doing, "get", c.namespace)
	}
	ours, refused := isNodes(have, ns, c.opts.Cluster, node)
	switch {
	case refused != nil:
		refused.Doing = doing
		return refused
	case !ours:
		return nil
	}
	return c.own(ctx, have, ns)
}

// isNodes says whether the claim that has the name of a node's is that node's. One that tells of no node and of no NodeSet may be used, too; what may not be
// used is an error: names alone are ambiguous ("data-fast-0" is of template data and node fast-0, or of data-fast and 0), and a claim goes with the NodeSet that owns it.
func isNodes(have *corev1.PersistentVolumeClaim, ns *v1alpha1.NodeSet, cluster, node string) (bool, *Error) {
	told := pick(have.Labels, v1alpha1.LabelCluster, v1alpha1.LabelNodeSet, v1alpha1.LabelNode)
	owner := ownedBy(have)
	if owner == nil && len(told) > 0 {
		owner = metav1.GetControllerOf(have)
	}
	another := owner != nil && owner.UID != ns.UID
	switch {
	case have.DeletionTimestamp != nil:
		return false, &Error{Class: Transient, Err: errors.New("one of that name is being deleted")}
	case owner == nil && len(told) == 0:
		return false, nil
	case another && owner.Kind == nodeSetKind && owner.Name == ns.Name:
		return false, &Error{Class: Transient, Err: fmt.Errorf("one of that name goes with %s %s, which has been deleted", owner.Kind, owner.Name)}
	case !another && maps.Equal(told, labels.Merge(podLabels(cluster, ns.Name), labels.Set{v1alpha1.LabelNode: node})):
		return true, nil
	}
	goes := ""
	if owner != nil {
		goes = fmt.Sprintf(", and goes with %s %s", owner.Kind, owner.Name)
	}
	return false, &Error{
		Class: Invalid,
		Err: fmt.Errorf("one of that name is of node %q of NodeSet %q, cluster %q, by its labels%s",
			told[v1alpha1.LabelNode], told[v1alpha1.LabelNodeSet], told[v1alpha1.LabelCluster], goes),
		Hint: fmt.Sprintf("delete it, or have the node or the template called otherwise; if node %s of NodeSet %s is to have its files, label it so and take its ownerReferences away", node, ns.Name),
	}
}

const nodeSetKind = "NodeSet"

// ownedBy is the NodeSet that a claim goes with.
func ownedBy(claim *corev1.PersistentVolumeClaim) *metav1.OwnerReference {
	for i, o := range claim.OwnerReferences {
		if o.Kind == nodeSetKind && strings.HasPrefix(o.APIVersion, v1alpha1.GroupName+"/") {
			return &claim.OwnerReferences[i]
		}
	}
	return nil
}

func classifyClaim(err error, doing, verb, namespace string) *Error {
	e := classify(err, doing, verb+" "+claimRight, namespace)
	if e.Class == Invalid && !e.elsewhere {
		e.Hint = "correct spec.volumeClaimTemplates of the NodeSet"
	}
	return e
}

// ClaimRights are those for NodeSets with spec.volumeClaimTemplates. CheckAccess asks for them when there is one.
func ClaimRights() []Right {
	return []Right{{Resource: claimRight, Verbs: []string{"create", "get", "list", "patch"}}}
}

// volumeName is what a volume may be called.
var volumeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkClaims(spec *v1alpha1.NodeSetSpec) error {
	seen := map[string]bool{}
	for i, t := range spec.VolumeClaimTemplates {
		name := t.Metadata.Name
		switch {
		case !volumeName.MatchString(name):
			return fmt.Errorf("spec.volumeClaimTemplates[%d].metadata.name is %q: use lower-case letters, digits and \"-\", at most 63 characters", i, name)
		case seen[name]:
			return fmt.Errorf("spec.volumeClaimTemplates: two are called %s: rename one", name)
		}
		seen[name] = true
	}
	return nil
}
