//go:build integration && faults

package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// The steps at which the bridge is killed, by what is under way then.
func killedAt() (resume, busy, taint, suspend, giveBack, rooms []bridge.Step) {
	resume = []bridge.Step{
		bridge.StepRequest, bridge.StepCreate, bridge.StepCreated, bridge.StepPodSeen, bridge.StepRead, bridge.StepReadDone,
		bridge.StepRegistered, bridge.StepGate, bridge.StepStatus, bridge.StepStatusDone, bridge.StepFinish, bridge.StepFinished,
	}
	busy = []bridge.Step{bridge.StepMark, bridge.StepMarked}
	taint = []bridge.Step{bridge.StepTaint, bridge.StepTainted}
	suspend = []bridge.Step{
		bridge.StepRequest, bridge.StepRead, bridge.StepReadDone, bridge.StepDelete, bridge.StepDeleted, bridge.StepPodGone,
		bridge.StepUpdate, bridge.StepUpdated, bridge.StepFinish, bridge.StepFinished,
	}
	giveBack = []bridge.Step{bridge.StepTell, bridge.StepTold, bridge.StepUpdate, bridge.StepUpdated, bridge.StepHold, bridge.StepHeld}
	rooms = []bridge.Step{bridge.StepAskRoom, bridge.StepRoomAsked, bridge.StepDropRoom, bridge.StepRoomGone}
	return resume, busy, taint, suspend, giveBack, rooms
}

