package slurmconf

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMerge(t *testing.T) {
	const base = "# ours\nClusterName=a\nSlurmctldParameters=enable_configless,power_save_interval=0\nSuspendTime=300\nPrologSlurmctld=/a\n"
	tests := map[string]struct{ more, want string }{
		"nothing": {"", base},
		"a key takes the place of ours": {"SuspendTime=10 # short\n",
			"# ours\nClusterName=a\nSlurmctldParameters=enable_configless,power_save_interval=0\nPrologSlurmctld=/a\nSuspendTime=10 # short\n"},
		"in any case": {"suspendtime = 10\n",
			"# ours\nClusterName=a\nSlurmctldParameters=enable_configless,power_save_interval=0\nPrologSlurmctld=/a\nsuspendtime = 10\n"},
		"lists are merged": {"# mine\nSlurmctldParameters=cloud_dns,power_save_interval=5",
			"# ours\nClusterName=a\nSlurmctldParameters=enable_configless,power_save_interval=5,cloud_dns\nSuspendTime=300\nPrologSlurmctld=/a\n# mine\n"},
		"records, comments and Includes stay": {"PrologSlurmctld=/b\n\n# x\nInclude more.conf",
			base + "PrologSlurmctld=/b\n\n# x\nInclude more.conf\n"},
		"a key twice stays twice": {"SuspendTime=1\nSuspendTime=2\n",
			"# ours\nClusterName=a\nSlurmctldParameters=enable_configless,power_save_interval=0\nPrologSlurmctld=/a\nSuspendTime=1\nSuspendTime=2\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile("slurm.conf", []byte(base))
			require.NoError(t, err)
			more, _ := ParseFile("extraConf", []byte(test.more))
			require.NoError(t, f.Merge(more, "SlurmctldParameters"))
			assert.Equal(t, test.want, f.String())
			_, err = ParseFile("slurm.conf", []byte(f.String()))
			require.NoError(t, err)
		})
	}
}

func TestInsert(t *testing.T) {
	f, err := ParseFile("slurm.conf", []byte("# one\nClusterName=a\n# two\nSlurmctldPort=1\n"))
	require.NoError(t, err)
	require.NoError(t, f.Insert("slurmctldport", "SlurmctldHost=h(a)"))
	require.NoError(t, f.Insert("NodeName", "NodeName=n"))
	require.ErrorContains(t, f.Insert("ClusterName", "nonsense"), "nonsense")
	assert.Equal(t, "# one\nClusterName=a\n# two\nSlurmctldHost=h(a)\nSlurmctldPort=1\nNodeName=n\n", f.String())
	s, _ := f.Get("SlurmctldPort")
	assert.Equal(t, 5, s.Position.Line)
}

func TestIncludes(t *testing.T) {
	f, err := ParseFile("slurm.conf", []byte("# Include no.conf\nClusterName=a\ninclude  a.conf\nInclude /b.conf # why\n"))
	require.NoError(t, err)
	assert.Equal(t, []Setting{
		{Key: "Include", Value: "a.conf", Position: Position{"slurm.conf", 3, 1}, ValuePosition: Position{"slurm.conf", 3, 10}},
		{Key: "Include", Value: "/b.conf", Position: Position{"slurm.conf", 4, 1}, ValuePosition: Position{"slurm.conf", 4, 9}},
	}, f.Includes())
}
