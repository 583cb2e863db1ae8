package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

func storage(size string) corev1.VolumeResourceRequirements {
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}
}

// An API server refuses every change of claim templates, and with it all that is applied at the same time.
func TestKeepClaims(t *testing.T) {
	set := func(change func(*v1alpha1.Controller)) *appsv1.StatefulSet {
		objects, err := ControllerObjects(controller(change), nil, settings)
		require.NoError(t, err)
		set, ok := objects[len(objects)-1].(*appsv1.StatefulSet)
		require.True(t, ok)
		return set
	}
	live := set(nil)
	live.Spec.VolumeClaimTemplates[0].Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem) // as an API server does
	live.Spec.VolumeClaimTemplates[0].Status.Phase = corev1.ClaimPending

	same := set(nil)
	require.NoError(t, keepClaims(same, live))
	assert.Equal(t, set(nil), same, "nothing to keep: no other object is applied than before")

	more := set(func(c *v1alpha1.Controller) { c.Spec.Persistence.Resources = storage("8Gi") })
	require.NoError(t, keepClaims(more, live))
	require.Len(t, more.Spec.VolumeClaimTemplates, 1)
	assert.Equal(t, live.Spec.VolumeClaimTemplates[0].Spec, more.Spec.VolumeClaimTemplates[0].Spec)
	assert.Empty(t, more.Spec.VolumeClaimTemplates[0].Status)
	assert.Equal(t, live.Spec.VolumeClaimTemplates[0].Labels, more.Spec.VolumeClaimTemplates[0].Labels)

	fresh := set(func(c *v1alpha1.Controller) { c.Spec.Persistence.Resources = storage("8Gi") })
	require.NoError(t, keepClaims(fresh, nil))
	assert.Equal(t, storage("8Gi"), fresh.Spec.VolumeClaimTemplates[0].Spec.Resources)
}

func TestClaim(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "statesave-tide-controller-0", assert.AnError)
	tests := map[string]struct {
		asked, has, capacity string
		refusal              error
		want, size           string // the Problem, and the claim's size afterwards
	}{
		"nothing is asked":   {has: "4Gi", capacity: "4Gi", size: "4Gi"},
		"as it is":           {asked: "4Gi", has: "4Gi", capacity: "4Gi", size: "4Gi"},
		"in other words":     {asked: "4096Mi", has: "4Gi", capacity: "4Gi", size: "4Gi"},
		"a larger volume":    {asked: "4Gi", has: "4Gi", capacity: "10Gi", size: "4Gi"},
		"larger":             {asked: "8Gi", has: "4Gi", capacity: "4Gi", want: "Pending: claim statesave-tide-controller-0 is being enlarged from 4Gi to 8Gi", size: "8Gi"},
		"under way":          {asked: "8Gi", has: "8Gi", capacity: "4Gi", want: "Pending: claim statesave-tide-controller-0 is being enlarged from 4Gi to 8Gi: wait for the pod", size: "8Gi"},
		"smaller":            {asked: "2Gi", has: "4Gi", capacity: "4Gi", want: "CannotShrink: claim statesave-tide-controller-0 has 4Gi, and volumes do not become smaller", size: "4Gi"},
		"its class does not": {asked: "8Gi", has: "4Gi", capacity: "4Gi", refusal: forbidden, want: "NotEnlarged: claim statesave-tide-controller-0 stays at 4Gi: persistentvolumeclaims", size: "4Gi"},
		"not made yet":       {asked: "8Gi"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kube := kubefake.NewClientset()
			const name = "statesave-tide-controller-0"
			if test.has != "" {
				_, err := kube.CoreV1().PersistentVolumeClaims("slurm").Create(t.Context(), &corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{Resources: storage(test.has)},
					Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage(test.capacity).Requests,
						Conditions: []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, Message: "wait for the pod"}}},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			if test.refusal != nil {
				kube.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.refusal })
			}
			now := time.Now()
			l := &Loop{kube: kube, o: Options{Now: func() time.Time { return now }}}
			c := controller(func(c *v1alpha1.Controller) {
				if test.asked != "" {
					c.Spec.Persistence.Resources = storage(test.asked)
				}
			})
			problem, err := l.claim(t.Context(), c)
			require.NoError(t, err)
			if test.refusal != nil { // what has been refused is not asked for all the time
				kube.ClearActions()
				again, err := l.claim(t.Context(), c)
				require.NoError(t, err)
				assert.Equal(t, problem, again)
				assert.Len(t, kube.Actions(), 1, "a read")
				now = now.Add(askAgainIn)
				_, err = l.claim(t.Context(), c)
				require.NoError(t, err)
				assert.Len(t, kube.Actions(), 3, "and then a read and a write")
			}
			if test.want == "" {
				assert.Nil(t, problem)
			} else {
				require.NotNil(t, problem)
				assert.Contains(t, problem.Reason+": "+problem.Message, test.want)
			}
			if test.size != "" {
				claim, err := kube.CoreV1().PersistentVolumeClaims("slurm").Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, test.size, claim.Spec.Resources.Requests.Storage().String())
			}
		})
	}
}

