package doctor

import (
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// set is a NodeSet for the cloud nodes of clean, with a change.
func set(change func(s *NodeSet)) []NodeSet {
	s := NodeSet{Name: "slurm/cpu", CPUs: 4, RealMemory: 8000, Memory: 8128, Nodes: nodes("cpu-[0-9]")}
	if change != nil {
		change(&s)
	}
	return []NodeSet{s}
}

// dyn is one of mode Dynamic beside it.
func dyn(change func(s *NodeSet)) []NodeSet {
	s := NodeSet{Name: "slurm/dyn", Dynamic: true, Nodes: nodes("dyn-[0-9]"), Features: []string{"dyn"}}
	if change != nil {
		change(&s)
	}
	return append(set(nil), s)
}

func nodes(list string) slurmconf.Hostlist {
	h, err := slurmconf.ParseHostlist(list)
	if err != nil {
		panic(err)
	}
	return h
}

const dynamicLines = "MaxNodeCount=22\nNodeSet=dyn Feature=dyn\nPartitionName=dyn Nodes=dyn\nPartitionName=metal2 Nodes=metal-[0-1]"

var nodeSetSamples = map[string]samplesOf{
	"cluster-name": {
		bad: map[string]sample{"another": {kube: &KubernetesFacts{Cluster: "Tide2"}, byHand: true,
			want: []string{"slurm.conf:1:1: error: ClusterName is tide, and the bridge's --cluster Tide2; give the bridge --cluster=tide"}}},
		good: map[string]sample{"the same": {with: "ClusterName=Tide", sets: set(nil)}, "not asked": {}},
	},
	"nodeset-unusable": {
		bad: map[string]sample{"overlap": {sets: set(func(s *NodeSet) { s.Problem = "spec.nodeNames: cpu-1 stand already in the older NodeSet a" }), byHand: true,
			want: []string{"error: slurm/cpu: spec.nodeNames: cpu-1 stand already in the older NodeSet a; correct the NodeSet"}}},
		good: map[string]sample{"fine": {sets: set(nil)}},
	},
	"nodeset-not-in-slurm": {
		bad: map[string]sample{
			"more names": {sets: set(func(s *NodeSet) { s.Nodes, s.Gres = nodes("cpu-[0-11]"), "gpu:2" }), with: "GresTypes=gpu",
				want: []string{"slurm.conf: error: NodeSet slurm/cpu: slurm.conf has no cpu-[10-11] with State=CLOUD; add NodeName=cpu-[10-11] CPUs=4 RealMemory=8000 Gres=gpu:2 State=CLOUD"}},
			"two with the same names": {sets: append(set(func(s *NodeSet) { s.Nodes = nodes("cpu-[0-11]") }), set(func(s *NodeSet) { s.Name, s.Nodes = "slurm/more", nodes("cpu-[10-12]") })...), want: []string{
				"slurm.conf: error: NodeSet slurm/cpu: slurm.conf has no cpu-[10-11] with State=CLOUD; add NodeName=cpu-[10-11] CPUs=4 RealMemory=8000 State=CLOUD",
				"slurm.conf: error: NodeSet slurm/more: slurm.conf has no cpu-12 with State=CLOUD; add NodeName=cpu-12 CPUs=4 RealMemory=8000 State=CLOUD"}},
			"not CLOUD": {sets: set(func(s *NodeSet) { s.Nodes = nodes("metal-[0-1]") }), byHand: true,
				want: []string{"slurm.conf: error: NodeSet slurm/cpu: slurm.conf has no metal-[0-1] with State=CLOUD; set State=CLOUD on their NodeName line"}},
		},
		good: map[string]sample{"all": {sets: set(nil)}, "dynamic": {sets: dyn(nil)}},
	},
	"dynamic-in-slurm": {
		bad:  map[string]sample{"there": {sets: dyn(func(s *NodeSet) { s.Nodes = nodes("metal-[1-5]") }), byHand: true, want: []string{"slurm.conf:24:1: error: metal-1 are of NodeSet slurm/dyn, whose mode is Dynamic; remove them here, or make the NodeSet one of mode Cloud"}}},
		good: map[string]sample{"not there": {sets: dyn(nil)}},
	},
	"cloud-without-nodeset": {
		bad: map[string]sample{
			"some": {sets: set(func(s *NodeSet) { s.Nodes = nodes("cpu-[0-7]") }), byHand: true, want: []string{"slurm.conf:25:1: warning: no NodeSet has cpu-[8-9]; add them to spec.nodeNames of a NodeSet, or remove them"}},
			"none": {kube: &KubernetesFacts{Cluster: "tide"}, byHand: true, want: []string{"slurm.conf:25:1: warning: no NodeSet has cpu-[0-9]; add them to spec.nodeNames of a NodeSet, or remove them"}},
		},
		good: map[string]sample{"all": {sets: set(nil)}, "not asked": {}},
	},
	"nodeset-shape": {
		bad: map[string]sample{
			"everything": {sets: set(func(s *NodeSet) { s.CPUs, s.RealMemory, s.Gres, s.Features = 8, 9000, "gpu:2", []string{"fast"} }), want: []string{
				"slurm.conf:25:20: warning: cpu-[0-9]: CPUs is 4, and NodeSet slurm/cpu has 8; set CPUs=8 on the line",
				"slurm.conf:25:27: warning: cpu-[0-9]: RealMemory is 8000, and NodeSet slurm/cpu has 9000; set RealMemory=9000 on the line",
				"slurm.conf:25:1: warning: cpu-[0-9]: Gres is none, and NodeSet slurm/cpu has gpu:2; set Gres=gpu:2 on the line",
				"slurm.conf:25:1: warning: cpu-[0-9]: Feature is none, and NodeSet slurm/cpu has fast; set Feature=fast on the line"}},
			"other counts": {with: "NodeName=g-0 CPUs=4 RealMemory=8000 Gres=gpu:a:1,gpu:b:2 Feature=x State=CLOUD\nGresTypes=gpu",
				sets: set(func(s *NodeSet) { s.Nodes, s.Gres, s.Features = nodes("g-0"), "gpu:b:2,gpu:a:2", []string{"y"} }), want: []string{
					"slurm.conf:28:37: warning: g-0: Gres is gpu:a:1,gpu:b:2, and NodeSet slurm/cpu has gpu:b:2,gpu:a:2; set Gres=gpu:b:2,gpu:a:2 on the line",
					"slurm.conf:28:58: warning: g-0: Feature is x, and NodeSet slurm/cpu has x,y; set Feature=x,y on the line"}},
			"part of a line": {sets: set(func(s *NodeSet) { s.Nodes, s.CPUs = nodes("cpu-[0-3]"), 2 }), byHand: true,
				want: []string{"slurm.conf:25:20: warning: cpu-[0-9]: CPUs is 4, and NodeSet slurm/cpu has 2; set CPUs=2 on the line"}},
			"GPUs that no pod has": {with: "NodeName=g-0 CPUs=4 RealMemory=8000 Gres=gpu:1 State=CLOUD\nGresTypes=gpu", sets: set(func(s *NodeSet) { s.Nodes = nodes("g-0") }), byHand: true,
				want: []string{"slurm.conf:28:37: warning: g-0: Gres is gpu:1, and NodeSet slurm/cpu has none; remove Gres from the line, or add it to spec.shape.gres"}},
		},
		good: map[string]sample{"the same": {sets: set(nil)}, "more features": {with: "NodeName=g-0 CPUs=4 RealMemory=8000 Feature=x,y State=CLOUD", sets: set(func(s *NodeSet) { s.Nodes, s.Features = nodes("g-0"), []string{"y"} })},
			"in another order": {with: "NodeName=g-0 CPUs=4 RealMemory=8000 Gres=gpu:a:1,gpu:b:2 State=CLOUD\nGresTypes=gpu", sets: set(func(s *NodeSet) { s.Nodes, s.Gres = nodes("g-0"), "gpu:b:2,gpu:a" })}},
	},
	"nodeset-memory": {
		bad: map[string]sample{"more than the limit": {sets: set(func(s *NodeSet) { s.RealMemory, s.Memory = 6000, 7999 }),
			want: []string{"slurm.conf:25:27: error: cpu-[0-9]: RealMemory is 8000, and the pods of NodeSet slurm/cpu may have 7999 MiB; set RealMemory=6000 on the line, or raise the limit"}}},
		good: map[string]sample{"as much": {sets: set(func(s *NodeSet) { s.Memory = 8000 })}, "no limit": {sets: set(func(s *NodeSet) { s.Memory = 0 })}},
	},
	"boot-deadline": {
		bad: map[string]sample{
			"as long": {sets: set(func(s *NodeSet) { s.Deadline = 10 * time.Minute }),
				want: []string{"slurm.conf:15:1: warning: ResumeTimeout of cpu-[0-9] is 600, and spec.boot.deadline of NodeSet slurm/cpu 10m0s; set ResumeTimeout=720"}},
			"of a partition": {with: "PartitionName=b Nodes=cpu-1 ResumeTimeout=300", sets: set(func(s *NodeSet) { s.Deadline = 5 * time.Minute }), byHand: true,
				want: []string{"slurm.conf:28:29: warning: ResumeTimeout of cpu-[0-9] is 300, and spec.boot.deadline of NodeSet slurm/cpu 5m0s; set ResumeTimeout=360"}},
		},
		good: map[string]sample{"shorter": {sets: set(func(s *NodeSet) { s.Deadline = 9 * time.Minute })}, "none": {sets: set(nil)}},
	},
	"boot-times": {
		bad: map[string]sample{"too near": {sets: set(func(s *NodeSet) { s.P95 = 541 * time.Second }),
			want: []string{"slurm.conf:15:1: warning: ResumeTimeout of cpu-[0-9] is 600, and 95 of 100 boots of NodeSet slurm/cpu take up to 9m1s; set ResumeTimeout=1082"}}},
		good: map[string]sample{"before the deadline": {sets: set(func(s *NodeSet) { s.P95 = 540 * time.Second })}, "not known": {sets: set(nil)},
			"a partition's is longer": {with: "PartitionName=b Nodes=cpu-1 ResumeTimeout=900", sets: set(func(s *NodeSet) { s.P95 = 541 * time.Second })}},
	},
	"max-powered-nodes": {
		bad: map[string]sample{"less than the floors": {with: "SlurmctldParameters=a,max_powered_nodes=5", sets: append(set(func(s *NodeSet) { s.Floor = 4 }), set(func(s *NodeSet) { s.Floor = 2 })...), byHand: true,
			want: []string{"slurm.conf:27:1: warning: max_powered_nodes=5, and spec.replicas of the NodeSets of mode Cloud is 6 together; set SlurmctldParameters=a,max_powered_nodes=7, or lower spec.replicas"}}},
		good: map[string]sample{
			"as many": {with: "SlurmctldParameters=a,max_powered_nodes=6", sets: set(func(s *NodeSet) { s.Floor = 6 })}, "no limit": {sets: set(func(s *NodeSet) { s.Floor = 6 })},
			"mode Dynamic": {with: "SlurmctldParameters=a,max_powered_nodes=5", sets: dyn(func(s *NodeSet) { s.Floor = 6 })}, "no number": {with: "SlurmctldParameters=a,max_powered_nodes=x", sets: set(func(s *NodeSet) { s.Floor = 6 })},
			"not asked": {with: "SlurmctldParameters=a,max_powered_nodes=5"},
		},
	},
	"dynamic-room": {
		bad: map[string]sample{
			"none":      {sets: dyn(nil), want: []string{"slurm.conf: error: there is no MaxNodeCount, and NodeSet slurm/dyn is Dynamic; set MaxNodeCount=22, and restart slurmctld"}},
			"too small": {sets: dyn(nil), with: "MaxNodeCount=21", want: []string{"slurm.conf:28:1: error: MaxNodeCount=21, and slurm.conf and Dynamic NodeSets have 22 nodes; set MaxNodeCount=22, and restart slurmctld"}},
		},
		good: map[string]sample{"room": {sets: dyn(nil), with: dynamicLines}, "no dynamic ones": {sets: set(nil)}},
	},
	"dynamic-partitions": {
		bad: map[string]sample{"unknown, and of other nodes": {with: dynamicLines, sets: dyn(func(s *NodeSet) { s.Partitions = []string{"dyn", "none", "metal2"} }), byHand: true, want: []string{
			"slurm.conf: warning: NodeSet slurm/dyn: slurm.conf has no partition none; add PartitionName=none Nodes=<node set>, or correct spec.partitions",
			"slurm.conf:31:1: warning: partition metal2 does not take nodes of NodeSet slurm/dyn (features dyn); add a line NodeSet=<name> Feature=<one of spec.shape.features>, and name it in Nodes="}}},
		good: map[string]sample{"by feature": {with: dynamicLines, sets: dyn(func(s *NodeSet) { s.Partitions = []string{"dyn"} })}},
	},
	"topology-version": {
		bad:  map[string]sample{"24.11": {version: "24.11", sets: set(func(s *NodeSet) { s.Topology = true }), byHand: true, want: []string{"warning: NodeSet slurm/cpu has spec.topology, and Slurm is 24.11; remove spec.topology, or use Slurm 25.11"}}},
		good: map[string]sample{"25.11": {version: "25.11", sets: set(func(s *NodeSet) { s.Topology = true })}, "without": {version: "24.11", sets: set(nil)}},
	},
}

var accessSamples = map[string]samplesOf{
	"kubernetes": {
		bad:  map[string]sample{"refused": {access: &AccessFacts{KubernetesError: "connection refused"}, byHand: true, want: []string{"error: the API server: connection refused; mend that first: findings that need it are missing here"}}},
		good: map[string]sample{"read": {access: &AccessFacts{}}, "not asked": {}},
	},
	"slurmrestd": {
		bad:  map[string]sample{"refused": {access: &AccessFacts{SlurmrestdError: "connection refused"}, byHand: true, want: []string{"error: slurmrestd: connection refused; mend that first: findings that need it are missing here"}}},
		good: map[string]sample{"read": {access: &AccessFacts{}}, "not asked": {}},
	},
	"rights": {
		bad:  map[string]sample{"two": {access: &AccessFacts{MissingRights: []string{"delete pods", "patch pods"}}, byHand: true, want: []string{"error: the bridge may not: delete pods, patch pods; add them to the role of its service account (docs/examples/rbac.yaml)"}}},
		good: map[string]sample{"all": {access: &AccessFacts{}}, "not asked": {}},
	},
	"host-rights": {
		bad:  map[string]sample{"one": {access: &AccessFacts{MissingHostRights: []string{"list nodes"}}, byHand: true, want: []string{"warning: of hosts the bridge may not: list nodes; add them to the role of its service account (docs/examples/rbac.yaml)"}}},
		good: map[string]sample{"all": {access: &AccessFacts{}}, "not asked": {}},
	},
	"slurm-version": {
		bad:  map[string]sample{"older": {access: &AccessFacts{Release: slurmconf.Version{Major: 24, Minor: 11}}, byHand: true, want: []string{"warning: slurmrestd is of Slurm 24.11, and slurm.conf was looked at by 26.05; give --slurm-version=24.11"}}},
		good: map[string]sample{"the same": {access: &AccessFacts{Release: slurmconf.Version{Major: 26, Minor: 5}}}, "not known": {access: &AccessFacts{}}},
	},
	"clock-skew": {
		bad: map[string]sample{"behind": {access: &AccessFacts{Skew: -4 * time.Second}, byHand: true, want: []string{"warning: the API server's clock and this host's differ by 4s; set the clocks by one server"}},
			"slurmctld's": {access: &AccessFacts{SlurmSkew: 4 * time.Second}, byHand: true, want: []string{"warning: slurmctld's clock and this host's differ by 4s; set the clocks by one server"}},
			"ahead":       {access: &AccessFacts{Skew: time.Hour}, byHand: true, want: []string{"warning: the API server's clock and this host's differ by 1h0m0s; set the clocks by one server"}}},
		good: map[string]sample{"a little": {access: &AccessFacts{Skew: -3 * time.Second, SlurmSkew: 3 * time.Second}}, "not asked": {}},
	},
	"slow-names": {
		bad:  map[string]sample{"no answer": {access: &AccessFacts{Name: "cpu-0", NameTook: 5020 * time.Millisecond}, byHand: true, want: []string{"warning: looking up cpu-0 took 5s; correct /etc/resolv.conf until `getent hosts cpu-0` returns at once"}}},
		good: map[string]sample{"at once": {access: &AccessFacts{Name: "cpu-0", NameTook: time.Second}}, "not asked": {}},
	},
}
