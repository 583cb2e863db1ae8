package scaler

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// lacks is why a job does not fit on an empty node of a class.
type lacks uint16

// In the order in which they are told: the first are the furthest miss.
const (
	lacksPartition lacks = 1 << iota
	lacksReservation
	lacksNode
	lacksFeature
	lacksSockets
	lacksGres
	lacksMemory
	lacksCPUs
	lacksDisk
	lacksAll = math.MaxUint16
)

// nearestMiss says what the job needs and the NodeSet that comes closest does not offer.
func (w *world) nearestMiss(n *need, parts []*Partition) string {
	var best *class
	least := lacks(lacksAll)
	for _, c := range w.classes {
		if c.set == foreign {
			continue
		}
		miss := w.lacksFor(n, c, parts, n.alternatives)
		if best == nil || closer(miss, least) {
			best, least = c, miss
		}
	}
	if best == nil {
		return "there is no NodeSet"
	}
	if least == 0 {
		return w.tooFew(n, best, parts)
	}
	name := w.snap.NodeSets[best.set].Name
	var told []string
	for bit := lacks(1); bit != 0 && bit <= least; bit <<= 1 {
		if least&bit != 0 {
			needs, offers := w.tell(n, best, bit)
			told = append(told, fmt.Sprintf("needs %s, NodeSet %s offers %s", needs, name, offers))
		}
	}
	return strings.Join(told, "; ")
}

// closer reports whether a is a nearer miss than b: fewer things are missing, or less of a kind.
func closer(a, b lacks) bool {
	if x, y := bits.OnesCount16(uint16(a)), bits.OnesCount16(uint16(b)); x != y {
		return x < y
	}
	return a > b
}

// tell words one thing a class lacks.
func (w *world) tell(n *need, c *class, bit lacks) (needs, offers string) {
	r, s := n.req, c.shape
	f, _ := w.newFitting(n, c, nil)
	cores, mem := f.claim(f.least, f.leastGPUs())
	switch bit {
	case lacksPartition:
		return "partition " + r.Partitions, orNone(strings.Join(c.partitions, ","))
	case lacksReservation:
		if r.Reservation == "" {
			return "no reservation", "nodes that " + c.reservation + " holds"
		}
		return "reservation " + r.Reservation, orNone(c.reservation)
	case lacksNode:
		return "nodes " + r.RequiredNodes, "none of them"
	case lacksFeature:
		return "features " + r.Constraint, orNone(strings.Join(s.Features, ","))
	case lacksSockets:
		return fmt.Sprintf("sockets:cores:threads %d:%d:%d", r.SocketsPerNode, r.CoresPerSocket, r.ThreadsPerCore),
			fmt.Sprintf("%d:%d:%d", s.Sockets, s.Cores, s.Threads)
	case lacksGres:
		return f.wantedGres(), orNone(s.Gres)
	case lacksMemory:
		return fmt.Sprintf("%d MiB on a node", max(mem, n.mem)), fmt.Sprint(s.Memory)
	case lacksCPUs:
		return fmt.Sprintf("%d CPUs on a node", cores*f.usable), fmt.Sprint(s.CPUs)
	default:
		return fmt.Sprintf("%d MiB of TmpDisk", r.TmpDisk), fmt.Sprint(s.TmpDisk)
	}
}

// wantedGres lists what one node must have.
func (f *fitting) wantedGres() string {
	var items []string
	n := f.n
	for _, list := range []struct {
		gres []slurmconf.Gres
		by   int64
	}{{n.gresNode, 1}, {n.gresSocket, max(1, int64(n.req.SocketsPerNode))}, {n.gresTask, f.least}, {n.gresJob, 1}} {
		for _, g := range list.gres {
			g.Count = mul(g.Count, list.by)
			items = append(items, g.String())
		}
	}
	return strings.Join(items, ",")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// tooFew is the miss of a job whose nodes are all right, and not enough.
func (w *world) tooFew(n *need, c *class, parts []*Partition) string {
	for _, p := range parts {
		if p.MaxNodes > 0 && n.minNodes > int64(p.MaxNodes) {
			return tooManyNodes(n, p)
		}
	}
	have := 0
	for _, o := range w.classes {
		if o.set == c.set && w.lacksFor(n, o, parts, n.alternatives) == 0 {
			have += len(o.bins)
		}
	}
	nodes := max(n.minNodes, int64(len(n.required)))
	for _, g := range n.alternatives[0].Groups {
		nodes = max(nodes, int64(g.Count))
	}
	if f, _ := w.newFitting(n, c, nil); f.whole > 0 {
		nodes = max(nodes, divUp(n.tasks, f.whole))
	}
	why := ""
	if set := &w.snap.NodeSets[c.set]; set.MaxWhy != "" {
		why = " (" + set.MaxWhy + ")"
	}
	return fmt.Sprintf("needs %d nodes like those of NodeSet %s, which has %d%s", nodes, w.snap.NodeSets[c.set].Name, have, why)
}

func tooManyNodes(n *need, p *Partition) string {
	return fmt.Sprintf("needs %d nodes, partition %s allows %d", n.minNodes, p.Name, p.MaxNodes)
}

// lacksFor is what keeps a node of the class from running the job in any of its partitions.
func (w *world) lacksFor(n *need, c *class, parts []*Partition, alternatives []Alternative) lacks {
	var miss lacks
	if !slices.ContainsFunc(parts, func(p *Partition) bool { return slices.Contains(c.partitions, p.Name) }) {
		miss |= lacksPartition
	}
	if !n.mayUse(c.reservation) {
		miss |= lacksReservation
	}
	if len(n.required) > 0 && !slices.ContainsFunc(c.bins, func(b int32) bool { return slices.Contains(n.required, w.bins[b].name) }) {
		miss |= lacksNode
	}
	if !slices.ContainsFunc(alternatives, func(a Alternative) bool {
		return a.Admits(c.shape.Features) && len(a.Groups) == 0 ||
			slices.ContainsFunc(a.Groups, func(g FeatureGroup) bool { return g.Admits(c.shape.Features) })
	}) {
		miss |= lacksFeature
	}
	least := lacks(lacksAll)
	for _, p := range parts {
		if _, more := w.newFitting(n, c, p); bits.OnesCount16(uint16(more)) < bits.OnesCount16(uint16(least)) {
			least = more
		}
	}
	if least == lacksAll {
		_, least = w.newFitting(n, c, nil)
	}
	return miss | least
}
