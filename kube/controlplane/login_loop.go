package controlplane

import (
	"context"
	"errors"
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
	"github.com/slurmtide/slurmtide/kube/sshd"
)

// loginSet carries out a LoginSet, and tells when to look again.
func (l *Loop) loginSet(ctx context.Context, namespace, name string) (time.Duration, error) {
	s, err := l.loginSets.LoginSets(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && s.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	seen := SeenLoginSet{Deployment: find[appsv1.Deployment](l.deployments, namespace, loginName(name)), Pods: l.podsOf(namespace, LabelLoginSet, name)}
	seen.HostKeys, err = l.applyLoginSet(ctx, s)
	seen.Problem, err = problem(err)
	if err != nil && seen.Problem == nil {
		return 0, err
	}
	next := s.DeepCopy()
	next.Status = LoginSetStatus(s, seen)
	return lookAgain(seen.Problem), errors.Join(err, writeStatus(ctx, l, "LoginSet", l.tide.SlurmtideV1alpha1().LoginSets(namespace), s, next, s.Status.Conditions, next.Status.Conditions))
}

// podsOf are those with a label, by name.
func (l *Loop) podsOf(namespace, label, value string) (all []*corev1.Pod) {
	for _, obj := range l.pods.List() {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Namespace == namespace && pod.Labels[label] == value {
			all = append(all, pod)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// applyLoginSet gives the fingerprints of the host keys.
func (l *Loop) applyLoginSet(ctx context.Context, s *v1alpha1.LoginSet) ([]string, error) {
	c, err := l.controllers.Controllers(s.Namespace).Get(s.Spec.ControllerRef.Name)
	if apierrors.IsNotFound(err) {
		return nil, &Problem{"ControllerMissing", fmt.Sprintf("there is no Controller %s in this namespace: create it", s.Spec.ControllerRef.Name)}
	}
	if err != nil {
		return nil, err
	}
	if c, err = l.withItsKeys(c); err != nil { // sackd has the key of all of the cluster's daemons
		return nil, err
	}
	if err := l.loginRefs(ctx, s); err != nil {
		return nil, err
	}
	keys, err := l.hostKeys(ctx, s)
	if err != nil {
		return nil, err
	}
	prints := sshd.Fingerprints(keys)
	objects, err := LoginSetObjects(s, c, keys, l.o.Settings)
	if err != nil {
		return prints, &Problem{"Invalid", err.Error()}
	}
	return prints, l.applyAll(ctx, objects)
}

// loginRefs looks whether all that pods mount is there: without it they would wait for it, which only their Events tell.
func (l *Loop) loginRefs(ctx context.Context, s *v1alpha1.LoginSet) error {
	if _, err := l.files(ctx, s.Namespace, "spec.authorizedKeysRefs", s.Spec.AuthorizedKeysRefs); err != nil {
		return err
	}
	if ref := s.Spec.UsersRef; ref != nil {
		users, err := l.files(ctx, s.Namespace, "spec.usersRef", []v1alpha1.ObjectRef{*ref})
		if err != nil {
			return err
		}
		if err := sshd.CheckUsers(users); err != nil {
			return &Problem{"InvalidUsers", fmt.Sprintf("spec.usersRef: ConfigMap %s: %v", ref.Name, err)}
		}
	}
	if ref := s.Spec.SssdConfRef; ref != nil {
		if _, err := l.secretKey(ctx, s.Namespace, "spec.sssdConfRef", *ref); err != nil {
			return err
		}
	}
	return nil
}

// hostKeys gives the host keys, and makes them if there are none and they are ours to make. They are made for a new LoginSet, and never again.
func (l *Loop) hostKeys(ctx context.Context, s *v1alpha1.LoginSet) (map[string][]byte, error) {
	name, given := hostKeysName(s), s.Spec.HostKeysRef != nil
	secret, err := l.secret(ctx, s.Namespace, name)
	switch {
	case apierrors.IsNotFound(err) && given:
		return nil, &Problem{"KeyMissing", fmt.Sprintf("spec.hostKeysRef: there is no Secret %s: create it, with keys called as ssh_host_ed25519_key", name)}
	case apierrors.IsNotFound(err) && find[appsv1.Deployment](l.deployments, s.Namespace, loginName(s.Name)) == nil:
		return l.makeHostKeys(ctx, s)
	case apierrors.IsNotFound(err): // ssh would warn every user of an impostor
		return nil, &Problem{"KeyLost", fmt.Sprintf("Secret %s, in which the host keys of this LoginSet were, is gone: create it again with the same keys; or, if they are lost, "+
			"delete Deployment %s: then new ones are made", name, loginName(s.Name))}
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return secret.Data, usableHostKeys(secret, s.UID, given)
}

// usableHostKeys says what is wrong with a Secret that is to have host keys for the object with this UID. given: the user has named it.
func usableHostKeys(secret *corev1.Secret, of types.UID, given bool) error {
	if owner := metav1.GetControllerOf(secret); !given && owner != nil && owner.UID != of {
		return &Problem{"KeyTaken", fmt.Sprintf("Secret %s belongs to another object, %s %s with UID %s: if that was this one's forerunner, it will be deleted within a moment, and new keys made; "+
			"to keep its keys, remove metadata.ownerReferences from it", secret.Name, owner.Kind, owner.Name, owner.UID)}
	}
	if sshd.PrivateHostKeys(secret.Data) == nil {
		return &Problem{"KeyMissing", fmt.Sprintf("Secret %s exists, but has no host key: put one in under ssh_host_ed25519_key, or delete the Secret", secret.Name)}
	}
	return nil
}

func (l *Loop) makeHostKeys(ctx context.Context, s *v1alpha1.LoginSet) (map[string][]byte, error) {
	keys, err := sshd.NewHostKeys(s.Namespace + "/" + s.Name)
	if err != nil {
		return nil, err
	}
	return keys, l.createHostKeys(ctx, &corev1.Secret{ObjectMeta: owned(s.Namespace, hostKeysName(s), loginLabels(s), ownerOf(s, "LoginSet")), Data: keys})
}

// loginSetsOf are the LoginSets that refer to a Controller.
func (l *Loop) loginSetsOf(controller metav1.Object) (keys []key) {
	all, _ := l.loginSets.LoginSets(controller.GetNamespace()).List(everything)
	for _, s := range all {
		if s.Spec.ControllerRef.Name == controller.GetName() {
			keys = append(keys, key{"LoginSet", s.Namespace, s.Name})
		}
	}
	return keys
}
