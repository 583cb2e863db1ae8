//go:build integration && faults

package integration

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// What the bridge and slurmctld rely on is away for a while, each time with a job under way.
func TestAway(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "away", version, stack.Options{Gate: true, SpoolSize: "8Mi", ResumeTimeout: 300,
			// Script: what the programs say on stderr. Flags are logged from verbose on (log.h, log_flag).
			// SlurmdTimeout: a third of it passes between two pings.
			ExtraConf: []string{"DebugFlags=Power,Script", "SlurmctldDebug=verbose", "MinJobAge=3600", "SlurmdTimeout=90"},
			PartitionLines: []string{
				"PartitionName=cpu Nodes=cpu-[0-3] Default=YES", "PartitionName=slow Nodes=slow-[0-1]", "PartitionName=cut Nodes=cut-[0-1]",
			},
		}, nodeSet{name: "cpu", nodes: "cpu-[0-3]"}, nodeSet{name: "slow", nodes: "slow-[0-1]", gated: true},
			nodeSet{name: "cut", nodes: "cut-[0-1]", boot: v1alpha1.BootPolicy{Deadline: &metav1.Duration{Duration: 15 * time.Second}}})

		t.Run("slurmrestd refuses", func(t *testing.T) {
			c.t = t
			c.firewall("-A", "OUTPUT", "-o", "lo", "-p", "tcp", "--dport", "6820", "-j", "REJECT", "--reject-with", "tcp-reset")
			began := time.Now()
			id := c.sbatch("sleep 1", "-N2")
			c.waitJob(id, "COMPLETED") // all the same
			t.Logf("the job has run after %v without slurmrestd", time.Since(began).Round(time.Second))
			assert.Contains(t, c.gateEnd(id).outcome, "Slurm cannot be read")
			assert.Contains(t, c.status().Engine.SlurmError, "is slurmrestd running")
			c.waitNodes("cpu-[0-1]", powersave.NodePoweringDown, 0)
			time.Sleep(5 * time.Second)
			assert.Len(t, c.slurmdPods(), 2, "no pod is deleted without Slurm's word")
			c.openFirewall()
			c.settled("cpu-[0-3]", id)
		})
		t.Run("slurmrestd hangs", func(t *testing.T) {
			c.t = t
			thaw := c.freeze(stack.ContainerSlurmrestd)
			id := c.sbatch("sleep 1", "-N2")
			c.eventually("the pods", func() (bool, string) { return len(c.slurmdPods()) == 2, "" })
			c.eventually("the bridge to notice", func() (bool, string) {
				said := c.status().Engine.SlurmError
				return said != "", said
			})
			t.Log(c.status().Engine.SlurmError)
			thaw()
			c.settled("cpu-[0-3]", id)
		})
		t.Run("network cut while nodes boot", func(t *testing.T) {
			c.t = t
			mend := c.cutNetwork()
			id := c.sbatch("sleep 1", "-N2")
			c.eventually("slurmd to run", func() (bool, string) {
				boots := c.status().Engine.Boots
				return len(boots) == 2 && boots[0].Phase == powersave.PhaseRunning && boots[1].Phase == powersave.PhaseRunning, fmt.Sprintf("%+v", boots)
			})
			time.Sleep(5 * time.Second)
			for _, b := range c.status().Engine.Boots {
				assert.Equal(t, powersave.PhaseRunning, b.Phase, "status says how far %s has come", b.Node)
			}
			c.waitNodes("cpu-[0-1]", powersave.NodePoweringUp, 0)
			mend()
			c.settled("cpu-[0-3]", id)
		})
		t.Run("network cut until the deadline", func(t *testing.T) {
			c.t = t
			mend := c.cutNetwork()
			began := time.Now()
			id := c.sbatch("sleep 1", "-N2", "-p", "cut")
			assert.Contains(t, c.givenBack(id, "cut-[0-1]"), "slurmtide: bootstrap: not up after 15s: slurmd did not register")
			t.Logf("given back after %v", time.Since(began).Round(time.Second))
			mend()
			c.settled("cut-[0-1]")
			c.slurm("scontrol", "update", "jobid="+id, "StartTime=now")
			c.waitJob(id, "COMPLETED")
			c.settled("cut-[0-1]")
		})
		t.Run("network cut while a job runs", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 120", "-N2", "--nodelist=cpu-[0-1]")
			c.waitJob(id, "RUNNING")
			mend := c.cutNetwork()
			cut := time.Now()
			c.waitNodes("cpu-[0-1]", powersave.NodeNotResponding, powersave.NodeDown)
			t.Logf("slurmctld says so after %v", time.Since(cut).Round(time.Second))
			mend()
			c.waitNodes("cpu-[0-1]", 0, powersave.NodeNotResponding|powersave.NodeDown)
			assert.Equal(t, "RUNNING", c.jobField(id, "JobState"))
			c.settled("cpu-[0-3]", id)
		})
		t.Run("spool full", func(t *testing.T) {
			c.t = t
			accepted := c.sbatch("sleep 1", "-N2", "-p", "slow")
			c.eventually("the pods", func() (bool, string) { return len(c.slurmdPods()) == 2, "" })
			c.slurm("sh", "-c", "cat /dev/zero >/var/spool/slurmtide/filler; [ -s /var/spool/slurmtide/filler ]")

			_, stderr, err := c.run(nil, stack.ContainerSlurmctld, "/opt/slurmtide/resume", "cpu-0")
			require.ErrorContains(t, err, "exit status 1")
			assert.Contains(t, stderr, "no space left on device")
			refused := c.sbatch("sleep 5", "--nodelist=cpu-0")
			c.eventually("slurmctld to log why", func() (bool, string) {
				said := regexp.MustCompile(`resp_msg=resume: request not accepted: .*no space left on device`).FindString(c.log(stack.ContainerSlurmctld))
				return said != "", said
			})
			require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
			c.eventually("the bridge to know what was accepted", func() (bool, string) {
				st, err := c.tryStatus()
				nodes := map[string]bool{}
				for _, b := range st.Engine.Boots {
					nodes[b.Node] = true
				}
				return err == nil && nodes["slow-0"] && nodes["slow-1"], fmt.Sprint(err, nodes)
			})
			c.waitJob(refused, "RUNNING") // Slurm powers its node up: that is found without a request
			assert.Contains(t, c.log(stack.ContainerBridge), "no request for it arrived")
			c.slurm("rm", "/var/spool/slurmtide/filler")
			c.ungate("slow-[0-1]")
			c.settled("cpu-[0-3],slow-[0-1]", accepted, refused)
		})
	})
}
