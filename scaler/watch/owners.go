package watch

import (
	"slices"

	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// own returns the nodes with the NodeSet each belongs to. owner knows those of Kubernetes; what it does not know
// goes to an extra NodeSet of one of the node's partitions: to the one whose shape it has, of several to that with the most
// features, or else to the only one. Records of nodes that are gone are left out there: operators give pods the same names
// again, or others, and a record that stays behind would take the place of a node that could be made.
func own(nodes []scaler.Node, owner func(string) string, extras []scaler.NodeSet) []scaler.Node {
	all := nodes
	nodes = make([]scaler.Node, 0, len(all))
	gpus := cards{}
	var fits []*scaler.NodeSet
	for i := range all {
		nodes = append(nodes, all[i])
		n := &nodes[len(nodes)-1]
		if n.NodeSet = owner(n.Name); n.NodeSet != "" {
			continue
		}
		fits = fits[:0]
		for k := range extras {
			if slices.ContainsFunc(n.Partitions, func(p string) bool { return slices.Contains(extras[k].Partitions, p) }) {
				fits = append(fits, &extras[k])
			}
		}
		features := -1
		for _, set := range fits {
			if len(fits) == 1 {
				n.NodeSet = set.Name
			} else if gpus.alike(n.Shape, set.Shape) && len(set.Shape.Features) > features {
				n.NodeSet, features = set.Name, len(set.Shape.Features)
			}
		}
		if len(fits) > 0 && n.Gone && n.AllocCPUs == 0 {
			nodes = nodes[:len(nodes)-1]
		}
	}
	return nodes
}

// cards are lists of generic resources, read: how many GPUs of which type, by the list's text. "" stands for any type.
type cards map[string]map[string]int64

func (c cards) of(gres string) map[string]int64 {
	types, ok := c[gres]
	if !ok {
		types = map[string]int64{}
		all, err := slurmconf.ParseGres(gres)
		if err != nil {
			all = nil
		}
		for _, g := range all {
			if g.Name == "gpu" && g.Count > 0 {
				types[g.Type] += g.Count
			}
		}
		c[gres] = types
	}
	return types
}

func (c cards) count(gres string) (n int64) {
	for _, k := range c.of(gres) {
		n += k
	}
	return n
}

// alike tells NodeSets of one partition apart. Memory is left out: what a node registers with is hardly ever what was asked for.
func (c cards) alike(node, set *scaler.Shape) bool {
	if node == nil || set == nil || node.CPUs != set.CPUs || c.count(node.Gres) != c.count(set.Gres) {
		return false
	}
	have := c.of(node.Gres)
	for kind, n := range c.of(set.Gres) {
		if kind != "" && have[kind] != n && have[""] == 0 { // Slurm may know of GPUs, and not of their type
			return false
		}
	}
	return !slices.ContainsFunc(set.Features, func(f string) bool { return !slices.Contains(node.Features, f) })
}

// inPartitions gives NodeSets that say nothing of partitions those that their nodes are in, or were in when last seen.
func inPartitions(sets []scaler.NodeSet, nodes []scaler.Node, known map[string][]string) []scaler.NodeSet {
	names := make(map[string]bool, len(sets))
	for i := range sets {
		names[sets[i].Name] = true
	}
	for i := range nodes {
		if n := &nodes[i]; names[n.NodeSet] && len(n.Partitions) > 0 {
			known[n.NodeSet] = n.Partitions
		}
	}
	sets = slices.Clone(sets)
	for i := range sets {
		if len(sets[i].Partitions) == 0 {
			sets[i].Partitions = known[sets[i].Name]
		}
	}
	return sets
}
