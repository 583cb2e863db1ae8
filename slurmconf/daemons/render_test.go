//go:build integration

package daemons_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/kube/render"
)

// rendered is what slurmtide render slurm.conf prints of example files.
func rendered(t *testing.T, files ...string) string {
	in := &render.Input{}
	for _, name := range files {
		file, err := os.Open("../../docs/examples/" + name)
		require.NoError(t, err)
		defer file.Close()
		require.NoError(t, in.Read(name, file, "slurm"))
	}
	require.NoError(t, in.Select(""))
	text, err := in.SlurmConf(controlplane.Settings{ClusterDomain: "cluster.local"})
	require.NoError(t, err)
	return text
}

// A slurmctld starts with what slurmtide render slurm.conf prints, has the nodes, and saves power.
func TestRenderedLines(t *testing.T) {
	s := findSlurm(t)
	own := strings.Replace(strings.Replace(base, "SlurmctldParameters=enable_configless\n", "", 1), "ReturnToService=2\n", "", 1)
	text := strings.ReplaceAll(rendered(t, "nodeset-cpu.yaml", "nodeset-gpu.yaml"), "/opt/slurmtide", "DIR")
	dir, _ := s.write(t, map[string]string{"slurm.conf": own + text})
	defer os.RemoveAll(dir)
	for _, name := range []string{"resume", "suspend", "resume-fail", "start-gate"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	got := s.start(t, dir)
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	require.False(t, got.refused, "%s", log)
	assert.Equal(t, []string{"4", "8000"}, []string{got.nodes["cpu-49"]["CPUTot"], got.nodes["cpu-49"]["RealMemory"]})
	assert.Equal(t, "gpu:h100:2", got.nodes["gpu-7"]["Gres"])
	assert.Contains(t, got.nodes["cpu-0"]["State"], "CLOUD")
	assert.Equal(t, "300 sec", got.config["SuspendTime"])
	for _, bad := range []string{"disabled", "error: power_save", "defunct", "stands"} {
		assert.NotContains(t, string(log), bad)
	}
	var partitions []string
	for _, p := range got.parts {
		partitions = append(partitions, p.Name)
	}
	assert.ElementsMatch(t, []string{"cpu", "gpu"}, partitions)
}
