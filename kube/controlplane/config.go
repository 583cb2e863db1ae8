package controlplane

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// slurmConf is what every cluster's slurm.conf begins with.
//
//go:embed slurm.conf
var slurmConf []byte

// cgroupConf stands unless the user has a cgroup.conf: a pod may not write to the cgroup tree, and Kubernetes limits it already.
const cgroupConf = "CgroupPlugin=disabled\n"

const extraConf = "spec.extraConf"

// lists are keys whose words are merged with those of extraConf.
var lists = []string{"SlurmctldParameters", "SlurmdParameters", "SchedulerParameters", "AuthInfo", "AuthAltParameters", "GresTypes", "SuspendExcStates", "PrologFlags"}

// reserved are keys that extraConf may not have, and what decides on them.
var reserved = map[string]string{
	"clustername":       "it is spec.clusterName",
	"slurmctldhost":     "the Controller's name and spec.backups decide",
	"slurmctldport":     "Services and probes know the port",
	"slurmuser":         "the programs and the bridge run as the same user",
	"statesavelocation": "the volume is mounted there (spec.persistence)",
	"slurmctldpidfile":  "slurmctld's user may write nowhere else",
	"authtype":          "the keys are those of auth/slurm",
	"credtype":          "the keys are those of auth/slurm",
	"authalttypes":      "the bridge needs auth/jwt",
	"resumeprogram":     "it is Slurmtide's",
	"suspendprogram":    "it is Slurmtide's",
	"resumefailprogram": "it is Slurmtide's",
}

// Cluster is what a configuration is made of.
type Cluster struct {
	Controller *v1alpha1.Controller
	// NodeSets are those of the cluster, in any order.
	NodeSets []*v1alpha1.NodeSet
	// Files are those of spec.configFileRefs, the later ones' in place of the earlier ones'.
	Files map[string]string
	// Scripts are those of spec.prologScriptRefs and its like, by the field's name.
	Scripts map[string]map[string]string
	// JWKS is the key set of spec.jwksKeyRef, or "".
	JWKS string
	// Accounting is that of spec.accountingRef, or nil.
	Accounting *v1alpha1.Accounting
	Settings   Settings
	// Before is the slurm.conf that the cluster has had so far, or "", and Up are the nodes that have pods, with the names of their NodeSets: see outgoing.go.
	Before string
	Up     map[string]string
}

// scriptFields are the fields of a Controller that have scripts, with the key of slurm.conf and the directory that is put before their names. Those of slurmd
// have none: then slurmctld hands them out with the configuration.
var scriptFields = []struct {
	field, key, dir string
	refs            func(*v1alpha1.ControllerSpec) []v1alpha1.ObjectRef
}{
	{"spec.prologScriptRefs", "Prolog", "", func(s *v1alpha1.ControllerSpec) []v1alpha1.ObjectRef { return s.PrologScriptRefs }},
	{"spec.epilogScriptRefs", "Epilog", "", func(s *v1alpha1.ControllerSpec) []v1alpha1.ObjectRef { return s.EpilogScriptRefs }},
	{"spec.prologSlurmctldScriptRefs", "PrologSlurmctld", etcDir + "/", func(s *v1alpha1.ControllerSpec) []v1alpha1.ObjectRef { return s.PrologSlurmctldScriptRefs }},
	{"spec.epilogSlurmctldScriptRefs", "EpilogSlurmctld", etcDir + "/", func(s *v1alpha1.ControllerSpec) []v1alpha1.ObjectRef { return s.EpilogSlurmctldScriptRefs }},
}

// ownFiles are files that only Slurmtide makes, each with what to do in place of giving one.
var ownFiles = map[string]string{
	"slurm.conf":    "write lines for it into spec.extraConf",
	"slurmdbd.conf": "write lines for it into spec.extraConf of the Accounting",
	hostAliases:     "it gives the names of nodes that are off an address; other names belong into DNS, or into a file of another name",
	SlurmKey:        "name a key of your own in spec.slurmKeyRef",
	JWTKey:          "name a key of your own in spec.jwtKeyRef",
}

func ownFile(name string) bool {
	_, own := ownFiles[name]
	return own
}

