package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// gresRules are about GPUs and other generic resources of cloud nodes.
func gresRules() []Rule {
	return []Rule{
		{
			Name: "gres-types", Severity: Error,
			Why:    "Slurm manages no generic resource that GresTypes does not name: the nodes have none, and jobs that ask for it are refused",
			Remedy: "GresTypes=gpu",
			Source: "slurm.conf(5) GresTypes",
			check:  gresTypes,
		},
		{
			Name: "gres-conf", Severity: Error,
			Why:    "slurmd counts what gres.conf tells it to: it registers with fewer than slurm.conf says, and slurmctld refuses it (INVALID_REG). GPUs without File do not count",
			Remedy: "NodeName=… Name=gpu File=/dev/nvidia[0-1] in gres.conf",
			Source: "gres.conf(5); src/interfaces/gres.c (\"Ignoring file-less GPU\"), src/slurmctld/node_mgr.c validate_node_specs",
			check:  gresConf,
		},
		{
			Name: "gres-autodetect", Severity: Warning,
			Why:    "gres.conf(5): AutoDetect cannot be used with cloud nodes. slurmctld does not know the files before the node is up",
			Remedy: "NodeName=… Name=gpu File=/dev/nvidia[0-1] in gres.conf, for the cloud nodes",
			Source: "gres.conf(5) AutoDetect",
			check:  gresAutodetect,
		},
	}
}

// gresOf are a line's generic resources by name. What cannot be read slurmconf says.
func gresOf(n slurmconf.NodeLine) map[string]int64 {
	all := map[string]int64{}
	list, err := slurmconf.ParseGres(n.Gres.V)
	if err != nil {
		return nil
	}
	for _, g := range list {
		all[g.Name] += g.Count
	}
	return all
}

func gresTypes(f *Facts) []Finding {
	var out []Finding
	said := map[string]bool{}
	for _, n := range f.cloud() {
		for name := range gresOf(n) {
			if said[name] || slices.Contains(f.Cluster.GresTypes.V, name) {
				continue
			}
			said[name] = true
			out = append(out, found(n.Gres.Position, "set GresTypes="+joined(f, "GresTypes", name), []edit{f.addWords("GresTypes", name)}, "%s have Gres=%s, and GresTypes has no %s", n.Names, n.Gres.V, name))
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.Seen, b.Seen) })
	return out
}

// gpuFiles are the GPUs with a File that gres.conf gives a node; known is false if that is found out on the node.
func (f *Facts) gpuFiles(n slurmconf.NodeLine) (count int64, known, any bool) {
	known = true
	if f.Gres == nil {
		return 0, known, false
	}
	for _, s := range f.Gres.Settings() {
		name, _ := s.Field("Name")
		auto, _ := s.Field("AutoDetect")
		switch strings.ToLower(s.Key) {
		case "autodetect":
			auto = s
		case "name":
			name = s
		case "nodename":
			if list, err := slurmconf.ParseHostlist(s.Value); err == nil && list.Intersect(n.Names).Len() == 0 {
				continue
			}
		}
		if auto.Value != "" && !strings.EqualFold(auto.Value, "off") {
			known = false
		}
		if name.Value != "gpu" {
			continue
		}
		any = true
		if file, ok := s.Field("File"); ok {
			files, err := slurmconf.ParseHostlist(file.Value)
			known = known && err == nil
			count += int64(files.Len())
		}
		if _, ok := s.Field("MultipleFiles"); ok { // of one GPU: gres.c _parse_gres_config
			count++
		}
	}
	return count, known, any
}

func gresConf(f *Facts) []Finding {
	if f.hides("gres.conf", f.Gres) {
		return nil
	}
	var out []Finding
	for _, n := range f.cloud() {
		want := gresOf(n)["gpu"]
		if s, ok := n.Field("GresConf"); want == 0 || ok && s.Value != "" { // 26.05: it stands on the line
			continue
		}
		have, known, any := f.gpuFiles(n)
		if !known || have >= want {
			continue
		}
		seen := fmt.Sprintf("%s have Gres=%s, and gres.conf has %d GPUs with File for them", n.Names, n.Gres.V, have)
		if !any {
			seen = fmt.Sprintf("%s have Gres=%s, and gres.conf has no line for them", n.Names, n.Gres.V)
		}
		out = append(out, found(n.Gres.Position, fmt.Sprintf("add to gres.conf: NodeName=%s Name=gpu File=/dev/nvidia[0-%d]", n.Names, want-1), nil, "%s", seen))
	}
	return out
}

func gresAutodetect(f *Facts) []Finding {
	if f.Gres == nil {
		return nil
	}
	var out []Finding
	for _, n := range f.cloud() {
		if gresOf(n)["gpu"] == 0 {
			continue
		}
		for _, s := range f.Gres.Settings() {
			auto, ok := s.Field("AutoDetect")
			if strings.EqualFold(s.Key, "AutoDetect") {
				auto, ok = s, true
			}
			if list, err := slurmconf.ParseHostlist(s.Value); strings.EqualFold(s.Key, "NodeName") && (err != nil || list.Intersect(n.Names).Len() == 0) {
				continue
			}
			if have, _, _ := f.gpuFiles(n); ok && !strings.EqualFold(auto.Value, "off") && have < gresOf(n)["gpu"] {
				out = append(out, found(auto.Position, fmt.Sprintf("add NodeName=%s Name=gpu File=/dev/nvidia[0-%d]", n.Names, gresOf(n)["gpu"]-1), nil,
					"AutoDetect=%s is to find the GPUs of %s, which have State=CLOUD", auto.Value, n.Names))
				break
			}
		}
	}
	return out
}
