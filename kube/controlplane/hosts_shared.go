package controlplane

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// A host may be selected by several NodeSets of a cluster, its name is one's alone: the bridge refuses the younger of two that share one.

// rivals are the other NodeSets of a cluster, as one of them sees them.
type rivals []rival

type rival struct {
	chooser
	older   bool // than the one that looks
	follows bool // takes names of hosts
}

func rivalsOf(set *v1alpha1.NodeSet, others []*v1alpha1.NodeSet) (all rivals) {
	for _, other := range others {
		c, err := newChooser(other)
		if err != nil { // its bridge, and its own condition, say so
			continue
		}
		all = append(all, rival{c, older(other, set), other.Spec.EachHost != nil && other.DeletionTimestamp == nil && namesGiven(other) == ""})
	}
	return all
}

// keeper is the NodeSet that keeps a name from the one that looks: of a name that both have, and of a new one that both want, the older one; of any
// other the one that has it, as long as it does. "" if there is none. So of two NodeSets never both wait for the other.
func (r rivals) keeper(name string, host *corev1.Node, listed bool) string {
	for _, other := range r {
		switch {
		case other.listed.Contains(name):
			if other.older || !listed {
				return other.set.Name
			}
		case other.older && other.follows && !listed:
			if node, wants, err := other.chooses(host); err == nil && wants && node == name {
				return other.set.Name
			}
		}
	}
	return ""
}

// besides are the other NodeSets of a NodeSet's cluster.
func (l *Loop) besides(set *v1alpha1.NodeSet) (others []*v1alpha1.NodeSet) {
	all, _ := l.nodeSets.NodeSets(set.Namespace).List(everything)
	for _, other := range all {
		if other.Name != set.Name && other.Spec.ClusterRef.Name == set.Spec.ClusterRef.Name {
			others = append(others, other)
		}
	}
	return others
}
