package controlplane

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
)

func pod(t *testing.T, report inplace.Report, statuses ...corev1.ContainerStatus) *corev1.Pod {
	t.Helper()
	text, err := json.Marshal(report)
	require.NoError(t, err)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "tide-controller-0", Annotations: map[string]string{inplace.Annotation: string(text)}},
		Status:     corev1.PodStatus{ContainerStatuses: statuses},
	}
}

func TestControllerStatus(t *testing.T) {
	ready := corev1.ContainerStatus{Name: ContainerSlurmctld, Ready: true}
	ended := &corev1.ContainerStateTerminated{ExitCode: 1, Message: "[x] info\n[x] error: Parse error\n[x] fatal: Unable to process\n"}
	tests := map[string]struct {
		seen                         SeenController
		accepted, available, inForce string // "Status Reason: Message"
	}{
		"new": {SeenController{Hash: "a"}, "True Valid: the Controller can be used", "False NoPod: there is no pod of slurmctld yet", "False Pending: slurmctld has not read the configuration yet"},
		"well": {SeenController{Hash: "a", Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a"}, ready)}},
			"True Valid: the Controller can be used", "True Answers: slurmctld answers", "True InForce: slurmctld and the nodes that are up run with the configuration"},
		"nodes": {SeenController{Hash: "a", Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a", Behind: "cpu-[0-1]", Silent: "cpu-1"}, ready)}},
			"True Valid: the Controller can be used", "True Answers: slurmctld answers", "False Pending: slurmctld runs with the configuration; slurmd has not read it yet on cpu-[0-1]"},
		"nodes are late": {SeenController{Hash: "a", Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a", Behind: "cpu-[0-1]", Silent: "cpu-1", Late: true}, ready)}},
			"True Valid: the Controller can be used", "True Answers: slurmctld answers", "False NodesBehind: slurmctld runs with the configuration; slurmd has not read it on cpu-[0-1]; no answer from cpu-1: " +
				"see its log, or power the node down (scontrol update nodename=NAME state=power_down_asap), since slurmd reads it when it starts"},
		"nodes unknown": {SeenController{Hash: "a", Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a", NodesError: "scontrol show node: no", Late: true}, ready)}},
			"True Valid: the Controller can be used", "True Answers: slurmctld answers", "False NodesBehind: slurmctld runs with the configuration; whether its nodes do is not known: scontrol show node: no"},
		"nodes of another configuration": {SeenController{Hash: "b", Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a", Behind: "cpu-0", Late: true}, ready)}},
			"True Valid: the Controller can be used", "True Answers: slurmctld answers", "False Pending: slurmctld has not read the configuration yet; the configuration before it stays in force"},
		"changing": {SeenController{Hash: "b", Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a"}, ready)}},
			"True Valid: the Controller can be used", "True Answers: slurmctld answers", "False Pending: slurmctld has not read the configuration yet; the configuration before it stays in force"},
		"rejected": {SeenController{Hash: "b", Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a", Rejected: "b", Error: "fatal: no"}, ready)}},
			"True Valid: the Controller can be used", "True Answers: slurmctld answers", "False Rejected: slurmctld refuses the configuration: fatal: no; the configuration before it stays in force"},
		"another one was rejected": {SeenController{Hash: "c", Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a", Rejected: "b", Error: "fatal: no"}, ready)}},
			"True Valid: the Controller can be used", "True Answers: slurmctld answers", "False Pending: slurmctld has not read the configuration yet; the configuration before it stays in force"},
		"cannot be asked": {SeenController{Hash: "b", Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a", Error: "scontrol reconfigure: no"}, ready)}},
			"True Valid: the Controller can be used", "True Answers: slurmctld answers", "False Pending: slurmctld has not read the configuration yet: scontrol reconfigure: no; the configuration before it stays in force"},
		"cannot be made": {SeenController{Problem: &Problem{"InvalidConfig", "spec.extraConf:1:1: no"}, Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a"}, ready)}},
			"False InvalidConfig: spec.extraConf:1:1: no", "True Answers: slurmctld answers", "False NotMade: there is no new configuration: spec.extraConf:1:1: no; the configuration before it stays in force"},
		"host keys of a NodeSet are of no use": {SeenController{Hash: "a", HostKeys: &Problem{"KeyMissing", "NodeSet cpu: no"}, Pods: []*corev1.Pod{pod(t, inplace.Report{InForce: "a"}, ready)}},
			"False KeyMissing: NodeSet cpu: no", "True Answers: slurmctld answers", "True InForce: slurmctld and the nodes that are up run with the configuration"},
		"ends": {SeenController{Hash: "a", Pods: []*corev1.Pod{pod(t, inplace.Report{}, corev1.ContainerStatus{Name: ContainerSlurmctld, State: corev1.ContainerState{Terminated: ended}})}},
			"True Valid: the Controller can be used", "False Fails: container slurmctld of pod tide-controller-0 has ended (exit code 1): error: Parse error; fatal: Unable to process", "False Pending: slurmctld has not read the configuration yet"},
		"ends again and again": {SeenController{Hash: "a", Pods: []*corev1.Pod{pod(t, inplace.Report{}, corev1.ContainerStatus{Name: ContainerSlurmctld,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, LastTerminationState: corev1.ContainerState{Terminated: ended}})}},
			"True Valid: the Controller can be used", "False Fails: container slurmctld of pod tide-controller-0 ends again and again (exit code 1): error: Parse error; fatal: Unable to process", "False Pending: slurmctld has not read the configuration yet"},
		"no image": {SeenController{Hash: "a", Pods: []*corev1.Pod{pod(t, inplace.Report{}, corev1.ContainerStatus{Name: ContainerSlurmctld, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}})}},
			"True Valid: the Controller can be used", "False ImagePullBackOff: container slurmctld of pod tide-controller-0: not found", "False Pending: slurmctld has not read the configuration yet"},
		"no room": {SeenController{Hash: "a", Pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "tide-controller-0"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "pod has unbound immediate PersistentVolumeClaims"}}}}}},
			"True Valid: the Controller can be used", "False Unschedulable: pod tide-controller-0: pod has unbound immediate PersistentVolumeClaims", "False Pending: slurmctld has not read the configuration yet"},
		"starting": {SeenController{Hash: "a", Pods: []*corev1.Pod{pod(t, inplace.Report{}, corev1.ContainerStatus{Name: ContainerSlurmctld, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}})}},
			"True Valid: the Controller can be used", "False Starting: slurmctld in pod tide-controller-0 does not answer yet", "False Pending: slurmctld has not read the configuration yet"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := controller(nil)
			c.Generation = 3
			s := ControllerStatus(c, test.seen)
			assert.EqualValues(t, 3, s.ObservedGeneration)
			assert.Equal(t, "tide", s.ClusterName)
			for kind, want := range map[string]string{v1alpha1.ConditionAccepted: test.accepted, v1alpha1.ConditionAvailable: test.available, v1alpha1.ConditionConfigInForce: test.inForce} {
				one := meta.FindStatusCondition(s.Conditions, kind)
				require.NotNil(t, one, kind)
				assert.Equal(t, want, string(one.Status)+" "+one.Reason+": "+one.Message)
				assert.EqualValues(t, 3, one.ObservedGeneration)
			}
			c.Status = s
			assert.Equal(t, s, ControllerStatus(c, test.seen), "nothing to write when nothing has changed")
		})
	}
}

func TestRestApiStatus(t *testing.T) {
	r := &v1alpha1.RestApi{ObjectMeta: metav1.ObjectMeta{Name: "tide", Generation: 2}}
	s := RestApiStatus(r, nil, nil, nil)
	assert.Equal(t, "NoPods", meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable).Reason)
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 1}}
	s = RestApiStatus(r, nil, d, nil)
	assert.Equal(t, "1 of 2 answer", meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable).Message)
	d.Status.ReadyReplicas = 2
	s = RestApiStatus(r, nil, d, nil)
	assert.True(t, meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAvailable))
	assert.EqualValues(t, 2, s.Replicas)
	assert.Contains(t, s.Selector, "slurmtide.io/restapi=tide")
}