// Config makes slurmctld's configuration files, by name. An error says what is wrong in the objects; what slurmctld alone can
// know is left to it.
func Config(c Cluster) (map[string]string, error) {
	c.NodeSets = byName(c.NodeSets)
	goes := c.outgoing()
	files := map[string]string{"cgroup.conf": cgroupConf, hostAliases: aliases(c, goes)}
	for name, text := range c.Files {
		if ownFile(name) {
			return nil, fmt.Errorf("spec.configFileRefs: one of the ConfigMaps has %s, which is made by Slurmtide: %s", name, ownFiles[name])
		}
		if strings.HasPrefix(name, ".") {
			return nil, fmt.Errorf("spec.configFileRefs: one of the ConfigMaps has %s: give it a name that does not begin with a dot, such files are left out", name)
		}
		files[name] = text
	}
	f, err := slurmconf.ParseFile("slurm.conf", slurmConf)
	if err != nil {
		return nil, fmt.Errorf("reading our own slurm.conf: %w", err)
	}
	if err := errors.Join(
		f.Set("ClusterName", ClusterName(c.Controller)),
		f.Insert("SlurmctldPort", controllerLines(c.Controller, c.Settings)),
	); err != nil {
		return nil, err
	}
	if c.Controller.Spec.Metrics.Enabled {
		if err := f.Add("\n# --- spec.metrics ---\nMetricsType=metrics/openmetrics"); err != nil {
			return nil, err
		}
	}
	if c.JWKS != "" {
		if _, theirs := files[jwksFile]; theirs {
			return nil, fmt.Errorf("%s: one of the ConfigMaps of spec.configFileRefs has %s, too: remove one of them", jwksField, jwksFile)
		}
		files[jwksFile] = c.JWKS
		if err := addJWKS(f); err != nil {
			return nil, err
		}
	}
	if err := addAccounting(f, c.Accounting, c.Settings); err != nil {
		return nil, err
	}
	if err := addNodeSets(f, c.NodeSets, goes); err != nil {
		return nil, err
	}
	if err := addSSH(f, c.NodeSets, files); err != nil {
		return nil, err
	}
	if err := addScripts(f, c.Scripts, files); err != nil {
		return nil, err
	}
	if err := addExtra(f, c.Controller.Spec.ExtraConf, ClusterName(c.Controller), files, c.Accounting); err != nil {
		return nil, err
	}
	if err := goes.keepRoom(f, c.Controller.Spec.ExtraConf); err != nil {
		return nil, err
	}
	files["slurm.conf"] = f.String()
	size := 0
	for name, text := range files {
		size += len(name) + len(text)
	}
	if size > mostBytes {
		files[hostAliases] = ""
	}
	return files, accountingIncluded(files, c.Accounting)
}

// ClientConfig is the configuration of slurmrestd: what it takes to find slurmctld and to trust it. No extraConf can spoil it.
func ClientConfig(c *v1alpha1.Controller, s Settings) (map[string]string, error) {
	f, err := slurmconf.ParseFile("slurm.conf", []byte("# Made by Slurmtide, for slurmrestd.\n"))
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		f.Set("ClusterName", ClusterName(c)), f.Add(controllerLines(c, s)), f.Set("SlurmctldPort", fmt.Sprint(controllerPort(c))), f.Set("SlurmUser", "slurm"),
		f.Set("AuthType", "auth/slurm"), f.Set("CredType", "auth/slurm"), f.Set("AuthAltTypes", "auth/jwt"),
	)
	return map[string]string{"slurm.conf": f.String()}, err
}

// hostAliases is what HOSTALIASES of slurmctld names, see hostname(7).
const hostAliases = "hostaliases"

// mostAliases is the number of nodes whose aliases a ConfigMap has room for beside everything else, as long as that is not larger than usual. With more nodes
// there are none.
const mostAliases = 10_000

// mostBytes is what the files may have together; a ConfigMap takes 1 MiB.
const mostBytes = 900 << 10

