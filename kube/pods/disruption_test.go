package pods

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// made lists the writes, as "verb resource".
func made(kube *kubefake.Clientset) (calls []string) {
	for _, a := range kube.Actions() {
		calls = append(calls, a.GetVerb()+" "+a.GetResource().Resource)
	}
	kube.ClearActions()
	return calls
}

func TestMark(t *testing.T) {
	c, kube, _ := testClient(t)
	require.NoError(t, kube.Tracker().Add(newPod("cpu-1", "a")))
	label := func() (string, bool) {
		pod, err := kube.CoreV1().Pods("slurm").Get(t.Context(), "cpu-1", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, pod.Labels[v1alpha1.LabelBusy] == "true", Observe(pod).Busy)
		v, ok := pod.Labels[v1alpha1.LabelBusy]
		kube.ClearActions()
		return v, ok
	}
	mark := powersave.MarkPod{Node: "cpu-1", NodeSet: "cpu", UID: "a", Busy: true}
	require.NoError(t, c.Mark(t.Context(), mark))
	patch := kube.Actions()[1].(clienttesting.PatchAction).GetPatch()
	assert.JSONEq(t, `{"metadata":{"uid":"a","labels":{"slurmtide.io/busy":"true"}}}`, string(patch))
	assert.Equal(t, []string{"create poddisruptionbudgets", "patch pods"}, made(kube))
	v, _ := label()
	assert.Equal(t, "true", v)

	require.NoError(t, c.Mark(t.Context(), mark))
	assert.Equal(t, []string{"patch pods"}, made(kube), "the budget is made once")
	mark.Busy = false
	require.NoError(t, c.Mark(t.Context(), mark))
	_, there := label()
	assert.False(t, there)

	mark.Node = "cpu-2"
	require.NoError(t, c.Mark(t.Context(), mark), "a pod that is gone needs no mark")
	fail(kube, "patch", apierrors.NewConflict(podResource, "cpu-2", errors.New("UID")))
	require.NoError(t, c.Mark(t.Context(), mark), "nor does one that was replaced")
	fail(kube, "patch", apierrors.NewForbidden(podResource, "cpu-2", errors.New(`User "b" cannot patch resource "pods"`)))
	require.ErrorContains(t, c.Mark(t.Context(), mark), "patch pods")
}

func TestBudget(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	foreign := budget(ns, "wave")
	stale := budget(ns, "tide")
	stale.Spec.MinAvailable, stale.OwnerReferences[0].UID = nil, "of-another-life"
	create := []string{"create poddisruptionbudgets", "create pods"}
	read := []string{"create poddisruptionbudgets", "get poddisruptionbudgets", "create pods"}
	for name, tc := range map[string]struct {
		exists *policyv1.PodDisruptionBudget
		fails  error
		calls  []string
		right  bool // the budget is as it should be afterwards
	}{
		"new":       {calls: create, right: true},
		"same":      {exists: budget(ns, "tide"), calls: read, right: true},
		"stale":     {exists: stale, calls: []string{"create poddisruptionbudgets", "get poddisruptionbudgets", "patch poddisruptionbudgets", "create pods"}, right: true},
		"foreign":   {exists: foreign, calls: read},
		"forbidden": {fails: apierrors.NewForbidden(schema.GroupResource{Resource: "poddisruptionbudgets"}, "", errors.New(`User "b" cannot create resource "x"`)), calls: create},
		"away":      {fails: apierrors.NewInternalError(errors.New("away")), calls: create},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t, ns)
			if tc.exists != nil {
				require.NoError(t, kube.Tracker().Add(tc.exists.DeepCopy()))
			}
			if tc.fails != nil {
				kube.PrependReactor("create", "poddisruptionbudgets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.fails })
			}
			for i, want := range [][]string{tc.calls, {"create pods"}} {
				_, err := c.Create(t.Context(), powersave.CreatePod{Node: []string{"cpu-1", "cpu-2"}[i], NodeSet: "cpu", Generation: 1, Job: 7})
				require.NoError(t, err, "a boot waits for no budget")
				assert.Equal(t, want, made(kube))
			}
			if !tc.right {
				return
			}
			have, err := kube.PolicyV1().PodDisruptionBudgets("slurm").Get(t.Context(), "slurmtide-cpu", metav1.GetOptions{})
			require.NoError(t, err)
			assert.EqualValues(t, math.MaxInt32, have.Spec.MinAvailable.IntVal)
			assert.Equal(t, map[string]string{v1alpha1.LabelCluster: "tide", v1alpha1.LabelNodeSet: "cpu", v1alpha1.LabelBusy: "true"}, have.Spec.Selector.MatchLabels)
			assert.Equal(t, ns.UID, have.OwnerReferences[0].UID)
		})
	}
}
