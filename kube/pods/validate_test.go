package pods

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

func TestValidateOne(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeSetSpec)
		want   string // "" accepts
	}{
		"minimal": {func(*v1alpha1.NodeSetSpec) {}, ""},
		"everything that works": {func(s *v1alpha1.NodeSetSpec) {
			s.Replicas, s.MaxPoweredUp = new(int32(2)), new(int32(5))
			s.Shape.Sockets, s.Shape.CoresPerSocket, s.Shape.ThreadsPerCore = new(int32(1)), new(int32(2)), new(int32(2))
			s.Shape.Gres = "gpu:1"
			s.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
			s.Template.Spec.AutomountServiceAccountToken = new(false)
			s.Template.Spec.Containers[0].Args = []string{"-v", "--conf-server=a,b", "--extra", "x"}
			s.Boot = &v1alpha1.BootPolicy{
				Strategy: v1alpha1.Greedy, Deadline: hours(1), UnschedulableGrace: hours(1), TopologyKey: "zone",
			}
			s.Offerings = []v1alpha1.Offering{{Name: "spot"}}
			s.Backoff = &v1alpha1.BackoffPolicy{Initial: hours(1)}
		}, ""},
		"hostlist syntax":   {func(s *v1alpha1.NodeSetSpec) { s.NodeNames = "cpu-[0-" }, "spec.nodeNames: "},
		"capital node name": {func(s *v1alpha1.NodeSetSpec) { s.NodeNames = "cpu-[0-9],Cpu-1" }, `"Cpu-1" cannot be the name of a pod`},
		"underscore":        {func(s *v1alpha1.NodeSetSpec) { s.NodeNames = "cpu_1" }, `"cpu_1" cannot be the name of a pod`},
		"dash at the end":   {func(s *v1alpha1.NodeSetSpec) { s.NodeNames = "cpu-" }, `"cpu-" cannot be the name of a pod`},
		"long name":         {func(s *v1alpha1.NodeSetSpec) { s.NodeNames = strings.Repeat("c", 64) }, "at most 63 characters"},
		"name twice":        {func(s *v1alpha1.NodeSetSpec) { s.NodeNames = "cpu-[0-9],cpu-[8-12]" }, "cpu-[8-9] named more than once"},
		"mode":              {func(s *v1alpha1.NodeSetSpec) { s.Mode = v1alpha1.ModeDynamic }, "spec.mode Dynamic is not supported yet"},
		"features":          {func(s *v1alpha1.NodeSetSpec) { s.Shape.Features = []string{"a"} }, "spec.shape.features is not supported yet"},
		"weight":            {func(s *v1alpha1.NodeSetSpec) { s.Shape.Weight = new(int32(1)) }, "spec.shape.weight is not supported yet"},
		"provisioning request": {func(s *v1alpha1.NodeSetSpec) {
			s.Boot = &v1alpha1.BootPolicy{ProvisioningRequest: &v1alpha1.ProvisioningRequest{ClassName: "atomic"}}
		}, ""},
		"suspend":         {func(s *v1alpha1.NodeSetSpec) { s.Suspend = &v1alpha1.SuspendPolicy{} }, "spec.suspend is not supported yet"},
		"no cpus":         {func(s *v1alpha1.NodeSetSpec) { s.Shape.CPUs = 0 }, "spec.shape.cpus is 0"},
		"no memory":       {func(s *v1alpha1.NodeSetSpec) { s.Shape.RealMemory = 0 }, "spec.shape.realMemory is 0"},
		"half a topology": {func(s *v1alpha1.NodeSetSpec) { s.Shape.Sockets = new(int32(4)) }, "together or none of them"},
		"contradicting shape": {func(s *v1alpha1.NodeSetSpec) {
			s.Shape.Sockets, s.Shape.CoresPerSocket, s.Shape.ThreadsPerCore = new(int32(2)), new(int32(2)), new(int32(2))
		}, "2 * 2 * 2 = 8, but cpus is 4"},
		"gres":           {func(s *v1alpha1.NodeSetSpec) { s.Shape.Gres = "gpu:two:many" }, `spec.shape.gres: "gpu:two:many"`},
		"no container":   {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers = nil }, "must have a container named slurmd"},
		"no image":       {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers[0].Image = "" }, "needs an image"},
		"restart policy": {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways }, "restartPolicy is Always"},
		"container restart policy": {func(s *v1alpha1.NodeSetSpec) {
			s.Template.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyOnFailure)
		}, "restartPolicy of container slurmd is OnFailure"},
		"token":                 {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.AutomountServiceAccountToken = new(true) }, "automountServiceAccountToken must be false"},
		"node name argument":    {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers[0].Args = []string{"-v", "-N", "x"} }, `remove "-N" from the args`},
		"dynamic node argument": {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers[0].Args = []string{"-Z"} }, `remove "-Z" from the args`},
		"instance id argument":  {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers[0].Args = []string{"--instance-id=x"} }, `remove "--instance-id=x" from the args`},
		"whole command as args": {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers[0].Args = []string{"slurmd", "-v"} }, `remove "slurmd" from the args`},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-[0-9]")
			tc.change(&ns.Spec)
			got := Validate([]*v1alpha1.NodeSet{ns})
			require.Len(t, got, 1)
			assert.Equal(t, "cpu", got[0].Name)
			if tc.want == "" {
				assert.Empty(t, got[0].Problem)
				assert.Equal(t, "cpu-[0-9]", got[0].Nodes.String())
				return
			}
			assert.Contains(t, got[0].Problem, "NodeSet cpu cannot be used: ")
			assert.Contains(t, got[0].Problem, tc.want)
			assert.NotContains(t, got[0].Problem, "\n")
		})
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	ns := newNodeSet("cpu", "CPU-1")
	ns.Spec.Shape.CPUs = 0
	ns.Spec.Mode = v1alpha1.ModeDynamic
	problem := Validate([]*v1alpha1.NodeSet{ns})[0].Problem
	for _, want := range []string{"CPU-1", "spec.shape.cpus", "spec.mode Dynamic"} {
		assert.Contains(t, problem, want)
	}
}

