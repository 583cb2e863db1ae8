package controlplane

import (
	"cmp"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// What Kubernetes said last of a pod that it could not make is told, and what it said long ago is not.
func TestUncreated(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	const refused = `create Pod tide-controller-0 in StatefulSet tide-controller failed error: pods "tide-controller-0" is forbidden: `
	for name, tt := range map[string]struct {
		events []corev1.Event
		err    error
		want   string
	}{
		"nothing": {},
		"the newest": {events: []corev1.Event{
			{Message: refused + "exceeded quota", LastTimestamp: at(time.Minute)}, {Message: refused + "no PriorityClass with name typo was found", LastTimestamp: at(time.Second)},
			{Message: refused + "something else", LastTimestamp: at(time.Hour)},
		}, want: `pods "tide-controller-0" is forbidden: no PriorityClass with name typo was found`},
		"in a series":                       {events: []corev1.Event{{Message: "no", EventTime: metav1.NewMicroTime(now.Add(-time.Hour)), Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(now)}}}, want: "no"},
		"of a newer API":                    {events: []corev1.Event{{Message: "no", EventTime: metav1.NewMicroTime(now)}}, want: "no"},
		"before the last one that was made": {events: []corev1.Event{{Message: "no", LastTimestamp: at(time.Minute)}, {Reason: "SuccessfulCreate", Message: "create Pod", LastTimestamp: at(time.Second)}}},
		"after it":                          {events: []corev1.Event{{Reason: "SuccessfulCreate", Message: "create Pod", LastTimestamp: at(time.Minute)}, {Message: "no", LastTimestamp: at(time.Second)}}, want: "no"},
		"long ago":                          {events: []corev1.Event{{Message: "no", LastTimestamp: at(uncreatedFor)}}},
		"may not ask":                       {events: []corev1.Event{{Message: "no", LastTimestamp: at(0)}}, err: errors.New("forbidden")},
	} {
		t.Run(name, func(t *testing.T) {
			kube := kubefake.NewClientset()
			kube.PrependReactor("list", "events", func(a kubetesting.Action) (bool, runtime.Object, error) {
				assert.Equal(t, "involvedObject.kind=StatefulSet,involvedObject.name=tide-controller,involvedObject.uid=uid", a.(kubetesting.ListActionImpl).ListRestrictions.Fields.String())
				for i := range tt.events {
					tt.events[i].Reason = cmp.Or(tt.events[i].Reason, "FailedCreate")
				}
				return true, &corev1.EventList{Items: tt.events}, tt.err
			})
			l := &Loop{kube: kube, o: Options{Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}}
			assert.Equal(t, tt.want, l.uncreated(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "tide-controller", UID: "uid"}}))
		})
	}
}

// An object without pods says why none can be made, and one whose pods fail says so.
func TestAvailableWithoutPods(t *testing.T) {
	one := available(nil, "exceeded quota")
	assert.Equal(t, CannotCreate, one.Reason)
	assert.Equal(t, "Kubernetes cannot make the pod of slurmctld: exceeded quota; mend that, or take the change back that it came with", one.Message)
	assert.Equal(t, "NoPod", available(nil, "").Reason)
	assert.Equal(t, CannotCreate, slurmdbdAvailable(&v1alpha1.Accounting{}, SeenAccounting{Uncreated: "exceeded quota"}).Reason)

	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}}
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: `pods "x" is forbidden: exceeded quota`}}
	restAPI := func(pods ...*corev1.Pod) *metav1.Condition {
		return meta.FindStatusCondition(RestApiStatus(&v1alpha1.RestApi{}, nil, d, pods).Conditions, v1alpha1.ConditionAvailable)
	}
	assert.Equal(t, CannotCreate, restAPI().Reason)
	assert.Contains(t, restAPI().Message, `0 of 2 answer; Kubernetes cannot make pods: pods "x" is forbidden: exceeded quota; mend that`)
	d.Status.ReadyReplicas = 2 // a rolling update
	assert.Equal(t, "Answers", restAPI().Reason)
	assert.Contains(t, restAPI().Message, "exceeded quota")

	d.Status = appsv1.DeploymentStatus{ReadyReplicas: 1}
	image := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "tide-restapi-x"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: "slurmrestd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}},
	}}}
	assert.Equal(t, "ImagePullBackOff", restAPI(image).Reason)
	assert.Equal(t, "1 of 2 answer; container slurmrestd of pod tide-restapi-x: no such image", restAPI(image).Message)
}
