package exporter

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Uses of CPUs, memory and generic resources. They add up to what the nodes have.
const (
	Allocated   = iota // jobs have it
	Idle               // a job could have it now
	Off                // its node is powered down, or on its way up or down
	Unavailable        // its node takes no jobs
	uses
)

var useWords = [uses]string{"allocated", "idle", "off", "unavailable"}

// Amount is how much of something is used how.
type Amount [uses]int64

func (a *Amount) add(total, allocated int64, rest int) {
	allocated = min(max(0, allocated), total)
	a[Allocated] += allocated
	a[rest] += total - allocated
}

// Device is one kind of a generic resource.
type Device struct{ Name, Type string }

// group is a set of nodes: all of them, or a partition's.
type group struct {
	states       map[string]int64
	cpus, memory Amount
	gres         map[Device]*Amount
}

func newGroup() *group {
	return &group{states: map[string]int64{}, gres: map[Device]*Amount{}}
}

// NodeTally counts nodes.
type NodeTally struct {
	options    Options
	all        *group
	partitions map[string]*group
	flags      map[powersave.NodeState]int64
	faulty     map[string]string  // states of nodes with faults
	spells     map[string]*Metric // of nodes that are draining or unavailable: which histogram has how long
	unread     int64              // nodes whose generic resources cannot be read
	nodes      []Node
	gpus       []NodeGPUs                  // as nodes
	lists      map[string][]slurmconf.Gres // nil: it cannot be read
}

// NewNodeTally counts from zero.
func NewNodeTally(o Options) *NodeTally {
	return &NodeTally{options: o, all: newGroup(), partitions: map[string]*group{}, flags: map[powersave.NodeState]int64{}, faulty: map[string]string{}, spells: map[string]*Metric{}, lists: map[string][]slurmconf.Gres{}}
}

// Add counts one more node.
func (t *NodeTally) Add(n Node) {
	has, read := t.gres(n.Gres)
	used, readUsed := t.gres(n.GresUsed)
	if !read || !readUsed {
		t.unread++
		has, used = nil, nil
	}
	state := NodeWord(n.State)
	if slices.Contains(faults, state) {
		t.faulty[n.Name] = state
	}
	if m := spellOf(state); m != nil {
		t.spells[n.Name] = m
	}
	rest := restOf(state)
	count := func(g *group) {
		g.states[state]++
		g.cpus.add(n.CPUs, n.AllocCPUs, rest)
		g.memory.add(n.Memory, n.AllocMemory, rest)
		devices(has, used, func(d Device, total, allocated int64) {
			a := g.gres[d]
			if a == nil {
				a = &Amount{}
				g.gres[d] = a
			}
			a.add(total, allocated, rest)
		})
	}
	count(t.all)
	for _, name := range n.Partitions {
		p := t.partitions[name]
		if p == nil {
			p = newGroup()
			t.partitions[name] = p
		}
		count(p)
	}
	for _, f := range nodeFlags {
		if n.State.Any(f.flag) {
			t.flags[f.flag]++
		}
	}
	if t.options.PerNode {
		t.nodes = append(t.nodes, n)
		devices(has, used, func(d Device, total, allocated int64) {
			if d.Name == "gpu" {
				g := NodeGPUs{Node: n.Name, Type: d.Type}
				g.add(total, allocated, rest)
				t.gpus = append(t.gpus, g)
			}
		})
	}
}

// gres reads a list of generic resources; thousands of nodes have the same.
func (t *NodeTally) gres(list string) ([]slurmconf.Gres, bool) {
	if list == "" {
		return nil, true
	}
	all, ok := t.lists[list]
	if !ok {
		var err error
		if all, err = slurmconf.ParseGres(list); err != nil {
			all = nil
		} else if all == nil {
			all = []slurmconf.Gres{}
		}
		t.lists[list] = all
	}
	return all, all != nil
}

