//go:build integration && faults

package integration

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/powersave"
)

func moreRestarts(t *testing.T, c *cluster) {
	t.Run("slurmctld hangs, and is killed, while the job is configuring", func(t *testing.T) {
		c.t = t
		id := c.sbatch("sleep 1", "-N2", "-p", "slow")
		c.eventually("the pods", func() (bool, string) { return len(c.slurmdPods()) == 2, "" })
		time.Sleep(7 * time.Second) // until it has saved its state
		require.Equal(t, "CONFIGURING", c.jobField(id, "JobState"))
		require.NoError(t, c.Signal(c.ctx, "STOP", stack.ContainerSlurmctld))
		c.eventually("the bridge to say what is wrong", func() (bool, string) {
			said := c.status().Engine.SlurmError
			return said != "", said
		})
		t.Log(c.status().Engine.SlurmError)
		c.restartSlurmctld("KILL")
		c.eventually("the bridge to read Slurm again", func() (bool, string) {
			said := c.status().Engine.SlurmError
			return said == "", said
		})
		assert.Equal(t, "CONFIGURING", c.jobField(id, "JobState"))
		assert.Len(t, c.slurmdPods(), 2, "nothing is taken down meanwhile")
		c.ungate("slow-[0-1]")
		c.settled("slow-[0-1]", id)
	})
	// What slurmctld has not saved when it dies it forgets: here all since a copy of its state was made.
	t.Run("slurmctld killed before it has saved its state", func(t *testing.T) {
		c.t = t
		time.Sleep(7 * time.Second) // until it has saved that nothing goes on
		c.slurm("cp", "-a", "/var/spool/slurmctld", "/var/spool/slurmtide/saved")
		configuring := c.sbatch("sleep 1", "-N2", "-p", "slow")
		running := c.sbatch("sleep 600", "-N2", "--nodelist=cpu-[0-1]")
		c.waitJob(running, "RUNNING")
		c.eventually("the pods", func() (bool, string) { return len(c.slurmdPods()) == 4, "" })
		pods := c.slurmdPods()
		require.NoError(t, c.Signal(c.ctx, "STOP", stack.ContainerSlurmctld))
		c.slurm("sh", "-c", "rm -rf /var/spool/slurmctld/* && cp -a /var/spool/slurmtide/saved/. /var/spool/slurmctld/ && rm -r /var/spool/slurmtide/saved")
		c.restartSlurmctld("KILL")
		began := time.Now()
		for _, id := range []string{configuring, running} {
			_, stderr, err := c.run(nil, stack.ContainerSlurmctld, "scontrol", "show", "job", id)
			require.Error(t, err)
			assert.Contains(t, stderr, "Invalid job id", "it was to forget the job")
		}
		c.waitNodes("cpu-[0-1],slow-[0-1]", powersave.NodePoweredDown, powersave.NodePoweringUp)
		c.eventually("the bridge to say why it removes the pods", func() (bool, string) {
			log := c.log(stack.ContainerBridge)
			for node, pod := range pods {
				why := `"pod ` + string(pod.UID) + ` serves a node that Slurm shows as [^"]*: removing it" node=` + node
				if strings.HasPrefix(node, "slow-") { // nobody has registered there
					why = `"Slurm shows [^"]*: the boot is given up" node=` + node
				}
				if !regexp.MustCompile(why).MatchString(log) {
					return false, why
				}
			}
			return true, ""
		})
		c.settled("cpu-[0-9],slow-[0-1]")
		t.Logf("the pods of what was forgotten are gone %v after slurmctld served again", time.Since(began).Round(time.Second))

		again := c.sbatch("sleep 1", "-N2", "-p", "slow")
		t.Logf("jobs were %s and %s; the next is %s", configuring, running, again) // numbers are given out again
		c.ungate("slow-[0-1]")
		c.settled("slow-[0-1]", again)
	})
}
