//go:build integration

package integration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/powersave"
)

// The bridge and slurmctld are killed, and pods taken away, while a job's nodes boot: the job runs all the same.
func TestRestarts(t *testing.T) {
	forFaults(t, func(t *testing.T, version string) {
		c := deploy(t, "restarts", version, stack.Options{Gate: true, PartitionLines: []string{
			"PartitionName=cpu Nodes=cpu-[0-9] Default=YES", "PartitionName=slow Nodes=slow-[0-1]",
		}}, nodeSet{name: "cpu", nodes: "cpu-[0-9]"}, nodeSet{name: "slow", nodes: "slow-[0-1]", gated: true})
		for name, when := range map[string]func(){
			"before a pod exists": func() {},
			"when pods exist": func() {
				c.eventually("pods", func() (bool, string) { return len(c.slurmdPods()) == 3, "" })
			},
		} {
			t.Run("bridge killed "+name, func(t *testing.T) {
				c.t = t
				id := c.sbatch("sleep 1", "-N3", "--exclusive")
				when()
				require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
				c.waitJob(id, "COMPLETED")
				require.NoError(t, c.WaitReady(c.ctx))
				c.settled("cpu-[0-9]", id)
			})
		}
		t.Run("bridge killed while pods go", func(t *testing.T) {
			c.t = t
			id := c.sbatch("true", "-N2")
			// One look from outside may take longer than all of a power-down.
			c.slurm("timeout", fmt.Sprint(int(patience.Seconds())), "sh", "-c", "until scontrol --oneliner show node 'cpu-[0-9]' | grep -q POWERING_DOWN; do sleep 0.1; done")
			require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
			require.NoError(t, c.WaitReady(c.ctx))
			c.settled("cpu-[0-9]", id)
		})
		t.Run("slurmctld restarted while the job is configuring", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "-N2", "-p", "slow") // whose nodes cannot come up before ungate
			c.eventually("the pods", func() (bool, string) { return len(c.slurmdPods()) == 2, "" })
			require.Equal(t, "CONFIGURING", c.jobField(id, "JobState"))
			c.restartSlurmctld("TERM")
			assert.Equal(t, "CONFIGURING", c.jobField(id, "JobState"))
			assert.Len(t, c.slurmdPods(), 2, "nothing is taken down meanwhile")
			c.ungate("slow-[0-1]")
			c.settled("slow-[0-1]", id)
		})
		t.Run("slurmctld killed while the job is configuring", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "-N2", "-p", "slow")
			c.waitJob(id, "CONFIGURING")
			time.Sleep(7 * time.Second) // until it has saved its state
			require.Equal(t, "CONFIGURING", c.jobField(id, "JobState"))
			c.restartSlurmctld("KILL")
			assert.Equal(t, "CONFIGURING", c.jobField(id, "JobState"))
			c.ungate("slow-[0-1]")
			c.settled("slow-[0-1]", id)
		})
		t.Run("pod deleted by hand while it boots", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "-N2", "-p", "slow")
			var first types.UID
			c.eventually("the pods", func() (bool, string) {
				first = c.slurmdPods()["slow-0"].UID
				return first != "", ""
			})
			require.NoError(t, c.kube.CoreV1().Pods(c.ns).Delete(c.ctx, "slow-0", metav1.DeleteOptions{}))
			c.eventually("a new pod", func() (bool, string) {
				now := c.slurmdPods()["slow-0"].UID
				return now != "" && now != first, string(now)
			})
			assert.True(t, slices.ContainsFunc(c.status().Engine.Notes, func(n powersave.Note) bool {
				return n.Node == "slow-0" && n.Text == "pod "+string(first)+" was taken away while its node booted"
			}), "%v", c.status().Engine.Notes)
			c.ungate("slow-[0-1]")
			c.settled("slow-[0-1]", id)
		})
		moreRestarts(t, c)
	})
}

// Nodes that cannot boot: pods go, the reason stands on the node, others go on.
func TestBootsThatFail(t *testing.T) {
	forFaults(t, func(t *testing.T, version string) {
		c := deploy(t, "fails", version, stack.Options{Gate: true, ResumeTimeout: 40,
			NodeLines: []string{"NodeName=ghost-0 CPUs=2 RealMemory=400 State=CLOUD"},
		}, nodeSet{name: "cpu", nodes: "cpu-[0-3]"}, nodeSet{name: "bad", nodes: "bad-0", image: "slurmtide/none:such"})

		c.slurm("scontrol", "update", "nodename=cpu-0,bad-0,ghost-0", "state=power_up")
		problems := map[string]string{} // which may be seen one after the other
		c.eventually("status to name the problems", func() (bool, string) {
			for _, b := range c.status().Engine.Boots {
				problems[b.Node] = cmp.Or(b.Problem, problems[b.Node])
			}
			return strings.Contains(problems["bad-0"], "image") && strings.Contains(problems["ghost-0"], "no NodeSet"), problems["bad-0"] + problems["ghost-0"]
		})
		c.eventually("the good node to come up", func() (bool, string) { // and go again
			history := c.status().Engine.History
			return slices.ContainsFunc(history, func(b powersave.Boot) bool { return b.Node == "cpu-0" }), fmt.Sprint(history)
		})
		// What is not ours is left to ResumeTimeout.
		c.waitNodes("ghost-0", powersave.NodeDown|powersave.NodePoweredDown, powersave.NodePoweringUp)
		c.waitNodes("bad-0", powersave.NodePoweredDown|powersave.NodeDrain, powersave.NodePoweringUp|powersave.NodePoweringDown)
		c.eventually("the reason on the node", func() (bool, string) {
			node := c.slurm("scontrol", "--oneliner", "show", "node", "bad-0")
			return strings.Contains(node, "slurmtide: closed: image:"), node
		})
		c.eventually("the pod of the failed boot to go", func() (bool, string) {
			_, left := c.slurmdPods()["bad-0"]
			return !left, ""
		})
		c.waitZero("cpu-[0-3]")
	})
}
