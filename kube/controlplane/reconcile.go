package controlplane

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
)

var everything = labels.Everything()

// controller carries out a Controller, and tells when to look again.
func (l *Loop) controller(ctx context.Context, namespace, name string) (time.Duration, error) {
	c, err := l.controllers.Controllers(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && c.DeletionTimestamp != nil {
		return 0, nil // what it owned goes with it
	}
	if err != nil {
		return 0, err
	}
	seen := SeenController{Pods: l.slurmctldPods(c)}
	full, accounting, err := l.accountingOf(c)
	var files map[string]string
	if err == nil {
		seen.Lacks = lacksSlurmdbd(accounting)
		files, err = l.prepare(ctx, c, full, accounting, &seen)
	}
	if err == nil && lacksKey(accounting) {
		l.queue.Add(key{"Accounting", namespace, accounting.Name}) // it may wait for one that has just been made
	}
	if err == nil {
		seen.Hash = inplace.Hash(files)
		err = l.applyController(ctx, full, accounting, files)
	}
	if err == nil {
		seen.Volume, err = l.claim(ctx, c)
	}
	if err == nil {
		seen.Unbound, err = l.unbound(ctx, c, seen.Pods)
	}
	for _, pod := range seen.Pods {
		if err == nil {
			err = l.nudge(ctx, pod, seen.Hash)
		}
	}
	if seen.Problem, err = problem(err); seen.Problem == nil && err != nil {
		return 0, err
	}
	next := c.DeepCopy()
	var settles time.Duration
	seen.Sidecars, settles = sidecarsReady(seen.Pods, l.o.Now())
	if set := l.statefulSet(c); set != nil && len(seen.Pods) == 0 {
		seen.Uncreated, settles = l.uncreated(ctx, set), sooner(settles, mendedWithin)
	}
	next.Status = ControllerStatus(c, seen)
	if seen.NodesGo {
		settles = sooner(settles, nodesGoneWithin)
	}
	return sooner(lookAgain(cmp.Or(seen.Problem, seen.HostKeys)), settles), errors.Join(err, writeStatus(ctx, l, "Controller", l.tide.SlurmtideV1alpha1().Controllers(namespace), c, next, c.Status.Conditions, next.Status.Conditions))
}

// problem takes what the user has to mend out of an error. What is left is tried again, and shown until it works.
func problem(err error) (*Problem, error) {
	if err == nil {
		return nil, nil
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return p, nil
	}
	if lasting(err) {
		return &Problem{"ApplyFailed", err.Error()}, err
	}
	return nil, err
}

// lookAgain is when to look whether a problem has been mended; 0 if there is none. Secrets and ConfigMaps are not watched.
func lookAgain(p *Problem) time.Duration {
	if p == nil {
		return 0
	}
	return mendedWithin
}

// sooner is the shorter of two durations of which 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// lasting says that an API server will most likely give the same answer again: what it is asked for is wrong, too large, or not allowed.
func lasting(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	switch code := status.ErrStatus.Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusConflict, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	case http.StatusInternalServerError: // two entries of a list with the same key, for example
		return strings.Contains(status.ErrStatus.Message, "failed to create typed patch object")
	default:
		return code >= 400 && code < 500
	}
}

// prepare sees that the Controller can be carried out, makes its keys, and gives its configuration files. full is the Controller with the keys of its
// Accounting, which is nil if it has none.
func (l *Loop) prepare(ctx context.Context, c, full *v1alpha1.Controller, accounting *v1alpha1.Accounting, seen *SeenController) (map[string]string, error) {
	all, err := l.controllers.List(everything)
	if err != nil {
		return nil, err
	}
	if taken := nameTaken(c, all, l.slurmdbdOf); taken != nil {
		return nil, taken
	}
	kept := l.keptKeys(ctx, full)
	if accounting == nil && kept != nil {
		return nil, kept
	}
	if seen.Found, err = l.makeKeys(ctx, controllerKeys(c, accounting)); err != nil {
		return nil, err
	}
	if err := errors.Join(l.sameKeys(ctx, c, accounting), kept); err != nil { // the first may know more to do about it
		return nil, err
	}
	sets, err := l.nodeSetsOf(c)
	if err != nil {
		return nil, err
	}
	if seen.HostKeys, err = l.nodeHostKeys(ctx, sets); err != nil {
		return nil, err
	}
	if c.Spec.External != nil {
		return nil, nil
	}
	cluster := Cluster{Controller: c, NodeSets: sets, Accounting: accounting, Settings: l.o.Settings}
	if err := cluster.ReadFiles(func(field string, refs []v1alpha1.ObjectRef) (map[string]string, error) {
		return l.files(ctx, c.Namespace, field, refs)
	}); err != nil {
		return nil, err
	}
	if cluster.JWKS, err = l.jwks(ctx, c.Namespace, c.Spec.JWKSKeyRef); err != nil {
		return nil, err
	}
	if live := find[corev1.ConfigMap](l.applier.known["ConfigMap"], c.Namespace, configName(c.Name)); live != nil {
		cluster.Before = live.Data["slurm.conf"]
	}
	files, err := Config(cluster)
	if err == nil && loses(files["slurm.conf"], cluster.Before) {
		if cluster.Up, err = l.nodesWithPods(ctx, c); err != nil {
			return nil, err
		}
		files, err = Config(cluster)
		seen.NodesGo = strings.Contains(files["slurm.conf"], outgoingMark)
	}
	if err != nil {
		return nil, &Problem{"InvalidConfig", err.Error()}
	}
	return files, nil
}

