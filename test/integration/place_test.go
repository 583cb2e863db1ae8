//go:build integration

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// TestPlaces has Slurm told where its nodes are, by a label of the hosts of their pods.
func TestPlaces(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "places", version, stack.Options{
			Gate: true, ExtraConf: []string{"TopologyPlugin=topology/tree"},
			NodeLines:     []string{"NodeName=near-[0-1] CPUs=2 RealMemory=400 State=CLOUD", "NodeName=far-0 CPUs=2 RealMemory=400 State=CLOUD", "NodeName=lost-0 CPUs=2 RealMemory=400 State=CLOUD"},
			TopologyLines: []string{"SwitchName=root Switches=s[1-2]", "SwitchName=s1 Nodes=near-0,far-0,lost-0", "SwitchName=s2 Nodes=near-1"},
		})
		rack, line := "test.slurmtide.io/rack-"+c.ns, "test.slurmtide.io/line-"+c.ns
		c.markHosts(`"labels":{%q:%s},"annotations":{%q:%s}`, rack, `"s2"`, line, `"default:root:s3"`)
		t.Cleanup(func() { c.markHosts(`"labels":{%q:%s},"annotations":{%q:%s}`, rack, "null", line, "null") })
		for _, one := range []struct {
			nodeSet
			of v1alpha1.Topology
		}{
			{nodeSet{name: "near", nodes: "near-[0-1]"}, v1alpha1.Topology{NodeLabels: []string{rack}}},
			{nodeSet{name: "far", nodes: "far-0"}, v1alpha1.Topology{NodeAnnotation: line}},
			{nodeSet{name: "lost", nodes: "lost-0"}, v1alpha1.Topology{NodeLabels: []string{"test.slurmtide.io/none"}}},
		} {
			set := c.build(one.nodeSet)
			set.Spec.Topology = &one.of
			_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Create(c.ctx, set, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		before := c.switches()
		id := c.sbatch("sleep 5", "-w", "near-[0-1],far-0,lost-0", "-N4")
		if version == "24.11" {
			c.waitEvent("PlaceRefused", "spec.topology needs Slurm 25.11 or newer")
			c.waitJob(id, "COMPLETED")
			return
		}
		assert.Equal(t, map[string]string{"s1": "far-0,lost-0,near-0", "s2": "near-1"}, before, "as topology.conf has it")
		c.eventually("Slurm to know where they are", func() (bool, string) {
			now := c.switches()
			return fmt.Sprint(now) == fmt.Sprint(map[string]string{"s1": "lost-0", "s2": "near-[0-1]", "s3": "far-0"}), fmt.Sprint(now)
		})
		c.waitEvent("PlaceUnknown", "label test.slurmtide.io/none of spec.topology.nodeLabels is missing")
		c.waitJob(id, "COMPLETED")
		assert.Equal(t, "0", c.jobField(id, "Restarts"))

		c.waitZero("near-[0-1]")
		c.waitZero("far-0")
		c.eventually("Slurm to go by topology.conf again", func() (bool, string) {
			now := c.switches()
			delete(now, "s3") // which is left, empty
			return fmt.Sprint(now) == fmt.Sprint(before), fmt.Sprint(now)
		})
	})
}

// labelHosts changes all Kubernetes nodes.
func (c *cluster) markHosts(format string, args ...any) {
	c.t.Helper()
	ctx := context.WithoutCancel(c.ctx)
	hosts, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.NoError(c.t, err)
	for _, host := range hosts.Items {
		_, err := c.kube.CoreV1().Nodes().Patch(ctx, host.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{`+format+`}}`, args...), metav1.PatchOptions{})
		require.NoError(c.t, err)
	}
}

// switches are the nodes of each leaf switch, as slurmctld has them.
func (c *cluster) switches() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(c.slurm("scontrol", "show", "topology")) {
		name, level, nodes := "", "", ""
		for _, word := range strings.Fields(line) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "SwitchName":
				name = value
			case "Level":
				level = value
			case "Nodes":
				nodes = value
			}
		}
		if level == "0" {
			all[name] = nodes
		}
	}
	return all
}

// waitEvent waits for an Event of the namespace.
func (c *cluster) waitEvent(reason, note string) {
	c.t.Helper()
	c.eventually("Event "+reason, func() (bool, string) {
		list, err := c.kube.EventsV1().Events(c.ns).List(c.ctx, metav1.ListOptions{})
		require.NoError(c.t, err)
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Note, note) {
				return true, ""
			}
		}
		return false, fmt.Sprint(len(list.Items), " others")
	})
}
