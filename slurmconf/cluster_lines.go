package slurmconf

import (
	"strings"
	"time"
)

// NodeLine is a NodeName line, with the values of NodeName=DEFAULT lines before it, as slurmctld understands it.
type NodeLine struct {
	Names   Hostlist
	Setting Setting // as it stands there

	// What slurmctld makes of sockets, cores, threads and CPUs: it infers what is missing, and resets what does not fit.
	CPUs, Boards, Sockets, CoresPerSocket, ThreadsPerCore Value[int]
	RealMemory                                            Value[int] // MiB
	TmpDisk                                               Value[int] // MiB
	Weight                                                Value[int]
	Gres                                                  Value[string]
	Features                                              Value[[]string]
	State                                                 Value[string] // CLOUD, for example; empty: none is given
	// SuspendTime of the node itself (26.05); not set: the partition's or the cluster's holds.
	SuspendTime Value[time.Duration]

	inherited Setting
}

// IsCloud tells whether slurmctld powers nodes of a State up and down. It reads the word in any case, with more behind it.
func IsCloud(state string) bool { return strings.HasPrefix(strings.ToUpper(state), "CLOUD") }

// notInherited are fields that Slurm does not take from DEFAULT lines. Sources: _parse_nodename, _parse_partitionname.
func notInherited(key string, partition bool) bool {
	switch strings.ToLower(key) {
	case "nodehostname", "nodeaddr", "bcastaddr", "gresconf":
		return !partition
	case "disablerootjobs", "exclusiveuser", "exclusivetopo", "powerdownonidle", "selecttypeparameters", "suspendtime":
		return partition
	}
	return false
}

// Field is a field of the line or, if it has none, of the DEFAULT lines before it.
func (n *NodeLine) Field(key string) (Setting, bool) {
	return inherit(n.Setting, n.inherited, key, notInherited(key, false))
}

func inherit(own, inherited Setting, key string, ownOnly bool) (Setting, bool) {
	if s, ok := own.Field(key); ok || ownOnly {
		return s, ok
	}
	return inherited.Field(key)
}

// HostName and Address are the NodeHostname and NodeAddr of the i-th of its names; without them they are the name.
func (n *NodeLine) HostName(i int) string { return n.paired("NodeHostname", i, n.Names.At(i)) }

// Address is where slurmd of the i-th node is asked.
func (n *NodeLine) Address(i int) string { return n.paired("NodeAddr", i, n.HostName(i)) }

// paired is the i-th name of a field's hostlist. One that has a single name holds for all nodes.
func (n *NodeLine) paired(key string, i int, otherwise string) string {
	s, ok := n.Setting.Field(key)
	if !ok {
		return otherwise
	}
	list, err := ParseHostlist(s.Value)
	switch {
	case err != nil || list.Len() == 0:
		return otherwise
	case list.Len() == 1:
		return list.At(0)
	case i < list.Len():
		return list.At(i)
	}
	return otherwise
}

// newNodeLine does what _parse_nodename does.
func newNodeLine(names Hostlist, s, inherited Setting) NodeLine {
	n := NodeLine{Names: names, Setting: s, inherited: Setting{Fields: inherited.Fields[:len(inherited.Fields):len(inherited.Fields)]}}
	number := func(key string, bits, otherwise int) Value[int] { return numberOf(bits, otherwise)(n.Field(key)) }
	n.RealMemory, n.TmpDisk, n.Weight = number("RealMemory", 64, 1), number("TmpDisk", 32, 0), number("Weight", 32, 1)
	if n.Weight.V == 1<<32-1 {
		n.Weight.V-- // INFINITE
	}
	n.Gres, n.State = n.text("Gres"), n.text("State")
	n.SuspendTime = suspendTime(n.Field("SuspendTime"))
	for _, in := range []Setting{s, inherited} {
		for _, key := range []string{"Feature", "Features"} {
			if f, ok := in.Field(key); ok && !n.Features.IsSet() {
				n.Features = Value[[]string]{f.Words(), f.Position}
			}
		}
	}
	n.processors(number)
	return n
}

