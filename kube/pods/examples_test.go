package pods

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slurmtide/slurmtide/internal/manifest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// examplePod is the pod of an example's first node. TestExamples has an API server look at all of them.
func examplePod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/examples", name))
	require.NoError(t, err)
	var ns v1alpha1.NodeSet
	require.NoError(t, manifest.Unmarshal(text, &ns))
	set := Validate([]*v1alpha1.NodeSet{&ns})[0]
	require.Empty(t, set.Problem)
	pod, err := Build(&ns, firstNode(set), 1, "example", PodOptions{Cluster: "tide", ConfServer: "slurmctld:6817", Job: 7})
	require.NoError(t, err)
	return pod
}

// firstNode is the first node of a NodeSet, or that of a host that it could follow.
func firstNode(set powersave.NodeSet) string {
	if set.Nodes.Len() == 0 {
		return "worker-7"
	}
	return set.Nodes.At(0)
}

// What an adapter of SR-IOV takes comes to the pod: its resource, beside those of the shape, the network, the memory limit's capability, and the fabric.
func TestExampleInfiniBand(t *testing.T) {
	pod := examplePod(t, "nodeset-infiniband.yaml")
	slurmd := pod.Spec.Containers[0]
	assert.Equal(t, "ib0", pod.Annotations["k8s.v1.cni.cncf.io/networks"])
	assert.Equal(t, resource.MustParse("1"), slurmd.Resources.Limits["example.com/ib_vf"])
	assert.Contains(t, slurmd.Resources.Limits, corev1.ResourceMemory, "which is of the shape")
	assert.Equal(t, []corev1.Capability{"SYS_RESOURCE"}, slurmd.SecurityContext.Capabilities.Add)
	assert.Equal(t, `ulimit -l unlimited; exec tini -s -- "$@"`, slurmd.Command[2])
	assert.Equal(t, []string{"slurmd", "-D", "-b", "-N", "ib-0"}, slurmd.Args[:5], "which the command runs")
	near := pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	require.Len(t, near, 1)
	assert.Equal(t, "network.example.com/fabric", near[0].TopologyKey)
}

// Scripts lie where slurm.conf says, and all may run them.
func TestExampleScripts(t *testing.T) {
	pod := examplePod(t, "nodeset-scripts.yaml")
	assert.Equal(t, []corev1.VolumeMount{{Name: "scripts", MountPath: "/etc/slurm-site", ReadOnly: true}}, pod.Spec.Containers[0].VolumeMounts)
	assert.Equal(t, int32(0o555), *pod.Spec.Volumes[0].ConfigMap.DefaultMode)
}

// The pod of a host has its name and its address, and runs nowhere else.
func TestExampleHost(t *testing.T) {
	pod := examplePod(t, "nodeset-host.yaml")
	assert.Equal(t, "worker-7", pod.Name)
	assert.Equal(t, []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{pod.Name}},
	}}}, pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	assert.True(t, pod.Spec.HostNetwork)
	assert.Equal(t, []string{"slurmd", "-D", "-b", "-N", pod.Name}, pod.Spec.Containers[0].Args[:5])
}
