//go:build integration && faults

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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
		took := goingsOn{Slurm: version}
		defer took.write(t)
		on := func(nodes string) string {
			return c.sbatch("sleep 1", "-N2", "--exclusive", "--nodelist="+nodes)
		}
		jobs := make([]string, len(resume))
		for i, step := range resume {
			t.Run("resume/"+string(step), func(t *testing.T) {
				c.t = t
				turning := c.killAt(step, func() { jobs[i] = on(pair(i)) }, pair(i))
				c.waitNodes(pair(i), 0, powersave.NodePoweredDown|powersave.NodePoweringUp|powersave.NodePoweringDown|powersave.NodeDown)
				took.add("resume", step, c.goesOn(step, pair(i), turning))
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
				turning := c.killAt(step, func() { c.slurm("scontrol", "update", "nodename="+pair(i), "state=power_down") }, pair(i))
				c.settled(pair(i))
				took.add("suspend", step, c.goesOn(step, pair(i), turning))
			})
		}
		for i, step := range giveBack {
			t.Run("give back/"+string(step), func(t *testing.T) {
				c.t = t
				var id string
				turning := c.killAt(step, func() { // as if it had been given back three times before: Slurm itself lets it rest for half a minute
					id = c.sbatch("sleep 1", "--hold", "-N2", "-p", "bad", "--nodelist="+bad[i])
					c.slurm("scontrol", "update", "jobid="+id, "AdminComment=slurmtide: of before (attempt 1, 4 in a row in vain)")
					c.slurm("scontrol", "release", id)
				}, bad[i])
				c.eventually("the job to be back, with the reason, and to rest", func() (bool, string) {
					job := c.slurm("scontrol", "--oneliner", "show", "job", id)
					begin, err := time.ParseInLocation("2006-01-02T15:04:05", c.jobField(id, "EligibleTime"), time.UTC)
					return strings.Contains(job, "JobState=PENDING") && strings.Contains(job, "AdminComment=slurmtide: image: ") &&
						strings.Contains(job, "(attempt 1, 4 in a row in vain)") && err == nil && time.Until(begin) > 150*time.Second, job
				})
				c.slurm("scontrol", "hold", id) // until all have been killed: the next is to die for its own job
				c.waitZero(bad[i])
				took.add("give back", step, c.goesOn(step, bad[i], turning))
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

// killAt has the bridge die at the step, once begin makes it come there, and waits until it serves again. It returns those of the
// nodes that slurmctld was turning on or off when the bridge had just died.
func (c *cluster) killAt(step bridge.Step, begin func(), nodes ...string) (turning []string) {
	c.t.Helper()
	const file = "/var/spool/slurmtide/die-at"
	c.writeFile(file, string(step))
	begin()
	c.eventually("the bridge to die "+string(step), func() (bool, string) {
		return c.slurm("find", file[:strings.LastIndex(file, "/")], "-name", "die-at") == "", ""
	})
	died := time.Now()
	if len(nodes) > 0 {
		for node, state := range c.nodeStates(strings.Join(nodes, ",")) {
			if state.Any(powersave.NodePoweringUp | powersave.NodePoweringDown) {
				turning = append(turning, node)
			}
		}
	}
	c.eventually("the bridge to serve again", func() (bool, string) {
		st, err := c.tryStatus()
		return err == nil && st.Engine.KubernetesRead && !st.Engine.SlurmRead.IsZero(), fmt.Sprint(err)
	})
	c.t.Logf("serves again %v after it was killed", time.Since(died).Round(100*time.Millisecond))
	return turning
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

// doneLast are the steps after which nothing may be left to be done for the nodes: all else was done before, or beside it.
var doneLast = []bridge.Step{bridge.StepGate, bridge.StepStatus, bridge.StepStatusDone, bridge.StepFinished}

// goesOn tells what the bridge did first for every node of which it had something in hand when it was killed, and how long after its
// start that was for the last of them; zero if nothing was left. It sees to it that no node was forgotten. That it takes no more
// than 3 s is a figure of make bench; here the machine is shared.
func (c *cluster) goesOn(step bridge.Step, nodes string, turning []string) (slowest stack.Step) {
	c.t.Helper()
	list, err := slurmconf.ParseHostlist(nodes)
	require.NoError(c.t, err)
	var on stack.Onward
	c.eventually("something to be done for all that was in hand", func() (bool, string) {
		on, err = stack.GoesOn(c.log(stack.ContainerBridge), list)
		require.NoError(c.t, err)
		waiting := on.Waiting() // requests name them
		for _, node := range turning {
			if on.First[node].What == "" { // slurmctld was turning it on or off
				waiting = append(waiting, node)
			}
		}
		return len(waiting) == 0, fmt.Sprint(waiting)
	})
	slowest = on.Slowest()
	if slowest.What == "" {
		assert.Contains(c.t, doneLast, step, "the bridge had nothing in hand when it was killed")
		c.t.Log("nothing was left to be done")
		return slowest
	}
	c.t.Logf("goes on %v after its start: %s", slowest.After.Round(time.Millisecond), slowest.What)
	assert.Less(c.t, slowest.After, 30*time.Second)
	return slowest
}

// goingsOn is what goesOn found in one run, for out/kills-<version>.json.
type goingsOn struct {
	Slurm string    `json:"slurm"`
	Kills []goingOn `json:"kills"`
}

type goingOn struct {
	During  string      `json:"during"`
	Step    bridge.Step `json:"step"`
	What    string      `json:"what"` // done first for the node that had to wait longest
	Seconds float64     `json:"seconds"`
}

func (g *goingsOn) add(during string, step bridge.Step, slowest stack.Step) {
	if slowest.What != "" {
		g.Kills = append(g.Kills, goingOn{during, step, slowest.What, slowest.After.Seconds()})
	}
}

func (g *goingsOn) write(t *testing.T) {
	var all []float64
	for _, k := range g.Kills {
		all = append(all, k.Seconds)
	}
	slices.Sort(all)
	if len(all) > 0 {
		t.Logf("went on %.2f s (median), at most %.2f s after the start, in %d kills", all[len(all)/2], all[len(all)-1], len(all))
	}
	b, err := json.MarshalIndent(g, "", "  ")
	require.NoError(t, err)
	dir := filepath.Join("..", "..", "out")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kills-"+g.Slurm+".json"), append(b, '\n'), 0o644))
}
