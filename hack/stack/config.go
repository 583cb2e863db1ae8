package stack

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/slurmtide/slurmtide/slurmconf"
)

//go:embed slurm.conf.tmpl
var slurmConfTemplate string

// cgroupConf: a pod may not write to the cgroup tree, and Kubernetes limits it already.
const cgroupConf = "CgroupPlugin=disabled\n"

const (
	programDir   = "/opt/slurmtide"
	slurmctldPod = "slurmctld-0"
	// slurmctldPort is slurm.conf's SlurmctldPort.
	slurmctldPort = 6817
	hostAliases   = "hostaliases"
)

// programs are what slurm.conf names.
var programs = []string{"resume", "suspend", "resume-fail", "start-gate"}

// Render gives the stack's configuration files by name: slurm.conf, cgroup.conf, hostaliases, and, when there is something in them,
// gres.conf, topology.conf and slurmtide.conf.
func Render(o Options) (map[string]string, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("stack options: %w", err)
	}
	tmpl, err := template.New("slurm.conf").Option("missingkey=error").Parse(slurmConfTemplate)
	if err != nil {
		return nil, fmt.Errorf("parsing slurm.conf template: %w", err)
	}
	var b strings.Builder
	if err := tmpl.Execute(&b, struct {
		Options
		ControllerAddress, ProgramDir, GresTypes string
	}{o, controllerAddress(o), programDir, strings.Join(gresTypes(o.GresLines), ",")}); err != nil {
		return nil, fmt.Errorf("rendering slurm.conf: %w", err)
	}
	conf := b.String()
	if o.Accounting {
		conf = override(conf, accountingLines)
	}
	aliases, err := aliases(o)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"slurm.conf": override(conf, o.ExtraConf), "cgroup.conf": cgroupConf, hostAliases: aliases}
	if len(o.GresLines) > 0 {
		files["gres.conf"] = strings.Join(o.GresLines, "\n") + "\n"
	}
	if len(o.TopologyLines) > 0 {
		files["topology.conf"] = strings.Join(o.TopologyLines, "\n") + "\n"
	}
	if o.SlurmtideConf != "" {
		files["slurmtide.conf"] = o.SlurmtideConf
	}
	return files, nil
}

// controllerAddress is the pod's own name in the headless service, not the service's: the kubelet writes the former into the pod's
// /etc/hosts, so the control plane finds itself before DNS knows it, and no lookup made too early is remembered as "no such name".
// It has five dots, so resolvers with Kubernetes' ndots:5 try it as it is first.
func controllerAddress(o Options) string {
	return fmt.Sprintf("%s.%s.%s.svc.%s", slurmctldPod, serviceSlurmctld, o.Namespace, o.ClusterDomain)
}

// aliases is slurmctld's HOSTALIASES (see hostname(7)): nodes that are off have its own address, where no slurmd answers. Debian's
// slurmctld looks a name that has none up five times, with pauses, and answers nobody meanwhile.
func aliases(o Options) (string, error) {
	var b strings.Builder
	for _, line := range o.NodeLines {
		for _, field := range strings.Fields(line) {
			key, names, _ := strings.Cut(field, "=")
			if !strings.EqualFold(key, "NodeName") || strings.EqualFold(names, "DEFAULT") {
				continue
			}
			nodes, err := slurmconf.ParseHostlist(names)
			if err != nil {
				return "", fmt.Errorf("node line %q: %w", line, err)
			}
			for name := range nodes.All() {
				fmt.Fprintln(&b, name, controllerAddress(o))
			}
		}
	}
	return b.String(), nil
}

// override replaces the lines of conf whose keys stand in extra and appends the others. Slurm itself takes the last of two lines
// but every command then complains on stderr. Keys that may stand several times are only appended.
func override(conf string, extra []string) string {
	lines := strings.Split(strings.TrimSuffix(conf, "\n"), "\n")
	for _, add := range extra {
		i := -1
		if k := confKey(add); k != "" && !slices.Contains([]string{"nodename", "partitionname", "nodeset", "downnodes", "include", "prologslurmctld"}, k) {
			i = slices.IndexFunc(lines, func(l string) bool { return confKey(l) == k })
		}
		if i >= 0 {
			lines[i] = add
		} else {
			lines = append(lines, add)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// confKey is the line's key in lower case, empty for comments and blank lines.
func confKey(line string) string {
	line = strings.TrimSpace(line)
	key, _, ok := strings.Cut(line, "=")
	if !ok || strings.HasPrefix(line, "#") {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(key))
}

// gresTypes collects the names that gres.conf uses, in order of appearance.
func gresTypes(lines []string) []string {
	var names []string
	for _, line := range lines {
		for _, field := range strings.Fields(line) {
			key, value, _ := strings.Cut(field, "=")
			if strings.EqualFold(key, "Name") && !slices.Contains(names, value) {
				names = append(names, value)
			}
		}
	}
	return names
}
