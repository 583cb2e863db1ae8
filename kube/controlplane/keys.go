package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// wantedKey is a key that has to be there.
type wantedKey struct {
	field string // that names it
	given bool   // it is not ours to make
	ref   v1alpha1.KeyRef
	of    metav1.ObjectMeta // of the Secret that is made for it
	// workload is the StatefulSet that has read it, if there is one, and daemon what runs there.
	workload, daemon string
	// user needs a key that another object owns. It is made a second owner: Kubernetes deletes a Secret when all of its owners are gone.
	user *metav1.OwnerReference
}

// controllerKeys are those of a Controller: its own, or its Accounting's. accounting is nil if it has none.
func controllerKeys(c *v1alpha1.Controller, accounting *v1alpha1.Accounting) []wantedKey {
	one := func(field string, named *v1alpha1.KeyRef, made v1alpha1.KeyRef, its func(*v1alpha1.Accounting) (named bool, ref v1alpha1.KeyRef)) wantedKey {
		k := wantedKey{
			field: "spec." + field, given: named != nil, ref: made, of: owned(c.Namespace, made.Name, controllerLabels(c), ownerOf(c, "Controller")),
			workload: workload(c.Name), daemon: ContainerSlurmctld,
		}
		if accounting == nil || named != nil {
			return k
		}
		k.field = fmt.Sprintf("spec.%s of Accounting %s", field, accounting.Name)
		names, ref := its(accounting)
		if !names {
			k.of = owned(c.Namespace, ref.Name, accountingLabels(accounting), ownerOf(accounting, "Accounting"))
			k.workload, k.daemon = dbdWorkload(accounting.Name), ContainerSlurmdbd
			k.user = userOf(c, "Controller")
		} else {
			k.given = ref != made // an Accounting may name what is made for one of its Controllers
		}
		k.ref = ref
		return k
	}
	return []wantedKey{
		one("slurmKeyRef", c.Spec.SlurmKeyRef, slurmKeyRef(c), func(a *v1alpha1.Accounting) (bool, v1alpha1.KeyRef) {
			return a.Spec.SlurmKeyRef != nil, accountingSlurmKeyRef(a)
		}),
		one("jwtKeyRef", c.Spec.JWTKeyRef, jwtKeyRef(c), func(a *v1alpha1.Accounting) (bool, v1alpha1.KeyRef) {
			return a.Spec.JWTKeyRef != nil, accountingJWTKeyRef(a)
		}),
	}
}

// accountingKeys are those of an Accounting.
func accountingKeys(a *v1alpha1.Accounting) []wantedKey {
	one := func(field string, named *v1alpha1.KeyRef, ref v1alpha1.KeyRef) wantedKey {
		return wantedKey{
			field: "spec." + field, given: named != nil, ref: ref, of: owned(a.Namespace, ref.Name, accountingLabels(a), ownerOf(a, "Accounting")),
			workload: dbdWorkload(a.Name), daemon: ContainerSlurmdbd,
		}
	}
	return []wantedKey{one("slurmKeyRef", a.Spec.SlurmKeyRef, accountingSlurmKeyRef(a)), one("jwtKeyRef", a.Spec.JWTKeyRef, accountingJWTKeyRef(a))}
}