// devices tells of each kind what a node has and what of it is allocated. A node may have one kind in several lots (of several sockets). What is used of a type that it is not said to
// have counts for the first of that name: slurmctld writes one list as slurm.conf does and the other as gres.conf (gres.c _node_gres_used).
func devices(has, used []slurmconf.Gres, each func(d Device, total, allocated int64)) {
	for at, g := range has {
		d := Device{g.Name, g.Type}
		same := func(o slurmconf.Gres) bool { return o.Name == d.Name && o.Type == d.Type }
		if slices.ContainsFunc(has[:at], same) {
			continue
		}
		first := !slices.ContainsFunc(has[:at], func(o slurmconf.Gres) bool { return o.Name == d.Name })
		var total, allocated int64
		for _, o := range has {
			if same(o) {
				total += o.Count
			}
		}
		for _, o := range used {
			known := func(h slurmconf.Gres) bool { return h.Name == o.Name && h.Type == o.Type }
			if same(o) || first && o.Name == d.Name && !slices.ContainsFunc(has, known) {
				allocated += o.Count
			}
		}
		each(d, total, allocated)
	}
}

// GPUs are all nodes' GPUs by type.
func (t *NodeTally) GPUs() map[string]Amount {
	all := map[string]Amount{}
	for d, a := range t.all.gres {
		if d.Name == "gpu" {
			all[d.Type] = *a
		}
	}
	return all
}

// NodeGPUs are a node's GPUs of one type.
type NodeGPUs struct {
	Node, Type string
	Amount
}

// NodeGPUs are those of each node, if Options ask for nodes.
func (t *NodeTally) NodeGPUs() []NodeGPUs { return t.gpus }

// nodeWords are all that NodeWord gives.
var nodeWords = []string{
	"allocated", "mixed", "idle", "completing", "reserved", "blocked", "maintenance", "draining", "drained", "down", "not_responding", "invalid", "rebooting",
	"powering_up", "powering_down", "powered_down", "future", "unknown",
}

// NodeWord sums a node's state up in one word, much as sinfo does. What power saving does to a node is no fault of it: it is unavailable if it is DOWN or drained besides.
func NodeWord(s powersave.NodeState) string {
	busy := s.Any(powersave.NodeAllocated | powersave.NodeMixed)
	switch {
	case s.Any(powersave.NodeFuture):
		return "future"
	case s.Any(powersave.NodeInvalidReg): // slurmctld drains such a node, too
		return "invalid"
	case s.Any(powersave.NodeDown | powersave.NodeError):
		return "down"
	case s.Any(powersave.NodeDrain|powersave.NodeFail) && (busy || s.Any(powersave.NodeCompleting)):
		return "draining"
	case s.Any(powersave.NodeDrain | powersave.NodeFail):
		return "drained"
	case s.Any(powersave.NodeRebootIssued):
		return "rebooting"
	case s.Any(powersave.NodePoweringUp | powersave.NodePowerUp):
		return "powering_up"
	case s.Any(powersave.NodePoweringDown), s.Any(powersave.NodePowerDown) && !busy:
		return "powering_down"
	case s.Any(powersave.NodePoweredDown):
		return "powered_down"
	case s.Any(powersave.NodeNotResponding):
		return "not_responding"
	case s.Any(powersave.NodeAllocated):
		return "allocated"
	case s.Any(powersave.NodeMixed):
		return "mixed"
	case !s.Any(powersave.NodeIdle):
		return "unknown"
	case s.Any(powersave.NodeCompleting):
		return "completing"
	case s.Any(powersave.NodeMaintenance):
		return "maintenance"
	case s.Any(powersave.NodeReserved):
		return "reserved"
	case s.Any(powersave.NodeBlocked): // by a job that has its part of the topology for itself
		return "blocked"
	}
	return "idle"
}

// restOf is what becomes of that part of a node that no job has.
func restOf(state string) int {
	switch state {
	case "allocated", "mixed", "idle", "completing", "reserved":
		return Idle
	case "powering_up", "powering_down", "powered_down":
		return Off
	}
	return Unavailable
}

