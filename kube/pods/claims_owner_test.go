package pods

import (
	"context"
	"errors"
	"fmt"
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
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

func aClaim(name, nodeSet, node string, owners ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "slurm", OwnerReferences: owners,
		Labels: map[string]string{v1alpha1.LabelCluster: "tide", v1alpha1.LabelNodeSet: nodeSet, v1alpha1.LabelNode: node},
	}}
}

func ownersOf(t *testing.T, kube *kubefake.Clientset, name string) []metav1.OwnerReference {
	t.Helper()
	claim, err := kube.CoreV1().PersistentVolumeClaims("slurm").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return claim.OwnerReferences
}

// asked counts the requests about claims since it was last asked.
func asked(kube *kubefake.Clientset, verb string) (n int) {
	for _, a := range kube.Actions() {
		if a.Matches(verb, claimRight) {
			n++
		}
	}
	kube.ClearActions()
	return n
}

// Claims follow the policy though no node is powered up.
func TestClaimsFollow(t *testing.T) {
	ours := ownerReference(newNodeSet("disk", "d-1"))
	another := ours
	another.Name, another.UID = "other", "other"
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "d-1", UID: "p", Controller: new(true)}
	people := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}
	going := aClaim("scratch-d-1", "disk", "d-1", ours)
	going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
	retain, remove := v1alpha1.RetainClaim, v1alpha1.DeleteClaim
	for name, tc := range map[string]struct {
		policy v1alpha1.ClaimRetentionPolicy
		claim  *corev1.PersistentVolumeClaim
		after  []metav1.OwnerReference
		writes int
	}{
		"is to stay now":                {v1alpha1.ClaimRetentionPolicy{WhenDeleted: retain}, aClaim("scratch-d-1", "disk", "d-1", ours), nil, 1},
		"and nothing else is lost":      {v1alpha1.ClaimRetentionPolicy{WhenDeleted: retain}, aClaim("scratch-d-1", "disk", "d-1", people, ours), []metav1.OwnerReference{people}, 1},
		"is to go now":                  {v1alpha1.ClaimRetentionPolicy{WhenDeleted: remove}, aClaim("scratch-d-1", "disk", "d-1", people), []metav1.OwnerReference{people, ours}, 1},
		"stays":                         {v1alpha1.ClaimRetentionPolicy{WhenDeleted: retain}, aClaim("scratch-d-1", "disk", "d-1"), nil, 0},
		"goes":                          {v1alpha1.ClaimRetentionPolicy{WhenDeleted: remove}, aClaim("scratch-d-1", "disk", "d-1", ours), []metav1.OwnerReference{ours}, 0},
		"of before whenScaled, adopted": {v1alpha1.ClaimRetentionPolicy{WhenDeleted: remove, WhenScaled: remove}, aClaim("scratch-d-1", "disk", "d-1"), []metav1.OwnerReference{ours}, 1},
		"of before whenScaled, kept":    {v1alpha1.ClaimRetentionPolicy{WhenDeleted: retain, WhenScaled: remove}, aClaim("scratch-d-1", "disk", "d-1", ours), nil, 1},
		"of a pod":                      {v1alpha1.ClaimRetentionPolicy{WhenDeleted: remove, WhenScaled: remove}, aClaim("d-1-scratch", "disk", "d-1", pod), []metav1.OwnerReference{pod}, 0},
		"of a pod that is called alike": {v1alpha1.ClaimRetentionPolicy{WhenDeleted: remove}, aClaim("scratch-d-1", "disk", "d-1", pod), []metav1.OwnerReference{pod}, 0},
		"of another NodeSet":            {v1alpha1.ClaimRetentionPolicy{WhenDeleted: retain}, aClaim("scratch-d-1", "disk", "d-1", another), []metav1.OwnerReference{another}, 0},
		"labelled for another":          {v1alpha1.ClaimRetentionPolicy{WhenDeleted: remove}, aClaim("scratch-d-1", "other", "d-1"), nil, 0},
		"of no template":                {v1alpha1.ClaimRetentionPolicy{WhenDeleted: remove}, aClaim("home-d-1", "disk", "d-1"), nil, 0},
		"is being deleted":              {v1alpha1.ClaimRetentionPolicy{WhenDeleted: retain}, going, []metav1.OwnerReference{ours}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t, withScratch(&tc.policy), newNodeSet("cpu", "cpu-[0-9]"))
			require.NoError(t, kube.Tracker().Add(tc.claim))
			l := NewClaims(c)
			require.NoError(t, l.round(t.Context()))
			assert.Empty(t, kube.Actions(), "another bridge leads")
			l.Lead(true)
			require.NoError(t, l.round(t.Context()))
			assert.Equal(t, tc.writes, asked(kube, "patch"))
			assert.ElementsMatch(t, tc.after, ownersOf(t, kube, tc.claim.Name))
			kube.ClearActions()
			require.NoError(t, l.round(t.Context()))
			assert.Empty(t, kube.Actions(), "nothing has changed")
			l.settled = nil // a bridge that has just begun
			require.NoError(t, l.round(t.Context()))
			assert.Zero(t, asked(kube, "patch"), "all is as it should be")
		})
	}
}

