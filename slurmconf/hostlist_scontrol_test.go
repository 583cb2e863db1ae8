//go:build integration

package slurmconf

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// scontrolPath returns the scontrol to compare with. It may be a script that runs
// the real one elsewhere; it must be of Slurm 24.11 or later.
func scontrolPath(t *testing.T) string {
	path := os.Getenv("SLURMTIDE_SCONTROL")
	require.NotEmpty(t, path, "set SLURMTIDE_SCONTROL to the scontrol to compare with")
	if os.Getenv("SLURM_CONF") == "" {
		// scontrol wants a configuration even where it needs nothing of it.
		conf := filepath.Join(t.TempDir(), "slurm.conf")
		require.NoError(t, os.WriteFile(conf, []byte("ClusterName=none\nSlurmctldHost=localhost\n"), 0o600))
		t.Setenv("SLURM_CONF", conf)
	}
	return path
}

func runScontrol(t require.TestingT, path string, args ...string) string {
	out, err := exec.Command(path, append([]string{"show"}, args...)...).CombinedOutput()
	require.NoError(t, err, "scontrol %s: %s", args, out)
	return string(out)
}

// compareWithScontrol checks that list means the same names to us and to scontrol,
// and that both write them as the same list.
func compareWithScontrol(t require.TestingT, scontrol, list string) {
	h, err := ParseHostlist(list)
	require.NoError(t, err)
	var names strings.Builder
	require.NoError(t, h.WriteNames(&names, "\n"))
	require.Equal(t, runScontrol(t, scontrol, "hostnames", list), names.String(), "names of %q", list)
	require.Equal(t, runScontrol(t, scontrol, "hostlist", list), h.String()+"\n", "list of %q", list)
	if expanded := strings.Join(h.Expand(), ","); len(expanded) < 100_000 { // the longest argument is 128 KiB
		require.Equal(t, runScontrol(t, scontrol, "hostlist", expanded), CompressHostlist(h.Expand())+"\n", "list of %q", expanded)
	}
}

func TestHostlistLikeScontrol(t *testing.T) {
	scontrol := scontrolPath(t)
	tests := map[string]string{
		"plain":                 "login",
		"range":                 "n[8-11]",
		"padded":                "n[08-11],n12",
		"mixed widths":          "n[01,2,003],n[098-100],n101,n0102",
		"joins":                 "tux1,tux2,tux4,tux04,tux05",
		"digits grow":           "n98,n99,n100,n[0998-1001]",
		"not sorted":            "n3,n1,n2",
		"duplicates":            "n[1,1,1],n1,a,a",
		"separators":            "\tn1 ,, n2\nn3,",
		"two brackets":          "r[0-1]n[01-10,12]",
		"three brackets":        "a[0-1]b[0-2]c[0-1]",
		"four brackets":         "a[0-1]b[0-1]c[08-10]d[0-1]",
		"side by side":          "n[1-2][3-4]",
		"suffix":                "n[1-3]-ib",
		"brackets and a suffix": "r[1-2]n[08-10]-ib0,b",
		"only the last number":  "a1b2,a1b3,a2b3",
		"digits before bracket": "n0[1-2],n03",
		"no prefix":             "[1-3],4,05",
		"large numbers":         "n[4294967295-4294967297],n18446744073709551614",
		"long padding":          "n[000000000000000000001-000000000000000000003]",
		"Slurm's longest range": "n[0-65535]",
	}
	for name, list := range tests {
		t.Run(name, func(t *testing.T) { compareWithScontrol(t, scontrol, list) })
	}
}

func TestRandomHostlistsLikeScontrol(t *testing.T) {
	scontrol := scontrolPath(t)
	rapid.Check(t, func(t *rapid.T) { compareWithScontrol(t, scontrol, drawHostlist(t, 1)) })
}

// Where we refuse a list that scontrol takes, the difference is meant: see ParseHostlist.
func TestHostlistErrorsLikeScontrol(t *testing.T) {
	scontrol := scontrolPath(t)
	tests := map[string]struct {
		list     string
		accepted bool // by scontrol
	}{
		"backwards":    {"n[2-1]", false},
		"step":         {"n[0-10:2]", false},
		"empty":        {"n[]", false},
		"empty item":   {"n[1,,2]", false},
		"letters":      {"n[a-b]", false},
		"three parts":  {"n[1-2-3]", false},
		"no start":     {"n[-1]", false},
		"no end":       {"n[1-]", true},
		"blank inside": {"n[1, 2]", true},
		"stray close":  {"n1]", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseHostlist(tt.list)
			require.Error(t, err)
			out := runScontrolAnyway(scontrol, tt.list)
			require.Equal(t, tt.accepted, !strings.Contains(out, "Invalid hostlist"), out)
		})
	}
}

func runScontrolAnyway(path, list string) string {
	out, _ := exec.Command(path, "show", "hostnames", list).CombinedOutput() // the status differs by version
	return string(out)
}
