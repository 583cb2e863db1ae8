package pods

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const (
	// MemoryOverheadMiB is added to the shape's memory for slurmd and the step daemons, in MiB. Without
	// it a job that uses all of RealMemory gets the whole container killed, slurmd included.
	MemoryOverheadMiB = 128

	resourceNvidiaGPU corev1.ResourceName = "nvidia.com/gpu"
)

// gpuPrefixes are the extended resources that count as GPUs when a template names them itself.
var gpuPrefixes = []string{"nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu", "gpu.intel.com/"}

// defaultResources fills in what the container does not name:
//   - cpu: requested as in the shape, not limited, because Slurm hands out each CPU once and
//     throttling would only slow the job down;
//   - memory: requested and limited to the shape's plus MemoryOverheadMiB, so that pods that share a
//     host cannot take each other's;
//   - GPUs: nvidia.com/gpu as in the shape's Gres.
//
// A request below the shape is left alone: overcommitting a host is the user's right. A limit
// below it is refused by checkResources.
func defaultResources(c *corev1.Container, shape *v1alpha1.Shape) {
	r := &c.Resources
	if !names(r, corev1.ResourceCPU) {
		set(&r.Requests, corev1.ResourceCPU, *resource.NewQuantity(int64(shape.CPUs), resource.DecimalSI))
	}
	if !names(r, corev1.ResourceMemory) {
		memory := *resource.NewQuantity((shape.RealMemory+MemoryOverheadMiB)<<20, resource.BinarySI)
		set(&r.Requests, corev1.ResourceMemory, memory)
		set(&r.Limits, corev1.ResourceMemory, memory)
	}
	// checkSpec has parsed it before.
	if gpus, _ := slurmconf.GresGPUs(shape.Gres); gpus > 0 && len(r.Claims) == 0 && len(namedGPUs(r)) == 0 {
		quantity := *resource.NewQuantity(gpus, resource.DecimalSI)
		set(&r.Requests, resourceNvidiaGPU, quantity)
		set(&r.Limits, resourceNvidiaGPU, quantity)
	}
}

// MemoryLimitMiB is how much memory the slurmd container of a pod may have, in MiB; 0: as much as the host has.
func MemoryLimitMiB(spec *v1alpha1.NodeSetSpec) int64 {
	slurmd := slurmdContainer(&spec.Template.Spec)
	if slurmd == nil {
		return 0
	}
	slurmd = slurmd.DeepCopy()
	defaultResources(slurmd, &spec.Shape)
	return slurmd.Resources.Limits.Memory().Value() >> 20
}

// checkResources reports what the slurmd container could never give to Slurm.
func checkResources(r *corev1.ResourceRequirements, shape *v1alpha1.Shape) error {
	if limit, ok := r.Limits[corev1.ResourceCPU]; ok && limit.Cmp(*resource.NewQuantity(int64(shape.CPUs), resource.DecimalSI)) < 0 {
		return fmt.Errorf("spec.template: the cpu limit %s of container slurmd is below spec.shape.cpus %d: raise the limit, remove it or lower the shape", limit.String(), shape.CPUs)
	}
	if limit, ok := r.Limits[corev1.ResourceMemory]; ok && limit.Cmp(*resource.NewQuantity(shape.RealMemory<<20, resource.BinarySI)) < 0 {
		return fmt.Errorf("spec.template: the memory limit %s of container slurmd is below spec.shape.realMemory %d MiB: raise the limit, remove it or lower the shape", limit.String(), shape.RealMemory)
	}
	want, err := slurmconf.GresGPUs(shape.Gres)
	if err != nil {
		return fmt.Errorf("spec.shape.gres: %w", err)
	}
	if len(r.Claims) > 0 {
		return nil // how many devices a claim has stands elsewhere
	}
	named := namedGPUs(r)
	if len(named) == 0 {
		return nil
	}
	var have int64
	for _, q := range named {
		have += q.Value()
	}
	switch {
	case want == 0 && have > 0:
		return fmt.Errorf("spec.template asks for %d GPUs, but spec.shape.gres has none: Slurm would never hand them out; add gpu:%d to spec.shape.gres or remove them from the template", have, have)
	case want != have:
		return fmt.Errorf("spec.template asks for %d GPUs, but spec.shape.gres %q has %d: make them equal, or remove the GPUs from the template to have them filled in", have, shape.Gres, want)
	}
	return nil
}

func namedGPUs(r *corev1.ResourceRequirements) map[corev1.ResourceName]resource.Quantity {
	found := map[corev1.ResourceName]resource.Quantity{}
	// Limits last: Kubernetes wants both equal and fills in requests from limits.
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name, q := range list {
			for _, prefix := range gpuPrefixes {
				if strings.HasPrefix(string(name), prefix) {
					found[name] = q
				}
			}
		}
	}
	return found
}

func names(r *corev1.ResourceRequirements, name corev1.ResourceName) bool {
	_, requested := r.Requests[name]
	_, limited := r.Limits[name]
	return requested || limited
}

func set(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q
}