// makeKeys makes the keys that are ours to make, once, and looks whether the others are there, all at once: each is a request.
// found are Secrets that were there before.
func (l *Loop) makeKeys(ctx context.Context, keys []wantedKey) (found []string, err error) {
	before, errs := make([]bool, len(keys)), make([]error, len(keys))
	var all sync.WaitGroup
	for i, k := range keys {
		all.Go(func() {
			if k.given {
				_, errs[i] = l.secretKey(ctx, k.of.Namespace, k.field, k.ref)
			} else {
				before[i], errs[i] = l.ownKey(ctx, k)
			}
		})
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	for i, k := range keys {
		if before[i] {
			found = append(found, k.ref.Name)
		}
	}
	return found, nil
}

// ownKey makes a key for a new object, and never again: all that trust it would have to get another one at once. found tells of one that nobody owns.
func (l *Loop) ownKey(ctx context.Context, k wantedKey) (found bool, err error) {
	s, err := l.secret(ctx, k.of.Namespace, k.ref.Name)
	of := k.of.OwnerReferences[0]
	set := find[appsv1.StatefulSet](l.applier.known["StatefulSet"], k.of.Namespace, k.workload)
	if set != nil {
		if ref := metav1.GetControllerOf(set); ref == nil || ref.UID != of.UID {
			set = nil
		}
	}
	switch {
	case apierrors.IsNotFound(err) && set == nil:
		return false, l.makeKey(ctx, k)
	case apierrors.IsNotFound(err):
		return false, &Problem{"KeyLost", fmt.Sprintf("Secret %s, in which the key of this cluster was, is gone: create it again with the same %s; or, if that is lost, "+
			"delete StatefulSet %s: then a new key is made, %s starts anew, and all slurmds and tokens with the old one are worthless", k.ref.Name, k.ref.Key, k.workload, k.daemon)}
	case err != nil:
		return false, fmt.Errorf("reading Secret %s: %w", k.ref.Name, err)
	}
	owner := metav1.GetControllerOf(s)
	switch {
	case owner != nil && !owns(s, of.UID):
		return false, &Problem{"KeyTaken", fmt.Sprintf("Secret %s belongs to another object, %s %s with UID %s: if that was this one's forerunner, it will be deleted within a moment, and a new key made; "+
			"to keep its key, remove metadata.ownerReferences from it", k.ref.Name, owner.Kind, owner.Name, owner.UID)}
	case len(s.Data[k.ref.Key]) == 0:
		return false, &Problem{"KeyMissing", fmt.Sprintf("Secret %s exists, but has no %s: put the key there, or delete the Secret: then one is made", k.ref.Name, k.ref.Key)}
	}
	return owner == nil, l.useKey(ctx, s, k.user)
}

func owns(s *corev1.Secret, uid types.UID) bool {
	return slices.ContainsFunc(s.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// useKey keeps a Secret for its user, also when its owner goes.
func (l *Loop) useKey(ctx context.Context, s *corev1.Secret, user *metav1.OwnerReference) error {
	if user == nil || owns(s, user.UID) {
		return nil
	}
	next := s.DeepCopy()
	next.OwnerReferences = append(next.OwnerReferences, *user)
	l.o.Metrics.wrote("secrets")
	if _, err := l.kube.CoreV1().Secrets(s.Namespace).Update(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager}); err != nil {
		return fmt.Errorf("writing Secret %s: %w", s.Name, err)
	}
	return nil
}

// makeKey makes a key. It is text, since slurmd pods may get it in a variable.
func (l *Loop) makeKey(ctx context.Context, k wantedKey) error {
	secret := keySecret(k.of, k.ref.Key, []byte(rand.Text()+rand.Text()+rand.Text()))
	if k.user != nil {
		secret.OwnerReferences = append(slices.Clone(secret.OwnerReferences), *k.user)
	}
	l.o.Metrics.wrote("secrets")
	_, err := l.kube.CoreV1().Secrets(k.of.Namespace).Create(ctx, secret, metav1.CreateOptions{FieldManager: FieldManager})
	if apierrors.IsAlreadyExists(err) { // a Controller and its Accounting are handled at once
		_, err := l.ownKey(ctx, k)
		return err
	}
	if err != nil {
		return fmt.Errorf("making Secret %s: %w", k.ref.Name, err)
	}
	l.o.Log.Info("made a key", "namespace", k.of.Namespace, "secret", k.ref.Name)
	return nil
}

// WithKeysOf is a Controller that names its Accounting's keys where it names none of its own.
func WithKeysOf(c *v1alpha1.Controller, a *v1alpha1.Accounting) *v1alpha1.Controller {
	c = c.DeepCopy()
	slurm, jwt := accountingSlurmKeyRef(a), accountingJWTKeyRef(a)
	if c.Spec.SlurmKeyRef == nil {
		c.Spec.SlurmKeyRef = &slurm
	}
	if c.Spec.JWTKeyRef == nil {
		c.Spec.JWTKeyRef = &jwt
	}
	return c
}

// withItsKeys is a Controller that names the keys that its slurmctld has, whatever has become of its Accounting since: they are kept (keptKeys), and who has
// others is trusted by nobody. Before there is a slurmctld they are those that it will have.
func (l *Loop) withItsKeys(c *v1alpha1.Controller) (*v1alpha1.Controller, error) {
	set := l.statefulSet(c)
	if set == nil {
		c, _, err := l.accountingOf(c)
		return c, err
	}
	c = c.DeepCopy()
	for _, has := range keysIn(&set.Spec.Template.Spec) {
		switch has.name {
		case SlurmKey:
			c.Spec.SlurmKeyRef = &has.ref
		case JWTKey:
			c.Spec.JWTKeyRef = &has.ref
		}
	}
	return c, nil
}

// keptKeys sees that a Controller whose slurmctld runs keeps its keys when its accountingRef is changed or removed. c has the keys that it would have.
func (l *Loop) keptKeys(ctx context.Context, c *v1alpha1.Controller) error {
	set := l.statefulSet(c)
	if set == nil {
		return nil
	}
	wanted := map[string]v1alpha1.KeyRef{SlurmKey: slurmKeyRef(c), JWTKey: jwtKeyRef(c)}
	for _, had := range keysIn(&set.Spec.Template.Spec) {
		want := wanted[had.name]
		if want == had.ref {
			continue
		}
		before, err := l.secretKey(ctx, c.Namespace, "", had.ref)
		if err == nil {
			var after []byte
			if after, err = l.secretKey(ctx, c.Namespace, "", want); err == nil && bytes.Equal(before, after) {
				continue
			}
		}
		if _, missing := errors.AsType[*Problem](err); err != nil && !missing {
			return err
		}
		return &Problem{"KeyDiffers", fmt.Sprintf("spec.accountingRef: slurmctld and its nodes have %s of Secret %s, and would need %s of Secret %s, which is another key: take the change of accountingRef back",
			had.ref.Key, had.ref.Name, want.Key, want.Name)}
	}
	return nil
}

type keyFile struct {
	name string
	ref  v1alpha1.KeyRef
}

// keysIn are the keys of slurmctld's pod.
func keysIn(spec *corev1.PodSpec) (all []keyFile) {
	for _, v := range spec.Volumes {
		if v.Name != keysVolume || v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if s := source.Secret; s != nil && len(s.Items) == 1 {
				all = append(all, keyFile{s.Items[0].Path, v1alpha1.KeyRef{Name: s.Name, Key: s.Items[0].Key}})
			}
		}
	}
	return all
}

// sameKeys sees that slurmctld and slurmdbd will trust each other, and that a Controller which had keys of its own does not change them: its nodes have them.
func (l *Loop) sameKeys(ctx context.Context, c *v1alpha1.Controller, a *v1alpha1.Accounting) error {
	if a == nil {
		return nil
	}
	for _, k := range []struct {
		field string
		named bool
		ref   v1alpha1.KeyRef // the Controller's, named or made before it had an Accounting
		its   v1alpha1.KeyRef
	}{
		{"slurmKeyRef", c.Spec.SlurmKeyRef != nil, slurmKeyRef(c), accountingSlurmKeyRef(a)},
		{"jwtKeyRef", c.Spec.JWTKeyRef != nil, jwtKeyRef(c), accountingJWTKeyRef(a)},
	} {
		if k.ref == k.its {
			continue
		}
		mine, err := l.secretKey(ctx, c.Namespace, "spec."+k.field, k.ref)
		if _, missing := errors.AsType[*Problem](err); missing && !k.named {
			continue
		}
		if err != nil {
			return err
		}
		its, err := l.secretKey(ctx, c.Namespace, fmt.Sprintf("spec.%s of Accounting %s", k.field, a.Name), k.its)
		switch {
		case err != nil:
			return err
		case bytes.Equal(mine, its):
		case k.named:
			return &Problem{"KeyDiffers", fmt.Sprintf("spec.%s: it is another key than that of Accounting %s (%s of Secret %s): both need the same: make anew the one of the two that may go (it cannot be changed), or put the same key into both Secrets", k.field, a.Name, k.its.Key, k.its.Name)}
		default:
			return &Problem{"KeyDiffers", fmt.Sprintf("spec.accountingRef: Accounting %s has another key than the one that was made for this Controller, and that its nodes have "+
				"(%s of Secret %s): name that one in spec.%s of a new Accounting", a.Name, k.ref.Key, k.ref.Name, k.field)}
		}
	}
	return nil
}
