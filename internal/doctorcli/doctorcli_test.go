package doctorcli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/doctor"
)

func TestText(t *testing.T) {
	r := Report{SlurmConf: "slurm.conf", SlurmVersion: "26.05", VersionFrom: "as given", Host: true, Findings: []Finding{
		{Rule: "a", Severity: doctor.Error, Seen: "seen", Why: "bad", Remedy: "set A=1", Fixable: true, place: "slurm.conf:1:1"},
		{Rule: "b", Severity: doctor.Hint, Seen: "seen, too", Why: "slow", Remedy: "set B=1"},
	}}
	assert.Equal(t, `slurm.conf:1:1: error: seen (a)
  why: bad
  do: set A=1
hint: seen, too (b)
  why: slow
  do: set B=1

slurm.conf, Slurm 26.05 (as given): 1 error, 0 warnings, 1 hint; --fix prints a diff for 1 of them.
`, r.text(false))
	assert.Contains(t, r.text(true), "\x1b[1mslurm.conf:1:1\x1b[0m: \x1b[1;31merror\x1b[0m: seen (a)")
}
