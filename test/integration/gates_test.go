//go:build integration

package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// sitePrologs are what a site might have as PrologSlurmctld already; it refuses jobs named "refused" with status 3.
const sitePrologs = `[ "$SLURM_JOB_NAME" != refused ] || exit 3`

// atOnce is how long a gate may take that has nothing to wait for: eight stacks share the machine, and what it would wait for,
// the end of ResumeTimeout, comes later.
const atOnce = time.Minute

// The start gate never holds up or fails a job.
func TestStartGate(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "gate", version, stack.Options{Gate: true,
			SlurmtideConf: "GateChain=/bin/sh /var/spool/slurmtide/site\n",
			PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-3] Default=YES", "PartitionName=bad Nodes=bad-0",
				"PartitionName=slow Nodes=slow-[0-3]"},
		}, nodeSet{name: "cpu", nodes: "cpu-[0-3]"}, nodeSet{name: "bad", nodes: "bad-0", image: "slurmtide/none:such"},
			nodeSet{name: "slow", nodes: "slow-[0-3]", gated: true})
		c.writeFile("/var/spool/slurmtide/site", ": >/var/spool/slurmtide/chained\n"+sitePrologs+"\n")

		t.Run("a site's own prolog runs too", func(t *testing.T) {
			c.t = t
			c.waitJob(c.sbatch("true"), "COMPLETED")
			c.slurm("ls", "/var/spool/slurmtide/chained")
			c.refused()
		})
		t.Run("nodes that are up", func(t *testing.T) {
			c.t = t
			c.waitJob(c.sbatch("sleep 1", "--nodelist=cpu-0"), "COMPLETED")
			id := c.sbatch("true", "--nodelist=cpu-0")
			c.waitJob(id, "COMPLETED")
			end := c.gateEnd(id)
			assert.Equal(t, "nodes are ready", end.outcome)
			assert.Less(t, end.took, atOnce)
		})
		t.Run("job cancelled while it waits", func(t *testing.T) {
			c.t = t
			c.waitGates(0)
			id := c.sbatch("true", "-p", "bad")
			c.waitGates(1)
			c.slurm("scancel", id)
			c.waitJob(id, "CANCELLED")
			c.waitGates(0)
			assert.Zero(t, c.gateProcesses())
		})
		t.Run("slurmctld restarted while jobs wait", func(t *testing.T) {
			c.t = t
			ids := []string{c.sbatch("true", "-p", "slow", "-N2", "--exclusive")}
			for range 2 {
				ids = append(ids, c.sbatch("true", "-p", "slow", "-N1", "--exclusive"))
			}
			c.waitGates(len(ids))
			c.restartSlurmctld("TERM")
			// 24.11 saves its state before it ends its prologs and starts them again; 26.05 saves it
			// afterwards, and its own look, every 30 s, starts the jobs.
			t.Logf("%d start gates wait after the restart", c.status().Engine.Gates)
			for _, id := range ids {
				assert.Equal(t, "CONFIGURING", c.jobField(id, "JobState"))
			}
			c.ungate("slow-[0-3]")
			for _, id := range ids {
				c.waitJob(id, "COMPLETED")
				assert.Equal(t, "0", c.jobField(id, "Restarts"))
			}
			c.waitGates(0)
			c.waitZero("slow-[0-3]")
		})
		t.Run("bridge killed while jobs wait", func(t *testing.T) {
			c.t = t
			c.waitZero("cpu-[0-3]")
			var ids []string
			for range 4 {
				ids = append(ids, c.sbatch("true", "-N1", "--exclusive", "--hold"))
			}
			c.slurm("scontrol", "release", strings.Join(ids, ",")) // at once, or the last may get the node of the first
			c.eventually("the gates to wait", func() (bool, string) { return c.status().Engine.Gates > 0, "" })
			require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
			restarts := 0
			for _, id := range ids {
				c.waitJob(id, "COMPLETED")
				told := c.steps(c.explain("job", id))
				// The gate tells that it waits, and the bridge is started anew, at any moment before the node is there.
				assert.Regexp(t, `ProgramCalled ((GateWaits|BridgeStarted) )*RequestAccepted .*NodeRegistered`, told)
				for _, step := range []history.What{history.ProgramCalled, history.RequestAccepted, history.NodeRegistered} {
					assert.Equal(t, 1, strings.Count(told, string(step)), "%s once: %s", step, told)
				}
				restarts += strings.Count(told, " BridgeStarted ")
			}
			assert.Positive(t, restarts, "the story goes on where the bridge was killed")
		})
	})
}