func TestValidateOverlap(t *testing.T) {
	at := func(ns *v1alpha1.NodeSet, hour int) *v1alpha1.NodeSet {
		ns.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC))
		return ns
	}
	young := at(newNodeSet("a", "n-[5-14]"), 2)
	old := at(newNodeSet("b", "n-[0-9]"), 1)
	other := at(newNodeSet("c", "m-1"), 3)
	got := Validate([]*v1alpha1.NodeSet{young, old, other})
	require.Len(t, got, 3)
	assert.Equal(t, "a", got[0].Name)
	assert.Contains(t, got[0].Problem, "n-[5-9] stand already in the older NodeSet b")
	assert.Equal(t, "n-[10-14]", got[0].Nodes.String(), "nodes of the older NodeSet must not be refused through the younger one")
	assert.Empty(t, got[1].Problem)
	assert.Equal(t, "n-[0-9]", got[1].Nodes.String())
	assert.Empty(t, got[2].Problem)

	young.CreationTimestamp = old.CreationTimestamp
	got = Validate([]*v1alpha1.NodeSet{old, young})
	assert.Empty(t, got[0].Problem, "of the same age: the name decides")
	assert.Contains(t, got[1].Problem, "n-[5-9] stand already in the older NodeSet a")
}

func TestValidateDeleted(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-1")
	ns.DeletionTimestamp = new(metav1.Now())
	assert.Contains(t, Validate([]*v1alpha1.NodeSet{ns})[0].Problem, "is being deleted")
}

func BenchmarkValidate100k(b *testing.B) {
	var sets []*v1alpha1.NodeSet
	for i := range 10 {
		sets = append(sets, newNodeSet(fmt.Sprintf("set-%d", i), fmt.Sprintf("n%d-[0-9999]", i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		Validate(sets)
	}
}
