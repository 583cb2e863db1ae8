package controlplane

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// Nodes whose names a NodeSet has no more, or whose NodeSet is gone, may have jobs as long as they have pods: those run on until Slurm powers the node down, or for
// the grace period of a pod that is being deleted. slurmctld ends the jobs of nodes and partitions that are not in its configuration (read_config.c
// _reset_job_bitmaps), so they stay in it until the pods are gone.

const maxNodeCount = "MaxNodeCount"

// loses says whether a slurm.conf has less room for nodes than the one before it.
func loses(now, before string) bool {
	if now == before {
		return false
	}
	f, old := conf(now), conf(before)
	names := cloudNames(f)
	for _, s := range records(old, "NodeName") {
		if list, ok := cloudLine(s); ok && list.Minus(names).Len() > 0 {
			return true
		}
	}
	for _, s := range records(old, "NodeSet") {
		if _, dynamic := s.Field("Feature"); dynamic && !hasRecord(f, s) {
			return true
		}
	}
	_, room := f.Get(maxNodeCount)
	_, hadRoom := old.Get(maxNodeCount)
	return hadRoom && !room
}

// addOutgoing keeps those lines of the slurm.conf before that nodes with pods need. up are these nodes, with the names of their NodeSets. Partitions that nobody
// wants any more let their jobs run on, and take no new ones.
func addOutgoing(f *slurmconf.File, before string, up map[string]string) error {
	old, names := conf(before), cloudNames(f)
	var lines, kept []string
	goes := map[string]bool{} // NodeSets of nodes that go
	for node, set := range up {
		if !names.Contains(node) {
			goes[set] = true
		}
	}
	for _, s := range records(old, "NodeName") {
		list, _ := cloudLine(s)
		var stay []string
		for name := range list.Minus(names).All() {
			if _, there := up[name]; there {
				stay = append(stay, name)
			}
		}
		if stay != nil {
			kept = append(kept, stay...)
			lines = append(lines, line("NodeName", slurmconf.NewHostlist(stay...).String(), s.Fields))
		}
	}
	those := slurmconf.NewHostlist(kept...)
	members, dynamic := map[string]slurmconf.Hostlist{}, map[string]bool{} // of NodeSets of the slurm.conf before
	for _, s := range records(old, "NodeSet") {
		if nodes, ok := s.Field("Nodes"); ok {
			members[s.Value], _ = slurmconf.ParseHostlist(nodes.Value)
		}
		if _, ok := s.Field("Feature"); ok && goes[s.Value] && !hasRecord(f, s) {
			dynamic[s.Value] = true
			lines = append(lines, line("NodeSet", s.Value, s.Fields))
		}
	}
	for _, s := range records(old, "PartitionName") {
		nodes, _ := s.Field("Nodes")
		list, err := slurmconf.ParseHostlist(nodes.Value)
		if err != nil || hasRecord(f, s) {
			continue
		}
		var stay []string
		for name := range list.All() {
			switch all, ok := members[name]; {
			case ok:
				stay = append(stay, all.Intersect(those).Expand()...)
			case those.Contains(name) || dynamic[name]:
				stay = append(stay, name)
			}
		}
		if stay != nil {
			lines = append(lines, fmt.Sprintf("PartitionName=%s Nodes=%s State=INACTIVE", s.Value, slurmconf.NewHostlist(stay...)))
		}
	}
	if lines != nil {
		if err := f.Add("\n# --- nodes that go when their jobs have ended ---\n" + strings.Join(lines, "\n")); err != nil {
			return fmt.Errorf("keeping the lines of nodes that go: %w", err)
		}
	}
	if _, room := f.Get(maxNodeCount); !room && len(goes) > 0 {
		if had, ok := old.Get(maxNodeCount); ok {
			if err := f.Add(maxNodeCount + "=" + had.Value); err != nil {
				return err
			}
			return f.AddWords("SuspendExcStates", "DYNAMIC_NORM")
		}
	}
	return nil
}

// keepRoom leaves MaxNodeCount at no less than before, since there may be records of nodes that go. What the user says counts.
func keepRoom(f *slurmconf.File, before, extra string) error {
	if _, theirs := conf(extra).Get(maxNodeCount); theirs {
		return nil
	}
	number := func(f *slurmconf.File) int {
		s, _ := f.Get(maxNodeCount)
		n, _ := strconv.Atoi(s.Value)
		return n
	}
	if now, then := number(f), number(conf(before)); now > 0 && then > now {
		return f.Set(maxNodeCount, strconv.Itoa(then))
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

func hasRecord(f *slurmconf.File, of slurmconf.Setting) bool {
	for _, s := range records(f, of.Key) {
		if strings.EqualFold(s.Value, of.Value) {
			return true
		}
	}
	return false
}

// cloudLine are the nodes of a line that are powered up and down.
func cloudLine(s slurmconf.Setting) (nodes slurmconf.Hostlist, ok bool) {
	if state, _ := s.Field("State"); !strings.HasPrefix(strings.ToUpper(state.Value), "CLOUD") {
		return nodes, false
	}
	nodes, err := slurmconf.ParseHostlist(s.Value)
	return nodes, err == nil
}

func cloudNames(f *slurmconf.File) (all slurmconf.Hostlist) {
	for _, s := range records(f, "NodeName") {
		if list, err := slurmconf.ParseHostlist(s.Value); err == nil {
			all = all.Append(list)
		}
	}
	return all
}

// line writes a record.
func line(key, value string, fields []slurmconf.Setting) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s=%s", key, value)
	for _, s := range fields {
		text := s.Value
		if strings.ContainsAny(text, " \t") {
			text = `"` + text + `"`
		}
		fmt.Fprintf(&b, " %s=%s", s.Key, text)
	}
	return b.String()
}
