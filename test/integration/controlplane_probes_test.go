//go:build integration && controlplane

package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testProbes looks for the times that the Controller and the RestApi set, and whether the daemons live with them.
func (p *plane) testProbes(t *testing.T) {
	probed := func(pods []corev1.Pod, name string) corev1.Container {
		t.Helper()
		require.Len(t, pods, 1)
		for _, s := range pods[0].Status.ContainerStatuses {
			if s.Name == name {
				require.NotNil(t, s.Started)
				assert.True(t, *s.Started, "the startup probe is over")
				assert.True(t, s.Ready)
				assert.Zero(t, s.RestartCount)
			}
		}
		for _, c := range pods[0].Spec.Containers {
			if c.Name == name {
				require.NotNil(t, c.LivenessProbe)
				return c
			}
		}
		require.Fail(t, "no container "+name)
		return corev1.Container{}
	}
	pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, firstPod, metav1.GetOptions{})
	require.NoError(t, err)
	slurmctld := probed([]corev1.Pod{*pod}, "slurmctld")
	assert.EqualValues(t, 15, slurmctld.LivenessProbe.PeriodSeconds)
	assert.EqualValues(t, 20, slurmctld.LivenessProbe.FailureThreshold)
	assert.Contains(t, slurmctld.LivenessProbe.Exec.Command, "live")

	list, err := p.kube.CoreV1().Pods(p.ns).List(p.ctx, metav1.ListOptions{LabelSelector: "slurmtide.io/restapi=tide"})
	require.NoError(t, err)
	slurmrestd := probed(list.Items, "slurmrestd")
	assert.EqualValues(t, 1, slurmrestd.LivenessProbe.PeriodSeconds)
	assert.NotNil(t, slurmrestd.LivenessProbe.TCPSocket)
}
