package controlplane

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Nodes whose names a NodeSet has no more, or whose NodeSet is gone, may have jobs as long as they have pods: those run on until Slurm powers the node down, or for
// the grace period of a pod that is being deleted. slurmctld ends the jobs of nodes and partitions that are not in its configuration (read_config.c
// _reset_job_bitmaps), so they stay in it until the pods are gone.

const (
	maxNodeCount = "MaxNodeCount"
	// mostNodes is the largest MaxNodeCount that slurmctld takes (read_config.c).
	mostNodes = 65536
	// outgoingMark stands above the lines that are kept.
	outgoingMark = "# --- nodes that go when their jobs have ended ---"
)

// outgoing is what stays of the slurm.conf before.
type outgoing struct {
	names      slurmconf.Hostlist // of mode Cloud
	nodes      []slurmconf.Setting
	sets       []slurmconf.Setting // NodeSets of slurm.conf, of nodes that register themselves
	partitions []slurmconf.Setting
	dynamic    bool // nodes that register themselves go
	room       int  // MaxNodeCount before; 0: there was none
}

// loses says whether a slurm.conf has less room for nodes and jobs than the one before it.
func loses(now, before string) bool {
	if now == before {
		return false
	}
	f, old := conf(now), conf(before)
	var names slurmconf.Hostlist
	for _, s := range records(f, "NodeName") {
		list, _ := slurmconf.ParseHostlist(s.Value)
		names = names.Append(list)
	}
	for _, s := range records(old, "NodeName") {
		if list, ok := cloudLine(s); ok && list.Minus(names).Len() > 0 {
			return true
		}
	}
	for _, key := range []string{"NodeSet", "PartitionName"} {
		for _, s := range records(old, key) {
			if !slices.ContainsFunc(records(f, key), same(s)) {
				return true
			}
		}
	}
	_, room := f.Get(maxNodeCount)
	_, hadRoom := old.Get(maxNodeCount)
	return hadRoom && !room
}

// outgoing finds what c.Up needs of c.Before.
func (c Cluster) outgoing() (o outgoing) {
	old := conf(c.Before)
	room, _ := old.Get(maxNodeCount)
	if o.room, _ = strconv.Atoi(room.Value); o.room > mostNodes {
		o.room = 0 // slurmctld has not taken it
	}
	if len(c.Up) == 0 {
		return o
	}
	current, names := map[string]bool{}, map[string]bool{}
	own := pods.OwnNames(c.NodeSets)
	for _, set := range c.NodeSets {
		current[set.Name] = true
		for name := range own[set.Name].All() {
			names[name] = true
		}
	}
	var theirs []slurmconf.Setting // partitions of the user's lines
	eachLine(conf(c.Controller.Spec.ExtraConf), ClusterName(c.Controller), c.Files, func(s slurmconf.Setting) {
		switch {
		case strings.EqualFold(s.Key, "NodeName"):
			list, _ := slurmconf.ParseHostlist(s.Value)
			for name := range list.All() {
				names[name] = true
			}
		case strings.EqualFold(s.Key, "PartitionName"):
			theirs = append(theirs, s)
		}
	})
	var kept []string
	for _, s := range records(old, "NodeName") {
		list, _ := cloudLine(s)
		var stay []string
		for name := range list.All() {
			if _, up := c.Up[name]; up && !names[name] {
				stay = append(stay, name)
			}
		}
		if stay != nil {
			kept = append(kept, stay...)
			s.Value = slurmconf.NewHostlist(stay...).String()
			o.nodes = append(o.nodes, s)
		}
	}
	o.names = slurmconf.NewHostlist(kept...)
	goes := map[string]bool{} // NodeSets that are gone while nodes have pods
	for node, set := range c.Up {
		goes[set] = goes[set] || !current[set]
		o.dynamic = o.dynamic || !names[node] && !o.names.Contains(node)
	}
	members := map[string]slurmconf.Hostlist{} // of NodeSets of the slurm.conf before
	for _, s := range records(old, "NodeSet") {
		if nodes, ok := s.Field("Nodes"); ok {
			members[s.Value], _ = slurmconf.ParseHostlist(nodes.Value)
		}
		if _, ok := s.Field("Feature"); ok && goes[s.Value] {
			o.sets = append(o.sets, s)
		}
	}
	for _, s := range records(old, "PartitionName") {
		if slices.ContainsFunc(theirs, same(s)) {
			continue
		}
		nodes, _ := s.Field("Nodes")
		list, _ := slurmconf.ParseHostlist(nodes.Value)
		var stay []string
		for name := range list.All() {
			all, ok := members[name]
			if !ok {
				all = slurmconf.NewHostlist(name)
			}
			for node := range all.All() {
				if set, up := c.Up[node]; up && (goes[set] || o.names.Contains(node)) || slices.ContainsFunc(o.sets, func(s slurmconf.Setting) bool { return s.Value == node }) {
					stay = append(stay, node)
				}
			}
		}
		if stay != nil { // jobs run on, and no others come
			s.Fields = []slurmconf.Setting{{Key: "Nodes", Value: slurmconf.NewHostlist(stay...).String()}, {Key: "State", Value: "INACTIVE"}}
			o.partitions = append(o.partitions, s)
		}
	}
	return o
}

