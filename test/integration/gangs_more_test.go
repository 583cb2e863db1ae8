//go:build integration && faults

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// withMoreGangs adds what moreGangs needs. Without config_overrides slurmctld compares what slurmd finds with slurm.conf.
func withMoreGangs(o stack.Options) stack.Options {
	o.ExtraConf = append(o.ExtraConf, "SlurmdParameters=shutdown_on_reboot", "MinJobAge=3600")
	o.NodeLines = append(o.NodeLines,
		"NodeName=wide-[0-2],greedy-[0-3],best-[0-3],tasks-[0-3],near-[0-2],conf-[0-1],crash-[0-1] CPUs=2 RealMemory=400 State=CLOUD",
		"NodeName=big-0 CPUs=2 RealMemory=9999999 State=CLOUD", "NodeName=few-0 CPUs=512 RealMemory=400 State=CLOUD",
		"NodeName=gpu-[0-1] CPUs=2 RealMemory=400 Gres=gpu:h100:2 State=CLOUD")
	o.GresLines = []string{ // gpu-1 finds one of two
		"NodeName=gpu-0 Name=gpu Type=h100 File=/dev/null,/dev/zero Flags=nvidia_gpu_env",
		"NodeName=gpu-1 Name=gpu Type=h100 File=/dev/null Flags=nvidia_gpu_env",
	}
	o.PartitionLines = append(o.PartitionLines, "PartitionName=wide Nodes=wide-[0-2]", "PartitionName=greedy Nodes=greedy-[0-3]",
		"PartitionName=best Nodes=best-[0-3] SuspendTime=15", "PartitionName=tasks Nodes=tasks-[0-3]", "PartitionName=near Nodes=near-[0-2]", "PartitionName=conf Nodes=conf-[0-1]", "PartitionName=crash Nodes=crash-[0-1]",
		"PartitionName=odd Nodes=big-0,few-0,gpu-[0-1] SuspendTime=10")
	return o
}

// whileClosed is for when "narrow" has just been taken out of Slurm's choice.
func whileClosed(t *testing.T, c *cluster) {
	t.Run("the bridge killed while it is closed", func(t *testing.T) {
		c.t = t
		before, reason := c.breaker("narrow"), c.reason("narrow-3")
		require.NotNil(t, before)
		assert.Equal(t, v1alpha1.BreakerBackingOff, before.State)
		require.NotNil(t, before.RetryTime)
		assert.Contains(t, reason, "tried again at "+before.RetryTime.UTC().Format("15:04:05Z"))

		require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
		killed := time.Now()
		c.eventually("the next bridge to have read everything", func() (bool, string) {
			st, err := c.tryStatus()
			return err == nil && st.Engine.SlurmRead.After(killed) && st.Engine.KubernetesRead, fmt.Sprint(err)
		})
		time.Sleep(2 * time.Second) // in which it writes what it thinks
		require.True(t, time.Now().Before(before.RetryTime.Time), "this took too long to say anything")
		assert.Equal(t, before, c.breaker("narrow"))
		assert.Equal(t, reason, c.reason("narrow-3"))
		c.waitNodes("narrow-[0-3]", powersave.NodeDrain|powersave.NodePoweredDown, 0)
	})
	t.Run("a job that may go elsewhere does so at once", func(t *testing.T) {
		c.t = t
		c.create(c.build(nodeSet{name: "wide", nodes: "wide-[0-2]"}))
		id := c.sbatch("sleep 1", "-N3", "-p", "narrow,wide")
		c.eventually("the job to have nodes", func() (bool, string) {
			nodes := c.jobField(id, "NodeList")
			return nodes != "(null)" && nodes != "", nodes
		})
		assert.Equal(t, "wide-[0-2]", c.jobField(id, "NodeList"))
		assert.Equal(t, "wide", c.jobField(id, "Partition"))
		c.condition("narrow", v1alpha1.ConditionCapacityAvailable, metav1.ConditionFalse)
		c.settled("wide-[0-2]", id)
	})
}