// Without a bridge Slurm works as it does without the gate: somebody makes the nodes, and slurmctld's own look starts the job.
func TestGateWithoutBridge(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "nobridge", version, stack.Options{Gate: true, NoBridge: true, SuspendTime: 600,
			NodeLines: []string{"NodeName=cpu-[0-1] CPUs=2 RealMemory=400 State=CLOUD"}})
		id := c.sbatch("true", "-N2")
		end := c.gateEnd(id)
		assert.Regexp(t, `^asking bridge: .*bridge\.sock: connect: no such file`, end.outcome)
		assert.Equal(t, "0", end.exit)
		assert.Less(t, end.took, atOnce)
		c.waitNodes("cpu-[0-1]", powersave.NodePoweringUp, 0)
		c.createByHand("cpu-0")
		c.createByHand("cpu-1")
		c.waitJob(id, "COMPLETED")
		assert.Equal(t, "0", c.jobField(id, "Restarts"))
		assert.NotEmpty(t, c.slurm("ls", "/var/spool/slurmtide/requests"), "the request waits for a bridge")
	})
}

// Nodes that are always on are no reason to wait, and are left alone. The gate stands in a site's wrapper here.
func TestGateAndStaticNodes(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "static", version, stack.Options{
			Prolog: "#!/bin/sh\nexec /opt/slurmtide/start-gate -- /bin/sh -c '" + sitePrologs + "'\n",
			// Until its pod has an address: slurmctld stops for 10 s and more over names that it cannot resolve.
			NodeLines:      []string{"NodeName=static-0 NodeAddr=127.0.0.1 CPUs=2 RealMemory=400"},
			ExtraConf:      []string{"SuspendExcNodes=static-0"},
			PartitionLines: []string{"PartitionName=static Nodes=static-0 Default=YES", "PartitionName=mixed Nodes=static-0,cpu-0"},
		}, nodeSet{name: "cpu", nodes: "cpu-0"})
		c.createByHand("static-0")
		c.eventually("the static node's address", func() (bool, string) {
			ip := c.podIP("static-0")
			if ip != "" {
				c.slurm("scontrol", "update", "nodename=static-0", "nodeaddr="+ip)
			}
			return ip != "", ""
		})
		c.waitNodes("static-0", powersave.NodeIdle, powersave.NodeNotResponding)

		id := c.sbatch("true")
		c.waitJob(id, "COMPLETED")
		end := c.gateEnd(id)
		assert.Equal(t, "nodes are ready", end.outcome)
		assert.Less(t, end.took, atOnce)

		c.refused()

		id = c.sbatch("true", "-p", "mixed", "-N2")
		c.waitJob(id, "COMPLETED")
		assert.Equal(t, "nodes are ready", c.gateEnd(id).outcome, "the gate waits for the cloud node only")
		c.waitZero("cpu-0")
		assert.NotEmpty(t, c.podIP("static-0"))
		c.waitNodes("static-0", powersave.NodeIdle, powersave.NodePoweredDown|powersave.NodePoweringDown|powersave.NodeDrain)
	})
}

// Many jobs wait for a few big nodes, each in a start gate of its own, and run when the nodes are there.
func TestManyGates(t *testing.T) {
	const jobs = manyGates
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "many", version, stack.Options{Gate: true, ResumeTimeout: 900, ExtraConf: []string{
			// All tasks of the array in one pass.
			"SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=5,default_queue_depth=2000",
			// slurmctld signs all jobs in the moment when the gates open, and with auth/slurm that holds for 60 s; a job that
			// does not run 10 s after its node has registered counts as lost. Two cores need longer to start a thousand.
			"AuthInfo=ttl=600,cred_expire=600", "BatchStartTimeout=600", "MessageTimeout=100",
		}}, nodeSet{name: "big", nodes: "big-[0-3]", cpus: jobs / 4, gated: true})

		began := time.Now()
		id := c.sbatch("true", fmt.Sprintf("--array=1-%d", jobs))
		c.waitGates(jobs)
		assert.Equal(t, jobs, c.gateProcesses())
		t.Logf("%d start gates wait %v after sbatch; %s processes and threads in the pod", jobs, time.Since(began).Round(time.Millisecond),
			c.slurm("sh", "-c", "ls -d /proc/[0-9]*/task/* | wc -l"))

		began = time.Now()
		c.ungate("big-[0-3]")
		c.within(6*time.Minute, 2*time.Second, "the jobs to end", func() (bool, string) {
			states := map[string]int{}
			for state := range strings.FieldsSeq(c.slurm("squeue", "--noheader", "--array", "--states=all", "--format=%T", "--jobs", id)) {
				states[state]++
			}
			return states["COMPLETED"] == jobs, fmt.Sprint(states)
		})
		t.Logf("all ended %v later", time.Since(began).Round(time.Millisecond))

		var want, got []string
		for i := range jobs {
			want = append(want, fmt.Sprintf("%d COMPLETED 0", i+1))
		}
		for line := range strings.Lines(c.slurm("squeue", "--noheader", "--array", "--states=all", "--jobs", id, "--Format=ArrayTaskID:9,State:12,RestartCnt:9")) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		assert.ElementsMatch(t, want, got, "every task ran once")
		ready := c.slurm("grep", "-c", `program=start-gate .* outcome="nodes are ready" exit=0 `, "/var/spool/slurmtide/programs.log")
		assert.Equal(t, strconv.Itoa(jobs), ready, "every gate was opened by the bridge")
		assert.Zero(t, c.gateProcesses())
		c.waitGates(0)
		c.waitZero("big-[0-3]")
	})
}

