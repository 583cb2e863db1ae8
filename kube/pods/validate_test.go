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
	"github.com/slurmtide/slurmtide/powersave"
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
		"each host":         {func(s *v1alpha1.NodeSetSpec) { s.EachHost = &v1alpha1.EachHost{Domain: "example.com", AlwaysOn: true} }, ""},
		"each host, Dynamic": {func(s *v1alpha1.NodeSetSpec) {
			s.Mode, s.EachHost, s.Boot = v1alpha1.ModeDynamic, &v1alpha1.EachHost{}, &v1alpha1.BootPolicy{Deadline: hours(1)}
		}, "spec.eachHost needs mode Cloud"},
		"each host, offerings": {func(s *v1alpha1.NodeSetSpec) {
			s.EachHost, s.Offerings = &v1alpha1.EachHost{}, []v1alpha1.Offering{{Name: "spot"}}
		}, "spec.eachHost goes without spec.offerings"},
		"each host, topology": {func(s *v1alpha1.NodeSetSpec) {
			s.EachHost, s.Boot = &v1alpha1.EachHost{}, &v1alpha1.BootPolicy{TopologyKey: "zone"}
		}, "spec.eachHost goes without topologyKey and provisioningRequest"},
		"each host, room": {func(s *v1alpha1.NodeSetSpec) {
			s.EachHost, s.Boot = &v1alpha1.EachHost{}, &v1alpha1.BootPolicy{ProvisioningRequest: &v1alpha1.ProvisioningRequest{ClassName: "x"}}
		}, "spec.eachHost goes without topologyKey and provisioningRequest"},
		"name twice": {func(s *v1alpha1.NodeSetSpec) { s.NodeNames = "cpu-[0-9],cpu-[8-12]" }, "cpu-[8-9] named more than once"},
		"mode Dynamic": {func(s *v1alpha1.NodeSetSpec) {
			s.Mode, s.Replicas, s.Partitions = v1alpha1.ModeDynamic, new(int32(2)), []string{"dyn"}
			s.Shape.Features, s.Shape.Weight, s.Shape.Gres = []string{"a", "cpu.v4"}, new(int32(1)), "gpu:h100:2,tmp:5"
			s.Suspend = &v1alpha1.SuspendPolicy{IdleTime: hours(1)}
			s.Boot = &v1alpha1.BootPolicy{Deadline: hours(1), UnschedulableGrace: hours(1)}
			s.ReplicaWindows = []v1alpha1.ReplicaWindow{{Start: "0 1 * * *", Duration: *hours(1), Replicas: 1}}
		}, ""},
		"mode Dynamic, feature": {func(s *v1alpha1.NodeSetSpec) {
			s.Mode, s.Shape.Features = v1alpha1.ModeDynamic, []string{"a State=DOWN"}
		}, `spec.shape.features: "a State=DOWN"`},
		"mode Dynamic, strategy": {func(s *v1alpha1.NodeSetSpec) {
			s.Mode, s.Boot = v1alpha1.ModeDynamic, &v1alpha1.BootPolicy{Strategy: v1alpha1.Greedy}
		}, "need mode Cloud"},
		"mode Dynamic, suspend timeout": {func(s *v1alpha1.NodeSetSpec) {
			s.Mode, s.Suspend = v1alpha1.ModeDynamic, &v1alpha1.SuspendPolicy{Timeout: hours(1)}
		}, "spec.suspend.timeout is not supported"},
		"mode Dynamic, look-ahead": {func(s *v1alpha1.NodeSetSpec) {
			s.Mode, s.LookAhead = v1alpha1.ModeDynamic, &v1alpha1.LookAhead{MaxNodes: 1}
		}, "spec.lookAhead needs mode Cloud: remove it; in mode Dynamic use spec.replicas or spec.replicaWindows"},
		"mode Dynamic, topology": {func(s *v1alpha1.NodeSetSpec) {
			s.Mode, s.Boot = v1alpha1.ModeDynamic, &v1alpha1.BootPolicy{TopologyKey: "zone"}
		}, "spec.boot: strategy, topologyKey and provisioningRequest need mode Cloud"},
		"mode Dynamic, provisioning request": {func(s *v1alpha1.NodeSetSpec) {
			s.Mode, s.Boot = v1alpha1.ModeDynamic, &v1alpha1.BootPolicy{ProvisioningRequest: &v1alpha1.ProvisioningRequest{ClassName: "atomic"}}
		}, "spec.boot: strategy, topologyKey and provisioningRequest need mode Cloud"},
		"conf argument": {func(s *v1alpha1.NodeSetSpec) { s.Template.Spec.Containers[0].Args = []string{"--conf", "Weight=1"} }, `remove "--conf" from the args`},
		"replica windows": {func(s *v1alpha1.NodeSetSpec) {
			s.ReplicaWindows = []v1alpha1.ReplicaWindow{{Start: "30 7 * * MON-FRI", Duration: *hours(10), TimeZone: "Europe/Berlin", Replicas: 3}, {Start: "0 0 1 */2 *", Duration: *hours(1), Replicas: 1}}
		}, ""},
		"window without sense": {func(s *v1alpha1.NodeSetSpec) {
			s.ReplicaWindows = []v1alpha1.ReplicaWindow{{Start: "0 25 * * *", Duration: *hours(1), Replicas: 1}}
		}, `spec.replicaWindows[0]: start "0 25 * * *", timeZone "": end of range (25) above maximum (23)`},
		"window of an unknown zone": {func(s *v1alpha1.NodeSetSpec) {
			s.ReplicaWindows = []v1alpha1.ReplicaWindow{{Start: "0 1 * * *", Duration: *hours(1), Replicas: 1}, {Start: "0 1 * * *", TimeZone: "Europe/Atlantis", Duration: *hours(1), Replicas: 1}}
		}, `spec.replicaWindows[1]: start "0 1 * * *", timeZone "Europe/Atlantis": `},
		"window that never opens": {func(s *v1alpha1.NodeSetSpec) {
			s.ReplicaWindows = []v1alpha1.ReplicaWindow{{Start: "0 1 31 2 *", Duration: *hours(1), Replicas: 1}}
		}, `no day like that of start "0 1 31 2 *"`},
		"window of no length": {func(s *v1alpha1.NodeSetSpec) {
			s.ReplicaWindows = []v1alpha1.ReplicaWindow{{Start: "0 1 * * *", Replicas: 1}}
		}, "duration must be 1m or more"},
		"window every now and then": {func(s *v1alpha1.NodeSetSpec) {
			s.ReplicaWindows = []v1alpha1.ReplicaWindow{{Start: "@every 2h", Duration: *hours(1), Replicas: 1}}
		}, "five fields are wanted"},
		"provisioning request": {func(s *v1alpha1.NodeSetSpec) {
			s.Boot = &v1alpha1.BootPolicy{ProvisioningRequest: &v1alpha1.ProvisioningRequest{ClassName: "atomic"}}
		}, ""},
		"suspend":         {func(s *v1alpha1.NodeSetSpec) { s.Suspend = &v1alpha1.SuspendPolicy{} }, "spec.suspend needs mode Dynamic"},
		"partitions":      {func(s *v1alpha1.NodeSetSpec) { s.Partitions = []string{"all"} }, "spec.partitions needs mode Dynamic"},
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
	ns.Spec.Partitions = []string{"all"}
	problem := Validate([]*v1alpha1.NodeSet{ns})[0].Problem
	for _, want := range []string{"CPU-1", "spec.shape.cpus", "spec.partitions"} {
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

func TestValidateDynamic(t *testing.T) {
	ns := newNodeSet("dyn", "dyn-[0-9]")
	assert.Nil(t, Validate([]*v1alpha1.NodeSet{ns})[0].Dynamic)
	ns.Spec.Mode = v1alpha1.ModeDynamic
	assert.Equal(t, &powersave.Dynamic{CPUs: 4, Memory: 8000}, Validate([]*v1alpha1.NodeSet{ns})[0].Dynamic)
	ns.Spec.Replicas, ns.Spec.Partitions = new(int32(2)), []string{"p"}
	ns.Spec.Suspend = &v1alpha1.SuspendPolicy{IdleTime: &metav1.Duration{Duration: time.Minute}}
	ns.Spec.Shape = v1alpha1.Shape{
		CPUs: 8, Sockets: new(int32(2)), CoresPerSocket: new(int32(2)), ThreadsPerCore: new(int32(2)), RealMemory: 100, Gres: "gpu:2",
		Features: []string{"a"}, Weight: new(int32(3)),
	}
	assert.Equal(t, &powersave.Dynamic{
		IdleTime: time.Minute, Partitions: []string{"p"}, CPUs: 8, Sockets: 2, Cores: 2, Threads: 2, Memory: 100, Gres: "gpu:2", Features: []string{"a"}, Weight: 3,
	}, Validate([]*v1alpha1.NodeSet{ns})[0].Dynamic)
}

// With spec.eachHost a NodeSet may have no nodes yet.
func TestValidateNoHosts(t *testing.T) {
	ns := newNodeSet("cpu", "")
	ns.Spec.EachHost = &v1alpha1.EachHost{}
	set := Validate([]*v1alpha1.NodeSet{ns})[0]
	assert.Empty(t, set.Problem)
	assert.Zero(t, set.Nodes.Len())
}
