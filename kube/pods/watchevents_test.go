package pods

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/powersave"
)

// troubles writes down what is wrong with the pods that are handed over.
type troubles struct{ record }

func (r *troubles) Pod(p powersave.Pod) {
	scaleUp := ""
	if !p.ScaleUp.IsZero() {
		scaleUp = " since " + p.ScaleUp.UTC().Format(time.TimeOnly)
	}
	r.add("%s/%s %s %q %s: %s%s", p.Node, p.UID, p.Phase, p.Trouble, p.Reason, p.Message, scaleUp)
}

func TestEventsOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		kube, tide := kubefake.NewClientset(), tidefake.NewSimpleClientset()
		pod := newPod("cpu-1", "a")
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: insufficient}}
		require.NoError(t, kube.Tracker().Add(pod))
		require.NoError(t, kube.Tracker().Add(eventAt(1, "FailedScheduling", insufficient)))
		require.NoError(t, kube.Tracker().Add(eventAt(2, "TriggeredScaleUp", triggered))) // from before the start
		c, r := newClient(kube, tide, "slurm", "tide", Options{}), &troubles{}
		stop := start(t, c, r)
		defer stop()

		const short = "0/3 nodes are available: 3 Insufficient cpu"
		assert.Equal(t, []string{
			"nodesets", "synced cpu-1/a",
			`cpu-1/a pending "capacity" Unschedulable: ` + short + "; a host is on its way: [{gke-burst-pool-2 3->4 (max: 10)}] since 12:00:02",
		}, r.take())
		for _, a := range kube.Actions() {
			if a.Matches("list", "events") {
				assert.Contains(t, a.(clienttesting.ListAction).GetListRestrictions().Fields.String(), "involvedObject.kind=Pod")
			}
		}

		events, pods := kube.CoreV1().Events("slurm"), kube.CoreV1().Pods("slurm")
		emit := func(e *corev1.Event) {
			t.Helper()
			_, err := events.Create(ctx, e, metav1.CreateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		emit(eventAt(3, "FailedScheduling", insufficient))
		emit(eventAt(4, "Pulled", "an event of no interest"))
		other := eventAt(5, "NotTriggerScaleUp", notTriggered)
		other.InvolvedObject.UID = "former"
		emit(other)
		set := eventAt(6, "NotTriggerScaleUp", notTriggered)
		set.InvolvedObject.Kind = "NodeSet"
		emit(set)
		assert.Empty(t, r.take(), "nothing that changes the picture")

		emit(eventAt(60, "FailedScaleUp", stockout))
		again := eventAt(60, "FailedScaleUp", stockout)
		again.ResourceVersion, again.Count, again.LastTimestamp = "300", 2, metav1.NewTime(eventStart.Add(70*time.Second))
		_, err := events.Update(ctx, again, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, events.Delete(ctx, again.Name, metav1.DeleteOptions{}), "events expire; what they said stays")
		synctest.Wait()
		assert.Equal(t, []string{
			`cpu-1/a pending "capacity" FailedScaleUp: ` + short + "; no host is added: " + strings.TrimSuffix(stockout, "."),
		}, r.take())

		pod = pod.DeepCopy()
		pod.Spec.NodeName = "host-1"
		_, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		emit(eventAt(90, "FailedMount", noConfigMap))
		pod = pod.DeepCopy()
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue})
		_, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{
			`cpu-1/a scheduled "" : `,
			`cpu-1/a scheduled "config" FailedMount: ` + noConfigMap,
			`cpu-1/a scheduled "" : `,
		}, r.take(), "what a pod has left behind is not told any more")

		early := eventAt(95, "FailedScheduling", insufficient)
		early.Name, early.InvolvedObject.Name, early.InvolvedObject.UID = "early", "cpu-2", "b"
		emit(early)
		assert.Empty(t, r.take())
		_, err = pods.Create(ctx, newPod("cpu-2", "b"), metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, pods.Delete(ctx, "cpu-1", metav1.DeleteOptions{}))
		synctest.Wait()
		assert.Equal(t, []string{`cpu-2/b pending "capacity" Unschedulable: ` + short, "gone cpu-1/a"}, r.take(), "an event may come before its pod")
		emit(eventAt(99, "Preempted", "Preempted by a pod on node host-1"))
		assert.Empty(t, r.take(), "nobody asks for the dead")
	})
}

// start runs a Client; stop ends it.
func start(t *testing.T, c *Client, h Handler) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, h) }()
	synctest.Wait()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// Without the right to read events the rest works, and the log says so once.
func TestEventsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube, tide := kubefake.NewClientset(), tidefake.NewSimpleClientset()
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New(`User "system:serviceaccount:slurm:bridge" cannot list resource "events" in API group "" in the namespace "slurm"`))
		var refuseList, refuseWatch atomic.Bool
		refuseList.Store(true)
		refuseWatch.Store(true)
		kube.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return refuseList.Load(), nil, refused })
		kube.PrependWatchReactor("events", func(clienttesting.Action) (bool, watch.Interface, error) { return refuseWatch.Load(), nil, refused })
		require.NoError(t, kube.Tracker().Add(newPod("cpu-1", "a")))
		var log bytes.Buffer
		told := 0
		c, r := newClient(kube, tide, "slurm", "tide", Options{
			Log: slog.New(slog.NewTextHandler(&log, nil)), WatchError: func(error) { told++ },
		}), &troubles{}
		stop := start(t, c, r)
		time.Sleep(10 * time.Minute) // of the bubble: the reflector tries again and again
		synctest.Wait()
		refuseList.Store(false)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, strings.Count(log.String(), "events c"), log.String())
		assert.Contains(t, log.String(), `\"list events\" is missing in namespace slurm`)
		assert.Equal(t, []string{"nodesets", "synced cpu-1/a"}, r.take())
		require.NoError(t, c.Health().Err)
		assert.True(t, c.Health().Synced)

		require.NoError(t, kube.Tracker().Add(eventAt(1, "FailedScheduling", insufficient)))
		refuseWatch.Store(false)
		time.Sleep(2 * time.Minute)
		stop()
		assert.Contains(t, log.String(), "events can be read again")
		assert.Equal(t, []string{`cpu-1/a pending "capacity" Unschedulable: 0/3 nodes are available: 3 Insufficient cpu`}, r.take())
		assert.Zero(t, told)
	})
}