// aliases gives nodes that are off the address of slurmctld's own pods, where no slurmd answers. slurmctld looks the nodes of a job up that ends while
// they boot; Debian's tries a name without an address five times, with pauses, and answers nobody meanwhile.
func aliases(c Cluster, goes outgoing) string {
	var b strings.Builder
	most := mostAliases - goes.names.Len()
	for _, set := range c.NodeSets {
		names, err := slurmconf.ParseHostlist(set.Spec.NodeNames)
		if err != nil || set.Spec.Mode == v1alpha1.ModeDynamic {
			continue // the first is said by addNodeSets; the others have no record while they are off
		}
		if most -= names.Len(); most < 0 {
			return ""
		}
		for name := range names.All() {
			fmt.Fprintln(&b, name, workload(c.Controller.Name))
		}
	}
	for name := range goes.names.All() {
		fmt.Fprintln(&b, name, workload(c.Controller.Name))
	}
	return b.String()
}

// byName sorts: the order in which they are listed is no change.
func byName(sets []*v1alpha1.NodeSet) []*v1alpha1.NodeSet {
	return slices.SortedFunc(slices.Values(sets), func(a, b *v1alpha1.NodeSet) int { return strings.Compare(a.Name, b.Name) })
}

// addNodeSets writes the nodes of mode Cloud, and what partitions can be made of. slurmctld refuses a configuration that names a node twice: the names that a
// NodeSet shares with an older one are left out, of which its own status tells, so that it holds up no change of the cluster. Behind them come the nodes that go, in
// front of the user's lines: defaults for nodes there are for the user's.
func addNodeSets(f *slurmconf.File, sets []*v1alpha1.NodeSet, goes outgoing) error {
	var partitions []string
	dynamic, most := goes.dynamic, goes.names.Len()
	gres := map[string]bool{}
	addGres := func(list string) {
		for name := range strings.SplitSeq(list, ",") {
			if name, _, _ = strings.Cut(name, ":"); name != "" {
				gres[name] = true
			}
		}
	}
	for _, s := range goes.nodes {
		list, _ := s.Field("Gres")
		addGres(list.Value)
	}
	var lines []string
	if len(sets) > 0 {
		lines = []string{"", "# --- NodeSets ---"}
	}
	own := pods.OwnNames(sets)
	nodes := map[string]bool{} // slurmctld refuses a NodeSet that is called like one of them: read_config.c _validate_conf_nodeset_vs_nodenames
	for name := range goes.names.All() {
		nodes[name] = true
	}
	for _, set := range sets {
		if set.Spec.Mode != v1alpha1.ModeDynamic {
			for name := range own[set.Name].All() {
				nodes[name] = true
			}
		}
	}
	for _, set := range sets {
		if word := strings.ToUpper(set.Name); word == "ALL" || word == "DEFAULT" {
			return fmt.Errorf("NodeSet %s: Slurm has this word for itself: make the NodeSet anew with another name", set.Name)
		}
		names, err := slurmconf.ParseHostlist(set.Spec.NodeNames)
		if err != nil {
			return fmt.Errorf("NodeSet %s: spec.nodeNames: %w", set.Name, err)
		}
		text, members := set.Spec.NodeNames, set.Name
		if its := own[set.Name]; its.Len() < names.Len() {
			names, text = its, its.String()
		}
		switch none := names.Len() == 0; {
		case none && set.Spec.NodeNames != "":
			lines = append(lines, fmt.Sprintf("# NodeSet %s: all its nodes are those of older ones", set.Name))
			continue
		case none && nodes[set.Name]:
			lines = append(lines, fmt.Sprintf("# NodeSet %s: it has no nodes yet, and a node has its name", set.Name))
			continue
		}
		most += names.Len()
		addGres(set.Spec.Shape.Gres)
		if set.Spec.Mode == v1alpha1.ModeDynamic {
			dynamic = true
			if nodes[set.Name] {
				lines = append(lines, fmt.Sprintf("# NodeSet %s: a node has its name, so there is neither a NodeSet nor a partition of it", set.Name))
				continue
			}
			if !slices.Contains(set.Spec.Shape.Features, set.Name) {
				continue // nothing tells its nodes from others': partitions of spec.extraConf have them
			}
			lines = append(lines, fmt.Sprintf("NodeSet=%s Feature=%s", set.Name, set.Name))
		} else if names.Len() == 0 { // partitions may name it, and jobs may wait for its hosts: there is to be one, of a feature that no node has
			lines = append(lines, fmt.Sprintf("NodeSet=%s Feature=slurmtide.no-host", set.Name))
		} else {
			lines = append(lines, fmt.Sprintf("NodeName=%s %s State=CLOUD", text, pods.NodeLine(&set.Spec.Shape)))
			if nodes[set.Name] {
				members = text
			} else {
				lines = append(lines, fmt.Sprintf("NodeSet=%s Nodes=%s", set.Name, text))
			}
		}
		if p := set.Spec.Partition; p == nil || p.Enabled == nil || *p.Enabled {
			config := ""
			if p != nil && strings.TrimSpace(p.Config) != "" {
				config = " " + strings.TrimSpace(p.Config)
			}
			partitions = append(partitions, fmt.Sprintf("PartitionName=%s Nodes=%s%s", set.Name, members, config))
		}
	}
	if dynamic {
		lines = append(lines, "# Nodes that register themselves need room in slurmctld's tables, and Slurmtide takes them down itself.",
			fmt.Sprintf("MaxNodeCount=%d", most), "SuspendExcStates=DYNAMIC_NORM")
	}
	if lines = slices.Concat(lines, partitions, goes.lines(partitions)); lines == nil {
		return nil
	}
	if err := f.Add(strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("writing the lines of NodeSets: %w", err)
	}
	if len(gres) > 0 {
		return f.AddWords("GresTypes", slices.Sorted(maps.Keys(gres))...)
	}
	return nil
}

