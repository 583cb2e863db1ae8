package doctor

import (
	"cmp"
	"fmt"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// found makes a finding; the rule's name, severity and reason are filled in later.
func found(at slurmconf.Position, remedy string, edits []edit, seen string, args ...any) Finding {
	return Finding{Position: at, Seen: fmt.Sprintf(seen, args...), Remedy: remedy, edits: edits}
}

// textRules are about files that Slurm, or Slurmtide, cannot read as they are.
func textRules() []Rule {
	return []Rule{
		{
			Name: "refused", Severity: Error, text: true,
			Why:    "slurmctld does not start with it, or slurmd does not",
			Remedy: "what the finding says",
			Source: "slurm.conf(5), gres.conf(5), cgroup.conf(5); src/common/read_config.c, src/common/parse_config.c",
			check:  func(f *Facts) []Finding { return problems(f, false) },
		},
		{
			Name: "misread", Severity: Warning, text: true,
			Why:    "Slurm reads it otherwise than it looks, or not at all",
			Remedy: "what the finding says",
			Source: "slurm.conf(5), gres.conf(5), cgroup.conf(5); src/common/read_config.c, src/common/parse_value.c",
			check:  func(f *Facts) []Finding { return problems(f, true) },
		},
		{
			Name: "unsupported-version", Severity: Error, text: true,
			Why:    "the bridge refuses slurmrestd of other versions, and the rules here may not hold for them",
			Remedy: "Slurm 24.11 to 26.05",
			Source: "docs/versions.md",
			check:  unsupported,
		},
		{
			Name: "slurmtide-conf", Severity: Warning, text: true,
			Why:    "the programs leave the line out and go on with the default",
			Remedy: "correct the line, or remove it",
			Source: "docs/slurm-conf.md",
			check:  settings,
		},
	}
}

// problems are those of slurmconf, which knows all keys: src/common/read_config.c.
func problems(f *Facts, warnings bool) []Finding {
	all := f.Problems
	if f.Slurm != nil {
		all = append(all[:len(all):len(all)], f.Slurm.Check(slurmconf.SlurmConf, f.Version)...)
	}
	for kind, config := range map[slurmconf.Kind]*slurmconf.Config{slurmconf.GresConf: f.Gres, slurmconf.CgroupConf: f.Cgroup} {
		if config != nil {
			all = append(all, config.Check(kind, f.Version)...)
		}
	}
	var out []Finding
	for _, p := range all {
		if p.Warning == warnings {
			out = append(out, found(p.Position, cmp.Or(p.Remedy, "correct it"), nil, "%s", p.Text))
		}
	}
	return out
}

// Versions of Slurm that Slurmtide works with: docs/versions.md.
var oldest, newest = slurmconf.Version{Major: 24, Minor: 11}, slurmconf.Version{Major: 26, Minor: 5}

func unsupported(f *Facts) []Finding {
	of := func(v slurmconf.Version) int { return 100*v.Major + v.Minor }
	if of(f.Version) >= of(oldest) && of(f.Version) <= of(newest) {
		return nil
	}
	return []Finding{found(slurmconf.Position{}, fmt.Sprintf("use Slurm %s to %s, or give the right one with --slurm-version", oldest, newest), nil, "Slurm is %s", f.Version)}
}

// settings are what powersave/spool says of slurmtide.conf.
func settings(f *Facts) []Finding {
	var out []Finding
	for _, text := range f.Settings {
		out = append(out, found(slurmconf.Position{}, "correct the line, or remove it", nil, "%s", text))
	}
	return out
}
