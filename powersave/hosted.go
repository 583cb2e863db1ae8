package powersave

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// Hosted are the nodes of a NodeSet on one of its offerings whose pods have a host, which costs something, by what they are at.
type Hosted struct {
	NodeSet, Offering string // Offering "": without one
	Nodes             map[HostedAs]int
}

// HostedAs says what a node whose pod has a host is at.
type HostedAs string

// What nodes are at.
const (
	HostedBooting     HostedAs = "booting"     // its slurmd has not registered yet
	HostedAllocated   HostedAs = "allocated"   // a job has it, or part of it, or is just leaving it
	HostedIdle        HostedAs = "idle"        // it serves, and no job has it
	HostedUnavailable HostedAs = "unavailable" // down, drained, or not known to slurmctld
	HostedLeaving     HostedAs = "leaving"     // powered down, until its pod is gone
	HostedUnknown     HostedAs = "unknown"     // Slurm cannot be read
)

// HostedNode is one of them.
type HostedNode struct {
	NodeSet, Offering string
	As                HostedAs
}

// SumHosted counts nodes, by NodeSet and offering. Each NodeSet and each offering that it has is there, with no nodes if need be.
func SumHosted(sets iter.Seq[NodeSet], nodes iter.Seq[HostedNode]) []Hosted {
	all := map[BreakerKey]map[HostedAs]int{}
	for set := range sets {
		if len(set.Offerings) == 0 {
			all[BreakerKey{NodeSet: set.Name}] = map[HostedAs]int{}
		}
		for _, o := range set.Offerings {
			all[BreakerKey{set.Name, o.Name}] = map[HostedAs]int{}
		}
	}
	for n := range nodes {
		k := BreakerKey{n.NodeSet, n.Offering}
		if all[k] == nil {
			all[k] = map[HostedAs]int{}
		}
		all[k][n.As]++
	}
	var list []Hosted
	for k, n := range all {
		list = append(list, Hosted{NodeSet: k.NodeSet, Offering: k.Offering, Nodes: n})
	}
	slices.SortFunc(list, func(a, b Hosted) int {
		return cmp.Or(cmp.Compare(a.NodeSet, b.NodeSet), cmp.Compare(a.Offering, b.Offering))
	})
	return list
}

// Hosted returns them for the NodeSets that the Engine is told of.
func (e *Engine) Hosted() []Hosted {
	unread := e.Unread() != ""
	return SumHosted(maps.Values(e.sets), func(yield func(HostedNode) bool) {
		for _, n := range e.byName {
			if n.pod != nil && n.pod.Host != "" && n.set != "" && !yield(HostedNode{n.set, n.pod.Offering, n.hostedAs(unread)}) {
				return
			}
		}
	})
}

func (n *node) hostedAs(unread bool) HostedAs {
	switch state := n.slurm.State; {
	case n.pod.Phase == PodTerminating:
		return HostedLeaving
	case n.boot != nil:
		return HostedBooting
	case unread, n.read == 0:
		return HostedUnknown
	case n.missing:
		return HostedUnavailable
	case state.Any(poweredOff):
		return HostedLeaving
	case state.Any(NodePoweringUp):
		return HostedBooting
	case state.Any(inUse):
		return HostedAllocated
	case n.pod.Phase == PodFailed, state.Any(judged | NodeNotResponding | NodeInvalidReg | NodeFuture):
		return HostedUnavailable
	}
	return HostedIdle
}

// NodeSetOf names the NodeSet that has the node; "" if none has, or that is not known yet.
func (e *Engine) NodeSetOf(node string) string {
	if n := e.nodes[node]; n != nil {
		return n.set
	}
	return ""
}
