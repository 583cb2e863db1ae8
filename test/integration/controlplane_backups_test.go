//go:build integration && controlplane

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

const (
	firstPod  = "tide-controller-0"
	backupPod = "tide-controller-1"
	// stays keeps a pod that was deleted from being made anew.
	stays = "slurmtide.io/test"
	// controlTimeout is SlurmctldTimeout.
	controlTimeout = 20
)

// testBackups has a backup take over while jobs run and boot.
func testBackups(t *testing.T, version string) {
	p := newPlane(t, version, "backups-")
	where := firstPod
	p.run = func(stdin io.Reader, container string, command ...string) (stdout, stderr string, err error) {
		return p.ExecPod(p.ctx, where, stdin, container, command...)
	}
	conf := func(suspend int) string {
		return fmt.Sprintf("SlurmctldTimeout=%d\nSuspendTime=%d\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\nCommunicationParameters=NoCtldInAddrAny\n", controlTimeout, suspend)
	}
	began := time.Now()
	p.createController(conf(5), func(c *v1alpha1.Controller) {
		c.Spec.Backups = 1
		c.Spec.Persistence.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	p.createSet("cpu", "cpu-[0-2]")
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	p.waitCondition(v1alpha1.ConditionBackupsReady, "StandBy")
	p.waitInForce()
	t.Logf("slurmctld answers and its backup stands by after %v", time.Since(began).Round(100*time.Millisecond))
	p.waitInControl(firstPod)
	before := p.uids()

	// A new configuration, which both read without a restart.
	began = time.Now()
	p.setExtra(conf(7))
	p.waitInForce()
	t.Logf("a change is in force in both after %v", time.Since(began).Round(100*time.Millisecond))
	assert.Equal(t, p.confOf(firstPod), p.confOf(backupPod))
	assert.Equal(t, before, p.uids())

	// The first one is gone for good.
	id := p.sbatch("sleep 100", "-N1", "--exclusive") // it ends under the backup, and not before
	p.waitJob(id, "RUNNING")
	p.finalizer([]string{stays})
	began = time.Now()
	require.NoError(t, p.kube.CoreV1().Pods(p.ns).Delete(p.ctx, firstPod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}))
	where = backupPod
	p.waitInControl(backupPod)
	took := time.Since(began)
	t.Logf("the backup is in control after %v", took.Round(100*time.Millisecond))
	assert.Less(t, took, 3*controlTimeout*time.Second)
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	p.waitCondition(v1alpha1.ConditionBackupsReady, "Missing")
	assert.Equal(t, "7 sec", p.setting("SuspendTime"), "it has read what came while it stood by")
	assert.Equal(t, "RUNNING", p.jobField(id, "JobState"))
	other := p.sbatch("srun hostname", "-N2", "--exclusive")
	began = time.Now()
	p.waitJob(other, "COMPLETED")
	took = time.Since(began)
	t.Logf("a 2-node job from zero, by the backup: %v", took.Round(100*time.Millisecond))
	assert.Less(t, took, time.Minute, "nobody waits for the one that is gone")
	p.waitJob(id, "COMPLETED")
	assert.Equal(t, "0", p.jobField(id, "Restarts"))
	assert.Equal(t, "0", p.jobField(other, "Restarts"))

	// A change that comes meanwhile.
	p.setExtra(conf(6))
	p.waitInForce()
	assert.Equal(t, "6 sec", p.setting("SuspendTime"))

	// It comes back, while a job runs, and takes control.
	id = p.sbatch("sleep 60", "-N1", "--exclusive")
	p.waitJob(id, "RUNNING")
	began = time.Now()
	p.finalizer(nil)
	p.waitInControl(firstPod)
	where = firstPod
	t.Logf("the first one is back in control after %v", time.Since(began).Round(100*time.Millisecond))
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	p.waitCondition(v1alpha1.ConditionBackupsReady, "StandBy")
	p.waitInForce()
	assert.Equal(t, p.confOf(firstPod), p.confOf(backupPod))
	assert.Equal(t, "6 sec", p.setting("SuspendTime"))
	other = p.sbatch("srun hostname", "-N2", "--exclusive")
	p.waitJob(other, "COMPLETED")
	p.waitJob(id, "COMPLETED")
	assert.Equal(t, "0", p.jobField(id, "Restarts"))
	p.waitZero("cpu-[0-2]")
	pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, backupPod, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Contains(t, before, string(pod.UID), "the backup was the same all the time")
	for _, s := range pod.Status.ContainerStatuses {
		// The kubelet writes /etc/hosts anew, from an empty file, for each container that it starts: slurmctld, which looks its host's name up then, may
		// find its Service's address. Kubernetes starts it again.
		if end := s.LastTerminationState.Terminated; s.RestartCount == 1 && end != nil && strings.Contains(end.Message, "Error binding slurm stream socket: Cannot assign requested address") {
			continue
		}
		assert.Zero(t, s.RestartCount, "%s ended: %+v", s.Name, s.LastTerminationState.Terminated)
		if s.RestartCount > 0 {
			out, err := askKubectl(p.ctx, "-n", p.ns, "logs", backupPod, "-c", s.Name, "--previous", "--tail=60")
			t.Logf("what %s said last: %v\n%s", s.Name, err, out)
		}
	}

	// Without, and with one again, while jobs run.
	for _, n := range []int32{0, 1} {
		id := p.sbatch("sleep 45", "-N1", "--exclusive")
		p.waitJob(id, "RUNNING")
		began := time.Now()
		p.setBackups(n)
		p.waitInForce()
		t.Logf("%d backups after %v", n, time.Since(began).Round(100*time.Millisecond))
		p.waitJob(p.sbatch("srun hostname", "-N2", "--exclusive"), "COMPLETED")
		p.waitJob(id, "COMPLETED")
		assert.Equal(t, "0", p.jobField(id, "Restarts"))
	}
	p.waitZero("cpu-[0-2]")
}

// setBackups waits until the pods are those that are wanted, and slurmctld answers.
func (p *plane) setBackups(n int32) {
	p.t.Helper()
	p.eventually("the Controller to take it", func() (bool, string) {
		c := p.controller()
		c.Spec.Backups = n
		_, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Update(p.ctx, c, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	p.eventually("its pods to be as wanted", func() (bool, string) {
		set, err := p.kube.AppsV1().StatefulSets(p.ns).Get(p.ctx, "tide-controller", metav1.GetOptions{})
		require.NoError(p.t, err)
		s := set.Status
		return *set.Spec.Replicas == 1+n && s.ObservedGeneration == set.Generation && s.Replicas == 1+n && s.ReadyReplicas == 1+n && s.UpdateRevision == s.CurrentRevision, fmt.Sprintf("%+v", s)
	})
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	if n > 0 {
		p.waitCondition(v1alpha1.ConditionBackupsReady, "StandBy")
	}
}

func (p *plane) waitInControl(pod string) {
	p.t.Helper()
	p.eventually(pod+" to be in control", func() (bool, string) {
		s := p.controller().Status
		return s.InControl == pod, fmt.Sprintf("%+v", s)
	})
}

// uids are those of the pods, and the restarts of their containers.
func (p *plane) uids() (said string) {
	p.t.Helper()
	for _, name := range []string{firstPod, backupPod} {
		pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, name, metav1.GetOptions{})
		require.NoError(p.t, err)
		said += " " + string(pod.UID)
		for _, s := range pod.Status.ContainerStatuses {
			said += fmt.Sprintf(" %s=%d", s.Name, s.RestartCount)
		}
	}
	return said
}

// confOf is the slurm.conf that the slurmctld of a pod reads.
func (p *plane) confOf(pod string) string {
	p.t.Helper()
	out, stderr, err := p.ExecPod(p.ctx, pod, nil, "slurmctld", "cat", "/etc/slurm/slurm.conf")
	require.NoError(p.t, err, stderr)
	return out
}

func (p *plane) finalizer(names []string) {
	p.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": names}})
	require.NoError(p.t, err)
	_, err = p.kube.CoreV1().Pods(p.ns).Patch(p.ctx, firstPod, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(p.t, err)
}
