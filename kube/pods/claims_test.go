package pods

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// withScratch gives a NodeSet's nodes a volume each.
func withScratch(policy *v1alpha1.ClaimRetentionPolicy) *v1alpha1.NodeSet {
	ns := newNodeSet("disk", "d-[0-9]")
	ns.Spec.PersistentVolumeClaimRetentionPolicy = policy
	ns.Spec.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{{
		Metadata: v1alpha1.VolumeClaimMetadata{Name: "scratch", Labels: map[string]string{"team": "hpc"}, Annotations: map[string]string{"note": "x"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}},
		},
	}}
	return ns
}

func TestBuildClaims(t *testing.T) {
	ns := withScratch(nil)
	ns.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "scratch"}, {Name: "home"}}
	pod, err := Build(ns, "d-7", 1, "r", PodOptions{Cluster: "tide"})
	require.NoError(t, err)
	assert.Equal(t, []corev1.Volume{{Name: "home"}, {Name: "scratch", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "scratch-d-7"},
	}}}, pod.Spec.Volumes)
	assert.Len(t, ns.Spec.Template.Spec.Volumes, 2, "Build must not change the NodeSet")

	ns.Spec.PersistentVolumeClaimRetentionPolicy = &v1alpha1.ClaimRetentionPolicy{WhenScaled: v1alpha1.DeleteClaim}
	pod, err = Build(ns, "d-7", 1, "r", PodOptions{Cluster: "tide"})
	require.NoError(t, err)
	require.NotNil(t, pod.Spec.Volumes[1].Ephemeral)
	template := pod.Spec.Volumes[1].Ephemeral.VolumeClaimTemplate
	assert.Equal(t, ns.Spec.VolumeClaimTemplates[0].Spec, template.Spec)
	assert.Equal(t, map[string]string{"team": "hpc", v1alpha1.LabelCluster: "tide", v1alpha1.LabelNodeSet: "disk", v1alpha1.LabelNode: "d-7"}, template.Labels)
	assert.Equal(t, map[string]string{"note": "x"}, template.Annotations)

	room, err := build(ns, "node", 1, "r", PodOptions{Cluster: "tide"})
	require.NoError(t, err)
	assert.Equal(t, ns.Spec.Template.Spec.Volumes, room.Spec.Volumes, "an autoscaler would wait for a claim that nobody makes")
}

func TestClaims(t *testing.T) {
	ours := map[string]string{"team": "hpc", v1alpha1.LabelCluster: "tide", v1alpha1.LabelNodeSet: "disk", v1alpha1.LabelNode: "d-1"}
	owner := ownerReference(newNodeSet("disk", "d-1"))
	former := owner
	former.UID = "former"
	there := func(labels map[string]string, owners ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "scratch-d-1", Namespace: "slurm", UID: "there-before", Labels: labels, OwnerReferences: owners}}
	}
	going := there(ours)
	going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
	withNodeSet, never := &v1alpha1.ClaimRetentionPolicy{WhenDeleted: v1alpha1.DeleteClaim}, &v1alpha1.ClaimRetentionPolicy{WhenScaled: v1alpha1.DeleteClaim}
	for name, tc := range map[string]struct {
		policy *v1alpha1.ClaimRetentionPolicy
		there  *corev1.PersistentVolumeClaim
		labels map[string]string // nil: there is no claim
		owners []metav1.OwnerReference
		fails  string
	}{
		"new":                        {labels: ours},
		"new, goes with the NodeSet": {policy: withNodeSet, labels: ours, owners: []metav1.OwnerReference{owner}},
		"there":                      {there: there(ours), labels: ours},
		"there, goes with it":        {policy: withNodeSet, there: there(ours, owner), labels: ours, owners: []metav1.OwnerReference{owner}},
		"is to go with it now":       {policy: withNodeSet, there: there(ours), labels: ours, owners: []metav1.OwnerReference{owner}},
		"is to stay now":             {there: there(ours, owner), labels: ours},
		"somebody's":                 {policy: withNodeSet, there: there(map[string]string{"a": "b"}), labels: map[string]string{"a": "b"}},
		"goes with the pod":          {policy: never},
		"is being deleted":           {there: going, labels: ours, fails: "making claim scratch-d-1: one of that name is being deleted"},
		"goes with a former NodeSet": {policy: withNodeSet, there: there(ours, former), labels: ours, owners: []metav1.OwnerReference{former}, fails: "making claim scratch-d-1: one of that name goes with NodeSet disk, which has been deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t, withScratch(tc.policy))
			if tc.there != nil {
				require.NoError(t, kube.Tracker().Add(tc.there))
			}
			for range 2 { // it may be repeated
				_, err := c.Create(t.Context(), powersave.CreatePod{NodeSet: "disk", Node: "d-1", Generation: 7, Request: "req"})
				if tc.fails != "" {
					require.EqualError(t, err, tc.fails)
					assert.True(t, IsTransient(err))
				} else {
					require.NoError(t, err)
				}
			}
			claim, err := kube.CoreV1().PersistentVolumeClaims("slurm").Get(t.Context(), "scratch-d-1", metav1.GetOptions{})
			if tc.labels == nil {
				require.True(t, apierrors.IsNotFound(err), "%v", err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.labels, claim.Labels)
			assert.ElementsMatch(t, tc.owners, claim.OwnerReferences)
			if tc.there == nil {
				assert.Equal(t, "fast", *claim.Spec.StorageClassName)
				assert.Equal(t, map[string]string{"note": "x"}, claim.Annotations)
			}
			pods, err := kube.CoreV1().Pods("slurm").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			assert.Equal(t, tc.fails == "", len(pods.Items) == 1, "a pod without its claim would wait in vain")
		})
	}
}

