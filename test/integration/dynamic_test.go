//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// Nodes that register themselves: none at first, as many as pending jobs need, and none again.
func TestDynamic(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "dynamic", version, dynamicOptions(version), nodeSet{name: "dyn", nodes: "dyn-[0-7]", dynamic: true})
		require.Empty(t, c.records())

		// What sbatch accepts while there are no nodes.
		unavailable := "Requested node configuration is not available"
		var wait []string
		if version == "24.11" {
			assert.Contains(t, c.sbatchRefuses("-N1", "-pempty"), unavailable)
			assert.Contains(t, c.sbatchRefuses("-N9"), unavailable, "more than there are records of the shape")
			assert.Contains(t, c.sbatchRefuses("-c4"), unavailable)
		} else {
			assert.Contains(t, c.sbatchRefuses("-Cdyn"), "Invalid feature specification")
			wait = []string{c.sbatch("true", "-N9"), c.sbatch("true", "-c4")}
		}

		begin := time.Now()
		one := c.sbatch("sleep 5", "-c2")
		three := c.sbatch("srun -N3 hostname; sleep 5", "-N3", "-c2")
		array := c.sbatch("sleep 3", "--array=0-3", "-c2")
		c.eventually("8 pods", func() (bool, string) { n := len(c.slurmdPods()); return n == 8, fmt.Sprint(n) })
		for _, id := range []string{one, three, array + "_0", array + "_3"} {
			c.waitJob(id, "RUNNING", "COMPLETED")
			t.Logf("job %s runs after %v", id, time.Since(begin).Round(100*time.Millisecond))
		}
		assert.Contains(t, c.sbatchRefuses("-c4"), unavailable, "of the nodes that are there none has 4 CPUs")
		for i, reason := range []string{"PartitionNodeLimit", "BadConstraints"} {
			if wait != nil {
				c.eventually("slurmctld to say "+reason, func() (bool, string) { is := c.jobField(wait[i], "Reason"); return is == reason, is })
				c.slurm("scancel", wait[i])
			}
		}
		featured := c.sbatch("true", "-Cdyn")
		c.waitJob(featured, "COMPLETED")
		for _, id := range []string{one, three, array + "_0", array + "_1", array + "_2", array + "_3"} {
			c.waitJob(id, "COMPLETED")
			assert.Equal(t, "0", c.jobField(id, "Restarts"), id)
		}
		c.waitNothing()
		c.explainedDynamic()
		// slurmctld still remembers the jobs, and where they ran.
		c.slurm("scontrol", "reconfigure")
		require.NoError(t, c.WaitReady(c.ctx))
		assert.Equal(t, "COMPLETED", c.jobField(three, "JobState"))

		// The scale subresource is the least number of nodes.
		c.scaleDyn(2)
		c.waitRecords(2)
		before := c.slurmdPods()
		time.Sleep(15 * time.Second)
		after := c.slurmdPods()
		require.Len(t, after, 2)
		for name, pod := range before {
			assert.Equal(t, pod.UID, after[name].UID, "idle, but to stay")
		}
		ns, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Get(c.ctx, "dyn", metav1.GetOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, 2, ns.Status.Replicas)
		assert.EqualValues(t, 2, ns.Status.Ready)

		// A node that a reservation names stays, also when the reservation is for later.
		kept := slices.Sorted(maps.Keys(after))[0]
		c.slurm("scontrol", "create", "reservation", "ReservationName=keep", "StartTime=now+3600", "Duration=60", "Users=slurm", "Nodes="+kept)
		c.scaleDyn(0)
		c.waitRecords(1)
		time.Sleep(15 * time.Second)
		require.Equal(t, []string{kept}, slices.Collect(maps.Keys(c.slurmdPods())))
		require.Equal(t, after[kept].UID, c.slurmdPods()[kept].UID)
		c.slurm("scontrol", "delete", "ReservationName=keep")
		c.waitNothing()

		// Of nodes that a held job names, or one wants to avoid, the records stay: slurmctld would end the job without them.
		c.scaleDyn(2)
		c.waitRecords(2)
		both := slices.Sorted(maps.Keys(c.slurmdPods()))
		wants, avoids := c.sbatch("true", "--hold", "-w", both[0]), c.sbatch("true", "--hold", "-x", both[1])
		c.scaleDyn(0)
		c.eventually("the pods to go", func() (bool, string) { n := len(c.slurmdPods()); return n == 0, fmt.Sprint(n) })
		time.Sleep(15 * time.Second)
		assert.Len(t, c.records(), 2)
		for i, id := range []string{avoids, wants} {
			assert.Equal(t, "PENDING", c.jobField(id, "JobState"))
			c.slurm("scancel", id)
			c.eventually("its record to go", func() (bool, string) { r := c.records(); return len(r) == 1-i, fmt.Sprint(r) })
		}
		c.waitNothing()

		// The bridge may be killed at any moment.
		id := c.sbatch("srun -N3 hostname; sleep 3", "-N3", "-c2")
		c.eventually("pods", func() (bool, string) { return len(c.slurmdPods()) > 0, "" })
		require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
		c.waitJob(id, "COMPLETED")
		assert.Equal(t, "0", c.jobField(id, "Restarts"))
		c.eventually("a node to be drained", func() (bool, string) {
			out := strings.Join(c.records(), ",")
			return strings.Contains(out, "drain") || out == "", out
		})
		require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
		c.waitNothing()
		c.toldOnce()
	})
}

