//go:build integration && controlplane && charts

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/controlplane"
)

// TestControlPlaneUpgrade goes from the charts and daemons of hack/images/previous to those of today, back, and forth again, and from the older Slurm to the newer one. Each time
// a job runs and the nodes of another one boot.
func TestControlPlaneUpgrade(t *testing.T) {
	before := previousCharts(t)
	t.Cleanup(func() { // for the tests that follow
		out, err := tryHelm(context.WithoutCancel(t.Context()), "upgrade", "--install", "slurmtide-crds", "helm/slurmtide-crds", "-n", daemons, "--take-ownership")
		assert.NoError(t, err, out)
	})
	newestFirst(t, func(t *testing.T, version string) { testUpgrade(t, version, before) })
}

func testUpgrade(t *testing.T, version, before string) {
	of := versions()
	newest := of[len(of)-1]
	c := newStory(t, version, "upgrade-")
	all := []string{"slurmtide-crds", "slurmtide", "slurm"}
	for _, chart := range all {
		c.upgrade(chart, filepath.Join(before, chart), "previous")
	}
	c.waitSinfo()
	c.waitUp()
	c.part("a job and its record", c.testUsersJob)
	c.waitZero("cpu-[0-2]")
	c.part("to the charts of today", func(*testing.T) {
		c.underJobs(func() {
			for _, chart := range all {
				c.upgrade(chart, "helm/"+chart, "dev")
			}
			c.waitImage(controlplane.ContainerBridge, "slurmtide/slurmtide:dev")
		})
	})
	c.part("back", func(*testing.T) {
		c.underJobs(func() {
			helm(c.t, "rollback", "tide", "-n", c.ns)
			helm(c.t, "rollback", "slurmtide", "-n", daemons)
			helm(c.t, "rollback", "slurmtide-crds", "-n", daemons)
			c.waitImage(controlplane.ContainerBridge, "slurmtide/slurmtide:previous")
		})
	})
	c.part("and forth", func(*testing.T) {
		c.underJobs(func() {
			for _, chart := range all {
				c.upgrade(chart, "helm/"+chart, "dev")
			}
			c.waitImage(controlplane.ContainerBridge, "slurmtide/slurmtide:dev")
		})
	})
	if version != newest {
		c.part("to another Slurm", func(*testing.T) { c.testAnotherSlurm(version, newest) })
	}
}

// previousCharts is a directory with the charts as they were.
func previousCharts(t *testing.T) string {
	commit, err := os.ReadFile("../../hack/images/previous")
	require.NoError(t, err)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", `git archive "$1" helm | tar -x -C "$2"`, "bash", strings.TrimSpace(string(commit)), dir)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "helm")
}

// underJobs changes what runs the cluster while a job runs and the nodes of another one boot. Both end as if nothing had been, and all that there was is there afterwards.
func (c *charts) underJobs(change func()) {
	t := c.t
	runs := c.alicesJob("srun sleep 100", "-N2 --nodelist=cpu-[0-1]")
	c.waitJob(runs, "RUNNING")
	boots := c.sbatch("srun hostname", "-N2", "-p", "slow")
	c.waitJob(boots, "CONFIGURING")
	time.Sleep(8 * time.Second) // slurmctld saves its state within five
	uids, token := c.podUIDs(), c.issued("portal")
	require.Len(t, uids, 4)
	began := time.Now()
	change()
	c.waitUp()
	t.Logf("changed after %v", time.Since(began).Round(time.Second))
	c.waitJob(boots, "RUNNING", "COMPLETED")
	if c.jobField(runs, "JobState") == "RUNNING" {
		now := c.podUIDs()
		assert.Equal(t, []any{uids["cpu-0"], uids["cpu-1"]}, []any{now["cpu-0"], now["cpu-1"]}, "nodes of a job that runs are left alone")
	}
	for _, id := range []string{runs, boots} {
		c.waitJob(id, "COMPLETED")
		assert.Equal(t, "0", c.jobField(id, "Restarts"), "job %s has been requeued", id)
	}
	c.waitZero("cpu-[0-2],slow-[0-1]")

	// Alice meets the host she knows, and her jobs are on record, those of before, too.
	next := c.alicesJob("srun hostname", "-N2 --ntasks-per-node=1")
	c.waitJob(next, "COMPLETED")
	c.within(3*time.Minute, time.Second, "sacct to show her jobs", func() (bool, string) {
		out, err := c.ssh("alice", "alice", "sacct -n -P -X -S now-1hour -o JobID,State,ExitCode")
		return strings.Contains(out, runs+"|COMPLETED|0:0") && strings.Contains(out, next+"|COMPLETED|0:0"), fmt.Sprint(out, err)
	})
	refused, _ := c.askNodes(token)
	assert.Empty(t, refused, "the token of before")
	for _, args := range [][]string{{"-n", daemons, "logs", "deploy/slurmtide-controller"}, {"-n", c.ns, "logs", firstPod, "-c", controlplane.ContainerBridge}} {
		assert.NotContains(t, runKubectl(t, args...), "forbidden", "%v", args)
	}
	c.waitZero("cpu-[0-2]")
}

// waitImage waits until slurmctld's pod has an image in a container, and all of it is ready.
func (c *charts) waitImage(container, image string) {
	c.t.Helper()
	c.within(4*time.Minute, time.Second, image+" in slurmctld's pod", func() (bool, string) {
		pod, err := c.kube.CoreV1().Pods(c.ns).Get(c.ctx, firstPod, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		has := slices.ContainsFunc(pod.Spec.Containers, func(o corev1.Container) bool { return o.Name == container && o.Image == image })
		ready := slices.ContainsFunc(pod.Status.Conditions, func(o corev1.PodCondition) bool { return o.Type == corev1.PodReady && o.Status == corev1.ConditionTrue })
		return has && ready && pod.DeletionTimestamp == nil, pod.Status.String()
	})
}

// testAnotherSlurm upgrades slurmdbd, and then the rest, as docs/versions.md has it.
func (c *charts) testAnotherSlurm(version, newest string) {
	assert.Contains(c.t, c.slurm("sinfo", "--version"), version)
	c.underJobs(func() {
		c.upgrade("slurm", "helm/slurm", "", "--set", "accounting.spec.slurmdbd.image=slurmtide/slurm:"+newest)
		runKubectl(c.t, "-n", c.ns, "rollout", "status", "statefulset/tide-accounting", "--timeout=4m")
		c.waitUp()
		assert.Contains(c.t, c.slurm("sinfo", "--version"), version, "slurmctld is the old one")
		c.writeValues(newest)
		c.upgrade("slurm", "helm/slurm", "")
		c.waitImage(stack.ContainerSlurmctld, "slurmtide/slurm:"+newest)
	})
	assert.Contains(c.t, c.slurm("sinfo", "--version"), newest)
	assert.Contains(c.t, c.alice("sinfo --version"), newest)
	id := c.sbatch("slurmd -V | grep -F 'slurm-wlm "+newest+"'", "--nodelist=cpu-0")
	c.waitJob(id, "COMPLETED")
}