func TestVolumeAsWanted(t *testing.T) {
	c := controller(nil)
	c.Status = ControllerStatus(c, SeenController{Volume: &Problem{"NotEnlarged", "no"}})
	one := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionVolumeAsWanted)
	require.NotNil(t, one)
	assert.Equal(t, "NotEnlarged: no", one.Reason+": "+one.Message)
	assert.True(t, meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionAccepted))
	c.Status = ControllerStatus(c, SeenController{Problem: &Problem{"KeyMissing", "x"}})
	assert.NotNil(t, meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionVolumeAsWanted), "it was not looked at")
	assert.Nil(t, meta.FindStatusCondition(ControllerStatus(c, SeenController{}).Conditions, v1alpha1.ConditionVolumeAsWanted))
}

// The scheduler does not say why a claim is not bound.
func TestUnbound(t *testing.T) {
	claim := func(name string, class *string, phase corev1.PersistentVolumeClaimPhase) runtime.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	}
	waits := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "pod has unbound immediate PersistentVolumeClaims"}}}}
	full := waits.DeepCopy()
	full.Status.Conditions[0].Message = "0/1 nodes are available: 1 Insufficient cpu."
	const own = "statesave-tide-controller-0"
	for name, test := range map[string]struct {
		change func(*v1alpha1.Controller)
		claims []runtime.Object
		pods   []*corev1.Pod
		want   []string // none: nothing is said
	}{
		"runs":              {claims: []runtime.Object{claim(own, nil, corev1.ClaimPending)}, pods: []*corev1.Pod{{}}},
		"no room":           {claims: []runtime.Object{claim(own, nil, corev1.ClaimPending)}, pods: []*corev1.Pod{full}},
		"bound":             {claims: []runtime.Object{claim(own, nil, corev1.ClaimBound)}, pods: []*corev1.Pod{waits}},
		"being made":        {pods: []*corev1.Pod{waits}},
		"no volume":         {change: func(c *v1alpha1.Controller) { c.Spec.Persistence.Enabled = new(false) }, claims: []runtime.Object{claim(own, nil, corev1.ClaimPending)}, pods: []*corev1.Pod{waits}},
		"no such class":     {claims: []runtime.Object{claim(own, new("fast"), corev1.ClaimPending)}, pods: []*corev1.Pod{waits}, want: []string{"claim " + own + " waits for a volume of storage class fast: ", "another spec.persistence.storageClassName"}},
		"no class":          {claims: []runtime.Object{claim(own, nil, corev1.ClaimPending)}, pods: []*corev1.Pod{waits}, want: []string{"without a storage class, and none is the default"}},
		"theirs is missing": {change: func(c *v1alpha1.Controller) { c.Spec.Persistence.ExistingClaim = "mine" }, pods: []*corev1.Pod{waits}, want: []string{"spec.persistence.existingClaim: there is no claim mine: create it"}},
	} {
		t.Run(name, func(t *testing.T) {
			l, c := loopWith(test.claims...), controller(test.change)
			said, err := l.unbound(t.Context(), c, test.pods)
			require.NoError(t, err)
			if test.want == nil {
				assert.Empty(t, said)
			}
			for _, want := range test.want {
				assert.Contains(t, said, want)
			}
			s := ControllerStatus(c, SeenController{Pods: []*corev1.Pod{waits}, Unbound: said})
			assert.Contains(t, meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable).Message, said)
		})
	}
}
