package pods

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
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

func TestParseTaint(t *testing.T) {
	for text, want := range map[string]corev1.Taint{
		DefaultHostTaint:              {Key: "slurmtide.io/bad-hardware", Effect: corev1.TaintEffectNoSchedule},
		"broken=yes:PreferNoSchedule": {Key: "broken", Value: "yes", Effect: corev1.TaintEffectPreferNoSchedule},
	} {
		taint, err := ParseTaint(text)
		require.NoError(t, err)
		assert.Equal(t, want, *taint)
		assert.Equal(t, text, taint.ToString())
	}
	for text, want := range map[string]string{
		"broken":            "has no effect: write key:NoSchedule",
		"broken:NoExecute":  "would end all jobs on the host",
		"broken:noschedule": `unknown effect "noschedule"`,
		":NoSchedule":       `key ""`,
		"a b:NoSchedule":    `key "a b"`,
		"a=b c:NoSchedule":  `value "b c"`,
	} {
		_, err := ParseTaint(text)
		require.ErrorContains(t, err, want)
	}
}

var xid79 = powersave.TaintHost{Host: "h1", Node: "cpu-1", NodeSet: "cpu", UID: "a", Reason: "NHC: GPU Xid 79"}

func TestTaintHost(t *testing.T) {
	c, kube, _ := testClient(t)
	require.NoError(t, c.TaintHost(t.Context(), xid79), "marks are off")
	assert.Empty(t, made(kube))

	var err error
	c.opts.HostTaint, err = ParseTaint(DefaultHostTaint)
	require.NoError(t, err)
	require.NoError(t, c.TaintHost(t.Context(), xid79), "a host that is gone needs no mark")
	gpu := corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}
	require.NoError(t, kube.Tracker().Add(newHost("h1", gpu)))
	look := func() (taints []corev1.Taint, marks []hostMark) {
		host, err := kube.CoreV1().Nodes().Get(t.Context(), "h1", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(host.Annotations[v1alpha1.AnnotationBadHardware]), &marks))
		kube.ClearActions()
		return host.Spec.Taints, marks
	}
	first := hostMark{Node: "cpu-1", PodUID: "a", Reason: "NHC: GPU Xid 79", Time: "2026-05-01T00:00:00Z"}
	require.NoError(t, c.TaintHost(t.Context(), xid79))
	taints, marks := look()
	assert.Equal(t, []corev1.Taint{gpu, *c.opts.HostTaint}, taints)
	assert.Equal(t, []hostMark{first}, marks)
	require.NoError(t, c.TaintHost(t.Context(), xid79))
	assert.Equal(t, []string{"get nodes"}, made(kube), "the same verdict again")

	other := xid79
	other.Node, other.UID = "cpu-2", "b"
	require.NoError(t, c.TaintHost(t.Context(), other))
	taints, marks = look()
	assert.Len(t, taints, 2, "it has the taint already")
	assert.Len(t, marks, 2)

	host, err := kube.CoreV1().Nodes().Get(t.Context(), "h1", metav1.GetOptions{})
	require.NoError(t, err)
	host.Spec.Taints = nil
	_, err = kube.CoreV1().Nodes().Update(t.Context(), host, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.TaintHost(t.Context(), other))
	taints, _ = look()
	assert.Empty(t, taints, "somebody has taken it off: the host is mended")
	other.UID = "c"
	require.NoError(t, c.TaintHost(t.Context(), other))
	taints, _ = look()
	assert.Len(t, taints, 1, "another boot found it bad again")
	for i := range 20 {
		other.UID = string(rune('d' + i))
		require.NoError(t, c.TaintHost(t.Context(), other))
	}
	_, marks = look()
	assert.Len(t, marks, hostMarksKept)
}

// What others write meanwhile is not lost, and what is wrong is said with what to do.
func TestTaintHostErrors(t *testing.T) {
	c, kube, _ := testClient(t)
	var err error
	c.opts.HostTaint, err = ParseTaint(DefaultHostTaint)
	require.NoError(t, err)
	require.NoError(t, kube.Tracker().Add(newHost("h1")))
	nodes, conflicts := schema.GroupResource{Resource: "nodes"}, 2
	kube.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		var patch struct{ Metadata metav1.ObjectMeta }
		require.NoError(t, json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &patch))
		assert.Equal(t, "1", patch.Metadata.ResourceVersion)
		conflicts--
		if conflicts < 0 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(nodes, "h1", errors.New("the object has been modified"))
	})
	require.NoError(t, c.TaintHost(t.Context(), xid79))
	assert.Equal(t, -1, conflicts)

	kube.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(nodes, "h1", errors.New(`User "bridge" cannot get resource "nodes" in API group ""`))
	})
	err = c.TaintHost(t.Context(), xid79)
	assert.True(t, IsForbidden(err))
	require.ErrorContains(t, err, "marking host h1: ")
	require.ErrorContains(t, err, "the right to get and patch nodes is missing: add it to a ClusterRole")

	kube.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		assert.Empty(t, review.Spec.ResourceAttributes.Namespace)
		review.Status.Allowed = review.Spec.ResourceAttributes.Verb == "get"
		return true, review, nil
	})
	err = c.CheckHostMarks(t.Context())
	assert.True(t, IsForbidden(err))
	require.ErrorContains(t, err, "missing: patch nodes: ")
}

// The host gets an Event, where kubectl describe node looks for it.
func TestTaintHostEvent(t *testing.T) {
	taint, err := ParseTaint(DefaultHostTaint)
	require.NoError(t, err)
	runningWith(t, func(*kubefake.Clientset) {}, func(ctx context.Context, c *Client, kube *kubefake.Clientset, _ *tidefake.Clientset, r *record) {
		require.NoError(t, c.TaintHost(ctx, xid79))
		synctest.Wait()
		for namespace, about := range map[string]string{"default": "Node h1", "slurm": "NodeSet cpu"} {
			events, err := kube.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, events.Items, 1, namespace)
			e := events.Items[0]
			assert.Equal(t, about, e.Regarding.Kind+" "+e.Regarding.Name)
			assert.Equal(t, "BadHardware", e.Reason)
			assert.Contains(t, e.Note, "Slurm node cpu-1 was drained: NHC: GPU Xid 79; tainted slurmtide.io/bad-hardware:NoSchedule")
		}
		assert.Contains(t, r.take(), "hosts [{h1 }]")
	}, Options{HostTaint: taint}, newNodeSet("cpu", "cpu-[0-9]"), newHost("h1"))
}
