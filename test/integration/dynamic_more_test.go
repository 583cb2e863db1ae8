//go:build integration && scale

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// Somebody takes the pod of a running job away: the job is requeued long before SlurmdTimeout (300 s), and runs on another node.
func TestDynamicPodLost(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "dynlost", version, dynamicOptions(version), nodeSet{name: "dyn", nodes: "dyn-[0-3]", dynamic: true})
		id := c.sbatch("sleep 60", "-c2")
		c.waitJob(id, "RUNNING")
		node := c.jobField(id, "NodeList")
		uid := c.slurmdPods()[node].UID
		c.eventually("the pod to be marked", func() (bool, string) { return c.slurmdPods()[node].Labels[v1alpha1.LabelBusy] == "true", "" })
		lost := time.Now()
		require.NoError(t, c.kube.CoreV1().Pods(c.ns).Delete(c.ctx, node, metav1.DeleteOptions{}))
		c.eventually("the job to be requeued", func() (bool, string) {
			r := c.jobField(id, "Restarts")
			return r == "1", r + " " + c.jobField(id, "JobState")
		})
		t.Logf("requeued %v after its pod was deleted", time.Since(lost).Round(time.Second))
		c.waitJob(id, "RUNNING")
		assert.NotEqual(t, uid, c.slurmdPods()[c.jobField(id, "NodeList")].UID)
		c.slurm("scancel", id)
		c.waitNothing()
	})
}

// Generic resources come with the registration, and devices from gres.conf.
func TestDynamicGPUs(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		o := dynamicOptions(version)
		for i, line := range o.NodeLines {
			if strings.HasPrefix(line, "NodeName=") {
				o.NodeLines[i] += " Gres=gpu:h100:2"
			}
		}
		gpus, err := stack.FakeGPUs("dyn-[0-3],shape-[0-7]", "h100", 2)
		require.NoError(t, err)
		o.GresLines = []string{gpus}
		c := deploy(t, "dyngpu", version, o, nodeSet{name: "dyn", nodes: "dyn-[0-3]", dynamic: true, gres: "gpu:h100:2"})
		two := c.sbatch("srun sh -c 'test $CUDA_VISIBLE_DEVICES = 0,1'", "--gres=gpu:h100:2")
		one := c.sbatch("sleep 1", "--gpus=1")
		c.waitJob(two, "COMPLETED")
		c.waitJob(one, "COMPLETED")
		c.waitNothing()
	})
}
