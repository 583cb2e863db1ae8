package controlplane

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// keepClaims leaves the claim templates of a StatefulSet that is there as they are: they cannot be changed, and with others nothing else of it could be.
func keepClaims(set, live *appsv1.StatefulSet) error {
	if live == nil {
		return nil
	}
	want, err := asAny(set.Spec.VolumeClaimTemplates)
	if err != nil {
		return err
	}
	have, err := asAny(live.Spec.VolumeClaimTemplates)
	if err != nil || contains(have, want) {
		return err
	}
	set.Spec.VolumeClaimTemplates = nil
	for _, t := range live.Spec.VolumeClaimTemplates {
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: t.Name, Labels: t.Labels, Annotations: t.Annotations}, Spec: *t.Spec.DeepCopy(),
		})
	}
	return nil
}

func asAny(o any) (v any, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &v)
	prune(v)
	return v, err
}

// claim enlarges the claim of slurmctld's state if a larger one is asked for. The Problem says why it has another size than that.
func (l *Loop) claim(ctx context.Context, c *v1alpha1.Controller) (*Problem, error) {
	p := &c.Spec.Persistence
	want := p.Resources.Requests.Storage()
	if c.Spec.External != nil || !enabled(p.Enabled) || p.ExistingClaim != "" || want.IsZero() {
		return nil, nil
	}
	name := claimName(c)
	claims := l.kube.CoreV1().PersistentVolumeClaims(c.Namespace)
	claim, err := claims.Get(ctx, name, fromMemory)
	if apierrors.IsNotFound(err) {
		return nil, nil // it is being made
	}
	if err != nil {
		return nil, fmt.Errorf("reading the claim for slurmctld's state: %w", err)
	}
	size := claim.Spec.Resources.Requests.Storage()
	switch capacity := claim.Status.Capacity.Storage(); want.Cmp(*size) {
	case 0:
		if claim.Status.Phase == corev1.ClaimBound && capacity.Cmp(*want) < 0 {
			return &Problem{"Pending", fmt.Sprintf("claim %s is being enlarged from %s to %s%s", name, capacity, want, resizing(claim))}, nil
		}
		return nil, nil
	case -1:
		return &Problem{"CannotShrink", fmt.Sprintf("claim %s has %s, and volumes do not become smaller: set spec.persistence.resources.requests.storage to that", name, size)}, nil
	}
	asked := string(claim.UID) + "/" + want.String()
	last, _ := l.refused.Load(asked)
	if r, ok := last.(refusal); ok && l.o.Now().Sub(r.at) < askAgainIn {
		return r.problem, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion},
		"spec":     map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": want}}},
	})
	if err != nil {
		return nil, err
	}
	l.o.Metrics.wrote("persistentvolumeclaims")
	_, err = claims.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		problem := &Problem{"NotEnlarged", fmt.Sprintf("claim %s stays at %s: %v; everything else is carried out", name, size, err)}
		l.refused.Store(asked, refusal{l.o.Now(), problem})
		return problem, nil
	}
	if err != nil {
		return nil, fmt.Errorf("enlarging claim %s: %w", name, err)
	}
	return &Problem{"Pending", fmt.Sprintf("claim %s is being enlarged from %s to %s", name, size, want)}, nil
}

// refusal is what the API server has said to the size that a claim was to get, and when. It is asked again after a while: a storage class may allow it by then.
type refusal struct {
	at      time.Time
	problem *Problem
}

const askAgainIn = 10 * time.Minute

// unbound says why a pod that has no host has no volume for slurmctld's state, and what to do, "" if it has one. The scheduler only says that claims are not bound.
func (l *Loop) unbound(ctx context.Context, c *v1alpha1.Controller, pods []*corev1.Pod) (string, error) {
	p := &c.Spec.Persistence
	if !enabled(p.Enabled) || !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		reason, why := trouble(pod, ContainerSlurmctld)
		return reason == unschedulable && strings.Contains(strings.ToLower(why), "volume") // a claim may also wait for the pod's host, for which there is no room
	}) {
		return "", nil
	}
	name := cmp.Or(p.ExistingClaim, claimName(c))
	claim, err := l.kube.CoreV1().PersistentVolumeClaims(c.Namespace).Get(ctx, name, fromMemory)
	switch {
	case apierrors.IsNotFound(err) && p.ExistingClaim != "":
		return fmt.Sprintf("spec.persistence.existingClaim: there is no claim %s: create it", name), nil
	case apierrors.IsNotFound(err):
		return "", nil // it is being made
	case err != nil:
		return "", fmt.Errorf("reading the claim for slurmctld's state: %w", err)
	case claim.Status.Phase == corev1.ClaimBound:
		return "", nil
	}
	class := "without a storage class, and none is the default of this Kubernetes"
	if claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName != "" {
		class = "of storage class " + *claim.Spec.StorageClassName
	}
	said := fmt.Sprintf("claim %s waits for a volume %s: its Events say why (kubectl describe pvc %s), kubectl get storageclass what there is; create such a volume or class", name, class, name)
	if p.ExistingClaim == "" {
		said += ", or delete the Controller and the claim and make it anew with another spec.persistence.storageClassName"
	}
	return said, nil
}

// resizing is what Kubernetes says of it.
func resizing(claim *corev1.PersistentVolumeClaim) (said string) {
	for _, one := range claim.Status.Conditions {
		if one.Status == corev1.ConditionTrue && one.Message != "" {
			said += ": " + one.Message
		}
	}
	return said
}
