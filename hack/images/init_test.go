//go:build integration

// Package images_test runs the daemons of an unpacked Slurm image, without a cluster. It needs root, and the image in SLURMTIDE_SLURM_ROOT; see hack/integration.sh.
package images_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// config is a cluster of one node, which is where slurmctld is.
const config = `ClusterName=test
SlurmctldHost=ctl(127.0.0.1)
AuthType=auth/slurm
CredType=auth/slurm
SlurmUser=root
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool
SlurmctldPidFile=DIR/ctld.pid
SlurmdPidFile=DIR/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/usr/bin/true
ReturnToService=2
NodeName=ctl NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES
`

// jobs are a step whose job leaves a process behind, and a batch job.
const jobs = `srun --quiet sh -c 'setsid sleep 0.1 >/dev/null 2>&1 &'; sbatch --wait --output=/dev/null --wrap=true >/dev/null`

// image is where the image is unpacked.
func image(t *testing.T) string {
	root := os.Getenv("SLURMTIDE_SLURM_ROOT")
	require.NotEmpty(t, root, "set SLURMTIDE_SLURM_ROOT to an unpacked Slurm image")
	return root
}

// run starts slurmd by the words of init, runs a command beside slurmctld, and returns what it says and what slurmd has left uncollected.
func run(t *testing.T, environment []string, command string, init ...string) (said, left string) {
	root := image(t)
	dir, err := os.MkdirTemp(filepath.Join(root, "tmp"), "node") //nolint:usetesting // daemons see nothing outside of the image
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	text := strings.ReplaceAll(config, "DIR", "/tmp/"+filepath.Base(dir))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slurm.conf"), []byte(text), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.conf"), []byte("CgroupPlugin=disabled\n"), 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	args := append([]string{"--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "sh", "testdata/node.sh", root, dir, command}, init...)
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Env = append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	said, left, ok := strings.Cut(string(out), "left:")
	require.True(t, ok, "%s", out)
	return strings.TrimSpace(said), strings.TrimSpace(left)
}

// slurmd leaves to its container's first process what others leave behind, and its own steps; if it is that itself, nobody collects them.
func TestEndedProcessesAreCollected(t *testing.T) {
	_, left := run(t, nil, jobs)
	assert.Contains(t, left, "slurmstepd", "this is what the image's init is for")
	_, left = run(t, nil, jobs, "tini", "-s", "--")
	assert.Empty(t, left)
}
