package controlplane

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// after are the lines of nodes, NodeSets and partitions that follow when the NodeSets of a cluster change while nodes have pods, and go on to be like that.
func after(t *testing.T, extra string, before, now []*v1alpha1.NodeSet, up map[string]string) (all string, lines []string) {
	t.Helper()
	c := Cluster{Controller: controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = extra }), Settings: settings, NodeSets: before}
	files, err := Config(c)
	require.NoError(t, err)
	c.Before, c.NodeSets = files["slurm.conf"], now
	assert.False(t, loses(c.Before, c.Before))
	for range 2 { // with what was kept as what was before, the same is kept
		c.Up = nil
		files, err = Config(c)
		require.NoError(t, err)
		if loses(files["slurm.conf"], c.Before) {
			c.Up = up
			files, err = Config(c)
			require.NoError(t, err)
		}
		if all != "" {
			assert.Equal(t, all, files["slurm.conf"])
		}
		all, c.Before = files["slurm.conf"], files["slurm.conf"]
	}
	for _, version := range []string{"24.11", "26.05"} {
		check(t, all, version)
	}
	for line := range strings.Lines(all) {
		if key, _, _ := strings.Cut(line, "="); key == "NodeName" || key == "NodeSet" || key == "PartitionName" || key == maxNodeCount || key == "SuspendExcStates" {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	c.Up = nil
	files, err = Config(c)
	require.NoError(t, err)
	assert.NotContains(t, files["slurm.conf"], "nodes that go", "the pods are gone")
	return all, lines
}

func TestNodesGoWithTheirPods(t *testing.T) {
	dynamic := func(s *v1alpha1.NodeSet) { s.Spec.Mode, s.Spec.Shape.Features = v1alpha1.ModeDynamic, []string{s.Name} }
	cpu, small, more := nodeSet("cpu", "cpu-[0-3]", nil), nodeSet("cpu", "cpu-[0-1]", nil), nodeSet("more", "more-[0-1]", nil)
	dyn := nodeSet("dyn", "dyn-[0-1]", dynamic)
	for name, test := range map[string]struct {
		extra       string
		before, now []*v1alpha1.NodeSet
		up          map[string]string
		want        []string // what there is more than without pods, or in its place
	}{
		"nothing changes":  {before: []*v1alpha1.NodeSet{cpu}, now: []*v1alpha1.NodeSet{cpu}, up: map[string]string{"cpu-3": "cpu"}},
		"nothing has pods": {before: []*v1alpha1.NodeSet{cpu, more}, now: []*v1alpha1.NodeSet{small}, up: map[string]string{}},
		"others have pods": {before: []*v1alpha1.NodeSet{cpu, more}, now: []*v1alpha1.NodeSet{small}, up: map[string]string{"cpu-0": "cpu"}},
		"fewer names": {before: []*v1alpha1.NodeSet{cpu}, now: []*v1alpha1.NodeSet{small}, up: map[string]string{"cpu-0": "cpu", "cpu-3": "cpu"},
			want: []string{"NodeName=cpu-3 CPUs=4 RealMemory=8000 State=CLOUD"}},
		"a NodeSet less": {before: []*v1alpha1.NodeSet{cpu, more}, now: []*v1alpha1.NodeSet{cpu}, up: map[string]string{"cpu-0": "cpu", "more-1": "more"},
			want: []string{"NodeName=more-1 CPUs=4 RealMemory=8000 State=CLOUD", "PartitionName=more Nodes=more-1 State=INACTIVE"}},
		"the last one": {before: []*v1alpha1.NodeSet{more}, up: map[string]string{"more-0": "more", "more-1": "more"},
			want: []string{"NodeName=more-[0-1] CPUs=4 RealMemory=8000 State=CLOUD", "PartitionName=more Nodes=more-[0-1] State=INACTIVE"}},
		"the user's partition": {extra: "PartitionName=both Nodes=cpu-[0-1],more-0", before: []*v1alpha1.NodeSet{cpu, more}, now: []*v1alpha1.NodeSet{cpu}, up: map[string]string{"more-0": "more"},
			want: []string{"NodeName=more-0 CPUs=4 RealMemory=8000 State=CLOUD", "PartitionName=more Nodes=more-0 State=INACTIVE"}},
		"nodes that register themselves": {before: []*v1alpha1.NodeSet{cpu, dyn}, now: []*v1alpha1.NodeSet{cpu}, up: map[string]string{"dyn-0": "dyn"},
			want: []string{"NodeSet=dyn Feature=dyn", "PartitionName=dyn Nodes=dyn State=INACTIVE", "MaxNodeCount=6", "SuspendExcStates=DYNAMIC_NORM"}},
	} {
		t.Run(name, func(t *testing.T) {
			plain, err := Config(Cluster{Controller: controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = test.extra }), Settings: settings, NodeSets: test.now})
			require.NoError(t, err)
			all, lines := after(t, test.extra, test.before, test.now, test.up)
			if test.want == nil {
				assert.Equal(t, plain["slurm.conf"], all)
				return
			}
			for _, line := range test.want {
				assert.Contains(t, lines, line)
				assert.NotContains(t, plain["slurm.conf"], line+"\n")
			}
			assert.True(t, strings.HasPrefix(all, plain["slurm.conf"]), "nothing else changes")
		})
	}
}

// Records of nodes that go may be there for a while, and need room.
func TestRoomIsKept(t *testing.T) {
	dynamic := func(s *v1alpha1.NodeSet) { s.Spec.Mode = v1alpha1.ModeDynamic }
	a, b := nodeSet("a", "a-[0-3]", dynamic), nodeSet("b", "b-[0-1]", dynamic)
	room := func(extra string) string {
		_, lines := after(t, extra, []*v1alpha1.NodeSet{a, b}, []*v1alpha1.NodeSet{b}, nil)
		for _, line := range lines {
			if n, ok := strings.CutPrefix(line, "MaxNodeCount="); ok {
				return n
			}
		}
		return ""
	}
	assert.Equal(t, "6", room(""))
	assert.Equal(t, "8", room("NodeName=x-[0-1] State=DOWN"), "and it does not grow each time")
	assert.Equal(t, "4", room("MaxNodeCount=4"), "who says it knows")
}