// explainedDynamic checks what is told of nodes that have served and gone.
func (c *cluster) explainedDynamic() {
	c.t.Helper()
	out, stderr, err := c.run(nil, stack.ContainerBridge, "/usr/local/bin/slurmtide", "explain", "node", "--spool", "/var/spool/slurmtide", "dyn-0")
	require.NoError(c.t, err, stderr)
	c.t.Log(out)
	story := c.explain("node", "dyn-0")
	assert.Equal(c.t, []string{"slurmctld does not know it (any more)"}, story.Now)
	assert.Equal(c.t, "NodeMade PodCreated PodScheduled NodeRegistered NodesUpdated PodDeleted PodGone", c.steps(story))
	why := map[history.What]string{history.NodesUpdated: "^set to drain: (dyn.*: )?slurmtide: idle for ", history.PodDeleted: "^pod is deleted: drained: slurmtide: idle for "}
	for _, s := range story.Steps {
		assert.Regexp(c.t, why[s.What], s.Text)
	}
	set := c.explain("nodeset", "dyn")
	require.Len(c.t, set.Boots, 8)
	for _, b := range append(set.Boots, story.Boots...) {
		assert.Equal(c.t, history.Registered, b.Outcome, b.Node)
		assert.NotEmpty(c.t, b.Host, b.Node)
		assert.Empty(c.t, b.Jobs, b.Node)
		assert.True(c.t, !b.Created.Before(b.Requested) && !b.Scheduled.Before(b.Created) && b.Registered.After(b.Scheduled), "%+v", b)
	}
}

// toldOnce checks that nothing that bridges have told, which were killed, is kept twice, and that all pods that came are told to have gone.
func (c *cluster) toldOnce() {
	c.t.Helper()
	lines := c.slurm("cat", "/var/spool/slurmtide/history.jsonl")
	once, pods := map[string]bool{}, map[string]string{}
	for line := range strings.Lines(lines) {
		var e history.Entry
		if json.Unmarshal([]byte(line), &e) != nil || !e.Dynamic || e.PodUID == "" {
			continue
		}
		id := string(e.What) + " " + e.PodUID
		assert.False(c.t, once[id], "%s of %s is there twice", e.What, e.Node)
		once[id] = true
		pods[e.PodUID] = e.Node
	}
	require.NotEmpty(c.t, pods)
	for uid, node := range pods {
		assert.True(c.t, once[string(history.PodGone)+" "+uid], "a pod of %s has not gone", node)
	}
}

