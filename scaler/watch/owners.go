package watch

import (
	"slices"

	"github.com/slurmtide/slurmtide/scaler"
)

// own returns the nodes with the NodeSet each belongs to. owner knows those of Kubernetes; what it does not know
// goes to an extra NodeSet of one of the node's partitions: to the one whose shape it has, or else to the only one.
func own(nodes []scaler.Node, owner func(string) string, extras []scaler.NodeSet) []scaler.Node {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		if n.NodeSet = owner(n.Name); n.NodeSet != "" {
			continue
		}
		var fits []scaler.NodeSet
		for _, set := range extras {
			if slices.ContainsFunc(n.Partitions, func(p string) bool { return slices.Contains(set.Partitions, p) }) {
				fits = append(fits, set)
			}
		}
		for _, set := range fits {
			if n.NodeSet == "" && (len(fits) == 1 || alike(n.Shape, set.Shape)) {
				n.NodeSet = set.Name
			}
		}
	}
	return nodes
}

// alike tells NodeSets of one partition apart. Memory is left out: what a node registers with is hardly ever what was asked for.
func alike(a, b *scaler.Shape) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.CPUs != b.CPUs || gpusUsed(a.Gres) != gpusUsed(b.Gres) {
		return false
	}
	return !slices.ContainsFunc(b.Features, func(f string) bool { return !slices.Contains(a.Features, f) })
}

// inPartitions gives NodeSets that say nothing of partitions those that their nodes are in, or were in when last seen.
func inPartitions(sets []scaler.NodeSet, nodes []scaler.Node, known map[string][]string) []scaler.NodeSet {
	for i := range nodes {
		if n := &nodes[i]; n.NodeSet != "" && len(n.Partitions) > 0 {
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
