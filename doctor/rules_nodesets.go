package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// nodeSetRules hold NodeSets against slurm.conf.
func nodeSetRules() []Rule {
	return []Rule{
		{
			Name: "cluster-name", Severity: Error, Wants: Kubernetes,
			Why:    "the bridge serves the NodeSets whose spec.clusterRef is the ClusterName of its slurmctld, and no others",
			Remedy: "--cluster of the bridge, and spec.clusterRef.name, as ClusterName in slurm.conf (in lower case)",
			Source: "docs/install.md",
			check:  clusterName,
		},
		{
			Name: "nodeset-unusable", Severity: Error, Wants: Kubernetes,
			Why:    "the bridge makes no pods of a NodeSet that it cannot use; of two that name the same node the younger one is none",
			Remedy: "what the finding says",
			Source: "docs/nodesets.md",
			check:  nodeSetUnusable,
		},
		{
			Name: "nodeset-not-in-slurm", Severity: Error, Wants: Kubernetes,
			Why:    "slurmctld powers up nodes that it knows, with State=CLOUD; of these it knows nothing, so no job ever gets them",
			Remedy: "NodeName=… State=CLOUD with the names of the NodeSet",
			Source: "slurm.conf(5) NodeName State=CLOUD",
			check:  notInSlurm,
		},
		{
			Name: "dynamic-in-slurm", Severity: Error, Wants: Kubernetes,
			Why:    "nodes of mode Dynamic make their records by registering; those that slurm.conf has are not Slurmtide's to make and delete",
			Remedy: "slurm.conf without them, or a NodeSet of mode Cloud",
			Source: "docs/dynamic.md",
			check:  dynamicInSlurm,
		},
		{
			Name: "cloud-without-nodeset", Severity: Warning, Wants: Kubernetes,
			Why:    "slurmctld gives them to jobs, and nobody makes a pod: they are set DOWN at ResumeTimeout",
			Remedy: "a NodeSet with these names in spec.nodeNames, or slurm.conf without them",
			Source: "docs/nodesets.md",
			check:  cloudWithoutNodeSet,
		},
		{
			Name: "nodeset-shape", Severity: Warning, Wants: Kubernetes,
			Why:    "slurmctld hands out what slurm.conf says, and the pod has what spec.shape says: jobs get less than they were promised, or some of it is never used",
			Remedy: "CPUs, RealMemory, Gres and Feature of the NodeName line as in spec.shape",
			Source: "docs/slurm-conf.md#the-nodes; slurm.conf(5) SlurmdParameters config_overrides",
			check:  nodeSetShape,
		},
		{
			Name: "nodeset-memory", Severity: Error, Wants: Kubernetes,
			Why:    "a job that uses the memory it was given goes beyond the container's limit, and the kernel kills it, or slurmd and with it all jobs of the node",
			Remedy: "RealMemory not above the memory limit of container slurmd",
			Source: "docs/nodesets.md; slurm.conf(5) RealMemory",
			check:  nodeSetMemory,
		},
		{
			Name: "boot-deadline", Severity: Warning, Wants: Kubernetes,
			Why:    "slurmctld gives up on nodes at ResumeTimeout, one by one, before the bridge can give the job back whole, with its reason",
			Remedy: "ResumeTimeout longer than spec.boot.deadline",
			Source: "docs/architecture.md#when-a-node-cannot-boot",
			check:  bootDeadline,
		},
		{
			Name: "boot-times", Severity: Warning, Wants: Kubernetes,
			Why:    "a tenth before ResumeTimeout the bridge gives a job back: more than one boot in twenty, as they have been lately, would not be over by then",
			Remedy: "ResumeTimeout well above status.boots.p95Seconds of the NodeSet",
			Source: "slurm.conf(5) ResumeTimeout; docs/slurm-conf.md",
			check:  bootTimes,
		},
		{
			Name: "max-powered-nodes", Severity: Warning, Wants: Kubernetes,
			Why:    "slurmctld powers up no more nodes than that: floors are never reached, and jobs wait for nodes that serve nobody",
			Remedy: "SlurmctldParameters=…,max_powered_nodes= above all spec.replicas together, or lower spec.replicas",
			Source: "slurm.conf(5) SlurmctldParameters max_powered_nodes; docs/boots.md",
			check:  maxPoweredNodes,
		},
		{
			Name: "dynamic-room", Severity: Error, Wants: Kubernetes,
			Why:    "nodes that register themselves have no room in slurmctld's tables and are refused",
			Remedy: "MaxNodeCount with the nodes of slurm.conf and all names of Dynamic NodeSets together",
			Source: "slurm.conf(5) MaxNodeCount; src/common/node_conf.c (\"Attempting to create node record past MaxNodeCount\")",
			check:  dynamicRoom,
		},
		{
			Name: "dynamic-partitions", Severity: Warning, Wants: Kubernetes,
			Why:    "the nodes register, and are not in the partition whose jobs they are made for: the jobs wait on",
			Remedy: "NodeSet=NAME Feature=FEATURE and PartitionName=… Nodes=NAME in slurm.conf, and FEATURE in spec.shape.features",
			Source: "slurm.conf(5) NodeSet Feature; docs/dynamic.md",
			check:  dynamicPartitions,
		},
		{
			Name: "topology-version", Severity: Warning, Wants: Kubernetes,
			Why:    "slurmctld takes a node's place in the network from 25.11 on",
			Remedy: "Slurm 25.11, or the NodeSet without spec.topology",
			Source: "docs/boots.md",
			check:  topologyVersion,
		},
	}
}