// writeFile writes a file in slurmctld's container.
func (c *cluster) writeFile(name, text string) {
	c.t.Helper()
	_, stderr, err := c.run(strings.NewReader(text), stack.ContainerSlurmctld, "tee", name)
	require.NoError(c.t, err, stderr)
}

func (c *cluster) podIP(name string) string {
	c.t.Helper()
	pod, err := c.kube.CoreV1().Pods(c.ns).Get(c.ctx, name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return pod.Status.PodIP
}

// waitGates waits until the bridge holds this many start gates.
func (c *cluster) waitGates(n int) {
	c.t.Helper()
	limit, pause := patience, 200*time.Millisecond
	if n >= 100 {
		limit, pause = 4*time.Minute, time.Second // leave the machine to the gates
	}
	c.within(limit, pause, fmt.Sprint(n, " gates to wait"), func() (bool, string) {
		st, err := c.tryStatus()
		if err != nil {
			return false, err.Error()
		}
		return st.Engine.Gates == n, strconv.Itoa(st.Engine.Gates)
	})
}

// gateProcesses counts the start gates that run.
func (c *cluster) gateProcesses() int {
	c.t.Helper()
	// pgrep ends with status 1 when there are none, and with others when it fails.
	n, err := strconv.Atoi(c.slurm("sh", "-c", "pgrep -c -x start-gate || [ $? = 1 ]"))
	require.NoError(c.t, err)
	return n
}

// gateEnd is how a start gate ended, from the programs' log.
type gateEnd struct {
	outcome, exit string
	took          time.Duration
}

var gateLine = regexp.MustCompile(`program=start-gate .* job=(\d+) nodes=.* outcome=("[^"]*"|\S+) exit=("[^"]*"|\S+) took=(\S+)`)

// gateEnd waits for the end of the job's newest start gate.
func (c *cluster) gateEnd(id string) (end gateEnd) {
	c.t.Helper()
	c.eventually("the end of the start gate of job "+id, func() (bool, string) {
		log := c.slurm("sh", "-c", "cd /var/spool/slurmtide; [ ! -e programs.log ] || cat programs.log") // made by the first program
		lines := gateLine.FindAllStringSubmatch(log, -1)
		slices.Reverse(lines)
		i := slices.IndexFunc(lines, func(l []string) bool { return l[1] == id })
		if i < 0 {
			return false, log
		}
		took, err := time.ParseDuration(lines[i][4])
		require.NoError(c.t, err)
		end = gateEnd{strings.Trim(lines[i][2], `"`), strings.Trim(lines[i][3], `"`), took}
		return true, ""
	})
	return end
}

// refused submits a job that the site's prolog refuses: slurmctld requeues it, as it does without the gate.
func (c *cluster) refused() {
	c.t.Helper()
	id := c.sbatch("true", "--job-name=refused")
	assert.Equal(c.t, "3", c.gateEnd(id).exit)
	c.eventually("slurmctld to requeue the job", func() (bool, string) {
		restarts := c.jobField(id, "Restarts")
		return restarts != "0", restarts
	})
	c.t.Logf("refused: %s %s", c.jobField(id, "JobState"), c.jobField(id, "Reason"))
	c.slurm("scancel", id)
}
