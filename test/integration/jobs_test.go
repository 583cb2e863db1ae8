//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// The main job: every kind of job from zero, and back to zero.
func TestJobs(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		gpus, err := stack.FakeGPUs("gpu-[0-1]", "h100", 2)
		require.NoError(t, err)
		c := deploy(t, "jobs", version, stack.Options{Gate: true, GresLines: []string{gpus}, PartitionLines: []string{
			"PartitionName=cpu Nodes=cpu-[0-9] Default=YES", "PartitionName=gpu Nodes=gpu-[0-1]",
		}}, nodeSet{name: "cpu", nodes: "cpu-[0-9]"}, nodeSet{name: "gpu", nodes: "gpu-[0-1]", gres: "gpu:h100:2"})

		t.Run("batch", func(t *testing.T) {
			c.t = t
			id := c.sbatch(`srun hostname && sleep 4`, "-N2", "--ntasks-per-node=1")
			c.waitJob(id, "RUNNING")
			log := c.slurm("grep", "program=start-gate", "/var/spool/slurmtide/programs.log")
			assert.Regexp(t, `job=`+id+` .*outcome="nodes are ready"`, log, "the start gate started the job")
			pods := c.slurmdPods()
			require.Len(t, pods, 2)
			for name, p := range pods {
				assert.Contains(t, c.slurm("scontrol", "--oneliner", "show", "node", name), "NodeAddr="+p.Status.PodIP)
				request := p.Annotations[v1alpha1.AnnotationRequest]
				require.NotEmpty(t, request)
				accepted := c.slurm("grep", "id="+request, "/var/spool/slurmtide/programs.log")
				assert.Regexp(t, `program=resume .*nodes="?cpu-`, accepted, "one ID leads from the arguments of resume to the pod")
				assert.Regexp(t, `msg="pod created" node=`+name+` .*request=`+request, c.log(stack.ContainerBridge))
			}
			c.waitJob(id, "COMPLETED")
			ended := time.Now()
			c.waitZero("cpu-[0-9]")
			assert.Less(t, time.Since(ended), 40*time.Second, "the names must not wait for SuspendTimeout")
			history := c.status().Engine.History
			require.Len(t, history, 2)
			assert.Equal(t, id, fmt.Sprint(history[0].Jobs[0]))
			c.explained(id, pods)
			set, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Get(c.ctx, "cpu", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Zero(t, set.Status.PoweredUp)
		})
		t.Run("gpu", func(t *testing.T) {
			c.t = t
			out := c.slurm("srun", "-p", "gpu", "--gres=gpu:h100:2", "bash", "-c", "echo devices $CUDA_VISIBLE_DEVICES on $SLURMD_NODENAME")
			assert.Regexp(t, `devices 0,1 on gpu-\d`, out)
		})
		t.Run("srun on two nodes", func(t *testing.T) {
			c.t = t
			out := c.slurm("srun", "-N2", "--ntasks-per-node=1", "hostname")
			assert.Len(t, strings.Fields(out), 2)
			assert.NotEqual(t, strings.Fields(out)[0], strings.Fields(out)[1])
		})
		t.Run("array", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "--array=1-8", "-N1", "--exclusive")
			c.eventually("the array to end", func() (bool, string) {
				out := c.slurm("squeue", "--noheader", "--array", "--states=all", "--format=%T", "--jobs", id)
				return strings.Count(out, "COMPLETED") == 8, out
			})
		})
		t.Run("jobs that share nodes", func(t *testing.T) {
			c.t = t
			var ids []string
			for range 4 {
				ids = append(ids, c.sbatch("sleep 2", "-N2", "-n2", "--ntasks-per-node=1", "--nodelist=cpu-[6-7]"))
			}
			for _, id := range ids {
				c.waitJob(id, "COMPLETED")
			}
		})
		t.Run("manual power", func(t *testing.T) {
			c.t = t
			c.waitZero("cpu-[0-9],gpu-[0-1]")
			c.slurm("scontrol", "update", "nodename=cpu-[4-5]", "state=power_up")
			c.waitNodes("cpu-[4-5]", powersave.NodeIdle, powersave.NodePoweredDown|powersave.NodePoweringUp)
			assert.Len(t, c.slurmdPods(), 2)
			c.slurm("scontrol", "update", "nodename=cpu-[4-5]", "state=power_down")
			c.waitZero("cpu-[4-5]")
		})
	})
}

// ResumeRate cuts one job into several calls of ResumeProgram.
func TestResumeRate(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "rate", version, stack.Options{Gate: true, ExtraConf: []string{"ResumeRate=60"}}, nodeSet{name: "cpu", nodes: "cpu-[0-7]"})
		id := c.sbatch("sleep 1", "-N6")
		c.waitJob(id, "COMPLETED")
		requests := map[string]bool{}
		for _, b := range c.status().Engine.History {
			requests[b.Request] = true
			assert.Equal(t, id, fmt.Sprint(b.Jobs[0]))
		}
		assert.Greater(t, len(requests), 1, "ResumeRate=60 must have made several requests")
		c.waitZero("cpu-[0-7]")
	})
}