// KubernetesFacts are what Kubernetes tells of a cluster.
type KubernetesFacts struct {
	Cluster  string // as the bridge is told
	NodeSets []NodeSet
}

// NodeSet is what rules look at of one.
type NodeSet struct {
	Name       string // namespace/name
	Dynamic    bool
	Nodes      slurmconf.Hostlist // all of spec.nodeNames
	CPUs       int
	RealMemory int // MiB
	Gres       string
	Features   []string
	Partitions []string      // of mode Dynamic; nil: those with Nodes=ALL
	Memory     int           // limit of container slurmd, MiB; 0: none
	Floor      int           // spec.replicas
	Deadline   time.Duration // spec.boot.deadline; 0: none
	P95        time.Duration // of its boots; 0: not known yet
	Topology   bool          // there is a spec.topology
	Problem    string        // why it cannot be used
}

func (f *Facts) nodeSets(dynamic bool) []NodeSet {
	if f.Kubernetes == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.Kubernetes.NodeSets), func(s NodeSet) bool { return s.Dynamic != dynamic })
}

func clusterName(f *Facts) []Finding {
	if f.Kubernetes == nil || f.Kubernetes.Cluster == f.Cluster.Name.V {
		return nil
	}
	return []Finding{found(f.at(f.Cluster.Name.Position), "give the bridge --cluster="+f.Cluster.Name.V, nil, "ClusterName is %s, and the bridge's --cluster %s", f.Cluster.Name.V, f.Kubernetes.Cluster)}
}

func nodeSetUnusable(f *Facts) []Finding {
	var out []Finding
	for _, s := range append(f.nodeSets(false), f.nodeSets(true)...) {
		if s.Problem != "" {
			out = append(out, found(slurmconf.Position{}, "correct the NodeSet", nil, "%s: %s", s.Name, s.Problem))
		}
	}
	return out
}

