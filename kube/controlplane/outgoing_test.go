package controlplane

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// moreFiles are those that may be included.
var moreFiles = map[string]string{"more.conf": "NodeName=more-[0-1] CPUs=2 State=CLOUD\nPartitionName=more Nodes=more-[0-1]\n"}

// after are the lines of nodes, NodeSets and partitions that follow when the NodeSets of a cluster change while nodes have pods, and go on to be like that.
func after(t *testing.T, extra string, before, now []*v1alpha1.NodeSet, up map[string]string) (all string, lines []string) {
	t.Helper()
	c := Cluster{Controller: controller(nil), Settings: settings, NodeSets: before, Files: moreFiles}
	files, err := Config(c)
	require.NoError(t, err)
	c.Controller.Spec.ExtraConf = extra
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
	if !strings.Contains(extra, "Include") { // there is only this file
		for _, version := range []string{"24.11", "26.05"} {
			check(t, all, version)
		}
	}
	for line := range strings.Lines(all) {
		if key, _, _ := strings.Cut(line, "="); key == "NodeName" || key == "NodeSet" || key == "PartitionName" || key == maxNodeCount || key == "SuspendExcStates" || key == "GresTypes" {
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
	dyn, gpu := nodeSet("dyn", "dyn-[0-1]", dynamic), nodeSet("gpu", "gpu-[0-1]", func(s *v1alpha1.NodeSet) { s.Spec.Shape.Gres = "gpu:2" })
	for name, test := range map[string]struct {
		extra       string
		before, now []*v1alpha1.NodeSet
		up          map[string]string
		want        []string // what there is more than without pods
		differs     bool     // or in place of something
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
		"another NodeSet gets its nodes": {before: []*v1alpha1.NodeSet{cpu}, now: []*v1alpha1.NodeSet{nodeSet("compute", "cpu-[0-3]", nil)}, up: map[string]string{"cpu-1": "cpu", "cpu-2": "compute"},
			want: []string{"PartitionName=cpu Nodes=cpu-1 State=INACTIVE"}},
		"the last with GPUs": {before: []*v1alpha1.NodeSet{cpu, gpu}, now: []*v1alpha1.NodeSet{cpu}, up: map[string]string{"gpu-0": "gpu"},
			want: []string{"NodeName=gpu-0 CPUs=4 RealMemory=8000 Gres=gpu:2 State=CLOUD", "GresTypes=gpu"}},
		"the first that register themselves": {before: []*v1alpha1.NodeSet{cpu}, now: []*v1alpha1.NodeSet{dyn}, up: map[string]string{"cpu-0": "cpu"},
			want: []string{"NodeName=cpu-0 CPUs=4 RealMemory=8000 State=CLOUD", "MaxNodeCount=3"}, differs: true},
		"a NodeSet's name": {before: []*v1alpha1.NodeSet{nodeSet("b", "b", nil), cpu}, now: []*v1alpha1.NodeSet{nodeSet("b", "b-[0-1]", nil), cpu}, up: map[string]string{"b": "b"},
			want: []string{"NodeName=b CPUs=4 RealMemory=8000 State=CLOUD", "PartitionName=b Nodes=b-[0-1]"}, differs: true},
		"in the user's files now": {extra: "Include more.conf\n", before: []*v1alpha1.NodeSet{cpu, more}, now: []*v1alpha1.NodeSet{cpu}, up: map[string]string{"more-0": "more"}},
		"defaults for the user's nodes": {extra: "NodeName=DEFAULT CPUs=64\nNodeName=metal-0", before: []*v1alpha1.NodeSet{cpu}, now: []*v1alpha1.NodeSet{small}, up: map[string]string{"cpu-3": "cpu"},
			want: []string{"NodeName=cpu-3 CPUs=4 RealMemory=8000 State=CLOUD"}},
		"nodes that register themselves": {before: []*v1alpha1.NodeSet{cpu, dyn}, now: []*v1alpha1.NodeSet{cpu}, up: map[string]string{"dyn-0": "dyn"},
			want: []string{"NodeSet=dyn Feature=dyn", "PartitionName=dyn Nodes=dyn State=INACTIVE", "MaxNodeCount=6", "SuspendExcStates=DYNAMIC_NORM"}},
	} {
		t.Run(name, func(t *testing.T) {
			plain, err := Config(Cluster{Controller: controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = test.extra }), Settings: settings, NodeSets: test.now, Files: moreFiles})
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
			rest := all
			for line := range strings.Lines(plain["slurm.conf"]) {
				_, after, there := strings.Cut(rest, line)
				assert.True(t, there || test.differs, line)
				rest = after
			}
			if defaults := strings.Index(all, "NodeName=DEFAULT"); defaults >= 0 {
				assert.Less(t, strings.Index(all, test.want[0]), defaults, "those are for others")
			}
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
	assert.Equal(t, "6", room("NodeName=x-[0-1] State=DOWN"), "and it does not grow each time")
	assert.Equal(t, "4", room("MaxNodeCount=4"), "who says it knows")
}

// What slurmctld has refused is no room.
func TestRoomThatWasTooMuch(t *testing.T) {
	b := nodeSet("b", "b-[0-1]", func(s *v1alpha1.NodeSet) { s.Spec.Mode = v1alpha1.ModeDynamic })
	files, err := Config(Cluster{Controller: controller(nil), Settings: settings, NodeSets: []*v1alpha1.NodeSet{b}, Before: "MaxNodeCount=100000\n"})
	require.NoError(t, err)
	assert.Contains(t, files["slurm.conf"], "\nMaxNodeCount=2\n")
}

// Nodes that go may still be looked up.
func TestAliasesOfNodesThatGo(t *testing.T) {
	files, err := Config(Cluster{Controller: controller(nil), Settings: settings, Before: "NodeName=a,b State=CLOUD\n", Up: map[string]string{"b": "x"}})
	require.NoError(t, err)
	assert.Equal(t, "b tide-controller\n", files["hostaliases"])
}