func TestMint(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	text, err := mint([]byte("key"), "alice", now, time.Hour)
	require.NoError(t, err)
	issued, expires, ok := minted([]byte(text), []byte("key"), "alice")
	require.True(t, ok)
	assert.True(t, issued.Equal(now))
	assert.True(t, expires.Equal(now.Add(time.Hour)))
	assert.True(t, renewal(issued, expires, time.Hour).Equal(now.Add(48*time.Minute)))
	assert.True(t, renewal(issued, expires, 10*time.Minute).Equal(now.Add(8*time.Minute)), "a shorter life was asked for since")
	for name, test := range map[string][2]string{"another key": {"other", "alice"}, "another user": {"key", "bob"}} {
		_, _, ok := minted([]byte(text), []byte(test[0]), test[1])
		assert.False(t, ok, name)
	}
	_, _, ok = minted(nil, []byte("key"), "alice")
	assert.False(t, ok)
	text, err = mint([]byte("key"), "alice", now.Add(-2*time.Hour), time.Hour)
	require.NoError(t, err)
	_, _, ok = minted([]byte(text), []byte("key"), "alice")
	assert.True(t, ok, "an old one is one all the same: it says when it expired")
}

func TestTokenIsLookedAtAgain(t *testing.T) {
	now := time.Now()
	fresh, never := &v1alpha1.Token{}, &v1alpha1.Token{Spec: v1alpha1.TokenSpec{Refresh: new(false)}}
	assert.Equal(t, 48*time.Minute, againIn(fresh, now, now.Add(time.Hour), now).Round(time.Second))
	assert.Equal(t, time.Second, againIn(fresh, now.Add(-time.Hour), now, now), "it is due")
	assert.Equal(t, time.Hour, againIn(never, now, now.Add(time.Hour), now))
	assert.Zero(t, againIn(never, now.Add(-time.Hour), now, now), "nothing becomes of it any more")
}
