//go:build integration && scale

package integration

import (
	"fmt"
	"maps"
	"regexp"
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

		c.lookAhead(`{"maxNodes":2,"leadTime":"25s"}`)

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
			end := c.jobTime(parent, "EndTime")
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

// The other sources of a start, and limits of accounts, which need no slurmdbd where AccountingStorageEnforce is not set.
func TestLookAheadSources(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "ahead-sources", version, stack.Options{Gate: true, SuspendTime: 15, ExtraConf: []string{
			"SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=2,bf_resolution=1",
		}}, nodeSet{name: "cpu", nodes: "cpu-[0-5]"})

		t.Run("an expected start, and it comes sooner", func(t *testing.T) {
			c.t = t
			c.lookAhead(`{"maxNodes":2,"leadTime":"25s","sources":["ExpectedStart"]}`)
			before := c.sbatch("sleep 600", "--time=1", "-N4", "--exclusive")
			c.waitJob(before, "RUNNING")
			id := c.sbatch("sleep 5", "--time=1", "-N6", "--exclusive")
			end := c.jobTime(before, "EndTime")
			c.eventually("backfill to say when", func() (bool, string) {
				at := c.jobField(id, "StartTime")
				return at != "" && at != "Unknown", at + " " + c.jobField(id, "Reason")
			})
			assert.WithinDuration(t, end, c.jobTime(id, "StartTime"), 5*time.Second, "it waits for four nodes")
			c.noPodsBut(4, end.Add(-28*time.Second))
			c.warm(end, 6)
			pods := slices.Sorted(maps.Keys(c.slurmdPods()))
			c.slurm("scancel", before)
			c.waitJob(id, "RUNNING", "COMPLETED")
			assert.Equal(t, pods, slices.Sorted(maps.Keys(c.slurmdPods())), "no others")
			c.result(id, "hit")
			c.settled("cpu-[0-5]", id)
		})
		t.Run("a reservation", func(t *testing.T) {
			c.t = t
			c.lookAhead(`{"maxNodes":2,"leadTime":"25s"}`)
			c.slurm("scontrol", "create", "reservation", "ReservationName=later", "StartTime=now+45", "Duration=10", "Nodes=cpu-[4-5]", "Users="+c.slurm("id", "-un"))
			id := c.sbatch("sleep 5", "--reservation=later", "-N2", "--ntasks-per-node=1", "--time=1")
			words := strings.Fields(c.slurm("scontrol", "--oneliner", "show", "reservation", "later"))
			at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "StartTime=") })
			begin := slurmTime(t, strings.TrimPrefix(words[at], "StartTime="))
			c.noPodsUntil(begin.Add(-28 * time.Second))
			c.warm(begin, 2)
			assert.Equal(t, []string{"cpu-4", "cpu-5"}, slices.Sorted(maps.Keys(c.slurmdPods())), "those of the reservation")
			c.starts(id, begin)
			c.result(id, "hit")
			c.waitJob(id, "COMPLETED")
			c.slurm("scontrol", "delete", "ReservationName=later")
			c.settled("cpu-[0-5]", id)
		})
		t.Run("two accounts", func(t *testing.T) {
			c.t = t
			c.lookAhead(`{"maxNodes":4,"leadTime":"25s","accounts":[{"name":"physics","maxNodes":1}]}`)
			physics := c.sbatch("sleep 5", "--begin=now+40", "-N3", "--exclusive", "--account=physics")
			other := c.sbatch("sleep 5", "--begin=now+40", "-N2", "--exclusive", "--account=other")
			begin := c.begin(physics)
			c.noPodsUntil(begin.Add(-28 * time.Second))
			c.warm(begin, 3) // one of the three, and both of the other account's
			c.noPodsBut(3, begin.Add(-time.Second))
			c.settled("cpu-[0-5]", physics, other)
		})
	})
}

// lookAhead replaces spec.lookAhead of the NodeSet cpu.
func (c *cluster) lookAhead(spec string) {
	c.t.Helper()
	_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Patch(c.ctx, "cpu", types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/spec/lookAhead","value":`+spec+`}]`), metav1.PatchOptions{})
	require.NoError(c.t, err)
}

// result waits until the bridge has said what became of all nodes that were wished for the job: nothing else.
func (c *cluster) result(id, want string) {
	c.t.Helper()
	said := regexp.MustCompile(`msg=look-ahead .*job=` + id + ` result=(\w+)`)
	c.eventually("the bridge to tell of job "+id, func() (bool, string) {
		log := c.log(stack.ContainerBridge)
		all := said.FindAllStringSubmatch(log, -1)
		for _, one := range all {
			require.Equal(c.t, want, one[1], "%v", all)
		}
		return len(all) > 0, "nothing"
	})
}

// jobTime is a field of scontrol show job that is a time.
func (c *cluster) jobTime(id, field string) time.Time {
	c.t.Helper()
	return slurmTime(c.t, c.jobField(id, field))
}

func slurmTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.ParseInLocation("2006-01-02T15:04:05", text, time.UTC)
	require.NoError(t, err)
	return at
}

// begin is when the job may start.
func (c *cluster) begin(id string) time.Time {
	c.t.Helper()
	return c.jobTime(id, "EligibleTime")
}

func (c *cluster) noPodsUntil(end time.Time) {
	c.t.Helper()
	c.noPodsBut(0, end)
}

// noPodsBut sees to it that there are so many until then.
func (c *cluster) noPodsBut(n int, end time.Time) {
	c.t.Helper()
	for ; time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		pods := slices.Sorted(maps.Keys(c.slurmdPods()))
		require.Len(c.t, pods, n, "%v before the time", time.Until(end))
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
	assert.WithinDuration(c.t, begin, time.Now(), 20*time.Second, "Slurm starts it at %v", c.jobTime(id, "StartTime"))
	assert.Equal(c.t, slices.Sorted(maps.Keys(pods)), slices.Sorted(maps.Keys(c.slurmdPods())), "no others")
}