// nodeFlags are the words that a node may have beside its base state.
var nodeFlags = []struct {
	flag powersave.NodeState
	word string
}{
	{powersave.NodeCloud, "cloud"}, {powersave.NodeDrain, "drain"}, {powersave.NodeFail, "fail"}, {powersave.NodeCompleting, "completing"},
	{powersave.NodeNotResponding, "not_responding"}, {powersave.NodePowerUp, "power_up"}, {powersave.NodePowerDown, "power_down"},
	{powersave.NodePoweringUp, "powering_up"}, {powersave.NodePoweringDown, "powering_down"}, {powersave.NodePoweredDown, "powered_down"},
	{powersave.NodePowerDrain, "power_drain"}, {powersave.NodeInvalidReg, "invalid_reg"}, {powersave.NodeReserved, "reserved"},
	{powersave.NodeMaintenance, "maintenance"}, {powersave.NodePlanned, "planned"}, {powersave.NodeRebootRequested, "reboot_requested"},
	{powersave.NodeRebootIssued, "reboot_issued"}, {powersave.NodeDynamicNorm, "dynamic_norm"}, {powersave.NodeDynamicFuture, "dynamic_future"},
	{powersave.NodeBlocked, "blocked"}, {powersave.NodeExternal, "external"}, {powersave.NodeOther, "other"},
}

const mebi = 1 << 20

// Samples are the metrics of the nodes.
func (t *NodeTally) Samples() []Sample {
	var out samples
	for _, word := range nodeWords {
		out.add(mNodes, t.all.states[word], word)
	}
	for _, f := range nodeFlags {
		out.add(mNodesFlagged, t.flags[f.flag], f.word)
	}
	for use, word := range useWords {
		out.add(mCPUs, t.all.cpus[use], word)
		out.add(mMemory, t.all.memory[use]*mebi, word)
	}
	for _, d := range sorted(t.all.gres) {
		for use, word := range useWords {
			out.add(mGres, t.all.gres[d][use], d.Name, d.Type, word)
		}
	}
	out.add(mGresUnread, t.unread)
	for _, name := range slices.Sorted(maps.Keys(t.partitions)) {
		p := t.partitions[name]
		for _, word := range nodeWords {
			out.add(mPartitionNodes, p.states[word], name, word)
		}
		for use, word := range useWords {
			out.add(mPartitionCPUs, p.cpus[use], name, word)
			out.add(mPartitionMemory, p.memory[use]*mebi, name, word)
		}
		for _, d := range sorted(p.gres) {
			for use, word := range useWords {
				out.add(mPartitionGres, p.gres[d][use], name, d.Name, d.Type, word)
			}
		}
	}
	for i := range t.nodes {
		t.node(&out, &t.nodes[i])
	}
	return out.list
}

func (t *NodeTally) node(out *samples, n *Node) {
	out.add(mNodeInfo, 1, n.Name, n.Address, n.Instance, n.Reservation, short(n.Reason, mostWords), short(n.Comment, mostWords))
	out.add(mNodeState, 1, n.Name, NodeWord(n.State))
	for _, f := range nodeFlags {
		if n.State.Any(f.flag) {
			out.add(mNodeFlag, 1, n.Name, f.word)
		}
	}
	for _, p := range n.Partitions {
		out.add(mNodePartition, 1, n.Name, p)
	}
	out.add(mNodeCPUs, n.CPUs, n.Name)
	out.add(mNodeCPUsAllocated, n.AllocCPUs, n.Name)
	out.add(mNodeCPUsSpec, n.SpecCPUs, n.Name)
	out.add(mNodeMemory, n.Memory*mebi, n.Name)
	out.add(mNodeMemorySpec, n.SpecMemory*mebi, n.Name)
	out.add(mNodeMemoryAllocated, n.AllocMemory*mebi, n.Name)
	if n.FreeMemory >= 0 {
		out.add(mNodeMemoryFree, n.FreeMemory*mebi, n.Name)
	}
	if n.Load >= 0 {
		out.value(mNodeLoad, float64(n.Load)/100, n.Name)
	}
	has, read := t.gres(n.Gres)
	used, readUsed := t.gres(n.GresUsed)
	if !read || !readUsed {
		return
	}
	devices(has, used, func(d Device, total, allocated int64) {
		out.add(mNodeGres, total, n.Name, d.Name, d.Type)
		out.add(mNodeGresAllocated, allocated, n.Name, d.Name, d.Type)
	})
}

// mostWords bounds what people have written, in bytes.
const mostWords = 200

// short cuts text at a character.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

func sorted(all map[Device]*Amount) []Device {
	return slices.SortedFunc(maps.Keys(all), func(a, b Device) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Type, b.Type))
	})
}
