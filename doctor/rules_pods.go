package doctor

import (
	"slices"
	"strings"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// podRules are about what slurmd can do in a pod.
func podRules() []Rule {
	return []Rule{
		{
			Name: "config-overrides", Severity: Warning,
			Why:    "slurmd in a pod sees the whole machine: where that has fewer CPUs, or less memory, than the NodeName line slurmctld refuses the node, and where it differs otherwise it complains",
			Remedy: "SlurmdParameters=config_overrides",
			Source: "slurm.conf(5) SlurmdParameters config_overrides",
			check: func(f *Facts) []Finding {
				return wantsWord(f, f.saves() || f.dynamic(), "SlurmdParameters", "config_overrides")
			},
		},
		{
			Name: "process-plugins", Severity: Warning,
			Why: "a pod may not write to the cgroup tree unless it is privileged: slurmd does not start, or no job does. Kubernetes holds the pod to its size already",
			Remedy: "ProctrackType=proctrack/linuxproc, TaskPlugin=task/none, JobAcctGatherType=jobacct_gather/none, or linux with slurmdbd. They count for all nodes: with others that use cgroups, and for X11, " +
				"privileged pods",
			Source: "slurm.conf(5) ProctrackType, TaskPlugin, JobAcctGatherType; cgroup.conf(5)",
			check:  processPlugins,
		},
		{
			Name: "cgroup-plugin", Severity: Warning,
			Why:    "slurmd looks for the cgroup tree when it starts, and ends if it may not write to it",
			Remedy: "CgroupPlugin=disabled in cgroup.conf",
			Source: "cgroup.conf(5) CgroupPlugin",
			check:  cgroupPlugin,
		},
	}
}

func processPlugins(f *Facts) []Finding {
	if !f.saves() && !f.dynamic() {
		return nil
	}
	gather := "jobacct_gather/none"
	if storage, _ := f.Cluster.Get("AccountingStorageType"); strings.EqualFold(storage.Value, "accounting_storage/slurmdbd") {
		gather = "jobacct_gather/linux"
	}
	// Other nodes may have use for cgroups, and slurmctld does not start with X11 beside linuxproc: common/read_config.c.
	_, x11 := f.word("PrologFlags", "X11")
	alone := !slices.ContainsFunc(f.Cluster.Nodes, func(n slurmconf.NodeLine) bool { return !slurmconf.IsCloud(n.State.V) })
	var out []Finding
	for _, one := range []struct{ key, better string }{
		{"ProctrackType", "proctrack/linuxproc"}, {"TaskPlugin", "task/none"}, {"JobAcctGatherType", gather},
	} {
		have := f.plugin(one.key)
		if !strings.Contains(have.V, "cgroup") {
			continue
		}
		seen := one.key + "=" + have.V
		if !have.IsSet() {
			seen = "there is no " + one.key + ", so it is " + have.V
		}
		var edits []edit
		if alone && !x11 {
			edits = []edit{f.set(one.key, one.better)}
		}
		out = append(out, found(f.at(have.Position), "set "+one.key+"="+one.better, edits, "%s", seen))
	}
	return out
}

func cgroupPlugin(f *Facts) []Finding {
	if f.hides("cgroup.conf", f.Cgroup) || !f.saves() && !f.dynamic() {
		return nil
	}
	at := slurmconf.Position{File: strings.TrimSuffix(f.Directory, "/") + "/cgroup.conf"}
	seen := "there is no cgroup.conf, so CgroupPlugin is autodetect"
	if f.Cgroup != nil {
		s, ok := f.Cgroup.Get("CgroupPlugin")
		if ok && strings.EqualFold(s.Value, "disabled") {
			return nil
		}
		seen = "there is no CgroupPlugin, so it is autodetect"
		if ok {
			at, seen = s.Position, "CgroupPlugin="+s.Value
		}
	}
	return []Finding{found(at, "set CgroupPlugin=disabled in cgroup.conf", nil, "%s", seen)}
}
