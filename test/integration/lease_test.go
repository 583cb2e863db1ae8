//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
)

// spools are where the two bridges of a stack live.
var spools = map[string]string{stack.ContainerBridge: "/var/spool/slurmtide", stack.ContainerBridge2: stack.SecondSpool}

// statusOf asks one of two bridges.
func (c *cluster) statusOf(container string) (st bridge.Status, err error) {
	out, stderr, err := c.Exec(c.ctx, container, "/usr/local/bin/slurmtide", "status", "--spool", spools[container], "-o", "json")
	if err != nil {
		return st, fmt.Errorf("%w: %s", err, stderr)
	}
	return st, json.Unmarshal([]byte(out), &st)
}

// waitLeader waits until the bridge leads, and sees that it is the only one of those asked.
func (c *cluster) waitLeader(container string, others ...string) {
	c.t.Helper()
	began := time.Now()
	c.eventually(container+" to have the lease", func() (bool, string) {
		st, err := c.statusOf(container)
		return err == nil && st.Lease.Leading, fmt.Sprintf("%+v %v", st.Lease, err)
	})
	c.t.Logf("%s has the lease after %s", container, time.Since(began).Round(100*time.Millisecond))
	st, err := c.statusOf(container)
	require.NoError(c.t, err)
	lease, err := c.kube.CoordinationV1().Leases(c.ns).Get(c.ctx, pods.LeaseName(c.Options.ClusterName), metav1.GetOptions{})
	require.NoError(c.t, err)
	assert.Equal(c.t, st.Lease.Identity, *lease.Spec.HolderIdentity)
	for _, other := range others {
		c.eventually(other+" to know that it does not lead", func() (bool, string) {
			o, err := c.statusOf(other)
			return err == nil && !o.Lease.Leading && o.Lease.Holder == st.Lease.Identity, fmt.Sprintf("%+v %v", o.Lease, err)
		})
	}
}

// activate makes slurmctld's programs write to the spool of that bridge, as when the slurmctld beside it has taken over.
func (c *cluster) activate(container string) {
	c.t.Helper()
	c.slurm("ln", "-sfn", spools[container], stack.ActiveSpool)
}

// Two bridges, a spool each, as beside two slurmctlds: one reconciles, both carry out what they are told, and one that dies, or is
// frozen, costs nothing.
func TestTwoBridges(t *testing.T) {
	forFaults(t, func(t *testing.T, version string) {
		c := deploy(t, "two", version, stack.Options{Gate: true, TwoBridges: true}, nodeSet{name: "cpu", nodes: "cpu-[0-7]"})
		leader, other := stack.ContainerBridge, stack.ContainerBridge2
		c.eventually("a leader", func() (bool, string) {
			for l, o := range map[string]string{leader: other, other: leader} {
				if st, err := c.statusOf(l); err == nil && st.Lease.Leading {
					leader, other = l, o
					return true, ""
				}
			}
			return false, ""
		})
		c.waitLeader(leader, other)

		t.Run("the leader is killed while a job boots", func(t *testing.T) {
			c.t = t
			c.activate(leader)
			id := c.sbatch("sleep 1", "-N2", "--exclusive")
			c.eventually("pods", func() (bool, string) { return len(c.slurmdPods()) == 2, "" })
			require.NoError(t, c.Signal(c.ctx, "KILL", leader))
			c.waitJob(id, "COMPLETED")
			c.waitLeader(leader, other) // its identity survives
		})
		t.Run("the leader is frozen with an order in its spool", func(t *testing.T) {
			c.t = t
			require.NoError(t, c.Signal(c.ctx, "STOP", leader))
			c.slurm("scontrol", "update", "nodename=cpu-6", "state=power_up")
			c.waitNodes("cpu-6", powersave.NodePoweringUp, 0)
			c.eventually("its request to be written", func() (bool, string) {
				out, _, err := c.Exec(c.ctx, stack.ContainerSlurmctld, "grep", "-rl", "cpu-6", spools[leader]+"/requests")
				return err == nil, out
			})
			c.activate(other)
			// What it is told itself, the other bridge does without the lease.
			began := time.Now()
			id := c.sbatch("sleep 1", "--nodelist=cpu-4")
			c.waitJob(id, "COMPLETED")
			t.Logf("a job without a leader took %s", time.Since(began).Round(100*time.Millisecond))
			c.waitLeader(other)
			c.waitNodes("cpu-6", powersave.NodeIdle, powersave.NodePoweringUp|powersave.NodePoweredDown)

			require.NoError(t, c.Signal(c.ctx, "CONT", leader))
			c.waitLeader(other, leader)
			c.slurm("scontrol", "update", "nodename=cpu-6", "state=power_down")
			c.waitZero("cpu-[0-7]")
			for container := range spools {
				c.eventually("the spool of "+container+" to be empty", func() (bool, string) {
					st, err := c.statusOf(container)
					return err == nil && st.Spool.Depth == 0 && len(st.Engine.Boots)+len(st.Engine.Offs) == 0, fmt.Sprintf("%+v %v", st.Spool, err)
				})
			}
		})
		t.Run("jobs run on", func(t *testing.T) {
			c.t = t
			id := c.sbatch("srun hostname", "-N3", "--exclusive")
			c.waitJob(id, "COMPLETED")
			c.waitZero("cpu-[0-7]")
		})
	})
}
