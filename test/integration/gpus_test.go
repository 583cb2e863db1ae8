//go:build integration

package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// standInDriver makes the files that NVIDIA's driver has for two GPUs, as far as slurmd reads them (gpu_nvidia.c). Their devices are /dev/null's.
const standInDriver = `mount -t tmpfs tmpfs /proc/driver && mount -t tmpfs tmpfs /sys/bus/pci/drivers || exit 1
for n in 0 1; do
  gpu=/proc/driver/nvidia/gpus/0000:0$n:00.0 pci=/sys/bus/pci/drivers/nvidia/0000:0$n:00.0
  mkdir -p $gpu $pci
  printf 'Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-0\nDevice Minor: \t %d\n' $n >$gpu/information
  echo 0 >$pci/local_cpulist
  mknod -m 0666 /dev/nvidia$n c 1 3
done
`

// slurmd asks the driver which GPUs there are and of what type: gres.conf names none.
func TestGPUsAreFound(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		c := deploy(t, "found", version, stack.Options{
			ExtraConf: []string{"GresTypes=gpu"}, GresLines: []string{"AutoDetect=nvidia"},
			NodeLines: []string{"NodeName=found-0 CPUs=2 RealMemory=400 State=CLOUD Gres=gpu:h100:2"},
		})
		set := c.build(nodeSet{name: "found", nodes: "found-0", gres: "gpu:h100:2"})
		slurmd := &set.Spec.Template.Spec.Containers[0]
		slurmd.SecurityContext = &corev1.SecurityContext{Privileged: new(true)} // it mounts them
		slurmd.Command[2] = standInDriver + slurmd.Command[2]
		_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Create(c.ctx, set, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.Equal(t, "0,1 on found-0", c.slurm("srun", "--gres=gpu:h100:2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES on $SLURMD_NODENAME"))
	})
}
