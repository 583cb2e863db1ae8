package pods

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/internal/manifest"
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
		"crashed":              {Phase: powersave.PodFailed, Reason: "Error", Message: "container slurmd ended with exit code 1: fatal: Unable to determine this slurmd's NodeName", Trouble: powersave.TroubleCrash},
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

		"no-such-host":             {Phase: powersave.PodPending, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector", Trouble: powersave.TroubleCapacity},
		"missing-claim":            {Phase: powersave.PodPending, Reason: "Unschedulable", Message: `0/3 nodes are available: persistentvolumeclaim "scratch" not found`, Trouble: powersave.TroubleConfig},
		"unbound-claim":            {Phase: powersave.PodPending, Reason: "Unschedulable", Message: "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims", Trouble: powersave.TroubleConfig},
		"scheduler-error":          {Phase: powersave.PodPending, Reason: "SchedulerError", Message: `binding rejected: running Bind plugin "DefaultBinder": Operation cannot be fulfilled on pods/binding "cpu-7": etcdserver: request timed out`},
		"image-back-off-cause":     {Phase: powersave.PodScheduled, Reason: "ImagePullBackOff", Message: `container slurmd (image registry.example.com/hpc/slurm:26.05): Back-off pulling image "registry.example.com/hpc/slurm:26.05": ErrImagePull: failed to pull and unpack image: failed to authorize: failed to fetch anonymous token: 401 Unauthorized`, Trouble: powersave.TroubleImage},
		"image-never-pull":         {Phase: powersave.PodScheduled, Reason: "ErrImageNeverPull", Message: `container slurmd (image slurmtide/slurm:26.05): Container image "slurmtide/slurm:26.05" is not present with pull policy of Never`, Trouble: powersave.TroubleImage},
		"config-settling":          {Phase: powersave.PodScheduled, Reason: "CreateContainerConfigError", Message: "container slurmd (image slurmtide/slurm:26.05): failed to sync secret cache: timed out waiting for the condition"},
		"run-error":                {Phase: powersave.PodScheduled, Reason: "RunContainerError", Message: `container slurmd (image slurmtide/slurm:26.05): failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/usr/sbin/slurmd": exec format error`, Trouble: powersave.TroubleCrash},
		"log-as-message":           {Phase: powersave.PodFailed, Reason: "Error", Message: "container slurmd ended with exit code 1: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host; error: fetch_config: DNS SRV lookup failed; fatal: Could not establish a configuration source", Trouble: powersave.TroubleCrash},
		"status-unknown":           {Phase: powersave.PodFailed, Reason: "ContainerStatusUnknown", Message: "container slurmd ended with exit code 137: The container could not be located when the pod was terminated", Trouble: powersave.TroubleLost},
		"taint-eviction":           {Phase: powersave.PodReady, Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint", Trouble: powersave.TroubleLost},
		"taint-eviction-cancelled": {Phase: powersave.PodReady},
		"terminating-evicted":      {Phase: powersave.PodTerminating, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", Trouble: powersave.TroubleLost},
		"node-shutdown":            {Phase: powersave.PodFailed, Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown", Trouble: powersave.TroubleLost},
		"node-shutting-down":       {Phase: powersave.PodFailed, Reason: "NodeShutdown", Message: "Pod was rejected as the node is shutting down", Trouble: powersave.TroubleLost},
		"host-changed":             {Phase: powersave.PodFailed, Reason: "NodeAffinity", Message: "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector", Trouble: powersave.TroubleLost},
		"devices-gone":             {Phase: powersave.PodFailed, Reason: "UnexpectedAdmissionError", Message: "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 2, Available: 1, which is unexpected", Trouble: powersave.TroubleLost},
		"topology-affinity":        {Phase: powersave.PodFailed, Reason: "TopologyAffinityError", Message: "Resources cannot be allocated with Topology locality", Trouble: powersave.TroubleCapacity},
		"out-of-gpus":              {Phase: powersave.PodFailed, Reason: "OutOfnvidia.com/gpu", Message: "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 2, used: 8, capacity: 8", Trouble: powersave.TroubleCapacity},
		"smt-alignment":            {Phase: powersave.PodFailed, Reason: "SMTAlignmentError", Message: "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2", Trouble: powersave.TroubleConfig},
		"unsafe-sysctl":            {Phase: powersave.PodFailed, Reason: "SysctlForbidden", Message: `forbidden sysctl: "net.core.somaxconn" not allowlisted`, Trouble: powersave.TroubleConfig},
		"deadline":                 {Phase: powersave.PodFailed, Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline", Trouble: powersave.TroubleConfig},
		"own-disk-limit":           {Phase: powersave.PodFailed, Reason: "Evicted", Message: "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi", Trouble: powersave.TroubleCrash},
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
			if want.Phase == powersave.PodTerminating {
				want.Ends = time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
			}
			got := Observe(pod)
			got.Created, got.Ends = got.Created.UTC(), got.Ends.UTC()
			assert.Equal(t, want, got)

			slim, err := slimPod(pod)
			require.NoError(t, err)
			got = Observe(slim.(*corev1.Pod))
			got.Created, got.Ends = got.Created.UTC(), got.Ends.UTC()
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
	require.NoError(t, manifest.Unmarshal(raw, &pod))
	return &pod
}
