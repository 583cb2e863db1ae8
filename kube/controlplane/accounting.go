package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

const (
	// lookAtDatabase is how often slurmdbd's log is read while it does not answer, or fails.
	lookAtDatabase = 5 * time.Second
	// recently is how far back the log counts of a slurmdbd that answers. It is more than resyncEvery, so that nothing is missed.
	recently = 70 * time.Second
	// logFor bounds the reading of a log, and logMost is how much of it is read, in bytes.
	logFor  = 5 * time.Second
	logMost = 16 << 10
)

// accounting carries out an Accounting, and tells when it is due again.
func (l *Loop) accounting(ctx context.Context, namespace, name string) (time.Duration, error) {
	a, err := l.accountings.Accountings(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && a.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	seen := SeenAccounting{Pod: find[corev1.Pod](l.pods, namespace, dbdPodName(name))}
	seen.Problem, err = problem(l.applyAccounting(ctx, a))
	if seen.Problem == nil && err != nil {
		return 0, err
	}
	seen.Log = l.slurmdbdLog(ctx, seen.Pod)
	if set := find[appsv1.StatefulSet](l.applier.known["StatefulSet"], namespace, dbdWorkload(name)); set != nil && seen.Pod == nil {
		seen.Uncreated = l.uncreated(ctx, set)
	}
	next := a.DeepCopy()
	next.Status = AccountingStatus(a, seen)
	if bad := writeStatus(ctx, l, "Accounting", l.tide.SlurmtideV1alpha1().Accountings(namespace), a, next, a.Status.Conditions, next.Status.Conditions); bad != nil {
		return 0, errors.Join(err, bad)
	}
	if runs(seen.Pod, ContainerSlurmdbd) && !meta.IsStatusConditionTrue(next.Status.Conditions, v1alpha1.ConditionAvailable) {
		return lookAtDatabase, err
	}
	if seen.Pod == nil && a.Spec.External == nil {
		return mendedWithin, err
	}
	return lookAgain(seen.Problem), err
}

// applyAccounting makes the keys, slurmdbd.conf and the objects.
func (l *Loop) applyAccounting(ctx context.Context, a *v1alpha1.Accounting) error {
	if _, err := l.makeKeys(ctx, accountingKeys(a)); err != nil {
		return err
	}
	if a.Spec.External != nil {
		return nil
	}
	names, refs, fields := dbdFiles(a)
	var files [][]byte
	for i := range names {
		text, err := l.secretKey(ctx, a.Namespace, fields[i], refs[i])
		if err != nil {
			return err
		}
		files = append(files, text)
	}
	password, err := l.secretKey(ctx, a.Namespace, "spec.storageConfig.passwordKeyRef", a.Spec.StorageConfig.PasswordKeyRef)
	if err != nil {
		return err
	}
	conf, err := DbdConfig(a, passwordIn(password))
	if err != nil {
		return &Problem{"InvalidConfig", err.Error()}
	}
	jwks, err := l.jwks(ctx, a.Namespace, a.Spec.JWKSKeyRef)
	if err != nil {
		return err
	}
	if err := l.writeSecret(ctx, accountingSecret(a, conf, jwks)); err != nil {
		return err
	}
	if jwks != "" {
		files = append(files, []byte(jwks))
	}
	return l.applyAll(ctx, AccountingObjects(a, dbdHash(files[0], append(files, []byte(conf))...)))
}

// passwordIn is the password in a Secret's key, which files made by editors end with a line break.
func passwordIn(data []byte) string { return strings.TrimRight(string(data), "\r\n") }

// writeSecret makes a Secret that has an owner what it should be. It is not applied as other objects are, because Secrets are not watched: nobody shall have
// to let us list them.
func (l *Loop) writeSecret(ctx context.Context, want *corev1.Secret) error {
	secrets := l.kube.CoreV1().Secrets(want.Namespace)
	have, err := secrets.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		l.o.Metrics.wrote("secrets")
		_, err = secrets.Create(ctx, want, metav1.CreateOptions{FieldManager: FieldManager})
	case err != nil:
		return fmt.Errorf("reading Secret %s: %w", want.Name, err)
	default:
		if owner := metav1.GetControllerOf(have); owner == nil || owner.UID != want.OwnerReferences[0].UID {
			return &Problem{"NameTaken", fmt.Sprintf("Secret %s exists already, and was not made for this object: delete it, or choose another name", want.Name)}
		}
		if equality.Semantic.DeepEqual(have.Data, want.Data) {
			return nil
		}
		next := have.DeepCopy()
		next.Data = want.Data
		l.o.Metrics.wrote("secrets")
		_, err = secrets.Update(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager})
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", want.Name, err)
	}
	return nil
}

// slurmdbdLog is the end of what slurmdbd has said: of the last minute, or, if it does not answer, since its start. It is "" if that cannot be read, which the
// condition can do without.
func (l *Loop) slurmdbdLog(ctx context.Context, pod *corev1.Pod) string {
	if !runs(pod, ContainerSlurmdbd) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, logFor)
	defer cancel()
	o := &corev1.PodLogOptions{Container: ContainerSlurmdbd, TailLines: new(int64(50)), LimitBytes: new(int64(logMost))}
	if ready(pod, ContainerSlurmdbd) {
		o.SinceSeconds = new(int64(recently / time.Second))
	}
	stream, err := l.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	if err != nil {
		l.o.Log.Warn("reading slurmdbd's log", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
		return ""
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, logMost))
	if err != nil {
		l.o.Log.Warn("reading slurmdbd's log", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
	}
	return string(text)
}

// accountingOf finds a Controller's Accounting, nil if it has none, and gives the Controller with the keys that it has because of it.
func (l *Loop) accountingOf(c *v1alpha1.Controller) (*v1alpha1.Controller, *v1alpha1.Accounting, error) {
	if c.Spec.AccountingRef == nil {
		return c, nil, nil
	}
	name := c.Spec.AccountingRef.Name
	a, err := l.accountings.Accountings(c.Namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil, &Problem{"AccountingMissing", fmt.Sprintf("spec.accountingRef: there is no Accounting %s in this namespace: create it, or remove the reference", name)}
	}
	if err != nil {
		return nil, nil, err
	}
	return WithKeysOf(c, a), a, nil
}

// lacksSlurmdbd is why an Accounting's slurmdbd does not answer, "" if it does, or if nobody knows.
func lacksSlurmdbd(a *v1alpha1.Accounting) string {
	if a == nil {
		return ""
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionAvailable} {
		if one := meta.FindStatusCondition(a.Status.Conditions, kind); one != nil && one.Status == metav1.ConditionFalse {
			return fmt.Sprintf("Accounting %s: %s", a.Name, one.Message)
		}
	}
	return ""
}

// accountingAndFriends are an Accounting, the Controllers that name it, and what depends on those.
func (l *Loop) accountingAndFriends(o metav1.Object) []key {
	keys := []key{{"Accounting", o.GetNamespace(), o.GetName()}}
	all, _ := l.controllers.Controllers(o.GetNamespace()).List(everything)
	for _, c := range all {
		if c.Spec.AccountingRef != nil && c.Spec.AccountingRef.Name == o.GetName() {
			keys = append(keys, l.controllerAndFriends(c)...)
		}
	}
	return keys
}