func (n *NodeLine) text(key string) Value[string] {
	s, _ := n.Field(key)
	return Value[string]{s.Value, s.Position}
}

// processors resolves the numbers of CPUs, as _parse_nodename does.
func (n *NodeLine) processors(number func(key string, bits, otherwise int) Value[int]) {
	n.Boards, n.CoresPerSocket, n.ThreadsPerCore = number("Boards", 16, 1), number("CoresPerSocket", 16, 1), number("ThreadsPerCore", 16, 1)
	n.Sockets = number("Sockets", 16, 1)
	n.CPUs = number("CPUs", 16, 1)
	if !n.CPUs.IsSet() {
		n.CPUs = number("Procs", 16, 1)
	}
	perBoard := number("SocketsPerBoard", 16, 1)
	for _, v := range []*Value[int]{&n.Boards, &n.CoresPerSocket, &n.ThreadsPerCore, &n.Sockets, &n.CPUs, &perBoard} {
		v.V = max(v.V, 1)
	}
	perSocket := n.CoresPerSocket.V * n.ThreadsPerCore.V
	switch {
	case perBoard.IsSet():
		n.Sockets = Value[int]{n.Boards.V * perBoard.V & 0xffff, perBoard.Position}
	case n.Sockets.IsSet():
	case n.CPUs.IsSet() && n.CPUs.V/perSocket > 0 && n.CPUs.V%perSocket == 0:
		n.Sockets.V = n.CPUs.V / perSocket
	default:
		n.Sockets.V = n.Boards.V
	}
	all := n.Sockets.V * perSocket & 0xffff // 16 bits
	if !n.CPUs.IsSet() {
		n.CPUs.V = all
	}
	if n.Sockets.V < n.Boards.V {
		n.Boards.V = 1
	}
	if n.CPUs.V != n.Sockets.V && n.CPUs.V != n.Sockets.V*n.CoresPerSocket.V && n.CPUs.V != n.Sockets.V*perSocket {
		n.CPUs.V = all
	}
}

// PartitionLine is a PartitionName line, with the values of PartitionName=DEFAULT lines before it.
type PartitionLine struct {
	Name    string
	Setting Setting // as it stands there

	Nodes   Value[string] // hostlist, names of node sets, or ALL
	Default Value[bool]
	State   Value[string] // UP by default
	MaxTime Value[string]

	// The partition's own; not set: the cluster's hold.
	ResumeTimeout, SuspendTimeout, SuspendTime Value[time.Duration]
	SelectTypeParameters                       Value[string]

	inherited Setting
}

// Field is a field of the line or, if it has none, of the DEFAULT lines before it. Some fields Slurm does not take from there:
// SuspendTime and SelectTypeParameters, for example.
func (p *PartitionLine) Field(key string) (Setting, bool) {
	return inherit(p.Setting, p.inherited, key, notInherited(key, true))
}

func newPartitionLine(s, inherited Setting) PartitionLine {
	p := PartitionLine{Name: s.Value, Setting: s, inherited: Setting{Fields: inherited.Fields[:len(inherited.Fields):len(inherited.Fields)]}}
	text := func(key, otherwise string) Value[string] {
		if s, ok := p.Field(key); ok {
			return Value[string]{s.Value, s.Position}
		}
		return Value[string]{V: otherwise}
	}
	p.Nodes, p.State, p.MaxTime, p.SelectTypeParameters = text("Nodes", ""), text("State", "UP"), text("MaxTime", "INFINITE"), text("SelectTypeParameters", "")
	p.Nodes.V = strings.Map(func(r rune) rune {
		if r < 0x80 && isSpace(byte(r)) {
			return ','
		}
		return r
	}, p.Nodes.V)
	if f, ok := p.Field("Default"); ok {
		yes, _ := parseBool(f.Value)
		p.Default = Value[bool]{yes, f.Position}
	}
	p.ResumeTimeout, p.SuspendTimeout = secondsOf(0)(p.Field("ResumeTimeout")), secondsOf(0)(p.Field("SuspendTimeout"))
	p.SuspendTime = suspendTime(p.Field("SuspendTime"))
	return p
}