// The bridge is killed at each of its steps, as kill -9 does: nothing is lost, nothing stays, and what was under way goes on.
func TestKills(t *testing.T) {
	resume, busy, taint, suspend, giveBack, rooms := killedAt()
	for _, step := range bridge.Steps() {
		require.True(t, slices.Contains(slices.Concat(resume, busy, taint, suspend, giveBack, rooms), step), "the bridge is not killed at %q", step)
	}
	pair := func(i int) string { return fmt.Sprintf("cpu-[%d-%d]", 2*i, 2*i+1) }
	badSet := func(i int) nodeSet {
		return nodeSet{name: fmt.Sprintf("bad%d", i), nodes: fmt.Sprintf("bad%d-[0-1]", i), image: "slurmtide/none:such",
			boot: v1alpha1.BootPolicy{UnschedulableGrace: &metav1.Duration{Duration: time.Second}}}
	}
	cpu := fmt.Sprintf("cpu-[0-%d]", 2*len(resume)-1)
	room := fmt.Sprintf("room-[0-%d]", 2*len(rooms)-1)
	sets, bad := []nodeSet{{name: "cpu", nodes: cpu}, {name: "room", nodes: room, boot: v1alpha1.BootPolicy{
		ProvisioningRequest: &v1alpha1.ProvisioningRequest{ClassName: "test.slurmtide.io"}}}}, []string{}
	for i := range giveBack {
		sets, bad = append(sets, badSet(i)), append(bad, badSet(i).nodes)
	}

	forEachVersion(t, func(t *testing.T, version string) {
		mark := "slurmtide.io/kills-" + version // one that keeps nobody's pods off the one host
		c := deploy(t, "kills", version, stack.Options{
			Gate: true, BridgeImage: "slurmtide/slurmtide:faults", SuspendTime: 3600, ResumeTimeout: 300,
			ExtraConf: []string{"MinJobAge=3600"}, BridgeArgs: []string{"--host-taint=" + mark + ":PreferNoSchedule"},
			PartitionLines: []string{"PartitionName=cpu Nodes=" + cpu + " Default=YES", "PartitionName=bad Nodes=" + strings.Join(bad, ","),
				"PartitionName=room Nodes=" + room},
		}, sets...)
		on := func(nodes string) string {
			return c.sbatch("sleep 1", "-N2", "--exclusive", "--nodelist="+nodes)
		}
		jobs := make([]string, len(resume))
		for i, step := range resume {
			t.Run("resume/"+string(step), func(t *testing.T) {
				c.t = t
				c.killAt(step, func() { jobs[i] = on(pair(i)) })
				c.waitNodes(pair(i), 0, powersave.NodePoweredDown|powersave.NodePoweringUp|powersave.NodePoweringDown|powersave.NodeDown)
				c.goesOn(pair(i))
			})
		}
		for i, step := range resume { // without their gates it is Slurm's own scan, every 30 s, that starts them
			t.Run("job/"+string(step), func(t *testing.T) {
				c.t = t
				c.waitJob(jobs[i], "COMPLETED")
				assert.Equal(t, "0", c.jobField(jobs[i], "Restarts"))
			})
		}
		for i, step := range busy {
			t.Run("busy/"+string(step), func(t *testing.T) {
				c.t = t
				label := func(want string) {
					c.eventually("the label of "+pair(i)+" to be "+want, func() (bool, string) {
						pods := c.slurmdPods()
						a, b := pods[fmt.Sprint("cpu-", 2*i)].Labels[v1alpha1.LabelBusy], pods[fmt.Sprint("cpu-", 2*i+1)].Labels[v1alpha1.LabelBusy]
						return a == want && b == want, a + " " + b
					})
				}
				label("")
				var id string
				c.killAt(step, func() { id = c.sbatch("sleep 15", "-N2", "--exclusive", "--nodelist="+pair(i)) })
				label("true")
				c.waitJob(id, "COMPLETED")
				assert.Equal(t, "0", c.jobField(id, "Restarts"))
			})
		}
		marks := map[types.UID]string{} // hosts by the pods they were marked for
		for i, step := range taint {
			t.Run("taint/"+string(step), func(t *testing.T) {
				c.t = t
				node := fmt.Sprint("cpu-", 2*i)
				pod := c.slurmdPods()[node]
				marks[pod.UID] = pod.Spec.NodeName
				c.killAt(step, func() {
					c.slurm("scontrol", "update", "nodename="+node, "state=drain", "reason=NHC: GPU Xid 79")
				})
				c.eventually("host "+pod.Spec.NodeName+" to be marked for "+node, func() (bool, string) {
					h := c.host(pod.Spec.NodeName)
					found := slices.ContainsFunc(h.Spec.Taints, func(t corev1.Taint) bool { return t.Key == mark })
					return found && strings.Contains(h.Annotations[v1alpha1.AnnotationBadHardware], string(pod.UID)), fmt.Sprint(h.Spec.Taints)
				})
				c.slurm("scontrol", "update", "nodename="+node, "state=resume")
				c.waitNodes(node, powersave.NodeIdle, powersave.NodeDrain)
			})
		}
		c.t = t
		for pod, host := range marks {
			assert.Equal(t, 1, strings.Count(c.host(host).Annotations[v1alpha1.AnnotationBadHardware], string(pod)), "noted once for each verdict")
			c.mend(host, mark)
		}
		for i, step := range suspend {
			t.Run("suspend/"+string(step), func(t *testing.T) {
				c.t = t
				c.killAt(step, func() { c.slurm("scontrol", "update", "nodename="+pair(i), "state=power_down") })
				c.settled(pair(i))
				c.goesOn(pair(i))
			})
		}
		for i, step := range giveBack {
			t.Run("give back/"+string(step), func(t *testing.T) {
				c.t = t
				var id string
				c.killAt(step, func() { id = c.sbatch("sleep 1", "-N2", "-p", "bad", "--nodelist="+bad[i]) })
				c.eventually("the job to be back, with the reason", func() (bool, string) {
					job := c.slurm("scontrol", "--oneliner", "show", "job", id)
					return strings.Contains(job, "JobState=PENDING") && strings.Contains(job, "AdminComment=slurmtide: image: "), job
				})
				c.slurm("scontrol", "hold", id) // until all have been killed: the next is to die for its own job
				c.waitZero(bad[i])
				c.goesOn(bad[i])
				c.repair(badSet(i).name)
				c.slurm("scontrol", "release", id)
				c.slurm("scontrol", "update", "jobid="+id, "StartTime=now")
				c.waitJob(id, "COMPLETED")
			})
		}
		for i, step := range rooms {
			t.Run("room/"+string(step), func(t *testing.T) {
				c.t = t
				nodes := fmt.Sprintf("room-[%d-%d]", 2*i, 2*i+1)
				begin := func() string { return c.sbatch("sleep 1", "-N2", "-p", "room", "--nodelist="+nodes) }
				var id string
				if dropping := step == bridge.StepDropRoom || step == bridge.StepRoomGone; dropping {
					c.killAt(step, func() {
						id = begin()
						c.answerRoom(c.room(), "Provisioned", "two hosts")
					})
				} else {
					c.killAt(step, func() { id = begin() })
					request := c.room()
					assert.Equal(t, id, request.GetLabels()[v1alpha1.LabelJob])
					assert.NotContains(t, c.slurmdPods(), fmt.Sprint("room-", 2*i), "before there is room")
					c.answerRoom(request, "Provisioned", "two hosts")
				}
				c.waitJob(id, "COMPLETED")
				assert.Equal(t, "0", c.jobField(id, "Restarts"))
				if step == bridge.StepDropRoom { // the next bridge knows its job only if the spool still has the request
					list, err := c.rooms().List(c.ctx, metav1.ListOptions{})
					require.NoError(t, err)
					for _, left := range list.Items { // it would go after half an hour
						assert.Equal(t, id, left.GetLabels()[v1alpha1.LabelJob])
						require.NoError(t, c.rooms().Delete(c.ctx, left.GetName(), metav1.DeleteOptions{}))
						require.NoError(t, c.kube.CoreV1().PodTemplates(c.ns).DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
					}
				}
				c.noRooms()
			})
		}
		t.Run("every node can be used again", func(t *testing.T) {
			c.t = t
			id := c.sbatch("true", fmt.Sprint("-N", 2*len(resume)))
			c.waitJob(id, "COMPLETED")
			all := cpu + "," + room + "," + strings.Join(bad, ",")
			c.slurm("scontrol", "update", "nodename="+all, "state=power_down")
			c.settled(all, id)
			assert.Empty(t, c.slurmdPods())
		})
	})
}

// killAt has the bridge die at the step, once begin makes it come there, and waits until it serves again.
func (c *cluster) killAt(step bridge.Step, begin func()) {
	c.t.Helper()
	const file = "/var/spool/slurmtide/die-at"
	c.writeFile(file, string(step))
	begin()
	c.eventually("the bridge to die "+string(step), func() (bool, string) {
		return c.slurm("find", file[:strings.LastIndex(file, "/")], "-name", "die-at") == "", ""
	})
	died := time.Now()
	c.eventually("the bridge to serve again", func() (bool, string) {
		st, err := c.tryStatus()
		return err == nil && st.Engine.KubernetesRead && !st.Engine.SlurmRead.IsZero(), fmt.Sprint(err)
	})
	c.t.Logf("serves again %v after it was killed", time.Since(died).Round(100*time.Millisecond))
}

// repair gives a NodeSet the image that it should have had.
func (c *cluster) repair(name string) {
	c.t.Helper()
	set, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Get(c.ctx, name, metav1.GetOptions{})
	require.NoError(c.t, err)
	set.Spec.Template = c.build(nodeSet{name: name, nodes: set.Spec.NodeNames}).Spec.Template
	_, err = c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Update(c.ctx, set, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

// progress are the lines in the bridge's log that say that something was done for a node.
var progress = regexp.MustCompile(`^time=(\S+) .*msg="?(bridge starts|pod created|pod deletion|node registered|nodes updated|request finished|job rests)"? ?(.*)`)

// goesOn logs how long after its start the bridge had done something for every node it had something to do for. That it
// takes no more than 3 s is a figure of the benchmarks; here the machine is shared.
func (c *cluster) goesOn(nodes string) {
	c.t.Helper()
	log, err := c.kube.CoreV1().Pods(c.ns).GetLogs("slurmctld-0", &corev1.PodLogOptions{Container: stack.ContainerBridge}).DoRaw(c.ctx)
	require.NoError(c.t, err)
	list, err := slurmconf.ParseHostlist(nodes)
	require.NoError(c.t, err)
	var started, last time.Time
	what, seen := "", map[string]bool{}
	for line := range strings.Lines(string(log)) {
		m := progress.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, m[1])
		require.NoError(c.t, err)
		if m[2] == "bridge starts" {
			started = at
			continue
		}
		for node := range list.All() {
			named := strings.Contains(m[3], "node=")
			if !seen[node] && (!named || strings.Contains(m[3], "node="+node+" ")) {
				seen[node], last, what = true, at, m[2]
			}
		}
	}
	require.False(c.t, started.IsZero(), "the log has no start:\n%s", log)
	if what == "" {
		c.t.Log("nothing was left to be done")
		return
	}
	took := last.Sub(started)
	c.t.Logf("goes on %v after its start: %s", took.Round(time.Millisecond), what)
	assert.Less(c.t, took, 30*time.Second)
}
