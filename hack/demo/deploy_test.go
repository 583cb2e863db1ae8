package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
)

// What slurm.conf says of the nodes and what the NodeSets say must be the same.
func TestNodeSetsMatchSlurmConf(t *testing.T) {
	o, err := clusterOptions("demo", "26.05")
	require.NoError(t, err)
	files, err := stack.Render(o)
	require.NoError(t, err)
	sets := nodeSets(o, "demo")
	require.Len(t, sets, len(o.NodeLines))
	for i, ns := range sets {
		line := "NodeName=" + ns.Spec.NodeNames + " CPUs=2 RealMemory=500 "
		if ns.Spec.Shape.Gres != "" {
			line += "Gres=" + ns.Spec.Shape.Gres + " "
		}
		assert.Equal(t, line+"State=CLOUD", o.NodeLines[i])
		assert.Contains(t, files["slurm.conf"], o.NodeLines[i])
		assert.EqualValues(t, 2, ns.Spec.Shape.CPUs)
		assert.EqualValues(t, 500, ns.Spec.Shape.RealMemory)

		node := strings.Replace(ns.Spec.NodeNames, ns.Spec.NodeNames[strings.Index(ns.Spec.NodeNames, "["):], "0", 1)
		pod, err := pods.Build(ns, node, 1, "r", pods.PodOptions{Cluster: "demo"})
		require.NoError(t, err)
		assert.Equal(t, map[string]int64{"cpu-0": 0, "gpu-0": 2}[node], podGPUs(pod))
		assert.EqualValues(t, 20, pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(), "all nodes fit on two cores")
	}
	assert.Contains(t, files["slurm.conf"], "PrologSlurmctld=", "the gate is on")
}

func TestNodeSetProblem(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, generation int64) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, ObservedGeneration: generation, Message: kind + " is wrong"}
	}
	accepted, inSlurm := v1alpha1.ConditionAccepted, v1alpha1.ConditionNodesInSlurm
	for name, tt := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"ready":      {[]metav1.Condition{condition(accepted, metav1.ConditionTrue, 2), condition(inSlurm, metav1.ConditionTrue, 2)}, ""},
		"no status":  {nil, "not looked"},
		"half":       {[]metav1.Condition{condition(accepted, metav1.ConditionTrue, 2)}, "not looked"},
		"old status": {[]metav1.Condition{condition(accepted, metav1.ConditionTrue, 1), condition(inSlurm, metav1.ConditionTrue, 1)}, "not looked"},
		"refused":    {[]metav1.Condition{condition(accepted, metav1.ConditionFalse, 2), condition(inSlurm, metav1.ConditionTrue, 2)}, "Accepted is wrong"},
		"not there":  {[]metav1.Condition{condition(accepted, metav1.ConditionTrue, 2), condition(inSlurm, metav1.ConditionFalse, 2)}, "NodesInSlurm is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := &v1alpha1.NodeSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			ns.Status.Conditions = tt.conditions
			got := nodeSetProblem(ns)
			if tt.want == "" {
				assert.Empty(t, got)
				return
			}
			assert.Contains(t, got, tt.want)
		})
	}
}
