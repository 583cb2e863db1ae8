package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
)

func TestSidecarsReady(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "level=INFO msg=starts\nslurmtide-bridge: tls.crt: no such file\n"}}
	mute := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}
	since := func(ago time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-ago))}}
	}
	waits := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	slurmctld := corev1.ContainerStatus{Name: ContainerSlurmctld, State: ended, LastTerminationState: ended} // is another condition's
	bridge := func(state, last corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: ContainerBridge, State: state, LastTerminationState: last}
	}
	others := func(state, last corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: ContainerReconfigure, State: state, LastTerminationState: last}
	}
	never, words := corev1.ContainerState{}, "does not stay up; it ended last with exit code 1: level=INFO msg=starts; slurmtide-bridge: tls.crt: no such file"
	for name, test := range map[string]struct {
		pods  []*corev1.Pod
		want  string // "Status Reason: Message"
		again time.Duration
	}{
		"no pod":       {nil, "False Starting: nothing runs beside slurmctld yet", 0},
		"new":          {[]*corev1.Pod{pod(t, inplace.Report{}, slurmctld, bridge(waits("ContainerCreating", ""), never))}, "False Starting: not started yet: bridge of pod tide-controller-0", 0},
		"young":        {[]*corev1.Pod{pod(t, inplace.Report{}, slurmctld, bridge(since(time.Second), never))}, "True Run: beside slurmctld run bridge", 0},
		"well":         {[]*corev1.Pod{pod(t, inplace.Report{}, slurmctld, bridge(since(time.Hour), never), others(since(time.Hour), never))}, "True Run: beside slurmctld run bridge, reconfigure", 0},
		"ended":        {[]*corev1.Pod{pod(t, inplace.Report{}, bridge(ended, never))}, "False Fails: container bridge of pod tide-controller-0 " + words, 0},
		"waits":        {[]*corev1.Pod{pod(t, inplace.Report{}, bridge(waits("CrashLoopBackOff", "back-off 40s"), ended))}, "False Fails: container bridge of pod tide-controller-0 " + words, 0},
		"runs briefly": {[]*corev1.Pod{pod(t, inplace.Report{}, bridge(since(10*time.Second), ended))}, "False Fails: container bridge of pod tide-controller-0 " + words, 50 * time.Second},
		"runs again":   {[]*corev1.Pod{pod(t, inplace.Report{}, bridge(since(time.Minute), ended))}, "True Run: beside slurmctld run bridge", 0},
		"says nothing": {[]*corev1.Pod{pod(t, inplace.Report{}, bridge(mute, never))}, "False Fails: container bridge of pod tide-controller-0 does not stay up; it ended last with exit code 137", 0},
		"no image":     {[]*corev1.Pod{pod(t, inplace.Report{}, bridge(waits("ImagePullBackOff", "not found"), ended))}, "False ImagePullBackOff: container bridge of pod tide-controller-0 waits: not found", 0},
		"the first to settle": {[]*corev1.Pod{pod(t, inplace.Report{}, bridge(since(10*time.Second), mute), others(since(20*time.Second), mute))},
			"False Fails: container bridge of pod tide-controller-0 does not stay up; it ended last with exit code 137; container reconfigure of pod tide-controller-0 does not stay up; it ended last with exit code 137", 40 * time.Second},
		"a pod that ends": {[]*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "tide-controller-0", DeletionTimestamp: &metav1.Time{Time: now}}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{bridge(ended, never)}}}},
			"False Starting: not started yet: bridge of pod tide-controller-0, which ends", 0},
		"a silent host": {[]*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "tide-controller-0"}, Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse}},
			ContainerStatuses: []corev1.ContainerStatus{bridge(since(time.Hour), never)},
		}}}, "False HostSilent: nobody knows what runs in pod tide-controller-0: its host is silent", 0},
		"a backup's": {[]*corev1.Pod{pod(t, inplace.Report{}, bridge(since(time.Hour), never)), {ObjectMeta: metav1.ObjectMeta{Name: "tide-controller-1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{bridge(mute, never)}}}},
			"False Fails: container bridge of pod tide-controller-1 does not stay up; it ended last with exit code 137", 0},
	} {
		t.Run(name, func(t *testing.T) {
			one, again := sidecarsReady(test.pods, now)
			assert.Equal(t, test.want, string(one.Status)+" "+one.Reason+": "+one.Message)
			assert.Equal(t, test.again, again)
		})
	}
}
