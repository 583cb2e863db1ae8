package controlplane

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Pods that admission refuses (a quota, Pod Security, a priority class that is not there) are never there, so no pod says why.

// CannotCreate is the reason of what has no pod because none can be made.
const CannotCreate = "CannotCreate"

// uncreatedFor is how long what is said of a pod that could not be made is believed: a StatefulSet's controller tries again within 1000 s.
const uncreatedFor = 20 * time.Minute

// uncreated is why a StatefulSet has no pod: what its controller has said since it last made one. Empty: it has not said so, or may not be asked.
func (l *Loop) uncreated(ctx context.Context, set *appsv1.StatefulSet) string {
	events, err := l.kube.CoreV1().Events(set.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"involvedObject.kind": "StatefulSet", "involvedObject.name": set.Name, "involvedObject.uid": string(set.UID),
	}.String()})
	if err != nil {
		l.o.Log.Debug("asking why there is no pod", "namespace", set.Namespace, "statefulset", set.Name, "error", err)
		return ""
	}
	var newest time.Time
	var said string
	for _, e := range events.Items {
		if at := lastTime(e); !at.Before(newest) && l.o.Now().Sub(at) < uncreatedFor {
			switch e.Reason {
			case "FailedCreate":
				newest, said = at, e.Message
			case "SuccessfulCreate":
				newest, said = at, ""
			}
		}
	}
	if _, after, ok := strings.Cut(said, "failed error: "); ok { // create Pod tide-controller-0 in StatefulSet tide-controller failed error: …
		said = after
	}
	return said
}

// lastTime is when an Event was seen last, whichever API it came by.
func lastTime(e corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case e.LastTimestamp.IsZero():
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}

// withoutPod says why there is no pod of a daemon.
func withoutPod(daemon, uncreated string) (reason, message string) {
	if uncreated == "" {
		return "NoPod", "there is no pod of " + daemon + " yet"
	}
	return CannotCreate, "Kubernetes cannot make the pod of " + daemon + ": " + uncreated + "; mend that, or take the change back that it came with"
}

// unmade is why pods of a Deployment cannot be made, "" if they can.
func unmade(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && c.Reason == "FailedCreate" {
			return "Kubernetes cannot make pods: " + c.Message + "; mend that, or take the change back that it came with"
		}
	}
	return ""
}