func TestClaimsFail(t *testing.T) {
	claims := schema.GroupResource{Resource: "persistentvolumeclaims"}
	for name, tc := range map[string]struct {
		err     error
		trouble powersave.Trouble
		want    string
	}{
		"quota": {apierrors.NewForbidden(claims, "scratch-d-1", errors.New("exceeded quota: team, requested: requests.storage=10Gi")), powersave.TroubleQuota, "raise the ResourceQuota of the namespace"},
		"right": {apierrors.NewForbidden(claims, "scratch-d-1", errors.New(`User "b" cannot create resource "persistentvolumeclaims" in API group ""`)), "", `the right "create persistentvolumeclaims" is missing in namespace slurm`},
		"spec":  {apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolumeClaim"}, "scratch-d-1", nil), powersave.TroubleConfig, "correct spec.volumeClaimTemplates of the NodeSet"},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t, withScratch(nil))
			kube.PrependReactor("create", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			_, err := c.Create(t.Context(), powersave.CreatePod{NodeSet: "disk", Node: "d-1", Generation: 7, Request: "req"})
			require.ErrorContains(t, err, "making claim scratch-d-1: ")
			require.ErrorContains(t, err, tc.want)
			assert.Equal(t, tc.trouble, troubleOf(t, err))
		})
	}
}

// A claim of another node, or of another NodeSet, is not taken.
func TestClaimsOfOthers(t *testing.T) {
	told := func(cluster, nodeSet, node string) map[string]string {
		return map[string]string{v1alpha1.LabelCluster: cluster, v1alpha1.LabelNodeSet: nodeSet, v1alpha1.LabelNode: node}
	}
	other := newNodeSet("other", "d-1")
	other.UID = "uid-of-other"
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "1", UID: "p", Controller: new(true)}
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "s", Controller: new(true)}
	for name, tc := range map[string]struct {
		labels map[string]string
		owners []metav1.OwnerReference
		whose  string // "": it is used
	}{
		"the node's":                        {labels: told("tide", "disk", "d-1")},
		"of people":                         {},
		"of something else":                 {owners: []metav1.OwnerReference{set}},
		"the node was in another NodeSet":   {told("tide", "other", "d-1"), []metav1.OwnerReference{ownerReference(other)}, `node "d-1" of NodeSet "other", cluster "tide", by its labels, and goes with NodeSet other`},
		"the same, kept":                    {told("tide", "other", "d-1"), nil, `node "d-1" of NodeSet "other", cluster "tide", by its labels`},
		"labels are changed, its owner not": {told("tide", "disk", "d-1"), []metav1.OwnerReference{ownerReference(other)}, "goes with NodeSet other"},
		"labels are gone, its owner not":    {nil, []metav1.OwnerReference{ownerReference(other)}, "goes with NodeSet other"},
		"template scratch-d, and node 1":    {told("tide", "disk", "1"), nil, `node "1" of NodeSet "disk"`},
		"the same, of a pod":                {told("tide", "disk", "d-1"), []metav1.OwnerReference{pod}, "goes with Pod 1"},
		"another cluster":                   {told("ebb", "disk", "d-1"), nil, `cluster "ebb"`},
		"not all is said":                   {map[string]string{v1alpha1.LabelNodeSet: "disk"}, nil, `node "" of NodeSet "disk"`},
		"the same, with labels of people":   {map[string]string{"team": "hpc"}, []metav1.OwnerReference{ownerReference(other)}, "goes with NodeSet other"},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t, withScratch(nil))
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "scratch-d-1", Namespace: "slurm", Labels: tc.labels, OwnerReferences: tc.owners}}
			require.NoError(t, kube.Tracker().Add(claim))
			_, err := c.Create(t.Context(), powersave.CreatePod{NodeSet: "disk", Node: "d-1", Generation: 7, Request: "req"})
			after, getErr := kube.CoreV1().PersistentVolumeClaims("slurm").Get(t.Context(), "scratch-d-1", metav1.GetOptions{})
			require.NoError(t, getErr)
			assert.Equal(t, claim, after)
			if tc.whose == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "making claim scratch-d-1: one of that name is of ")
			require.ErrorContains(t, err, tc.whose)
			require.ErrorContains(t, err, "if node d-1 of NodeSet disk is to have its files, label it so")
			assert.Equal(t, powersave.TroubleConfig, troubleOf(t, err))
		})
	}
}

// The rights are asked for only where they are used.
func TestClaimRights(t *testing.T) {
	for name, tc := range map[string]struct {
		policy *v1alpha1.ClaimRetentionPolicy
		want   bool
	}{
		"kept":              {nil, true},
		"go with the pod":   {&v1alpha1.ClaimRetentionPolicy{WhenScaled: v1alpha1.DeleteClaim}, false},
		"a policy in parts": {&v1alpha1.ClaimRetentionPolicy{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t, withScratch(tc.policy))
			asked := false
			kube.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
				review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
				asked = asked || review.Spec.ResourceAttributes.Resource == claimRight
				review.Status.Allowed = true
				return true, review, nil
			})
			require.NoError(t, c.CheckAccess(t.Context()))
			assert.Equal(t, tc.want, asked)
		})
	}
}

func TestCheckClaims(t *testing.T) {
	spec := &withScratch(nil).Spec
	require.NoError(t, checkSpec(spec))
	spec.VolumeClaimTemplates = append(spec.VolumeClaimTemplates, spec.VolumeClaimTemplates[0])
	require.EqualError(t, checkSpec(spec), "spec.volumeClaimTemplates: two are called scratch: rename one")
	spec.VolumeClaimTemplates[1].Metadata.Name = "Scratch"
	require.EqualError(t, checkSpec(spec), `spec.volumeClaimTemplates[1].metadata.name is "Scratch": use lower-case letters, digits and "-", at most 63 characters`)
}
