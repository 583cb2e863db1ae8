package doctor

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// programs are those that slurm.conf has to name, with the names that ours have.
var programs = []struct{ key, name string }{
	{"ResumeProgram", "resume"}, {"SuspendProgram", "suspend"}, {"ResumeFailProgram", "resume-fail"}, {"PrologSlurmctld", "start-gate"},
}

// defaultDir is where docs/install.md puts them.
const defaultDir = "/opt/slurmtide"

// programRules are about the programs that slurmctld runs.
func programRules() []Rule {
	return []Rule{
		{
			Name: "power-saving-programs", Severity: Error,
			Why:    "without both programs slurmctld turns power saving off: no node is ever powered up, and jobs wait for nodes that are off",
			Remedy: "ResumeProgram=/opt/slurmtide/resume and SuspendProgram=/opt/slurmtide/suspend",
			Source: "slurm.conf(5) ResumeProgram, SuspendProgram; src/slurmctld/power_save.c _init_power_config",
			check:  func(f *Facts) []Finding { return missingProgram(f, "ResumeProgram", "SuspendProgram") },
		},
		{
			Name: "resume-fail-program", Severity: Warning,
			Why:    "nobody tells the bridge that slurmctld gave up on a node at ResumeTimeout: its pod stays until it is found by comparing the two sides, and the node's reason does not say how far the boot came",
			Remedy: "ResumeFailProgram=/opt/slurmtide/resume-fail",
			Source: "slurm.conf(5) ResumeFailProgram; src/slurmctld/power_save.c",
			check:  func(f *Facts) []Finding { return missingProgram(f, "ResumeFailProgram") },
		},
		{
			Name: "start-gate", Severity: Hint,
			Why: "batch jobs start at slurmctld's next scan, up to 30 s after their last node has registered; and a job whose nodes all boot for others already is unknown to the bridge, " +
				"so that it is requeued without being told why if they cannot boot",
			Remedy: "PrologSlurmctld=/opt/slurmtide/start-gate (a site's own program goes along: GateChain= of slurmtide.conf, or a line of its own)",
			Source: "slurm.conf(5) PrologSlurmctld; src/slurmctld/job_scheduler.c, src/slurmctld/controller.c PERIODIC_TIMEOUT",
			check:  missingGate,
		},
		{
			Name: "gate-time", Severity: Hint,
			Why:    "the start gate stops in time for slurmctld not to kill it, which is before nodes that take longer have booted; their jobs start at the next scan, up to 30 s late",
			Remedy: "PrologEpilogTimeout (from 26.05 on PrologTimeout) not shorter than ResumeTimeout, or none",
			Source: "slurm.conf(5) PrologEpilogTimeout, PrologTimeout",
			check:  gateTime,
		},
		{
			Name: "program-path", Severity: Error,
			Why:    "slurmctld runs nothing but absolute paths, and turns power saving off if one of the programs is none",
			Remedy: "the absolute path of the program; from 26.05 on the name of a PowerAction may stand there",
			Source: "slurm.conf(5) ResumeProgram, PowerAction; src/slurmctld/power_save.c _valid_prog (24.11), src/common/power_action.c power_action_valid_prog (26.05)",
			check:  relativePrograms,
		},
		{
			Name: "programs-mixed-up", Severity: Error,
			Why:    "each program tells the bridge what slurmctld wants: with two of them exchanged nodes are powered down when jobs need them",
			Remedy: "each key with the program of its name",
			Source: "docs/slurm-conf.md",
			check:  mixedUp,
		},
		{
			Name: "resume-on-slurmd", Severity: Error,
			Why:    "the slurmd of a node that is off cannot power it up: slurmctld refuses the PowerAction",
			Remedy: "Location=slurmctld on the PowerAction line",
			Source: "slurm.conf(5) PowerAction; src/slurmctld/power_save.c power_save_valid_action_default",
			check:  resumeOnSlurmd,
		},
	}
}

// programDir is where the other programs lie.
func (f *Facts) programDir() string {
	for _, p := range programs {
		if s, ok := f.Cluster.Get(p.key); ok && path.IsAbs(s.Value) && path.Base(s.Value) == p.name {
			return path.Dir(s.Value)
		}
	}
	return defaultDir
}

// missingProgram wants keys. Source: power_save.c _init_power_config.
func missingProgram(f *Facts, keys ...string) []Finding {
	if !f.saves() {
		return nil
	}
	var out []Finding
	for _, p := range programs {
		if !slices.Contains(keys, p.key) {
			continue
		}
		if s, ok := f.Cluster.Get(p.key); !ok || s.Value == "" {
			program := f.programDir() + "/" + p.name
			out = append(out, found(f.at(s.Position), "set "+p.key+"="+program, []edit{f.set(p.key, program)}, "there is no %s", p.key))
		}
	}
	return out
}

// gate is where the start gate lies, if it lies with the others.
func (f *Facts) gate() string { return f.programDir() + "/start-gate" }