func TestClaimsWithoutTemplates(t *testing.T) {
	c, kube, _ := testClient(t)
	l := NewClaims(c)
	l.Lead(true)
	require.NoError(t, l.round(t.Context()))
	assert.Empty(t, kube.Actions())
}

// A policy that changes counts within moments, also when Kubernetes refuses at first.
func TestClaimsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, kube, _ := testClient(t, withScratch(&v1alpha1.ClaimRetentionPolicy{WhenDeleted: v1alpha1.DeleteClaim}))
		for node := range 3 {
			require.NoError(t, kube.Tracker().Add(aClaim(fmt.Sprint("scratch-d-", node), "disk", fmt.Sprint("d-", node))))
		}
		var refused atomic.Pointer[error]
		refuse := func(err error) { refused.Store(&err) }
		refuse(errors.New("etcd is away"))
		kube.PrependReactor("patch", claimRight, func(a clienttesting.Action) (bool, runtime.Object, error) {
			err := *refused.Load()
			return err != nil && a.(clienttesting.PatchAction).GetName() == "scratch-d-1", nil, err
		})
		l := NewClaims(c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		l.Lead(true)
		synctest.Wait()
		assert.Equal(t, 3, asked(kube, "patch"), "one that is refused holds up no other")
		time.Sleep(claimsAgain)
		synctest.Wait()
		assert.Equal(t, 1, asked(kube, "patch"))
		refuse(apierrors.NewNotFound(schema.GroupResource{Resource: claimRight}, "scratch-d-1"))
		time.Sleep(2 * claimsAgain)
		synctest.Wait()
		assert.Equal(t, 1, asked(kube, "patch"))
		time.Sleep(2 * claimsSeldom)
		synctest.Wait()
		assert.Zero(t, asked(kube, "list"), "somebody has deleted it: all is well")

		refuse(nil)
		changed := withScratch(nil)
		require.NoError(t, c.nodeSets.Update(changed))
		l.NodeSets()
		synctest.Wait()
		assert.Equal(t, 2, asked(kube, "patch"))
		assert.Empty(t, ownersOf(t, kube, "scratch-d-0"))
		cancel()
		assert.NoError(t, <-done)
	})
}

// Claims of before whenScaled was Delete are told of, if nothing ever deletes them.
func TestClaimsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		policy v1alpha1.ClaimRetentionPolicy
		want   int
	}{
		"stay":             {v1alpha1.ClaimRetentionPolicy{WhenScaled: v1alpha1.DeleteClaim}, 1},
		"go with it":       {v1alpha1.ClaimRetentionPolicy{WhenScaled: v1alpha1.DeleteClaim, WhenDeleted: v1alpha1.DeleteClaim}, 0},
		"are used further": {v1alpha1.ClaimRetentionPolicy{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t, withScratch(&tc.policy))
			recorder := &eventsTaken{}
			c.recorder = recorder
			require.NoError(t, kube.Tracker().Add(aClaim("scratch-d-1", "disk", "d-1")))
			l := NewClaims(c)
			l.Lead(true)
			require.NoError(t, l.round(t.Context()))
			assert.Len(t, recorder.reasons, tc.want)
		})
	}
}

// eventsTaken is a recorder.
type eventsTaken struct{ reasons []string }

func (e *eventsTaken) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.reasons = append(e.reasons, reason)
}