// lines are those for slurm.conf, without partitions that there are.
func (o outgoing) lines(partitions []string) (all []string) {
	made := records(conf(strings.Join(partitions, "\n")), "PartitionName")
	stay := slices.DeleteFunc(slices.Clone(o.partitions), func(s slurmconf.Setting) bool { return slices.ContainsFunc(made, same(s)) })
	for _, s := range slices.Concat(o.nodes, o.sets, stay) {
		all = append(all, line(s))
	}
	if all != nil {
		all = append([]string{"", outgoingMark}, all...)
	}
	return all
}

// keepRoom leaves MaxNodeCount at no less than before, since there may be records of nodes that go. What the user says counts.
func (o outgoing) keepRoom(f *slurmconf.File, extra string) error {
	s, _ := f.Get(maxNodeCount)
	if _, theirs := conf(extra).Get(maxNodeCount); theirs {
		return nil
	}
	if now, _ := strconv.Atoi(s.Value); now > 0 && o.room > now {
		return f.Set(maxNodeCount, strconv.Itoa(o.room))
	}
	return nil
}

// conf reads what was read before, or will be: an error is said there.
func conf(text string) *slurmconf.File {
	f, err := slurmconf.ParseFile("slurm.conf", []byte(text))
	if err != nil {
		f, _ = slurmconf.ParseFile("slurm.conf", nil)
	}
	return f
}

// records are the lines that begin with a key, but for those of defaults.
func records(f *slurmconf.File, key string) (all []slurmconf.Setting) {
	for _, s := range f.Settings() {
		if strings.EqualFold(s.Key, key) && !strings.EqualFold(s.Value, "DEFAULT") {
			all = append(all, s)
		}
	}
	return all
}

// same finds the record of the same name.
func same(as slurmconf.Setting) func(slurmconf.Setting) bool {
	return func(s slurmconf.Setting) bool { return strings.EqualFold(s.Value, as.Value) }
}

// cloudLine are the nodes of a line that are powered up and down.
func cloudLine(s slurmconf.Setting) (nodes slurmconf.Hostlist, ok bool) {
	if state, _ := s.Field("State"); !slurmconf.IsCloud(state.Value) {
		return nodes, false
	}
	nodes, err := slurmconf.ParseHostlist(s.Value)
	return nodes, err == nil
}

// line writes a record.
func line(of slurmconf.Setting) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s=%s", of.Key, of.Value)
	for _, s := range of.Fields {
		text := s.Value
		if strings.ContainsAny(text, " \t") {
			text = `"` + text + `"`
		}
		fmt.Fprintf(&b, " %s=%s", s.Key, text)
	}
	return b.String()
}