func moreGangs(t *testing.T, c *cluster) {
	defer func() {
		c.t = t
		c.makeRoom(0)
	}()
	t.Run("a user who waits at a terminal", func(t *testing.T) {
		c.t = t
		c.changeNodeSet("narrow", func(s *v1alpha1.NodeSetSpec) {
			s.Template.Spec.Containers[0].Ports = onePodAHost()
			s.Backoff = &v1alpha1.BackoffPolicy{Initial: &metav1.Duration{Duration: 40 * time.Second}}
			s.Boot.UnschedulableGrace = &metav1.Duration{Duration: 2 * time.Second}
		})
		_, stderr, err := c.run(nil, stack.ContainerSlurmctld, "srun", "-N3", "-p", "narrow", "--job-name=seen", "true")
		require.Error(t, err)
		t.Log(stderr)
		assert.Regexp(t, `slurmtide: capacity: .*free ports`, stderr)
		id := c.slurm("squeue", "--noheader", "--states=all", "--name=seen", "--format=%i")
		c.waitJob(id, "NODE_FAIL")
		assert.Contains(t, c.slurm("scontrol", "--oneliner", "show", "job", id), "AdminComment=slurmtide: capacity: ")
	})
	t.Run("a NodeSet that opens by itself", func(t *testing.T) {
		c.t = t
		var closed *v1alpha1.BreakerStatus
		c.eventually("the NodeSet to be closed", func() (bool, string) {
			closed = c.breaker("narrow")
			return closed != nil && closed.RetryTime != nil, fmt.Sprint(closed)
		})
		c.waitNodes("narrow-[0-3]", powersave.NodeDrain|powersave.NodePoweredDown, 0)
		id := c.sbatch("sleep 1", "-N1", "-p", "narrow")
		c.waitJob(id, "COMPLETED")
		began, err := time.ParseInLocation("2006-01-02T15:04:05", c.jobField(id, "StartTime"), time.UTC)
		require.NoError(t, err)
		assert.False(t, began.Before(closed.RetryTime.Time), "it began %s, before %s", began, closed.RetryTime)
		c.condition("narrow", v1alpha1.ConditionCapacityAvailable, metav1.ConditionTrue)
		assert.Nil(t, c.breaker("narrow"))
		c.settled("narrow-[0-3]", id)
	})
	t.Run("Greedy, room for one of two jobs", func(t *testing.T) {
		c.t = t
		older, younger := c.twoJobs(v1alpha1.Greedy, "greedy", 2, "greedy-0,greedy-2", 1)
		c.ungate("greedy-1,greedy-3") // room for neither
		reason := c.givenBack(younger, "greedy-[2-3]")
		assert.Regexp(t, `^slurmtide: capacity: .*Insufficient test.slurmtide.io/room`, reason)
		c.waitJob(older, "COMPLETED")
		assert.Equal(t, "0", c.jobField(older, "Restarts"))
		assert.NotContains(t, c.slurm("scontrol", "--oneliner", "show", "job", older), "AdminComment=slurmtide:")
		assert.Equal(t, "PENDING", c.jobField(younger, "JobState"))
		c.waitZero("greedy-[0-3]")

		c.again("greedy", 4, younger)
		c.settled("greedy-[0-3]", older)
	})
	t.Run("BestEffort, room for one job and a half", func(t *testing.T) {
		c.t = t
		older, younger := c.twoJobs(v1alpha1.BestEffort, "best", 3, "best-[0-2]", 20)
		c.waitJob(older, "RUNNING")
		half := c.slurmdPods()["best-2"].UID
		c.ungate("best-3")
		reason := c.givenBack(younger, "best-3")
		assert.Regexp(t, `^slurmtide: capacity: .*Insufficient test.slurmtide.io/room`, reason)
		assert.Equal(t, half, c.slurmdPods()["best-2"].UID, "its other node is there for whichever job comes next")
		c.waitNodes("best-2", powersave.NodeIdle, powersave.NodePoweringDown|powersave.NodePoweredDown|powersave.NodePowerDown)
		assert.Equal(t, "RUNNING", c.jobField(older, "JobState"))
		c.waitJob(older, "COMPLETED")
		assert.Equal(t, "PENDING", c.jobField(younger, "JobState"))

		c.again("best", 4, younger)
		c.settled("best-[0-3]", older)
	})
	arrays(t, c)
	t.Run("a Secret that is not there", func(t *testing.T) {
		c.t = t
		set := c.build(nodeSet{name: "conf", nodes: "conf-[0-1]", boot: v1alpha1.BootPolicy{UnschedulableGrace: &metav1.Duration{Duration: 2 * time.Second}}})
		set.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}}}}
		c.create(set)
		c.toldAndMended(c.sbatch("sleep 1", "-N2", "-p", "conf"), "conf", `slurmtide: config: .*secret "late" not found`)
	})
	t.Run("a container that ends", func(t *testing.T) {
		c.t = t
		set := c.build(nodeSet{name: "crash", nodes: "crash-[0-1]"})
		set.Spec.Template.Spec.Containers[0].Command = []string{"/bin/sh", "-c", "echo no such luck >&2; exit 3"}
		c.create(set)
		id := c.sbatch("sleep 1", "-N2", "-p", "crash")
		c.told(id, "crash", "slurmtide: crash: ")
		c.slurm("scancel", id)
		first, second := c.sbatch("sleep 1", "-p", "crash", "--nodelist=crash-0"), c.sbatch("sleep 1", "-p", "crash", "--nodelist=crash-1")
		c.givenBack(first, "crash-0")
		c.givenBack(second, "crash-1") // the third boot in a row at least
		c.slurm("scancel", second)
		c.mended(first, "crash")
	})
	t.Run("slurmd finds less than slurm.conf says", func(t *testing.T) {
		c.t = t
		big := c.build(nodeSet{name: "big", nodes: "big-0"})
		big.Spec.Shape.RealMemory = 9999999
		c.create(big)
		c.create(c.build(nodeSet{name: "few", nodes: "few-0", cpus: 512}))
		c.create(c.build(nodeSet{name: "gpu", nodes: "gpu-[0-1]", gres: "gpu:h100:2"}))
		jobs := map[string]string{}
		for _, nodes := range []string{"big-0", "few-0", "gpu-[0-1]"} {
			jobs[nodes] = c.sbatch("sleep 1", "-p", "odd", "--nodelist="+nodes)
		}
		for nodes, said := range map[string]string{
			"big-0": `Low RealMemory \(reported:\d+ < 90.00% of configured:9999999\)`, "few-0": `Low socket\*core\*thread count, Low CPUs`,
			"gpu-[0-1]": `gres/gpu count reported lower than configured \(1 < 2\)`,
		} {
			refused := strings.Replace(nodes, "[0-1]", "1", 1)
			c.eventually("slurmctld to refuse "+refused, func() (bool, string) {
				s := c.nodeStates(refused)[refused]
				return s.Has(powersave.NodeInvalidReg | powersave.NodeDrain), s.String()
			})
			assert.Regexp(t, "^"+said, c.reason(refused), "Slurm's own reason stands on the node")
			assert.Regexp(t, "^slurmtide: refused: slurmctld refused the registration: "+said, c.givenBack(jobs[nodes], nodes))
			c.slurm("scancel", jobs[nodes])
		}
		c.settled("big-0,few-0,gpu-[0-1]")
	})
	topology(t, c)
}

