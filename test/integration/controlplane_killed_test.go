//go:build integration && controlplane

package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane"
)

// TestControlPlaneKilled kills slurmctld's pod, without a warning, while a job runs and the nodes of another one boot. Both end as if nothing had been.
func TestControlPlaneKilled(t *testing.T) {
	withController(t)
	newestFirst(t, testKilled)
}

func testKilled(t *testing.T, version string) {
	p := newPlane(t, version, "killed-")
	p.createController("SuspendTime=5\nSuspendTimeout=40\nResumeTimeout=180\nMessageTimeout=20\n")
	p.createSet("cpu", "cpu-[0-1]")
	p.createSet("slow", "slow-[0-1]", func(set *v1alpha1.NodeSet) {
		slurmd := set.Spec.Template.Spec.Containers[0]
		set.Spec.Template.Spec.InitContainers = append(set.Spec.Template.Spec.InitContainers, corev1.Container{
			Name: "dawdle", Image: slurmd.Image, ImagePullPolicy: slurmd.ImagePullPolicy, Command: []string{"sleep", "25"},
		})
	})
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	p.waitInForce()
	p.testKilled(t)
	p.waitZero("cpu-[0-1],slow-[0-1]")
}

// testKilled wants cpu-[0-1], and slow-[0-1] that take their time.
func (p *plane) testKilled(t *testing.T) {
	runs := p.sbatch("srun sleep 60", "-N2", "--nodelist=cpu-[0-1]")
	p.waitJob(runs, "RUNNING")
	boots := p.sbatch("srun hostname", "-N2", "-p", "slow")
	p.waitJob(boots, "CONFIGURING")
	time.Sleep(8 * time.Second) // slurmctld saves its state within five
	uid := func(name string) string {
		pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		return string(pod.UID)
	}
	before := map[string]string{}
	for _, name := range []string{"cpu-0", "cpu-1", "slow-0", "slow-1", "tide-controller-0"} {
		before[name] = uid(name)
	}
	require.Equal(t, "CONFIGURING", p.jobField(boots, "JobState"))
	require.NoError(t, p.kube.CoreV1().Pods(p.ns).Delete(p.ctx, "tide-controller-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	began := time.Now()
	p.eventually("slurmctld to be ready in another pod", func() (bool, string) { // who asks by name may still reach what is left of the old one
		pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, "tide-controller-0", metav1.GetOptions{})
		if err != nil || string(pod.UID) == before["tide-controller-0"] {
			return false, fmt.Sprint(err)
		}
		ready := slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == controlplane.ContainerSlurmctld && c.Ready })
		return ready, pod.Status.String()
	})
	t.Logf("slurmctld answers %v after it was killed", time.Since(began).Round(100*time.Millisecond))
	p.waitJob(boots, "RUNNING", "COMPLETED")
	for _, name := range []string{"cpu-0", "cpu-1", "slow-0", "slow-1"} {
		assert.Equal(t, before[name], uid(name), "%s has another pod", name)
	}
	for _, id := range []string{runs, boots} {
		p.waitJob(id, "COMPLETED")
		assert.Equal(t, "0", p.jobField(id, "Restarts"), "job %s has been requeued", id)
	}
}
