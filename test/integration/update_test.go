//go:build integration

package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// The template of a NodeSet changes while its nodes are up.
func TestRollingUpdate(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		const nodes = "cpu-[0-4]"
		c := deploy(t, "update", version, stack.Options{Gate: true, SuspendTime: 600}, nodeSet{name: "cpu", nodes: nodes})

		t.Run("on delete", func(t *testing.T) {
			c.t = t
			c.waitJob(c.sbatch("true", "--nodelist=cpu-[0-1]", "-N2"), "COMPLETED")
			before := c.waitUpdated(metav1.ConditionTrue, "UpToDate").UpdateRevision
			uids := c.podUIDs()
			c.change("two")
			s := c.waitUpdated(metav1.ConditionFalse, "OnDelete")
			assert.NotEqual(t, before, s.UpdateRevision)
			assert.Equal(t, []any{before, int32(2), int32(0)}, []any{s.CurrentRevision, s.OutdatedNodes, s.ReplacingNodes})
			c.waitJob(c.sbatch("true", "--nodelist=cpu-[0-1]", "-N2"), "COMPLETED")
			assert.Equal(t, uids, c.podUIDs(), "what is up is left alone")

			c.deletePod("cpu-0")
			c.waitZero("cpu-0")
			c.waitJob(c.sbatch("true", "--nodelist=cpu-0"), "COMPLETED")
			assert.Equal(t, s.UpdateRevision, c.slurmdPods()["cpu-0"].Labels[v1alpha1.LabelRevision])
			assert.Equal(t, "two", c.slurmdPods()["cpu-0"].Annotations["test"])
			assert.Equal(t, uids["cpu-1"], c.podUIDs()["cpu-1"])
		})
		t.Run("idle nodes", func(t *testing.T) {
			c.t = t
			c.waitJob(c.sbatch("true", "--nodelist=cpu-[0-3]", "-N4"), "COMPLETED")
			c.slurm("scontrol", "update", "nodename=cpu-3", "state=drain", "reason=mine")
			c.patch(types.MergePatchType, `{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":2}}}}`)
			c.waitZero("cpu-1") // is behind since before
			uids := c.podUIDs()
			assert.Len(t, uids, 3)
			began := time.Now()
			c.change("three")
			c.rolls(2, func() bool { return len(c.podUIDs()) == 1 })
			t.Logf("two idle nodes down after %s", time.Since(began).Round(100*time.Millisecond))
			assert.Equal(t, uids["cpu-3"], c.podUIDs()["cpu-3"], "whose drain is somebody else's")
			assert.Contains(t, c.slurm("scontrol", "--oneliner", "show", "node", "cpu-3"), "Reason=mine")
			c.waitUpdated(metav1.ConditionFalse, "Held")
			c.slurm("scontrol", "update", "nodename=cpu-3", "state=undrain")
			c.waitJob(c.sbatch("true", "--nodelist=cpu-3"), "COMPLETED") // until then 24.11 keeps the reason (accounting_storage.c clusteracct_storage_g_node_up)
			c.settled(nodes)
			c.waitUpdated(metav1.ConditionTrue, "UpToDate")
		})
		t.Run("under load", func(t *testing.T) {
			c.t = t
			id := c.sbatch("sleep 8", "--array=1-40", "--exclusive", "--requeue", "-N1")
			c.waitNodes(nodes, powersave.NodeAllocated, powersave.NodePoweringUp|powersave.NodePoweredDown)
			uids := c.podUIDs()
			began, killed := time.Now(), false
			c.change("four")
			c.rolls(2, func() bool {
				if s := c.nodeSet().Status; s.ReplacingNodes > 0 && s.UpdatedNodes > 0 && !killed {
					killed = true
					require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
				}
				running := strings.Count(c.slurm("squeue", "--noheader", "--array", "--jobs="+id, "--format=%t"), "\n")
				return c.allUpdated(5) && killed || running == 0
			})
			t.Logf("five busy nodes after %s", time.Since(began).Round(time.Second))
			for name, uid := range c.podUIDs() {
				assert.NotEqual(t, uids[name], uid, name)
			}
			c.within(3*time.Minute, time.Second, "the jobs to be done", func() (bool, string) {
				left := c.slurm("squeue", "--noheader", "--array", "--jobs="+id, "--format=%i %t %r")
				return left == "", left
			})
			tasks := strings.Split(c.slurm("scontrol", "--oneliner", "show", "job", id), "\n")
			assert.Len(t, tasks, 40)
			for _, task := range tasks {
				assert.Contains(t, task, "JobState=COMPLETED")
				assert.Contains(t, task, " Restarts=0 ")
			}
			assert.True(t, killed, "the bridge was killed while nodes were out")
			c.waitUpdated(metav1.ConditionTrue, "UpToDate")
			c.waitNodes(nodes, 0, powersave.NodeDrain)
		})
		t.Run("an image that is not there", func(t *testing.T) {
			c.t = t
			c.patch(types.MergePatchType, `{"spec":{"replicas":3,"updateStrategy":{"rollingUpdate":{"maxUnavailable":1}}}}`)
			c.waitFloor(3, "Held")
			uids := c.podUIDs()
			image := c.nodeSet().Spec.Template.Spec.Containers[0].Image
			to := func(image string) {
				c.patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"`+image+`"}]`)
			}
			to("slurmtide/none:1")
			c.waitUpdated(metav1.ConditionFalse, "BackingOff")
			kept := 0
			for name, uid := range c.podUIDs() {
				if uids[name] == uid {
					kept++
				}
			}
			assert.GreaterOrEqual(t, kept, 2, "of three one may be out")
			c.waitJob(c.sbatch("true"), "COMPLETED")
			to(image)
			c.waitUpdated(metav1.ConditionTrue, "UpToDate")
			c.waitFloor(3, "Held")
			c.waitNodes(nodes, 0, powersave.NodeDrain)
		})
		t.Run("a former revision", func(t *testing.T) {
			c.t = t
			history, err := c.kube.AppsV1().ControllerRevisions(c.ns).List(c.ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelNodeSet + "=cpu"})
			require.NoError(t, err)
			var former *appsv1.ControllerRevision
			var data struct{ Template, Shape json.RawMessage }
			for i := range history.Items {
				if r := &history.Items[i]; strings.Contains(string(r.Data.Raw), `"test":"three"`) {
					former = r
					require.NoError(t, json.Unmarshal(r.Data.Raw, &data))
				}
			}
			require.NotNil(t, former, "%d revisions are kept", len(history.Items))
			c.patch(types.JSONPatchType, fmt.Sprintf(`[{"op":"replace","path":"/spec/template","value":%s},{"op":"replace","path":"/spec/shape","value":%s}]`, data.Template, data.Shape))
			s := c.waitUpdated(metav1.ConditionTrue, "UpToDate")
			assert.Equal(t, former.Labels[v1alpha1.LabelRevision], s.UpdateRevision)
			c.waitFloor(3, "Held")
			for name, pod := range c.slurmdPods() {
				assert.Equal(t, "three", pod.Annotations["test"], name)
			}
			now, err := c.kube.AppsV1().ControllerRevisions(c.ns).Get(c.ctx, former.Name, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Greater(t, now.Revision, former.Revision)
		})
	})
}

// An update in a window of time: before it nothing is replaced, jobs that would run into it are not started, and those that run end as they like.
func TestScheduledUpdate(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		const nodes, name = "cpu-[0-2]", "slurmtide.%s.cpu"
		c := deploy(t, "scheduled", version, stack.Options{Gate: true, SuspendTime: 600}, nodeSet{name: "cpu", nodes: nodes})
		byHand := version == "24.11" // whose slurmrestd cannot make reservations
		reservation := fmt.Sprintf(name, c.ns)
		reserved := func(want string) {
			t.Helper()
			c.eventually("the reservation to have "+cmp.Or(want, "gone"), func() (bool, string) {
				shown := c.slurm("scontrol", "--oneliner", "show", "reservation")
				if want == "" {
					return !strings.Contains(shown, "ReservationName="+reservation), shown
				}
				return strings.Contains(shown, "ReservationName="+reservation+" ") && strings.Contains(shown, " Nodes="+want+" ") && strings.Contains(shown, "MAINT"), shown
			})
		}
		window := func(begin time.Time, duration string) {
			c.patch(types.MergePatchType, fmt.Sprintf(`{"spec":{"updateStrategy":{"type":"Scheduled","scheduled":{"start":%q,"duration":%q}}}}`, begin.UTC().Format(time.RFC3339), duration))
		}

		c.waitJob(c.sbatch("true", "--nodelist="+nodes, "-N3"), "COMPLETED")
		uids := c.podUIDs()
		busy := c.sbatch("sleep 150", "--nodelist=cpu-0", "--time=10", "--requeue")
		c.waitJob(busy, "RUNNING")
		begin := time.Now().Add(110 * time.Second).Truncate(time.Second)
		window(begin, "10m")
		c.change("two")
		s := c.waitUpdated(metav1.ConditionFalse, "Scheduled")
		assert.EqualValues(t, 3, s.OutdatedNodes)
		if byHand {
			var command string
			c.eventually("the condition to say how it is made by hand", func() (bool, string) {
				updated := meta.FindStatusCondition(c.nodeSet().Status.Conditions, v1alpha1.ConditionUpdated)
				_, command, _ = strings.Cut(updated.Message, "by hand: ")
				return command != "", updated.Message
			})
			c.slurm(strings.Fields(command)...)
		}
		reserved(nodes)
		later := c.sbatch("true", "--nodelist=cpu-1", "--time=5")
		soon := c.sbatch("true", "--nodelist=cpu-2", "--time=1")
		c.waitJob(soon, "COMPLETED")
		state, now := c.jobField(later, "JobState"), c.podUIDs()
		require.True(t, time.Now().Before(begin), "the machine is too slow for this window")
		assert.Equal(t, "PENDING", state, "it would run into the window")
		assert.Equal(t, uids, now, "nothing is replaced before")

		c.within(3*time.Minute, time.Second, "idle nodes to be replaced", func() (bool, string) {
			now := c.podUIDs()
			gone := now["cpu-1"] != uids["cpu-1"] && now["cpu-2"] != uids["cpu-2"]
			require.True(t, !gone || !time.Now().Before(begin), "before the window")
			return gone, fmt.Sprint(now)
		})
		t.Logf("idle nodes down %s after the window began", time.Since(begin).Round(time.Second))
		assert.Equal(t, uids["cpu-0"], c.podUIDs()["cpu-0"], "whose job runs")
		require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
		if !byHand {
			reserved("cpu-0")
			c.waitJob(later, "COMPLETED")
			assert.Equal(t, "two", c.slurmdPods()["cpu-1"].Annotations["test"])
		}
		c.within(3*time.Minute, time.Second, "the job that ran into the window to end", func() (bool, string) {
			state := c.jobField(busy, "JobState")
			return state == "COMPLETED", state
		})
		assert.Equal(t, "0", c.jobField(busy, "Restarts"))
		c.waitUpdated(metav1.ConditionTrue, "UpToDate")
		if byHand {
			c.slurm("scontrol", "delete", "reservationname="+reservation)
			c.waitJob(later, "COMPLETED")
		}
		reserved("")
		c.waitNodes(nodes, 0, powersave.NodeDrain|powersave.NodeReserved)

		// A job that does not end within the window keeps its node.
		long := c.sbatch("sleep 200", "--nodelist=cpu-0", "--time=10")
		c.waitJob(long, "RUNNING")
		uid := c.podUIDs()["cpu-0"]
		window(time.Now().Add(-time.Minute-30*time.Second), "2m")
		c.change("three")
		c.waitUpdated(metav1.ConditionFalse, "WindowOver")
		c.waitNodes("cpu-0", 0, powersave.NodeDrain)
		assert.Equal(t, "RUNNING", c.jobField(long, "JobState"))
		assert.Equal(t, uid, c.podUIDs()["cpu-0"])
		c.slurm("scancel", long)
		reserved("")
	})
}

// change changes the template.
func (c *cluster) change(to string) {
	c.t.Helper()
	c.patch(types.MergePatchType, `{"spec":{"template":{"metadata":{"annotations":{"test":"`+to+`"}}}}}`)
}

// patch changes the NodeSet cpu.
func (c *cluster) patch(kind types.PatchType, patch string) {
	c.t.Helper()
	_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Patch(c.ctx, "cpu", kind, []byte(patch), metav1.PatchOptions{})
	require.NoError(c.t, err)
}

func (c *cluster) podUIDs() map[string]types.UID {
	c.t.Helper()
	uids := map[string]types.UID{}
	for name, pod := range c.slurmdPods() {
		uids[name] = pod.UID
	}
	return uids
}

// waitUpdated waits until the condition Updated says so of the newest spec.
func (c *cluster) waitUpdated(status metav1.ConditionStatus, reason string) v1alpha1.NodeSetStatus {
	c.t.Helper()
	var s v1alpha1.NodeSetStatus
	c.eventually(fmt.Sprintf("Updated to be %s, %s", status, reason), func() (bool, string) {
		set := c.nodeSet()
		s = set.Status
		updated := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionUpdated)
		return updated != nil && updated.ObservedGeneration == set.Generation && updated.Status == status && updated.Reason == reason, fmt.Sprintf("%+v", updated)
	})
	return s
}

// allUpdated says whether so many nodes are up, all of them made from the template of now.
func (c *cluster) allUpdated(nodes int32) bool {
	set := c.nodeSet()
	return set.Status.ObservedGeneration == set.Generation && set.Status.OutdatedNodes == 0 && set.Status.UpdatedNodes == nodes
}

// rolls watches a rolling update until it is done: never are more nodes out for it than may be.
func (c *cluster) rolls(most int, done func() bool) {
	c.t.Helper()
	c.within(3*time.Minute, 200*time.Millisecond, "the update", func() (bool, string) {
		out := []string{}
		for line := range strings.Lines(c.slurm("scontrol", "--oneliner", "show", "node")) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "NodeName="), " ")
			_, state, _ := strings.Cut(rest, " State=")
			state, _, _ = strings.Cut(state, " ")
			if strings.Contains(rest, "Reason=slurmtide: update: ") && (strings.Contains(state, "DRAIN") || strings.Contains(state, "POWERING_DOWN")) {
				out = append(out, name)
			}
		}
		require.LessOrEqual(c.t, len(out), most, "%v", out)
		s := c.nodeSet().Status
		return done(), fmt.Sprintf("%v are out, %d of %d pods outdated", out, s.OutdatedNodes, s.OutdatedNodes+s.UpdatedNodes)
	})
}
