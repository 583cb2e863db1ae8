package pods

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/powersave"
)

// TestObserve reads pod statuses as clusters write them from testdata/status.
func TestObserve(t *testing.T) {
	for name, want := range map[string]powersave.Pod{
		"new":                  {Phase: powersave.PodPending},
		"unschedulable":        {Phase: powersave.PodPending, Reason: "Unschedulable", Message: "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu", Trouble: powersave.TroubleCapacity},
		"gated":                {Phase: powersave.PodPending, Reason: "SchedulingGated", Message: "Scheduling is blocked due to non-empty scheduling gates"},
		"scheduled":            {Phase: powersave.PodScheduled},
		"creating":             {Phase: powersave.PodScheduled},
		"err-image-pull":       {Phase: powersave.PodScheduled, Reason: "ErrImagePull", Message: `container slurmd (image slurmtide/slurm:nope): failed to pull and unpack image: not found`, Trouble: powersave.TroubleImage},
		"image-back-off":       {Phase: powersave.PodScheduled, Reason: "ImagePullBackOff", Message: `container slurmd (image slurmtide/slurm:nope): Back-off pulling image "slurmtide/slurm:nope"`, Trouble: powersave.TroubleImage},
		"invalid-image-name":   {Phase: powersave.PodScheduled, Reason: "InvalidImageName", Message: `container slurmd (image Slurm:26): Failed to apply default image tag "Slurm:26": couldn't parse image name`, Trouble: powersave.TroubleImage},
		"config-error":         {Phase: powersave.PodScheduled, Reason: "CreateContainerConfigError", Message: `container slurmd (image slurmtide/slurm:26.05): secret "slurm-auth" not found`, Trouble: powersave.TroubleConfig},
		"init-image-back-off":  {Phase: powersave.PodScheduled, Reason: "ImagePullBackOff", Message: `container setup (image busybox:nope): Back-off pulling image "busybox:nope"`, Trouble: powersave.TroubleImage},
		"init-running":         {Phase: powersave.PodScheduled},
		"crash-loop":           {Phase: powersave.PodScheduled, Reason: "CrashLoopBackOff", Message: "container slurmd (image slurmtide/slurm:26.05): back-off 20s restarting failed container; it last ended with exit code 1 (Error)", Trouble: powersave.TroubleCrash},
		"running":              {Phase: powersave.PodRunning},
		"ready":                {Phase: powersave.PodReady},
		"oom-killed":           {Phase: powersave.PodFailed, Reason: "OOMKilled", Message: "container slurmd ended with exit code 137", Trouble: powersave.TroubleCrash},
		"crashed":              {Phase: powersave.PodFailed, Reason: "Error", Message: "container slurmd ended with exit code 1: slurmd: fatal: Unable to determine this slurmd's NodeName", Trouble: powersave.TroubleCrash},
		"start-error":          {Phase: powersave.PodFailed, Reason: "StartError", Message: `container slurmd ended with exit code 128: exec: "slurmd": executable file not found in $PATH: unknown`, Trouble: powersave.TroubleCrash},
		"completed":            {Phase: powersave.PodFailed, Reason: "Completed", Message: "container slurmd ended with exit code 0", Trouble: powersave.TroubleCrash},
		"slurmd-ended":         {Phase: powersave.PodFailed, Reason: "Error", Message: "container slurmd ended with exit code 1", Trouble: powersave.TroubleCrash},
		"init-failed":          {Phase: powersave.PodFailed, Reason: "Error", Message: "container setup ended with exit code 3: cannot reach the file server", Trouble: powersave.TroubleCrash},
		"evicted":              {Phase: powersave.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory. Container slurmd was using 2Gi", Trouble: powersave.TroubleLost},
		"out-of-cpu":           {Phase: powersave.PodFailed, Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000", Trouble: powersave.TroubleCapacity},
		"preempted":            {Phase: powersave.PodFailed, Reason: "PreemptionByScheduler", Message: "default-scheduler: preempting to accommodate a higher priority pod", Trouble: powersave.TroubleLost},
		"terminating":          {Phase: powersave.PodTerminating},
		"terminating-finished": {Phase: powersave.PodTerminating, Reason: "Completed", Message: "container slurmd ended with exit code 0"},
		"terminating-lost":     {Phase: powersave.PodTerminating, Reason: "NodeLost", Message: "Node host-1 which was running pod cpu-7 is unresponsive", Trouble: powersave.TroubleLost},
		"host-lost":            {Phase: powersave.PodUnknown, Reason: "NodeLost", Message: "the host host-1 does not answer", Trouble: powersave.TroubleLost},
	} {
		t.Run(name, func(t *testing.T) {
			pod := readPod(t, "base.yaml")
			status := readPod(t, name+".yaml")
			pod.Spec.NodeName = status.Spec.NodeName
			pod.DeletionTimestamp = status.DeletionTimestamp
			pod.Status = status.Status

			want.Node, want.NodeSet, want.UID = "cpu-7", "cpu", "4d1c64c4-6a9c-4a57-9d0b-1a33ac21b1c0"
			want.Generation, want.Request = 42, "01J-request"
			want.Host = status.Spec.NodeName
			want.Created = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			got := Observe(pod)
			got.Created = got.Created.UTC()
			assert.Equal(t, want, got)

			slim, err := slimPod(pod)
			require.NoError(t, err)
			got = Observe(slim.(*corev1.Pod))
			got.Created = got.Created.UTC()
			assert.Equal(t, want, got, "the cache must keep what Observe reads")
		})
	}
}

func TestObserveForeign(t *testing.T) {
	pod := readPod(t, "base.yaml")
	pod.Annotations = map[string]string{"slurmtide.io/generation": "many"}
	assert.Zero(t, Observe(pod).Generation)
}

func readPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "status", name))
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict(raw, &pod))
	return &pod
}