// addScripts names the scripts in slurm.conf and puts them among the files.
func addScripts(f *slurmconf.File, scripts map[string]map[string]string, files map[string]string) error {
	for _, kind := range scriptFields {
		for _, name := range slices.Sorted(maps.Keys(scripts[kind.field])) {
			text := scripts[kind.field][name]
			if ownFile(name) || strings.HasPrefix(name, ".") {
				return fmt.Errorf("%s: a script cannot be called %s: give it another name, without a dot in front", kind.field, name)
			}
			if have, ok := files[name]; ok && have != text {
				return fmt.Errorf("%s: there are two files %s: give one of them another name", kind.field, name)
			}
			if !strings.HasPrefix(text, "#!") {
				return fmt.Errorf("%s: %s does not begin with #!: name its interpreter, for example #!/bin/sh", kind.field, name)
			}
			files[name] = text
			if err := f.Add(kind.key + "=" + kind.dir + name); err != nil {
				return fmt.Errorf("%s: %w", kind.field, err)
			}
		}
	}
	return nil
}

// addExtra puts the user's lines behind ours. files are those that lie beside slurm.conf.
func addExtra(f *slurmconf.File, text, cluster string, files map[string]string, a *v1alpha1.Accounting) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	extra, err := slurmconf.ParseFile(extraConf, []byte(text))
	if err != nil {
		return err
	}
	if err := refuse(extra, nil); err != nil {
		return err
	}
	if err := accountingExtra(extra, a); err != nil {
		return err
	}
	if err := checkIncludes(extra, cluster, files, nil); err != nil {
		return err
	}
	if err := makeRoom(f, extra, cluster, files); err != nil {
		return err
	}
	if err := f.Add("\n# --- " + extraConf + " ---"); err != nil {
		return err
	}
	if err := f.Merge(extra, lists...); err != nil {
		return fmt.Errorf("%s: %w", extraConf, err)
	}
	return nil
}

// makeRoom counts the user's nodes into MaxNodeCount, which is for those of slurm.conf as well, also in what is included. If the user says how many, that counts
// (Merge).
func makeRoom(f, extra *slurmconf.File, cluster string, files map[string]string) error {
	ours, dynamic := f.Get(maxNodeCount)
	if !dynamic {
		return nil
	}
	most, err := strconv.Atoi(ours.Value)
	if err != nil {
		return fmt.Errorf("reading our own %s: %w", maxNodeCount, err)
	}
	eachLine(extra, cluster, files, func(s slurmconf.Setting) {
		if strings.EqualFold(s.Key, "NodeName") && !strings.EqualFold(s.Value, "DEFAULT") {
			names, _ := slurmconf.ParseHostlist(s.Value) // slurmctld says what is wrong with it
			most += names.Len()
		}
	})
	return f.Set(maxNodeCount, strconv.Itoa(most))
}
