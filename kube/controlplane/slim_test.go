package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// What the cache leaves out of pods must change nothing that is said of them.
func TestSlimPods(t *testing.T) {
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "fatal: no key"}}
	for name, status := range map[string]corev1.PodStatus{
		"nothing":       {},
		"unschedulable": {Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no room"}}},
		"answers":       {ContainerStatuses: []corev1.ContainerStatus{{Name: ContainerSlurmctld, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
		"init fails":    {InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, LastTerminationState: ended}}},
		"ended":         {ContainerStatuses: []corev1.ContainerStatus{{Name: ContainerSlurmctld, State: ended}}},
		"silent host": {
			Conditions:        []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: ContainerSlurmctld, Ready: true}},
		},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Labels: map[string]string{LabelController: "c"}, Annotations: map[string]string{AnnotationWanted: "h"}, ManagedFields: []metav1.ManagedFieldsEntry{{}}},
			Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: ContainerSlurmctld}}}, Status: status,
		}
		for i := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[i].Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
		}
		got, err := slim(pod.DeepCopy())
		require.NoError(t, err)
		kept, ok := got.(*corev1.Pod)
		require.True(t, ok)
		assert.Equal(t, available(pod, ""), available(kept, ""), name)
		assert.Equal(t, runs(pod, ContainerSlurmctld), runs(kept, ContainerSlurmctld), name)
		sidecars, _ := sidecarsReady([]*corev1.Pod{pod}, time.Time{})
		keptSidecars, _ := sidecarsReady([]*corev1.Pod{kept}, time.Time{})
		assert.Equal(t, sidecars, keptSidecars, name)
		reason, message := replicaTrouble(pod)
		keptReason, keptMessage := replicaTrouble(kept)
		assert.Equal(t, []string{reason, message}, []string{keptReason, keptMessage}, name)
		pod.ManagedFields = nil
		assert.Equal(t, pod.ObjectMeta, kept.ObjectMeta, name)
		assert.Empty(t, kept.Spec, name)
		for _, s := range kept.Status.ContainerStatuses {
			assert.Nil(t, s.Resources, name)
		}
	}
}

// Of a NodeSet all is kept that slurm.conf is made of.
func TestSlimNodeSets(t *testing.T) {
	set := &v1alpha1.NodeSet{
		ObjectMeta: metav1.ObjectMeta{Name: "cpu", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "mine": "x"}, ManagedFields: []metav1.ManagedFieldsEntry{{}}},
		Spec:       v1alpha1.NodeSetSpec{NodeNames: "cpu-[0-3]", Shape: v1alpha1.Shape{CPUs: 2}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: v1alpha1.ContainerSlurmd}}}}},
		Status:     v1alpha1.NodeSetStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted}}},
	}
	want := set.DeepCopy()
	want.Annotations, want.ManagedFields, want.Spec.Template = map[string]string{"mine": "x"}, nil, corev1.PodTemplateSpec{}
	got, err := slim(set)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// Of one with eachHost what follow needs, too: who names its nodes, and which hosts its pods may run on.
func TestSlimFollowing(t *testing.T) {
	fields := func(text string) *metav1.FieldsV1 { return metav1.NewFieldsV1(text) }
	west := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}
	set := &v1alpha1.NodeSet{
		ObjectMeta: metav1.ObjectMeta{Name: "cpu", ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "helm", FieldsV1: fields(`{"f:spec":{"f:shape":{}}}`)}, {Manager: hostsManager, FieldsV1: fields(`{"f:spec":{"f:nodeNames":{},"f:replicas":{}}}`)},
		}},
		Spec: v1alpha1.NodeSetSpec{NodeNames: "w-1", EachHost: &v1alpha1.EachHost{}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"a": "b"}, Tolerations: []corev1.Toleration{{Key: "k"}}, Affinity: &corev1.Affinity{NodeAffinity: west, PodAffinity: &corev1.PodAffinity{}},
			Containers: []corev1.Container{{Name: v1alpha1.ContainerSlurmd}},
		}}},
	}
	want := set.DeepCopy()
	want.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: hostsManager}}
	want.Spec.Template.Spec.Containers, want.Spec.Template.Spec.Affinity.PodAffinity = nil, nil
	got, err := slim(set)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	host, err := slim(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "w-1", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}}},
		Status:     corev1.NodeStatus{Images: []corev1.ContainerImage{{}}},
	})
	require.NoError(t, err)
	assert.Equal(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "w-1", Labels: map[string]string{"a": "b"}}, Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}}},
	}, host)
}
