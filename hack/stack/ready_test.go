package stack

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func running(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func waiting(name, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, Image: "slurmtide/x:1", RestartCount: 2,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "so it is"}},
	}
}

func crashing(name string) corev1.ContainerStatus {
	c := waiting(name, "CrashLoopBackOff")
	c.RestartCount = 3
	return c
}

func TestContainersRun(t *testing.T) {
	names := []string{"a", "b"}
	for name, tc := range map[string]struct {
		status   corev1.PodStatus
		want     string // of the error, empty: none
		hopeless bool
	}{
		"all run":                {status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{running("a"), running("b")}}},
		"nothing known yet":      {want: "container a does not run yet"},
		"one starts":             {status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{running("a"), waiting("b", "ContainerCreating")}}, want: "container b does not run yet"},
		"crashes may end":        {status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{running("a"), waiting("b", "CrashLoopBackOff")}}, want: "container b does not run yet"},
		"crashes do not end":     {status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{running("a"), crashing("b")}}, want: "container b ended 4 times", hopeless: true},
		"no image":               {status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{running("a"), waiting("b", "ErrImagePull")}}, want: "slurmtide/x:1", hopeless: true},
		"no image for the start": {status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{waiting("i", "ImagePullBackOff")}}, want: "container i", hopeless: true},
	} {
		t.Run(name, func(t *testing.T) {
			err := containersRun(&corev1.Pod{Status: tc.status}, names)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			var hopeless *hopelessError
			assert.Equal(t, tc.hopeless, errors.As(err, &hopeless))
		})
	}
}

// A stack that does not come up says why: state, events and logs stand in the error.
func TestWaitReadyExplains(t *testing.T) {
	o := Options{Namespace: "ns", SlurmVersion: "24.11", NodeLines: []string{"NodeName=a State=CLOUD"}}.withDefaults()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: slurmctldPod, Namespace: "ns"},
		Status: corev1.PodStatus{
			Phase:             corev1.PodPending,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}},
			ContainerStatuses: []corev1.ContainerStatus{waiting("slurmctld", "CrashLoopBackOff"), running("slurmrestd")},
		},
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "ns"}, Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "secret is missing",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: slurmctldPod},
	}
	s := &Stack{Options: o, kube: fake.NewClientset(pod, event)}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := s.WaitReady(ctx)
	for _, want := range []string{
		"stack ns (Slurm 24.11)", "container slurmctld does not run yet", "deadline exceeded", "0/1 nodes are available",
		"container slurmctld: waiting: CrashLoopBackOff so it is, 2 restarts", "event on pod slurmctld-0: FailedMount: secret is missing", "log of slurmrestd:\n  fake logs",
	} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// Without a pod there is still a sentence.
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, (&Stack{Options: o, kube: fake.NewClientset()}).WaitReady(ctx), "not found")

	// A missing image is not waited for.
	pod.Status.ContainerStatuses[0] = waiting("slurmctld", "ErrImagePull")
	err = (&Stack{Options: o, kube: fake.NewClientset(pod)}).WaitReady(t.Context())
	assert.ErrorContains(t, err, "is image slurmtide/x:1 loaded")
}

func TestDeleteSparesForeignNamespaces(t *testing.T) {
	o := Options{Namespace: "kube-system", SlurmVersion: "24.11", NodeLines: []string{"NodeName=a State=CLOUD"}}.withDefaults()
	kube := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
	s := &Stack{Options: o, kube: kube}
	require.ErrorContains(t, s.Delete(t.Context()), "not made by this package")
	_, err := kube.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	require.NoError(t, err)

	o.Namespace = "gone"
	require.NoError(t, (&Stack{Options: o, kube: kube}).Delete(t.Context()), "gone already")
}

// Whatever objects makes, create can create.
func TestCreateKnowsEveryObject(t *testing.T) {
	for name, o := range goldenOptions(t) {
		t.Run(name, func(t *testing.T) {
			o = o.withDefaults()
			s := &Stack{Options: o, kube: fake.NewClientset()}
			for _, obj := range objects(o, map[string]string{}, keys{}) {
				require.NoError(t, s.create(t.Context(), obj))
			}
		})
	}
}