func notInSlurm(f *Facts) []Finding {
	var out []Finding
	var added slurmconf.Hostlist // of NodeSets that name the same nodes, the first
	for _, s := range f.nodeSets(false) {
		missing := s.Nodes.Minus(added)
		for _, n := range f.cloud() {
			missing = missing.Minus(n.Names)
		}
		if missing.Len() == 0 {
			continue
		}
		line := fmt.Sprintf("NodeName=%s CPUs=%d RealMemory=%d", missing, s.CPUs, s.RealMemory)
		if s.Gres != "" {
			line += " Gres=" + s.Gres
		}
		line += " State=CLOUD"
		finding := found(f.at(slurmconf.Position{}), "add "+line, []edit{add(line)}, "NodeSet %s: slurm.conf has no %s with State=CLOUD", s.Name, missing)
		if slices.ContainsFunc(f.Cluster.Nodes, func(n slurmconf.NodeLine) bool { return n.Names.Intersect(missing).Len() > 0 }) {
			finding.Remedy, finding.edits = "set State=CLOUD on their NodeName line", nil
		}
		added = added.Union(missing)
		out = append(out, finding)
	}
	return out
}

func dynamicInSlurm(f *Facts) []Finding {
	var out []Finding
	for _, s := range f.nodeSets(true) {
		for _, n := range f.Cluster.Nodes {
			if both := n.Names.Intersect(s.Nodes); both.Len() > 0 {
				out = append(out, found(n.Setting.Position, "remove them here, or make the NodeSet one of mode Cloud", nil, "%s are of NodeSet %s, whose mode is Dynamic", both, s.Name))
			}
		}
	}
	return out
}

func cloudWithoutNodeSet(f *Facts) []Finding {
	if f.Kubernetes == nil {
		return nil
	}
	var out []Finding
	for _, n := range f.cloud() {
		left := n.Names
		for _, s := range f.Kubernetes.NodeSets {
			left = left.Minus(s.Nodes)
		}
		if left.Len() > 0 {
			out = append(out, found(n.Setting.Position, "add them to spec.nodeNames of a NodeSet, or remove them", nil, "no NodeSet has %s", left))
		}
	}
	return out
}

// pairs are the lines of slurm.conf with the NodeSets of mode Cloud that have nodes of theirs.
func (f *Facts) pairs(each func(n slurmconf.NodeLine, s NodeSet)) {
	for _, n := range f.cloud() {
		for _, s := range f.nodeSets(false) {
			if n.Names.Intersect(s.Nodes).Len() > 0 {
				each(n, s)
			}
		}
	}
}

// nodeField is the edit of a line, if all its nodes are the NodeSet's.
func nodeField(n slurmconf.NodeLine, s NodeSet, field, value string) []edit {
	if n.Names.Minus(s.Nodes).Len() > 0 {
		return nil
	}
	return []edit{{n.Setting.Position.File, func(file *slurmconf.File) error { return file.SetField("NodeName", n.Setting.Value, field, value) }}}
}

