package stack

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
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
)

// programs are what slurm.conf names.
var programs = []string{"resume", "suspend", "resume-fail", "start-gate"}

// Render gives the stack's configuration files by name: slurm.conf, cgroup.conf, gres.conf, topology.conf and slurmtide.conf, the latter
// three when there is something in them.
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
	files := map[string]string{"slurm.conf": override(conf, o.ExtraConf), "cgroup.conf": cgroupConf}
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