// missingGate looks for our gate; one that a script calls is not seen, so what calls it may bear its name.
func missingGate(f *Facts) []Finding {
	if !f.saves() || slices.ContainsFunc(f.Cluster.PrologSlurmctld, func(p slurmconf.Value[string]) bool { return strings.Contains(path.Base(p.V), "start-gate") }) {
		return nil
	}
	line := "PrologSlurmctld=" + f.gate()
	var edits []edit
	if file, ok := f.file(f.gate()); ok && file.Exists { // without the file slurmctld would not start: prep_script.c init
		edits = []edit{add(line)}
	}
	return []Finding{found(f.at(slurmconf.Position{}), "add "+line, edits, "no PrologSlurmctld is a start gate")}
}

func gateTime(f *Facts) []Finding {
	limit := f.Cluster.PrologTimeout
	if len(missingGate(f)) > 0 || !limit.IsSet() || limit.V == 0 {
		return nil
	}
	var nodes slurmconf.NodeLine
	var longest time.Duration
	for _, n := range f.cloud() {
		if t := f.resumeTimeout(n); t.V > longest {
			nodes, longest = n, t.V
		}
	}
	if limit.V >= longest {
		return nil
	}
	key := "PrologEpilogTimeout"
	if s, ok := f.Cluster.Get("PrologTimeout"); ok && s.Position == limit.Position {
		key = "PrologTimeout"
	}
	return []Finding{found(limit.Position, fmt.Sprintf("remove %s or set it to %s at least", key, number(longest)), nil,
		"%s=%s is shorter than ResumeTimeout of %s, %s", key, number(limit.V), nodes.Names, number(longest))}
}

// named are the programs that slurm.conf names, PowerActions followed.
func (f *Facts) named() []slurmconf.Setting {
	var all []slurmconf.Setting
	for _, p := range programs[:3] {
		if s, ok := f.Cluster.Get(p.key); ok && s.Value != "" {
			if action, ok := f.action(s.Value); ok {
				program, _ := action.Field("Program")
				s = slurmconf.Setting{Key: s.Key, Value: program.Value, Position: action.Position}
			}
			if words := strings.Fields(s.Value); f.Version.Major >= 26 && len(words) > 0 { // arguments may follow: power_action.c power_action_create
				s.Value = words[0]
			}
			all = append(all, s)
		}
	}
	for _, p := range f.Cluster.PrologSlurmctld {
		all = append(all, slurmconf.Setting{Key: "PrologSlurmctld", Value: p.V, Position: p.Position})
	}
	return all
}

// action is a PowerAction of slurm.conf (26.05).
func (f *Facts) action(name string) (slurmconf.Setting, bool) {
	actions := f.Slurm.All("PowerAction")
	i := slices.IndexFunc(actions, func(s slurmconf.Setting) bool { return strings.EqualFold(s.Value, name) })
	if i < 0 {
		return slurmconf.Setting{}, false
	}
	return actions[i], true
}

// relativePrograms: power_save.c _valid_prog and power_action.c power_action_valid_prog refuse them.
func relativePrograms(f *Facts) []Finding {
	var out []Finding
	for _, s := range f.named() {
		if !path.IsAbs(s.Value) {
			out = append(out, found(s.Position, fmt.Sprintf("set %s to an absolute path, such as %s/…", s.Key, f.programDir()), nil, "%s is %q, which is no absolute path", s.Key, s.Value))
		}
	}
	return out
}

func mixedUp(f *Facts) []Finding {
	var out []Finding
	for _, s := range f.named() {
		base := path.Base(s.Value)
		for _, p := range programs {
			if base != p.name || p.key == s.Key {
				continue
			}
			i := slices.IndexFunc(programs, func(own struct{ key, name string }) bool { return own.key == s.Key })
			out = append(out, found(s.Position, fmt.Sprintf("set %s=%s/%s", s.Key, path.Dir(s.Value), programs[i].name), nil, "%s is %s, the program for %s", s.Key, s.Value, p.key))
		}
	}
	return out
}

// resumeOnSlurmd: power_save.c power_save_valid_action_default (26.05).
func resumeOnSlurmd(f *Facts) []Finding {
	s, ok := f.Cluster.Get("ResumeProgram")
	if !ok {
		return nil
	}
	action, ok := f.action(s.Value)
	if !ok {
		return nil
	}
	where, ok := action.Field("Location")
	if !ok || !strings.EqualFold(where.Value, "slurmd") {
		return nil
	}
	var edits []edit
	if program, _ := action.Field("Program"); path.IsAbs(program.Value) { // else slurmctld would not start with it
		edits = []edit{{action.Position.File, func(file *slurmconf.File) error {
			return file.SetField("PowerAction", action.Value, "Location", "slurmctld")
		}}}
	}
	return []Finding{found(where.Position, "set Location=slurmctld on the PowerAction line", edits, "ResumeProgram is the PowerAction %s, which runs on slurmd", action.Value)}
}
