//go:build integration

package integration

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// suspendTime of the test: a floor must outlast it several times.
const suspendTime = 20

// The floor of a NodeSet against Slurm's own power saving.
func TestFloor(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deployFloor(t, "floor", version)
		t.Run("raised", func(t *testing.T) {
			c.t = t
			c.kubectlScale(2)
			c.waitFloor(2, "Held")
			set := c.nodeSet()
			assert.EqualValues(t, 2, set.Status.Replicas)
			assert.Equal(t, &v1alpha1.FloorStatus{Wanted: 2, Held: 2, SuspendTimeSeconds: suspendTime}, set.Status.Floor)
			for _, b := range c.status().Engine.History {
				assert.Empty(t, b.Jobs, "no job asked for it")
				assert.NotEmpty(t, b.Request, "Slurm did")
			}
		})
		t.Run("stays", func(t *testing.T) {
			c.t = t
			c.stays(4*suspendTime*time.Second, 2)
		})
		t.Run("a drain is left alone", func(t *testing.T) {
			c.t = t
			c.slurm("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=mine")
			c.eventually("another node", func() (bool, string) {
				pods := c.slurmdPods()
				return len(pods) == 3, fmt.Sprint(slices.Sorted(maps.Keys(pods)))
			})
			time.Sleep(suspendTime / 2 * time.Second) // two renewals and more
			assert.True(t, c.nodeStates("cpu-0")["cpu-0"].Has(powersave.NodeDrain))
			assert.Contains(t, c.slurm("scontrol", "--oneliner", "show", "node", "cpu-0"), "Reason=mine")
			c.slurm("scontrol", "update", "nodename=cpu-0", "state=undrain")
			c.within(patience, time.Second, "SuspendTime to take one of three nodes", func() (bool, string) {
				pods := c.slurmdPods()
				return len(pods) == 2, fmt.Sprint(slices.Sorted(maps.Keys(pods)))
			})
			c.waitFloor(2, "Held")
		})
		t.Run("lowered", func(t *testing.T) {
			c.t = t
			busy := slices.Sorted(maps.Keys(c.slurmdPods()))[0]
			id := c.sbatch("sleep 15", "--nodelist="+busy)
			c.waitJob(id, "RUNNING")
			c.kubectlScale(0)
			c.eventually("the idle node to go", func() (bool, string) {
				pods := c.slurmdPods()
				return len(pods) == 1 && pods[busy].Name == busy, fmt.Sprint(slices.Sorted(maps.Keys(pods)))
			})
			assert.Equal(t, "RUNNING", c.jobField(id, "JobState"))
			c.waitJob(id, "COMPLETED")
			assert.Equal(t, "0", c.jobField(id, "Restarts"))
			c.waitZero("cpu-[0-5]")
			c.waitFloor(0, "NoFloor")
		})
	})
}

// The same beside jobs.
func TestFloorBesideJobs(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deployFloor(t, "floor-jobs", version)
		t.Run("not above what Slurm allows", func(t *testing.T) {
			c.t = t
			c.kubectlScale(5)
			c.waitFloor(3, "PowerUpFailed")
			assert.Len(t, c.slurmdPods(), 3)
			c.kubectlScale(0)
			c.settled("cpu-[0-5]")
		})
		t.Run("raised because of a job", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 10", "--nodelist=cpu-[4-5]", "--ntasks-per-node=1")
			scale := []byte(`{"spec":{"replicas":1}}`) // as KEDA does, and as soon
			_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Patch(c.ctx, "cpu", types.MergePatchType, scale, metav1.PatchOptions{})
			require.NoError(t, err)
			c.waitJob(id, "RUNNING")
			c.waitFloor(1, "Held")
			assert.Equal(t, []string{"cpu-4", "cpu-5"}, slices.Sorted(maps.Keys(c.slurmdPods())), "no node is woken beside the job's")
			c.kubectlScale(0)
			c.waitJob(id, "COMPLETED")
			c.waitZero("cpu-[0-5]")
		})
		t.Run("beside jobs", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 10", "-N2", "--ntasks-per-node=1")
			c.waitJob(id, "RUNNING")
			c.kubectlScale(2)
			c.waitFloor(2, "Held")
			assert.Len(t, c.slurmdPods(), 2, "they count")
			c.waitJob(id, "COMPLETED")
			c.stays(2*suspendTime*time.Second, 2)
		})
	})
}

func deployFloor(t *testing.T, name, version string) *cluster {
	return deploy(t, name, version, stack.Options{Gate: true, SuspendTime: suspendTime, ExtraConf: []string{
		"SlurmctldParameters=enable_configless,idle_on_node_suspend,power_save_interval=0,power_save_min_interval=0,max_powered_nodes=3",
	}}, nodeSet{name: "cpu", nodes: "cpu-[0-5]"})
}

// kubectlScale scales the NodeSet the way people do.
func (c *cluster) kubectlScale(replicas int) {
	c.t.Helper()
	name := os.Getenv("LOCALCLUSTER")
	require.NotEmpty(c.t, name, "LOCALCLUSTER must name the local cluster; hack/integration.sh does")
	out, err := exec.CommandContext(c.ctx, "../../hack/localcluster/localcluster.sh", "--name", name, "kubectl", "-n", c.ns, "scale", "nodeset", "cpu", fmt.Sprintf("--replicas=%d", replicas)).CombinedOutput()
	require.NoError(c.t, err, "%s", out)
}

// nodeSet is the NodeSet cpu.
func (c *cluster) nodeSet() *v1alpha1.NodeSet {
	c.t.Helper()
	set, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Get(c.ctx, "cpu", metav1.GetOptions{})
	require.NoError(c.t, err)
	return set
}

// waitFloor waits until so many nodes are held, and the condition has the reason.
func (c *cluster) waitFloor(held int32, reason string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("floor %d, %s", held, reason), func() (bool, string) {
		s := c.nodeSet().Status
		reached := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFloorReached)
		if reached == nil || s.Floor == nil && held > 0 {
			return false, fmt.Sprintf("%+v", s)
		}
		return (s.Floor == nil || s.Floor.Held == held) && reached.Reason == reason, fmt.Sprintf("%+v %+v", s.Floor, *reached)
	})
}

// stays watches that exactly the same pods are there for a while, and that slurmctld does not even begin to power one down.
func (c *cluster) stays(while time.Duration, nodes int) {
	c.t.Helper()
	uids := func() map[string]types.UID {
		all := map[string]types.UID{}
		for name, pod := range c.slurmdPods() {
			all[name] = pod.UID
		}
		return all
	}
	before := uids()
	require.Len(c.t, before, nodes)
	names := strings.Join(slices.Sorted(maps.Keys(before)), ",")
	suspends := func() int {
		return strings.Count(c.slurm("cat", "/var/spool/slurmtide/programs.log"), "program=suspend ")
	}
	suspended := suspends()
	for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(time.Second) {
		require.Equal(c.t, before, uids())
		for name, state := range c.nodeStates(names) {
			require.False(c.t, state.Any(powersave.NodePowerDown|powersave.NodePoweringDown|powersave.NodePoweredDown), "%s is %s", name, state)
		}
	}
	assert.Equal(c.t, suspended, suspends(), "SuspendProgram must not have been called")
	for name := range before {
		pod, err := c.kube.CoreV1().Pods(c.ns).Get(c.ctx, name, metav1.GetOptions{})
		require.NoError(c.t, err)
		assert.Equal(c.t, corev1.PodRunning, pod.Status.Phase)
	}
}
