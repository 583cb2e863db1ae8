//go:build integration

package integration

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/powersave"
)

// Somebody deletes the pods of nodes with jobs: no new job comes, those that are there have the pod's grace period to end, and what has not
// ended then is requeued.
func TestDeletedPods(t *testing.T) {
	forFaults(t, func(t *testing.T, version string) {
		const grace = 25
		c := deploy(t, "deleted", version, stack.Options{Gate: true, SuspendTime: 600},
			nodeSet{name: "cpu", nodes: "cpu-[0-1]", grace: byDefault}, nodeSet{name: "short", nodes: "short-0", grace: grace})

		t.Run("job without a step", func(t *testing.T) {
			c.t = t
			c.slurm("salloc", "--no-shell", "--job-name=alone", "--nodelist=cpu-0")
			id := strings.TrimSpace(c.slurm("squeue", "--noheader", "--name=alone", "--format=%A"))
			c.waitJob(id, "RUNNING")
			uid := c.slurmdPods()["cpu-0"].UID
			c.deletePod("cpu-0")
			c.waitNodes("cpu-0", powersave.NodeDrain, 0)
			time.Sleep(15 * time.Second) // a job whose pod is gone is requeued after ten
			assert.Equal(t, "RUNNING", c.jobField(id, "JobState"))
			assert.Equal(t, uid, c.slurmdPods()["cpu-0"].UID)
			c.slurm("scancel", id)
			c.waitZero("cpu-0")
		})
		t.Run("job ends in time", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 30", "--nodelist=cpu-0", "--requeue")
			c.waitJob(id, "RUNNING")
			pod := c.slurmdPods()["cpu-0"]
			require.EqualValues(t, pods.DefaultGracePeriod, *pod.Spec.TerminationGracePeriodSeconds)
			began := time.Now()
			c.deletePod("cpu-0")
			c.waitNodes("cpu-0", powersave.NodeDrain, 0)
			t.Logf("drained after %s: %s", time.Since(began).Round(10*time.Millisecond), c.reason("cpu-0"))
			assert.Contains(t, c.reason("cpu-0"), "slurmtide: host: pod is being deleted, jobs have until ")
			next := c.sbatch("true", "--nodelist=cpu-0")
			assert.Equal(t, "RUNNING", c.jobField(id, "JobState"))
			c.eventually("job "+id+" to end", func() (bool, string) {
				state, waits := c.jobField(id, "JobState"), c.jobField(next, "JobState")
				if state != "RUNNING" {
					return true, state
				}
				require.Equal(t, "PENDING", waits, "no new job comes to the node")
				if now, is := c.slurmdPods()["cpu-0"]; is && c.jobField(id, "JobState") == "RUNNING" {
					require.Equal(t, pod.UID, now.UID)
					require.NotNil(t, now.DeletionTimestamp)
				}
				return false, state
			})
			assert.Equal(t, "COMPLETED", c.jobField(id, "JobState"))
			assert.Equal(t, "0", c.jobField(id, "Restarts"))
			assert.Equal(t, "cpu-0", c.jobField(id, "NodeList"))
			ended := time.Now()
			c.eventually("its pod to go", func() (bool, string) { return c.slurmdPods()["cpu-0"].UID != pod.UID, "" })
			t.Logf("pod gone %s after its job ended", time.Since(ended).Round(100*time.Millisecond))
			c.waitJob(next, "COMPLETED")
			t.Logf("the next job done %s after that", time.Since(ended).Round(100*time.Millisecond))
			c.waitNodes("cpu-0", powersave.NodeIdle, powersave.NodeDrain)
		})
		t.Run("time is over", func(t *testing.T) {
			c.t = t
			id := c.sbatch(`[ -n "$SLURM_RESTART_COUNT" ] || sleep 600`, "--nodelist=short-0", "--requeue")
			c.waitJob(id, "RUNNING")
			began := time.Now()
			c.deletePod("short-0")
			c.waitNodes("short-0", powersave.NodeDrain, 0)
			assert.Contains(t, c.reason("short-0"), "slurmtide: host: pod is being deleted, jobs have until ")
			c.eventually("job "+id+" to be requeued", func() (bool, string) {
				restarts, _ := strconv.Atoi(c.jobField(id, "Restarts"))
				return restarts > 0, c.jobField(id, "JobState")
			})
			took := time.Since(began)
			t.Logf("requeued after %s", took.Round(time.Second))
			assert.Greater(t, took, (grace-1)*time.Second, "its time is not over")
			c.eventually("the Event on the NodeSet", func() (bool, string) {
				events, err := c.kube.EventsV1().Events(c.ns).List(c.ctx, metav1.ListOptions{FieldSelector: "reason=JobsLost"})
				require.NoError(t, err)
				var notes []string
				for _, e := range events.Items {
					notes = append(notes, e.Regarding.Name+": "+e.Note)
				}
				return slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
					return e.Regarding.Name == "short" && strings.HasPrefix(e.Note, "node short-0: the node's pod was deleted, and jobs had not ended in time")
				}), strings.Join(notes, "; ")
			})
			c.waitJob(id, "COMPLETED")
			c.waitNodes("short-0", powersave.NodeIdle, powersave.NodeDrain)
		})
		t.Run("something hangs", func(t *testing.T) {
			c.t = t
			// What the hook takes for a step outlives the job.
			c.waitJob(c.sbatch("cp /bin/sleep /tmp/slurmstepd && setsid -f /tmp/slurmstepd 600", "--nodelist=cpu-1"), "COMPLETED")
			c.waitNodes("cpu-1", powersave.NodeIdle, powersave.NodeCompleting)
			uid := c.slurmdPods()["cpu-1"].UID
			began := time.Now()
			c.deletePod("cpu-1")
			c.waitZero("cpu-1")
			took := time.Since(began)
			t.Logf("free after %s", took.Round(time.Second))
			assert.Greater(t, took, powersave.OwnGrace-time.Second, "nothing was waited for")
			c.waitJob(c.sbatch("true", "--nodelist=cpu-1"), "COMPLETED")
			assert.NotEqual(t, uid, c.slurmdPods()["cpu-1"].UID)
		})
		t.Run("power-down of idle nodes", func(t *testing.T) {
			c.t = t
			nodes := []string{"cpu-0", "cpu-1", "short-0"}
			c.waitNodes(strings.Join(nodes, ","), powersave.NodeIdle, powersave.NodeCompleting)
			began := time.Now()
			c.slurm("scontrol", "update", "nodename="+strings.Join(nodes, ","), "state=power_down")
			c.waitZero("cpu-[0-1]")
			c.waitZero("short-0")
			for _, node := range nodes {
				offs := c.status().Engine.FinishedOffs
				i := slices.IndexFunc(offs, func(o powersave.Off) bool { return o.Node == node && o.Times.Accepted.After(began.Add(-time.Second)) })
				require.GreaterOrEqual(t, i, 0, "%v", offs)
				took := offs[i].Times.PodGone.Sub(offs[i].Times.Confirmed)
				t.Logf("%s: pod gone after %s", node, took)
				assert.Less(t, took, powersave.OwnGrace, "the pod of a node without jobs does not wait")
			}
		})
	})
}

// deletePod does what kubectl delete pod does.
func (c *cluster) deletePod(name string) {
	c.t.Helper()
	require.NoError(c.t, c.kube.CoreV1().Pods(c.ns).Delete(c.ctx, name, metav1.DeleteOptions{}))
}

// reason is what stands on the node.
func (c *cluster) reason(node string) string {
	c.t.Helper()
	_, after, _ := strings.Cut(c.slurm("scontrol", "--oneliner", "show", "node", node), " Reason=")
	return after
}