// nodesWithPods are the nodes of a Controller's cluster that have a pod which has not ended, with the names of their NodeSets.
func (l *Loop) nodesWithPods(ctx context.Context, c *v1alpha1.Controller) (map[string]string, error) {
	list, err := l.kube.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{v1alpha1.LabelCluster: ClusterName(c)}.String(), ResourceVersion: "0", // from memory
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of nodes: %w", err)
	}
	up := map[string]string{}
	for _, pod := range list.Items {
		if node := pod.Labels[v1alpha1.LabelNode]; node != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			up[node] = pod.Labels[v1alpha1.LabelNodeSet]
		}
	}
	return up, nil
}

// nodeSetsOf are those of a Controller's cluster.
func (l *Loop) nodeSetsOf(c *v1alpha1.Controller) (sets []*v1alpha1.NodeSet, err error) {
	all, err := l.nodeSets.NodeSets(c.Namespace).List(everything)
	for _, set := range all {
		if set.Spec.ClusterRef.Name == ClusterName(c) && set.DeletionTimestamp == nil {
			sets = append(sets, set)
		}
	}
	return sets, err
}

// files reads ConfigMaps.
func (l *Loop) files(ctx context.Context, namespace, field string, refs []v1alpha1.ObjectRef) (map[string]string, error) {
	all := map[string]string{}
	for _, ref := range refs {
		m, err := l.kube.CoreV1().ConfigMaps(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, &Problem{"ConfigFileMissing", fmt.Sprintf("%s: there is no ConfigMap %s: create it, or remove the reference", field, ref.Name)}
		}
		if err != nil {
			return nil, fmt.Errorf("reading ConfigMap %s: %w", ref.Name, err)
		}
		maps.Copy(all, FilesIn(m))
	}
	return all, nil
}

// nameTaken says who of all had the cluster name of a Controller first: in its namespace, or with the same slurmdbd, which tells clusters apart by their names. slurmdbd
// is a Controller's, "" if it has none. A slurmctld outside may be the Controller of several namespaces.
func nameTaken(c *v1alpha1.Controller, all []*v1alpha1.Controller, slurmdbd func(*v1alpha1.Controller) string) *Problem {
	for _, other := range all {
		here := other.Namespace == c.Namespace
		if here && other.Name == c.Name || ClusterName(other) != ClusterName(c) || !older(other, c) {
			continue
		}
		if here {
			return &Problem{"ClusterNameTaken", fmt.Sprintf("Controller %s of this namespace has the cluster name %s already: delete this one, and make it anew with another spec.clusterName", other.Name, ClusterName(c))}
		}
		if address := slurmdbd(c); c.Spec.External == nil && address != "" && slurmdbd(other) == address {
			return &Problem{"ClusterNameTaken", fmt.Sprintf("Controller %s of namespace %s has the cluster name %s, too, and the same slurmdbd (%s), which takes both for one: "+
				"delete one of them, and make it anew with another spec.clusterName, or give it another slurmdbd", other.Name, other.Namespace, ClusterName(c), address)}
		}
	}
	return nil
}

// slurmdbdOf is where the slurmdbd of a Controller is, "" if it has none.
func (l *Loop) slurmdbdOf(c *v1alpha1.Controller) string {
	if c.Spec.AccountingRef == nil {
		return ""
	}
	a, err := l.accountings.Accountings(c.Namespace).Get(c.Spec.AccountingRef.Name)
	if err != nil { // there is none yet
		return ""
	}
	return sameSlurmdbd(a, l.o.Settings)
}

