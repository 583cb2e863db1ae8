package doctor

import (
	"slices"
	"strings"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// exceptionRules are about what power saving leaves alone: SuspendExcNodes, SuspendExcParts, SuspendExcStates.
func exceptionRules() []Rule {
	return []Rule{
		{
			Name: "exc-states", Severity: Warning,
			Why:    "nodes in such a state are never powered down by slurmctld: with CLOUD that is all that are pods, with the others those that need a new pod most",
			Remedy: "SuspendExcStates without them",
			Source: "slurm.conf(5) SuspendExcStates; src/slurmctld/power_save.c _parse_exc_states",
			check:  excStates,
		},
		{
			Name: "exc-states-unknown", Severity: Warning,
			Why:    "slurmctld complains of a state that cannot be excepted, and leaves it out",
			Remedy: "words that slurm.conf(5) names",
			Source: "slurm.conf(5) SuspendExcStates; src/slurmctld/power_save.c _parse_exc_states",
			check:  excStatesUnknown,
		},
		{
			Name: "exc-nodes", Severity: Hint,
			Why:    "these nodes stay up once they are up, and nobody tells the bridge to let them go; spec.replicas of the NodeSet is a floor that can be lowered, and has a schedule",
			Remedy: "SuspendExcNodes, SuspendExcParts without nodes of Slurmtide's",
			Source: "slurm.conf(5) SuspendExcNodes, SuspendExcParts; docs/architecture.md#nodes-that-stay-up",
			check:  excNodes,
		},
		{
			Name: "exc-nodes-cut", Severity: Error,
			Why:    "where there is a count (\":4\") slurmctld cuts SuspendExcNodes at every comma, those in brackets too: the pieces are no node names, and other nodes are excepted than it looks",
			Remedy: "each range with an entry of its own: n[1-2]:1,n[5-6]:1",
			Source: "src/slurmctld/power_save.c _parse_exc_nodes",
			check:  excNodesCut,
		},
		{
			Name: "exc-unknown", Severity: Warning,
			Why:    "slurmctld leaves out nodes and partitions that it does not know: what was meant is powered down",
			Remedy: "the names of nodes, node sets and partitions of slurm.conf",
			Source: "src/slurmctld/power_save.c power_save_exc_setup (\"Invalid SuspendExcNodes\", \"Invalid SuspendExcPart\")",
			check:  excUnknown,
		},
		{
			Name: "exc-dynamic", Severity: Warning,
			Why:    "slurmctld powers down nodes that have registered themselves, too, when there is power saving, and nothing powers them up again: Slurmtide takes them down itself (spec.suspend.idleTime)",
			Remedy: "SuspendExcStates=DYNAMIC_NORM",
			Source: "slurm.conf(5) SuspendExcStates; docs/dynamic.md",
			check:  excDynamic,
		},
	}
}

// excStateWords: power_save.c _parse_exc_states, excludable_state_flags.
var excStateWords = strings.Fields("CLOUD DOWN DRAIN DYNAMIC_FUTURE DYNAMIC_NORM FAIL INVALID_REG MAINTENANCE NOT_RESPONDING PLANNED RESERVED EXTERNAL")

// harmful are those that keep pods which should go.
var harmful = []string{"CLOUD", "DOWN", "NOT_RESPONDING", "INVALID_REG", "FAIL"}

func excStates(f *Facts) []Finding {
	s, _ := f.Cluster.Get("SuspendExcStates")
	if !f.saves() {
		return nil
	}
	var bad []string
	for _, word := range s.Words() {
		if slices.Contains(harmful, strings.ToUpper(word)) {
			bad = append(bad, word)
		}
	}
	if bad == nil {
		return nil
	}
	return []Finding{found(s.Position, "remove "+strings.Join(bad, ", "), []edit{f.removeWords("SuspendExcStates", bad...)}, "SuspendExcStates has %s", strings.Join(bad, ", "))}
}

func excStatesUnknown(f *Facts) []Finding {
	s, _ := f.Cluster.Get("SuspendExcStates")
	var out []Finding
	for _, word := range s.Words() {
		if !slices.ContainsFunc(excStateWords, func(known string) bool {
			return known == strings.ToUpper(word) || len(word) > 1 && strings.HasPrefix("DOWN", strings.ToUpper(word))
		}) {
			out = append(out, found(s.Position, "remove it; Slurm has "+strings.Join(excStateWords, ", "), []edit{f.removeWords("SuspendExcStates", word)}, "SuspendExcStates: no such state %s", word))
		}
	}
	return out
}

// cutNodes are the entries of SuspendExcNodes as slurmctld sees them: power_save.c _parse_exc_nodes.
func cutNodes(s slurmconf.Setting) (entries []string, cut bool) {
	if !strings.Contains(s.Value, ":") {
		return []string{s.Value}, false
	}
	for _, entry := range strings.Split(s.Value, ",") {
		name, _, _ := strings.Cut(entry, ":")
		if strings.Count(name, "[") != strings.Count(name, "]") {
			cut = true
		}
		if name != "" {
			entries = append(entries, name)
		}
	}
	return entries, cut
}

func excNodesCut(f *Facts) []Finding {
	s, ok := f.Cluster.Get("SuspendExcNodes")
	if _, cut := cutNodes(s); !ok || !cut {
		return nil
	}
	return []Finding{found(s.Position, "give each range an entry of its own: n[1-2]:1,n[5-6]:1", nil, "SuspendExcNodes=%s has a count, and a comma in brackets", s.Value)}
}

func excNodes(f *Facts) []Finding {
	var out []Finding
	if s, ok := f.Cluster.Get("SuspendExcNodes"); ok {
		if named := f.excepted(s); slices.ContainsFunc(f.cloud(), func(n slurmconf.NodeLine) bool { return n.Names.Intersect(named).Len() > 0 }) {
			out = append(out, found(s.Position, "remove them, and set spec.replicas of the NodeSet", nil, "SuspendExcNodes=%s has nodes with State=CLOUD", s.Value))
		}
	}
	if s, ok := f.Cluster.Get("SuspendExcParts"); ok {
		for _, p := range f.cloudPartitions() {
			if slices.Contains(s.Words(), p.Name) {
				out = append(out, found(s.Position, "remove it, and set spec.replicas of the NodeSet", nil, "SuspendExcParts has partition %s, which has nodes with State=CLOUD", p.Name))
			}
		}
	}
	return out
}

// excepted are the nodes that SuspendExcNodes names, node sets followed.
func (f *Facts) excepted(s slurmconf.Setting) slurmconf.Hostlist {
	var all slurmconf.Hostlist
	entries, _ := cutNodes(s)
	for _, entry := range entries {
		list, err := slurmconf.ParseHostlist(entry)
		if err != nil {
			continue
		}
		all = all.Union(list)
		for _, n := range f.Cluster.Nodes {
			if slices.ContainsFunc(f.Cluster.NodeSets, func(set slurmconf.Setting) bool { return list.Contains(set.Value) && inSet(set, n) }) {
				all = all.Union(n.Names)
			}
		}
	}
	return all
}

func excUnknown(f *Facts) []Finding {
	var out []Finding
	if s, ok := f.Cluster.Get("SuspendExcNodes"); ok && !f.dynamic() {
		if _, cut := cutNodes(s); !cut {
			unknown := f.excepted(s)
			for _, n := range f.Cluster.Nodes {
				unknown = unknown.Minus(n.Names)
			}
			for _, set := range f.Cluster.NodeSets {
				if list, err := slurmconf.ParseHostlist(set.Value); err == nil {
					unknown = unknown.Minus(list)
				}
			}
			if unknown.Len() > 0 {
				out = append(out, found(s.Position, "correct the names", nil, "SuspendExcNodes: there are no nodes %s", unknown))
			}
		}
	}
	s, _ := f.Cluster.Get("SuspendExcParts")
	for _, name := range s.Words() {
		if !slices.ContainsFunc(f.Cluster.Partitions, func(p slurmconf.PartitionLine) bool { return p.Name == name }) {
			out = append(out, found(s.Position, "correct the name", nil, "SuspendExcParts: there is no partition %s", name))
		}
	}
	return out
}

func excDynamic(f *Facts) []Finding {
	if _, ok := f.word("SuspendExcStates", "DYNAMIC_NORM"); ok || !f.dynamic() || f.Cluster.SuspendProgram.V == "" || f.Cluster.ResumeProgram.V == "" || len(f.neverSuspended()) > 0 {
		return nil
	}
	return []Finding{found(f.where("SuspendExcStates"), "set SuspendExcStates="+joined(f, "SuspendExcStates", "DYNAMIC_NORM"),
		[]edit{f.addWords("SuspendExcStates", "DYNAMIC_NORM")}, "nodes may register themselves (MaxNodeCount), and SuspendExcStates has no DYNAMIC_NORM")}
}
