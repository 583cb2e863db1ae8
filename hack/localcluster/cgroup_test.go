package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree makes files, with their directories, below a new directory.
func tree(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	return root
}

func TestCheckCgroups(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		files map[string]string
		want  string
	}{
		"v2":                   {map[string]string{"cgroup.controllers": "cpuset cpu io memory pids\n"}, ""},
		"v2, memory is off":    {map[string]string{"cgroup.controllers": "cpuset cpu io pids\n"}, `"memory" is missing`},
		"v1, joined":           {map[string]string{"cpu,cpuacct/cgroup.procs": "", "cpuset/cgroup.procs": "", "memory/cgroup.procs": "", "pids/cgroup.procs": ""}, ""},
		"v1, pids not mounted": {map[string]string{"cpu/cgroup.procs": "", "cpuset/cgroup.procs": "", "memory/cgroup.procs": "", "pids/other": ""}, `"pids" is missing`},
		"nothing mounted":      {nil, "no cgroup hierarchy"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkCgroups(tree(t, c.files))
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestCgroupsMadeAndRemoved(t *testing.T) {
	t.Parallel()
	one, two := Plan{Name: "one", Slot: 1}, Plan{Name: "two", Slot: 2}
	root := tree(t, map[string]string{"cpu/cgroup.procs": "", "memory/cgroup.procs": ""})
	require.NoError(t, makeCgroups(root, one.CgroupParent()))
	require.NoError(t, makeCgroups(root, one.CgroupParent()), "made again after a crash")
	require.NoError(t, makeCgroups(root, two.CgroupParent()))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "memory", one.CgroupParent(), "kubepods/pod1/c1"), 0o755))

	require.NoError(t, removeCgroups(root, one.CgroupParent(), time.Second))
	assert.NoDirExists(t, filepath.Join(root, "memory", one.CgroupParent()))
	assert.DirExists(t, filepath.Join(root, "memory", two.CgroupParent()), "the other cluster's stays")
	require.NoError(t, removeCgroups(root, two.CgroupParent(), time.Second))
	assert.NoDirExists(t, filepath.Join(root, "memory/slurmtide"))
	assert.DirExists(t, filepath.Join(root, "memory"))
	require.NoError(t, removeCgroups(root, two.CgroupParent(), time.Second), "nothing there is fine")
}

func TestCgroupV2HandsControllersDown(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"cgroup.controllers": "cpu memory\n", "cgroup.procs": "", "cgroup.subtree_control": ""})
	require.NoError(t, makeCgroups(root, Plan{Name: "x", Slot: 9}.CgroupParent()))
	assert.DirExists(t, filepath.Join(root, "slurmtide/9-x"))
	b, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
	require.NoError(t, err)
	assert.Contains(t, []string{"+cpu", "+memory"}, string(b), "a plain file keeps only the last of the writes")
}
