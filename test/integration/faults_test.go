//go:build integration

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/powersave"
)

// The bridge and slurmctld are killed while a job's nodes boot: the job runs all the same.
func TestRestarts(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "restarts", version, stack.Options{Gate: true}, nodeSet{name: "cpu", nodes: "cpu-[0-9]"})
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
				c.waitZero("cpu-[0-9]")
			})
		}
		t.Run("bridge killed while pods go", func(t *testing.T) {
			c.t = t
			id := c.sbatch("true", "-N2")
			c.waitJob(id, "COMPLETED")
			c.eventually("a power-down", func() (bool, string) {
				for _, s := range c.nodeStates("cpu-[0-9]") {
					if s.Any(powersave.NodePoweringDown) {
						return true, ""
					}
				}
				return false, ""
			})
			require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
			require.NoError(t, c.WaitReady(c.ctx))
			c.waitZero("cpu-[0-9]")
		})
		t.Run("slurmctld restarted while the job is configuring", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 1", "-N2")
			c.eventually("the job to configure", func() (bool, string) {
				state := c.jobField(id, "JobState")
				return state == "CONFIGURING" || state == "RUNNING", state
			})
			// Killed, slurmctld forgets what it has not saved yet (every 5 s): that would be a test of Slurm.
			require.NoError(t, c.Signal(c.ctx, "TERM", stack.ContainerSlurmctld))
			require.NoError(t, c.WaitReady(c.ctx))
			c.waitJob(id, "COMPLETED")
			c.waitZero("cpu-[0-9]")
		})
	})
}

// Nodes that cannot boot: pods go, the reason stands on the node, others go on.
func TestBootsThatFail(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "fails", version, stack.Options{Gate: true, ResumeTimeout: 20,
			NodeLines: []string{"NodeName=ghost-0 CPUs=2 RealMemory=400 State=CLOUD"},
		}, nodeSet{name: "cpu", nodes: "cpu-[0-3]"}, nodeSet{name: "bad", nodes: "bad-0", image: "slurmtide/none:such"})

		c.slurm("scontrol", "update", "nodename=cpu-0,bad-0,ghost-0", "state=power_up")
		c.waitNodes("cpu-0", powersave.NodeIdle, powersave.NodePoweredDown|powersave.NodePoweringUp)
		c.eventually("status to name the problems", func() (bool, string) {
			problems := map[string]string{}
			for _, b := range c.status().Engine.Boots {
				problems[b.Node] = b.Problem
			}
			return strings.Contains(problems["bad-0"], "Image") && strings.Contains(problems["ghost-0"], "no NodeSet"), problems["bad-0"] + problems["ghost-0"]
		})
		c.waitNodes("bad-0,ghost-0", powersave.NodeDown|powersave.NodePoweredDown, powersave.NodePoweringUp)
		c.eventually("the reason on the node", func() (bool, string) {
			node := c.slurm("scontrol", "--oneliner", "show", "node", "bad-0")
			return strings.Contains(node, "slurmtide: boot failed:"), node
		})
		c.eventually("the pod of the failed boot to go", func() (bool, string) {
			_, left := c.slurmdPods()["bad-0"]
			return !left, ""
		})
		c.waitZero("cpu-[0-3]")
	})
}

// The start gate never holds up or fails a job.
func TestStartGate(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "gate", version, stack.Options{Gate: true,
			SlurmtideConf:  "GateChain=/bin/touch /var/spool/slurmtide/chained\n",
			PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-3] Default=YES", "PartitionName=bad Nodes=bad-0"},
		}, nodeSet{name: "cpu", nodes: "cpu-[0-3]"}, nodeSet{name: "bad", nodes: "bad-0", image: "slurmtide/none:such"})

		t.Run("a site's own prolog runs too", func(t *testing.T) {
			c.t = t
			c.waitJob(c.sbatch("true"), "COMPLETED")
			c.slurm("ls", "/var/spool/slurmtide/chained")
		})
		t.Run("nodes that are up", func(t *testing.T) {
			c.t = t
			c.waitJob(c.sbatch("sleep 1", "--nodelist=cpu-0"), "COMPLETED")
			began := time.Now()
			c.waitJob(c.sbatch("true", "--nodelist=cpu-0"), "COMPLETED")
			assert.Less(t, time.Since(began), 5*time.Second)
		})
		t.Run("job cancelled while it waits", func(t *testing.T) {
			c.t = t
			id := c.sbatch("true", "-p", "bad")
			c.eventually("the gate to wait", func() (bool, string) { return c.status().Engine.Gates == 1, "" })
			c.slurm("scancel", id)
			c.waitJob(id, "CANCELLED")
			c.eventually("the gate to go", func() (bool, string) { return c.status().Engine.Gates == 0, "" })
		})
		t.Run("bridge killed while jobs wait", func(t *testing.T) {
			c.t = t
			c.waitZero("cpu-[0-3]")
			var ids []string
			for range 4 {
				ids = append(ids, c.sbatch("true", "-N1", "--exclusive"))
			}
			c.eventually("the gates to wait", func() (bool, string) { return c.status().Engine.Gates > 0, "" })
			require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
			for _, id := range ids {
				c.waitJob(id, "COMPLETED")
			}
		})
	})
}