func nodeSetShape(f *Facts) []Finding {
	var out []Finding
	f.pairs(func(n slurmconf.NodeLine, s NodeSet) {
		differs := func(at slurmconf.Position, field, have, want string) {
			if at.Line == 0 {
				at = n.Setting.Position
			}
			out = append(out, found(at, fmt.Sprintf("set %s=%s on the line", field, want), nodeField(n, s, field, want),
				"%s: %s is %s, and NodeSet %s has %s", n.Names, field, have, s.Name, want))
		}
		if n.CPUs.V != s.CPUs {
			differs(n.CPUs.Position, "CPUs", strconv.Itoa(n.CPUs.V), strconv.Itoa(s.CPUs))
		}
		if n.RealMemory.V != s.RealMemory {
			differs(n.RealMemory.Position, "RealMemory", strconv.Itoa(n.RealMemory.V), strconv.Itoa(s.RealMemory))
		}
		if have, want := sorted(n.Gres.V), sorted(s.Gres); !slices.Equal(have, want) && s.Gres != "" {
			differs(n.Gres.Position, "Gres", orNone(n.Gres.V), s.Gres)
		} else if s.Gres == "" && n.Gres.V != "" {
			out = append(out, found(n.Gres.Position, "remove Gres from the line, or add it to spec.shape.gres", nil, "%s: Gres is %s, and NodeSet %s has none", n.Names, n.Gres.V, s.Name))
		}
		all := slices.Clone(n.Features.V)
		for _, feature := range s.Features {
			if !slices.Contains(all, feature) {
				all = append(all, feature)
			}
		}
		if len(all) > len(n.Features.V) {
			differs(n.Features.Position, "Feature", orNone(strings.Join(n.Features.V, ",")), strings.Join(all, ","))
		}
	})
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// sorted is a Gres= list in one order, without what stands in parentheses.
func sorted(gres string) []string {
	list, err := slurmconf.ParseGres(gres)
	if err != nil {
		return []string{gres}
	}
	var all []string
	for _, g := range list {
		all = append(all, g.String())
	}
	slices.Sort(all)
	return all
}

func nodeSetMemory(f *Facts) []Finding {
	var out []Finding
	f.pairs(func(n slurmconf.NodeLine, s NodeSet) {
		if s.Memory == 0 || n.RealMemory.V <= s.Memory {
			return
		}
		best := min(s.RealMemory, s.Memory)
		out = append(out, found(n.RealMemory.Position, fmt.Sprintf("set RealMemory=%d on the line, or raise the limit", best), nodeField(n, s, "RealMemory", strconv.Itoa(best)),
			"%s: RealMemory is %d, and the pods of NodeSet %s may have %d MiB", n.Names, n.RealMemory.V, s.Name, s.Memory))
	})
	return out
}

// resumeTimeout is a node's: the largest of its partitions', or the cluster's. Source: power_save.c power_save_set_timeouts.
func (f *Facts) resumeTimeout(n slurmconf.NodeLine) slurmconf.Value[time.Duration] {
	best := slurmconf.Value[time.Duration]{}
	for _, p := range f.partitionsOf(n) {
		if p.ResumeTimeout.IsSet() && p.ResumeTimeout.V > best.V {
			best = p.ResumeTimeout
		}
	}
	if best.IsSet() {
		return best
	}
	return f.Cluster.ResumeTimeout
}

// wantedResumeTimeout is a ResumeTimeout of the cluster that is long enough for all rules. Each of them sets this one, so that none
// takes back what another asks for.
func (f *Facts) wantedResumeTimeout() time.Duration {
	own := f.Cluster.ResumeTimeout
	best := own.V
	if !own.IsSet() || own.V < shortestBoot || own.V == slurmconf.Infinite {
		best = betterBoot
	}
	for _, p := range f.cloudPartitions() {
		if t := p.ResumeTimeout; t.IsSet() && t.V != slurmconf.Infinite {
			best = max(best, t.V)
		}
	}
	var deadline, p95 time.Duration
	f.pairs(func(_ slurmconf.NodeLine, s NodeSet) { deadline, p95 = max(deadline, s.Deadline), max(p95, s.P95) })
	if deadline >= best {
		best = aboveDeadline(deadline)
	}
	if p95 > best-best/10 {
		best = aboveBoots(p95)
	}
	return best
}

func aboveDeadline(d time.Duration) time.Duration { return (d + d/5).Round(time.Second) }
func aboveBoots(p95 time.Duration) time.Duration  { return (2 * p95).Round(time.Second) }

// raise is a finding that a ResumeTimeout is to be longer.
func (f *Facts) raise(t slurmconf.Value[time.Duration], to time.Duration, seen string) Finding {
	if t.Position != f.Cluster.ResumeTimeout.Position { // a partition's, perhaps by a DEFAULT line
		return found(t.Position, "set ResumeTimeout="+number(to), nil, "%s", seen)
	}
	best := number(f.wantedResumeTimeout())
	return found(f.at(t.Position), "set ResumeTimeout="+best, []edit{f.set("ResumeTimeout", best)}, "%s", seen)
}

func bootDeadline(f *Facts) []Finding {
	var out []Finding
	f.pairs(func(n slurmconf.NodeLine, s NodeSet) {
		if t := f.resumeTimeout(n); s.Deadline > 0 && t.V <= s.Deadline {
			out = append(out, f.raise(t, aboveDeadline(s.Deadline), fmt.Sprintf("ResumeTimeout of %s is %s, and spec.boot.deadline of NodeSet %s %s", n.Names, number(t.V), s.Name, s.Deadline)))
		}
	})
	return out
}

func bootTimes(f *Facts) []Finding {
	var out []Finding
	f.pairs(func(n slurmconf.NodeLine, s NodeSet) {
		if t := f.resumeTimeout(n); s.P95 > 0 && t.V != slurmconf.Infinite && s.P95 > t.V-t.V/10 {
			out = append(out, f.raise(t, aboveBoots(s.P95), fmt.Sprintf("ResumeTimeout of %s is %s, and 95 of 100 boots of NodeSet %s take up to %s", n.Names, number(t.V), s.Name, s.P95)))
		}
	})
	return out
}

func maxPoweredNodes(f *Facts) []Finding {
	value, ok := f.word("SlurmctldParameters", "max_powered_nodes")
	most, err := strconv.Atoi(value)
	if !ok || err != nil {
		return nil
	}
	floor := 0
	for _, s := range f.nodeSets(false) {
		floor += s.Floor
	}
	if floor <= most {
		return nil
	}
	return []Finding{found(f.where("SlurmctldParameters"), fmt.Sprintf("set SlurmctldParameters=%s, or lower spec.replicas", joined(f, "SlurmctldParameters", fmt.Sprintf("max_powered_nodes=%d", floor+1))), nil,
		"max_powered_nodes=%d, and spec.replicas of the NodeSets of mode Cloud is %d together", most, floor)}
}

func dynamicRoom(f *Facts) []Finding {
	sets := f.nodeSets(true)
	if len(sets) == 0 {
		return nil
	}
	want := 0
	for _, n := range f.Cluster.Nodes {
		want += n.Names.Len()
	}
	for _, s := range sets {
		want += s.Nodes.Len()
	}
	s, ok := f.Cluster.Get("MaxNodeCount")
	most, err := strconv.Atoi(s.Value)
	if ok && (err != nil || most >= want) {
		return nil
	}
	seen := fmt.Sprintf("MaxNodeCount=%d, and slurm.conf and Dynamic NodeSets have %d nodes", most, want)
	if !ok {
		seen = fmt.Sprintf("there is no MaxNodeCount, and NodeSet %s is Dynamic", sets[0].Name)
	}
	return []Finding{found(f.at(s.Position), fmt.Sprintf("set MaxNodeCount=%d, and restart slurmctld", want), []edit{f.set("MaxNodeCount", strconv.Itoa(want))}, "%s", seen)}
}

func dynamicPartitions(f *Facts) []Finding {
	var out []Finding
	for _, s := range f.nodeSets(true) {
		for _, name := range s.Partitions {
			i := slices.IndexFunc(f.Cluster.Partitions, func(p slurmconf.PartitionLine) bool { return p.Name == name })
			if i < 0 {
				out = append(out, found(f.at(slurmconf.Position{}), "add PartitionName="+name+" Nodes=<node set>, or correct spec.partitions", nil, "NodeSet %s: slurm.conf has no partition %s", s.Name, name))
				continue
			}
			p := f.Cluster.Partitions[i]
			if !f.has(p, slurmconf.NodeLine{Names: s.Nodes, Features: slurmconf.Value[[]string]{V: s.Features}}) {
				out = append(out, found(p.Setting.Position, "add a line NodeSet=<name> Feature=<one of spec.shape.features>, and name it in Nodes=", nil,
					"partition %s does not take nodes of NodeSet %s (features %s)", name, s.Name, orNone(strings.Join(s.Features, ","))))
			}
		}
	}
	return out
}

func topologyVersion(f *Facts) []Finding {
	var out []Finding
	if f.Version.Major > 25 || f.Version.Major == 25 && f.Version.Minor >= 11 {
		return nil
	}
	for _, s := range append(f.nodeSets(false), f.nodeSets(true)...) {
		if s.Topology {
			out = append(out, found(slurmconf.Position{}, "remove spec.topology, or use Slurm 25.11", nil, "NodeSet %s has spec.topology, and Slurm is %s", s.Name, f.Version))
		}
	}
	return out
}