// The template changes: pods are replaced one at a time, other names have the new ones before the old ones are gone, and no job is ended.
func TestDynamicUpdate(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "dynupdate", version, dynamicOptions(version), nodeSet{name: "dyn", nodes: "dyn-[0-5]", dynamic: true})
		nodeSets := c.tide.SlurmtideV1alpha1().NodeSets(c.ns)
		patch := func(text string) {
			_, err := nodeSets.Patch(c.ctx, "dyn", types.MergePatchType, []byte(text), metav1.PatchOptions{})
			require.NoError(t, err)
		}
		updated := func() (s v1alpha1.NodeSetStatus, reason string) {
			set, err := nodeSets.Get(c.ctx, "dyn", metav1.GetOptions{})
			require.NoError(t, err)
			if u := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionUpdated); u != nil && u.ObservedGeneration == set.Generation {
				reason = u.Reason
			}
			return set.Status, reason
		}
		wait := func(want string) {
			t.Helper()
			c.within(2*time.Minute, time.Second, "Updated to be "+want, func() (bool, string) {
				s, reason := updated()
				return reason == want, fmt.Sprintf("%+v", s)
			})
		}
		c.scaleDyn(3)
		c.waitRecords(3)
		busy := c.sbatch("sleep 40", "-c2")
		c.waitJob(busy, "RUNNING")
		on, uids := c.jobField(busy, "NodeList"), c.podUIDs()
		require.Contains(t, uids, on)

		patch(`{"spec":{"template":{"metadata":{"annotations":{"test":"two"}}}}}`)
		wait("OnDelete")
		assert.Equal(t, uids, c.podUIDs())
		patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1}}}}`)
		killed := false
		c.within(3*time.Minute, 500*time.Millisecond, "the update", func() (bool, string) {
			out := 0
			for line := range strings.Lines(c.slurm("scontrol", "--oneliner", "show", "node")) {
				if name, rest, _ := strings.Cut(strings.TrimPrefix(line, "NodeName="), " "); strings.Contains(rest, "Reason=slurmtide: update: ") && strings.Contains(rest, "DRAIN") {
					if _, up := c.slurmdPods()[name]; up {
						out++
					}
				}
			}
			require.LessOrEqual(t, out, 1)
			s, reason := updated()
			if s.UpdatedNodes > 0 && !killed {
				killed = true
				require.NoError(t, c.Signal(c.ctx, "KILL", stack.ContainerBridge))
			}
			return reason == "UpToDate" && s.UpdatedNodes == 3 && killed, fmt.Sprintf("%+v", s)
		})
		c.waitJob(busy, "COMPLETED")
		assert.Equal(t, "0", c.jobField(busy, "Restarts"))
		assert.Equal(t, on, c.jobField(busy, "NodeList"))
		c.waitRecords(3)
		for name, pod := range c.slurmdPods() {
			assert.NotEqual(t, uids[name], pod.UID, name)
			assert.Equal(t, "two", pod.Annotations["test"], name)
		}
		c.waitJob(c.sbatch("true", "-N3", "-c2"), "COMPLETED")
		c.scaleDyn(0)
		c.waitNothing()
	})
}

// dynamicOptions is a cluster for NodeSets of mode Dynamic. slurmctld before 25.11.2 refuses jobs for which its records do not do,
// so that it gets some of the shape, which never serve.
func dynamicOptions(version string) stack.Options {
	o := stack.Options{
		NodeLines:      []string{"NodeSet=dyn Feature=dyn", "NodeSet=empty Feature=empty"},
		PartitionLines: []string{"PartitionName=dyn Nodes=dyn Default=YES", "PartitionName=empty Nodes=empty"},
		ExtraConf:      []string{"MaxNodeCount=32", "SuspendExcStates=DYNAMIC_NORM"},
		BridgeArgs:     []string{"--select-type-parameters=CR_Core"},
	}
	if version == "24.11" {
		o.NodeLines = append(o.NodeLines, "NodeName=shape-[0-7] CPUs=2 RealMemory=400 Feature=dyn State=DOWN Reason=shape")
	}
	return o
}

// sbatchRefuses returns what sbatch says to a job that it refuses.
func (c *cluster) sbatchRefuses(options ...string) string {
	c.t.Helper()
	_, stderr, err := c.run(strings.NewReader("#!/bin/bash\ntrue\n"), stack.ContainerSlurmctld, append([]string{"sbatch", "--parsable"}, options...)...)
	require.Error(c.t, err, "%v", options)
	return stderr
}

// records are the nodes that slurmctld knows, with their states.
func (c *cluster) records() []string {
	c.t.Helper()
	var records []string
	for line := range strings.Lines(c.slurm("sinfo", "-N", "-h", "-o", "%N %T")) {
		if strings.HasPrefix(line, "dyn-") {
			records = append(records, strings.TrimSpace(line))
		}
	}
	return records
}

func (c *cluster) waitRecords(n int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%d records", n), func() (bool, string) {
		r := c.records()
		return len(r) == n && len(c.slurmdPods()) == n, fmt.Sprintf("%q, %d pods", r, len(c.slurmdPods()))
	})
}

func (c *cluster) waitNothing() {
	c.t.Helper()
	c.waitRecords(0)
}

// scaleDyn does to NodeSet dyn what an autoscaler does.
func (c *cluster) scaleDyn(replicas int) {
	c.t.Helper()
	require.NoError(c.t, c.tide.SlurmtideV1alpha1().RESTClient().Patch(types.MergePatchType).Namespace(c.ns).Resource("nodesets").Name("dyn").
		SubResource("scale").Body(fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)).Do(c.ctx).Error())
}
