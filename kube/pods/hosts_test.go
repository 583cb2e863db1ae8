package pods

import (
	"context"
	"errors"
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
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/powersave"
)

func newHost(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func TestHosts(t *testing.T) {
	gpu := corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}
	pod := newPod("cpu-1", "a")
	pod.Spec.NodeName = "h1"
	pod.Spec.Tolerations = []corev1.Toleration{{Key: gpu.Key, Operator: corev1.TolerationOpExists}}
	cordoned := newHost("h0")
	cordoned.Spec.Unschedulable = true
	running(t, func(ctx context.Context, _ *Client, kube *kubefake.Clientset, _ *tidefake.Clientset, r *record) {
		assert.Equal(t, []string{"nodesets cpu=cpu-[0-9]", "synced cpu-1/a", "hosts [{h0 cordoned} {h1 }]"}, r.take())
		hosts := kube.CoreV1().Nodes()
		update := func(change func(*corev1.Node)) []string {
			h := newHost("h1", gpu)
			change(h)
			_, err := hosts.Update(ctx, h, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
			return r.take()
		}
		assert.Empty(t, update(func(h *corev1.Node) { h.Labels = map[string]string{"a": "b"} }))
		assert.Equal(t, []string{"host h1 cordoned"}, update(func(h *corev1.Node) { h.Spec.Unschedulable = true }))
		assert.Equal(t, []string{"host h1 not ready"}, update(func(h *corev1.Node) {
			h.Status.Conditions[0].Status = corev1.ConditionUnknown
			h.Spec.Taints = append(h.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
		}))
		assert.Equal(t, []string{"host h1 tainted maintenance"}, update(func(h *corev1.Node) {
			h.Spec.Taints = append(h.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
		}))
		assert.Equal(t, []string{"host h1 "}, update(func(h *corev1.Node) {
			h.Spec.Taints = append(h.Spec.Taints, corev1.Taint{Key: "maybe", Effect: corev1.TaintEffectPreferNoSchedule})
		}))

		other := newPod("cpu-2", "b")
		_, err := kube.CoreV1().Pods("slurm").Create(ctx, other, metav1.CreateOptions{})
		require.NoError(t, err)
		other.Spec.NodeName = "h1"
		_, err = kube.CoreV1().Pods("slurm").Update(ctx, other, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{"pod cpu-2/b pending", "pod cpu-2/b scheduled", "host h1 tainted nvidia.com/gpu"}, r.take())

		require.NoError(t, hosts.Delete(ctx, "h1", metav1.DeleteOptions{}))
		synctest.Wait()
		assert.Equal(t, []string{"host h1 " + powersave.HostGone}, r.take())
		_, err = hosts.Create(ctx, newHost("h1"), metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{"host h1 "}, r.take(), "it is there again")
	}, newNodeSet("cpu", "cpu-[0-9]"), pod, cordoned, newHost("h1", gpu))
}

// A node that has one host alone, with spec.eachHost, and no pod there: its template tells which taints keep it off.
func TestHostsRepelPinned(t *testing.T) {
	gpu := corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}
	repair := corev1.Taint{Key: "example.com/repair", Effect: corev1.TaintEffectNoExecute}
	set := newNodeSet("cpu", "cpu-[0-1]")
	set.Spec.EachHost = &v1alpha1.EachHost{Domain: "ec2.internal"}
	set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: gpu.Key, Operator: corev1.TolerationOpExists}}
	running(t, func(ctx context.Context, _ *Client, kube *kubefake.Clientset, tide *tidefake.Clientset, r *record) {
		assert.Equal(t, []string{"nodesets cpu=cpu-[0-1]", "synced", "hosts [{cpu-0.ec2.internal } {cpu-1.ec2.internal , repels: tainted example.com/repair} {cpu-2.ec2.internal }]"}, r.take())
		_, err := kube.CoreV1().Nodes().Update(ctx, newHost("cpu-1.ec2.internal", gpu), metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{"host cpu-1.ec2.internal "}, r.take())

		now := set.DeepCopy()
		now.Generation++
		now.Spec.Template.Spec.Tolerations = nil
		_, err = tide.SlurmtideV1alpha1().NodeSets("slurm").Update(ctx, now, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{"nodesets cpu=cpu-[0-1]", "host cpu-0.ec2.internal , repels: tainted nvidia.com/gpu", "host cpu-1.ec2.internal , repels: tainted nvidia.com/gpu"}, r.take())
	}, set, newHost("cpu-0.ec2.internal", gpu), newHost("cpu-1.ec2.internal", gpu, repair), newHost("cpu-2.ec2.internal", repair))
}

// Without the right to read hosts all else works, and it is said once.
func TestHostsDenied(t *testing.T) {
	runningWith(t, func(kube *kubefake.Clientset) {
		kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "",
				errors.New(`User "bridge" cannot list resource "nodes" in API group ""`))
		})
	}, func(_ context.Context, c *Client, _ *kubefake.Clientset, _ *tidefake.Clientset, r *record) {
		time.Sleep(5 * time.Minute) // the informer tries again and again
		calls := r.take()
		require.Len(t, calls, 3)
		assert.Contains(t, calls[2], "hosts unread: ")
		assert.Contains(t, calls[2], "add it to a ClusterRole")
		require.NoError(t, c.Health().Err)
	}, Options{}, newNodeSet("cpu", "cpu-[0-9]"))
}
