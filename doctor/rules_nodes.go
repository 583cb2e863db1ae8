package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// nodeRules are about the lines of nodes and partitions.
func nodeRules() []Rule {
	return []Rule{
		{
			Name: "no-nodes", Severity: Hint,
			Why:    "there is nothing for Slurmtide to do: its nodes have State=CLOUD, or register themselves, for which MaxNodeCount makes room",
			Remedy: "NodeName=… State=CLOUD with the names of the NodeSet, or MaxNodeCount=…",
			Source: "slurm.conf(5) NodeName State, MaxNodeCount",
			check:  noNodes,
		},
		{
			Name: "cloud-without-partition", Severity: Warning,
			Why:    "no job can ask for the nodes",
			Remedy: "PartitionName=… Nodes=…",
			Source: "slurm.conf(5) PartitionName",
			check:  withoutPartition,
		},
		{
			Name: "cloud-memory", Severity: Warning,
			Why:    "memory is allocated (SelectTypeParameters), and a node without RealMemory has 1 MiB: no job fits",
			Remedy: "RealMemory= as in spec.shape.realMemory of the NodeSet",
			Source: "slurm.conf(5) RealMemory, SelectTypeParameters",
			check:  cloudMemory,
		},
		{
			Name: "cloud-address", Severity: Warning,
			Why:    "a pod's address is the one that it registers from; an address in slurm.conf is used until then, and again after each power-down",
			Remedy: "NodeName line without NodeAddr",
			Source: "slurm.conf(5) NodeAddr; src/slurmctld/node_mgr.c set_node_comm_name",
			check:  cloudAddress,
		},
		{
			Name: "partition-exclusive-power", Severity: Hint,
			Why:    "a node is powered down as soon as it is idle, so that each job waits for a boot",
			Remedy: "PartitionName line without PowerDownOnIdle",
			Source: "slurm.conf(5) PowerDownOnIdle",
			check:  powerDownOnIdle,
		},
		{
			Name: "max-node-count", Severity: Error,
			Why:    "nodes that register themselves have no room in slurmctld's tables and are refused",
			Remedy: "MaxNodeCount= with the nodes of slurm.conf and those of Dynamic NodeSets together",
			Source: "slurm.conf(5) MaxNodeCount; src/common/node_conf.c (\"Attempting to create node record past MaxNodeCount\")",
			check:  maxNodeCount,
		},
		{
			Name: "dynamic-select", Severity: Error,
			Why:    "slurmctld takes MaxNodeCount back without select/cons_tres: no node can register itself",
			Remedy: "SelectType=select/cons_tres",
			Source: "src/common/read_config.c (\"MaxNodeCount only compatible with cons_tres\")",
			check:  dynamicSelect,
		},
		{
			Name: "dynamic-without-partition", Severity: Warning,
			Why:    "nodes that register themselves are in partitions with Nodes=ALL, or of a NodeSet with one of their features: here there is neither, so no job gets them",
			Remedy: "NodeSet=dyn Feature=dyn and PartitionName=dyn Nodes=dyn",
			Source: "slurm.conf(5) NodeSet, PartitionName Nodes; docs/dynamic.md",
			check:  dynamicPartition,
		},
	}
}

func noNodes(f *Facts) []Finding {
	if f.saves() || f.dynamic() {
		return nil
	}
	return []Finding{found(f.at(slurmconf.Position{}), "add NodeName=… State=CLOUD with the names of a NodeSet, or MaxNodeCount=…", nil, "no node has State=CLOUD, and none may register itself")}
}

func withoutPartition(f *Facts) []Finding {
	var out []Finding
	for _, n := range f.cloud() {
		if len(f.partitionsOf(n)) == 0 {
			out = append(out, found(n.Setting.Position, "add PartitionName=… Nodes="+n.Names.String(), nil, "%s are in no partition", n.Names))
		}
	}
	return out
}

func cloudMemory(f *Facts) []Finding {
	var out []Finding
	for _, n := range f.cloud() {
		if n.RealMemory.IsSet() {
			continue
		}
		memory := strings.Contains(strings.ToUpper(f.Cluster.SelectTypeParameters.V), "MEMORY")
		for _, p := range f.partitionsOf(n) {
			memory = memory || strings.Contains(strings.ToUpper(p.SelectTypeParameters.V), "MEMORY")
		}
		if memory {
			out = append(out, found(n.Setting.Position, "set RealMemory=<MiB> on the line, as in spec.shape.realMemory of the NodeSet", nil, "%s have no RealMemory", n.Names))
		}
	}
	return out
}

func cloudAddress(f *Facts) []Finding {
	var out []Finding
	for _, n := range f.cloud() {
		if s, ok := n.Setting.Field("NodeAddr"); ok && s.Value != n.Setting.Value {
			out = append(out, found(s.Position, "remove NodeAddr from the line", []edit{{n.Setting.Position.File, func(file *slurmconf.File) error {
				file.RemoveField("NodeName", n.Setting.Value, "NodeAddr")
				return nil
			}}}, "%s have NodeAddr=%s", n.Names, s.Value))
		}
	}
	return out
}

func powerDownOnIdle(f *Facts) []Finding {
	var out []Finding
	for _, p := range f.cloudPartitions() {
		if s, ok := p.Field("PowerDownOnIdle"); ok && slices.Contains([]string{"yes", "true", "up", "1"}, strings.ToLower(s.Value)) {
			out = append(out, found(s.Position, "remove PowerDownOnIdle unless that is meant", nil, "PowerDownOnIdle=%s of partition %s", s.Value, p.Name))
		}
	}
	return out
}

// maxNodeCount: node_conf.c create_node_record refuses nodes beyond it.
func maxNodeCount(f *Facts) []Finding {
	s, ok := f.Cluster.Get("MaxNodeCount")
	most, err := strconv.Atoi(s.Value)
	if !ok || err != nil {
		return nil
	}
	count := 0
	for _, n := range f.Cluster.Nodes {
		count += n.Names.Len()
	}
	if most > count {
		return nil
	}
	return []Finding{found(s.Position, fmt.Sprintf("set MaxNodeCount to %d and the nodes of Dynamic NodeSets, or remove it", count), nil, "MaxNodeCount=%d, and slurm.conf alone has %d nodes", most, count)}
}

func dynamicSelect(f *Facts) []Finding {
	t := f.Cluster.SelectType
	if !f.dynamic() || strings.Contains(t.V, "cons_tres") {
		return nil
	}
	return []Finding{found(f.at(t.Position), "set SelectType=select/cons_tres", []edit{f.set("SelectType", "select/cons_tres")}, "SelectType=%s with MaxNodeCount", t.V)}
}

func dynamicPartition(f *Facts) []Finding {
	if !f.dynamic() {
		return nil
	}
	for _, p := range f.Cluster.Partitions {
		list, err := slurmconf.ParseHostlist(p.Nodes.V)
		if err != nil || list.Contains("ALL") || strings.EqualFold(p.Nodes.V, "ALL") {
			return nil
		}
		for _, set := range f.Cluster.NodeSets {
			if _, ok := set.Field("Feature"); ok && list.Contains(set.Value) {
				return nil
			}
		}
	}
	return []Finding{found(f.where("MaxNodeCount"), "add NodeSet=dyn Feature=dyn and PartitionName=dyn Nodes=dyn", nil,
		"nodes may register themselves (MaxNodeCount), and no partition takes them")}
}
