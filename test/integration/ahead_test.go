//go:build integration && scale

package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/powersave"
)

// Nodes for jobs whose start is known are up before it.
func TestLookAhead(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "ahead", version, stack.Options{Gate: true, SuspendTime: 15, ExtraConf: []string{
			"SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=2",
		}}, nodeSet{name: "cpu", nodes: "cpu-[0-5]"})

		t.Run("off by default", func(t *testing.T) {
			c.t = t
			id := c.sbatch("true", "--begin=now+6")
			c.noPodsUntil(c.begin(id))
			c.waitJob(id, "COMPLETED")
			c.settled("cpu-[0-5]", id)
		})

		_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Patch(c.ctx, "cpu", types.MergePatchType,
			[]byte(`{"spec":{"lookAhead":{"maxNodes":2,"leadTime":"25s"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)

		t.Run("a begin time", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 5", "--begin=now+40", "-N2", "--ntasks-per-node=1")
			begin := c.begin(id)
			c.noPodsUntil(begin.Add(-28 * time.Second))
			c.warm(begin, 2)
			c.starts(id, begin)
			c.waitJob(id, "COMPLETED")
			c.settled("cpu-[0-5]", id)
		})
		t.Run("a dependency, above the cap", func(t *testing.T) {
			c.t = t
			parent := c.sbatch("sleep 600", "--time=1", "-N1") // it ends by its limit
			c.waitJob(parent, "RUNNING")
			id := c.sbatch("sleep 5", "--dependency=afterany:"+parent, "-N4", "--ntasks-per-node=1")
			end, err := time.ParseInLocation("2006-01-02T15:04:05", c.jobField(parent, "EndTime"), time.UTC)
			require.NoError(t, err)
			c.warm(end, 3) // the parent's, and two of the three that are lacking
			time.Sleep(5 * time.Second)
			assert.Len(t, c.slurmdPods(), 3, "lookAhead.maxNodes is 2")
			c.within(3*time.Minute, 200*time.Millisecond, "the job to start", func() (bool, string) {
				state := c.jobField(id, "JobState")
				return state == "RUNNING" || state == "COMPLETED", state
			})
			c.waitJob(id, "COMPLETED")
			c.settled("cpu-[0-5]", id)
		})
	})
}

// begin is when the job may start.
func (c *cluster) begin(id string) time.Time {
	c.t.Helper()
	at, err := time.ParseInLocation("2006-01-02T15:04:05", c.jobField(id, "EligibleTime"), time.UTC)
	require.NoError(c.t, err)
	return at
}

func (c *cluster) noPodsUntil(end time.Time) {
	c.t.Helper()
	for ; time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		require.Empty(c.t, c.slurmdPods(), "%v before the start", time.Until(end))
	}
}

// warm waits until so many nodes serve, which must be before a time.
func (c *cluster) warm(before time.Time, nodes int) {
	c.t.Helper()
	c.within(time.Until(before), 200*time.Millisecond, fmt.Sprintf("%d nodes to be up", nodes), func() (bool, string) {
		pods := slices.Sorted(maps.Keys(c.slurmdPods()))
		up := 0
		for _, name := range pods {
			state := c.nodeStates(name)[name]
			if state.Any(powersave.NodeIdle|powersave.NodeAllocated|powersave.NodeMixed) && !state.Any(powersave.NodePoweringUp|powersave.NodePowerUp|powersave.NodePoweredDown) {
				up++
			}
		}
		return up == nodes, fmt.Sprintf("%d of %v", up, pods)
	})
	c.t.Logf("%d nodes are up %v before the start", nodes, time.Until(before).Round(100*time.Millisecond))
}

// starts waits until the job runs, on nodes that were up.
func (c *cluster) starts(id string, begin time.Time) {
	c.t.Helper()
	pods := c.slurmdPods()
	c.waitJob(id, "RUNNING", "COMPLETED")
	c.t.Logf("the job runs %v after its begin time", time.Since(begin).Round(100*time.Millisecond))
	start, err := time.ParseInLocation("2006-01-02T15:04:05", c.jobField(id, "StartTime"), time.UTC)
	require.NoError(c.t, err)
	assert.WithinDuration(c.t, begin, time.Now(), 5*time.Second, "Slurm starts it at %v", start)
	assert.Equal(c.t, slices.Sorted(maps.Keys(pods)), slices.Sorted(maps.Keys(c.slurmdPods())), "no others")
}