// twoJobs submits two jobs of two nodes each, the older one for so many seconds, to a NodeSet for which there is room for so many
// pods. They get their nodes in one pass of the scheduler; nothing but first has come up when it returns.
func (c *cluster) twoJobs(strategy v1alpha1.BootStrategy, name string, room int, first string, seconds int) (older, younger string) {
	c.t.Helper()
	c.fourNodes(strategy, name, room)
	older = c.sbatch(fmt.Sprint("sleep ", seconds), "-N2", "-p", name, "--hold", "--nodelist="+name+"-[0-1]")
	younger = c.sbatch("sleep 1", "-N2", "-p", name, "--hold", "--nodelist="+name+"-[2-3]")
	c.slurm("scontrol", "release", older+","+younger)
	c.ungate(first)
	c.waitNodes(first, 0, powersave.NodePoweredDown|powersave.NodePoweringUp)
	return older, younger
}

// fourNodes creates a NodeSet of four nodes with room for so many; their pods have a scheduling gate.
func (c *cluster) fourNodes(strategy v1alpha1.BootStrategy, name string, room int) {
	c.t.Helper()
	c.makeRoom(room)
	set := c.build(nodeSet{name: name, nodes: name + "-[0-3]", gated: true,
		boot: v1alpha1.BootPolicy{Strategy: strategy, UnschedulableGrace: &metav1.Duration{Duration: 2 * time.Second}}})
	resources := &set.Spec.Template.Spec.Containers[0].Resources
	resources.Limits = corev1.ResourceList{c.room1(): resource.MustParse("1")}
	resources.Requests[c.room1()] = resource.MustParse("1")
	c.create(set)
}

// again makes room, and has the job that rests tried again.
func (c *cluster) again(name string, room int, job string) {
	c.t.Helper()
	c.makeRoom(room)
	c.changeNodeSet(name, func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.SchedulingGates = nil })
	c.waitNodes(name+"-[0-3]", 0, powersave.NodeDrain)
	c.slurm("scontrol", "update", "jobid="+job, "StartTime=now")
	c.waitJob(job, "COMPLETED")
}

// room1 is a resource that only pods of this stack ask for.
func (c *cluster) room1() corev1.ResourceName {
	return corev1.ResourceName("test.slurmtide.io/room-" + c.ns)
}

// makeRoom has the host offer that many of room1.
func (c *cluster) makeRoom(n int) {
	c.t.Helper()
	have := map[string]any{string(c.room1()): fmt.Sprint(n)}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": have, "allocatable": have}})
	require.NoError(c.t, err)
	_, err = c.kube.CoreV1().Nodes().Patch(c.ctx, os.Getenv("LOCALCLUSTER"), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(c.t, err)
}

// breaker is what the NodeSet's status says of its own breaker; nil: nothing.
func (c *cluster) breaker(nodeSet string) *v1alpha1.BreakerStatus {
	c.t.Helper()
	set, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Get(c.ctx, nodeSet, metav1.GetOptions{})
	require.NoError(c.t, err)
	return set.Status.Breaker
}