// sameSlurmdbd is one text for all names of a slurmdbd that is a Service: those with namespace and domain, and in its own namespace the short one.
func sameSlurmdbd(a *v1alpha1.Accounting, s Settings) string {
	host, port := dbdAddress(a, s)
	host = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), "."+s.ClusterDomain), ".svc")
	if !strings.ContainsAny(host, ".:") {
		host += "." + a.Namespace
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func older(a, b metav1.Object) bool {
	made, other := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if made.Equal(&other) {
		return a.GetNamespace()+"/"+a.GetName() < b.GetNamespace()+"/"+b.GetName()
	}
	return made.Before(&other)
}

// fromMemory lets the API server answer without asking etcd, which is much faster: what it says may be some milliseconds old.
var fromMemory = metav1.GetOptions{ResourceVersion: "0"}

// secret reads a Secret. That there is none is etcd's word.
func (l *Loop) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	s, err := l.kube.CoreV1().Secrets(namespace).Get(ctx, name, fromMemory)
	if apierrors.IsNotFound(err) {
		return l.kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return s, err
}

// secretKey reads a key. A *Problem says that it is not there.
func (l *Loop) secretKey(ctx context.Context, namespace, field string, ref v1alpha1.KeyRef) ([]byte, error) {
	s, err := l.secret(ctx, namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return nil, &Problem{"KeyMissing", fmt.Sprintf("%s: there is no Secret %s: create it, with the key under %s", field, ref.Name, ref.Key)}
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", ref.Name, err)
	}
	if len(s.Data[ref.Key]) == 0 {
		return nil, &Problem{"KeyMissing", fmt.Sprintf("%s: Secret %s has no %s, or an empty one: put the key there", field, ref.Name, ref.Key)}
	}
	return s.Data[ref.Key], nil
}

func (l *Loop) applyController(ctx context.Context, c *v1alpha1.Controller, accounting *v1alpha1.Accounting, files map[string]string) error {
	objects, err := ControllerObjects(c, files, l.o.Settings)
	if err != nil {
		return err
	}
	if err := l.sharedClaim(ctx, c, l.statefulSet(c)); err != nil {
		return err
	}
	for _, o := range objects {
		if set, ok := o.(*appsv1.StatefulSet); ok {
			if err := keepClaims(set, l.statefulSet(c)); err != nil {
				return err
			}
		}
	}
	if accounting != nil {
		client, err := AccountingClient(c, accounting, l.o.Settings)
		if err != nil {
			return err
		}
		objects = append(objects, client)
	}
	return l.applyAll(ctx, objects)
}

func (l *Loop) applyAll(ctx context.Context, objects []Object) error {
	for _, o := range objects {
		if err := l.applier.apply(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// nudge makes the kubelet bring the pod's files up to date at once.
func (l *Loop) nudge(ctx context.Context, pod *corev1.Pod, hash string) error {
	if pod.Annotations[AnnotationWanted] == hash || pod.DeletionTimestamp != nil || reportOf(pod).InForce == hash {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]string{AnnotationWanted: hash}}})
	if err != nil {
		return err
	}
	l.o.Metrics.wrote("pods")
	_, err = l.kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // another pod comes by the watch
	}
	return err
}

// writeStatus writes next, which is o with a new status, unless it is the same, and tells of what has changed in its conditions.
func writeStatus[T metav1.Object](ctx context.Context, l *Loop, kind string, client interface {
	UpdateStatus(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error)
}, o, next T, before, now []metav1.Condition) error {
	if equality.Semantic.DeepEqual(o, next) {
		return nil
	}
	l.o.Metrics.wrote(strings.ToLower(kind) + "s/status")
	if _, err := client.UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager}); err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", kind, o.GetName(), err)
	}
	l.tellChanges(kind, o, before, now)
	return nil
}

// tellChanges makes an Event of each condition that has a new reason: a warning if it is not True.
func (l *Loop) tellChanges(kind string, o metav1.Object, before, now []metav1.Condition) {
	about := &corev1.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
	for _, one := range now {
		old := meta.FindStatusCondition(before, one.Type)
		calm := one.Status != metav1.ConditionFalse || one.Reason == "Pending" || one.Reason == "Starting" || one.Reason == "NoPod" || one.Reason == "NoPods"
		switch {
		case old != nil && old.Reason == one.Reason && old.Message == one.Message, calm && (old == nil || old.Status == one.Status):
			continue
		}
		level := corev1.EventTypeNormal
		if !calm {
			level = corev1.EventTypeWarning
		}
		l.events.Eventf(about, nil, level, one.Type+one.Reason, "Reconcile", "%s", shorten(one.Message, maxNote))
	}
}

// restAPI carries out a RestApi, and tells when to look again.
func (l *Loop) restAPI(ctx context.Context, namespace, name string) (time.Duration, error) {
	r, err := l.restApis.RestApis(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && r.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	seen, err := problem(l.applyRestAPI(ctx, r))
	next := r.DeepCopy()
	next.Status = RestApiStatus(r, seen, l.deployment(r), l.podsOf(namespace, LabelRestApi, name))
	return lookAgain(seen), errors.Join(err, writeStatus(ctx, l, "RestApi", l.tide.SlurmtideV1alpha1().RestApis(namespace), r, next, r.Status.Conditions, next.Status.Conditions))
}

func (l *Loop) applyRestAPI(ctx context.Context, r *v1alpha1.RestApi) error {
	c, err := l.controllers.Controllers(r.Namespace).Get(r.Spec.ControllerRef.Name)
	if apierrors.IsNotFound(err) {
		return &Problem{"ControllerMissing", fmt.Sprintf("there is no Controller %s in this namespace: create it", r.Spec.ControllerRef.Name)}
	}
	if err != nil {
		return err
	}
	c, accounting, err := l.accountingOf(c)
	if err != nil {
		return err
	}
	if err := l.keptKeys(ctx, c); err != nil { // slurmctld would trust it no longer
		return err
	}
	objects, err := RestApiObjects(r, c, accounting, l.o.Settings)
	if err != nil {
		return &Problem{"Invalid", err.Error()}
	}
	return l.applyAll(ctx, objects)
}
