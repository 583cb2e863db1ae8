package pods

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// place says on which hosts the pod may run, beyond what the template says: its own, with spec.eachHost, those of its offering,
// near the pods of its job, those that its provisioning request made, and none that is in a bad condition.
func place(pod *corev1.Pod, ns *v1alpha1.NodeSet, o PodOptions) error {
	spec := &pod.Spec
	if o.Offering != "" {
		i := slices.IndexFunc(ns.Spec.Offerings, func(of v1alpha1.Offering) bool { return of.Name == o.Offering })
		if i < 0 {
			return fmt.Errorf("spec.offerings has no %q (any more)", o.Offering)
		}
		offering := ns.Spec.Offerings[i].DeepCopy()
		pod.Labels[v1alpha1.LabelOffering] = o.Offering
		if len(offering.NodeSelector) > 0 {
			spec.NodeSelector = labels.Merge(spec.NodeSelector, offering.NodeSelector)
		}
		spec.Tolerations = append(spec.Tolerations, offering.Tolerations...)
	}
	if o.Job != 0 {
		pod.Labels[v1alpha1.LabelJob] = strconv.FormatUint(uint64(o.Job), 10)
		pod.Labels[v1alpha1.LabelBusy] = busy
		near := v1alpha1.LabelJob
		if o.HetJob != 0 {
			near = v1alpha1.LabelHetJob
			pod.Labels[near] = strconv.FormatUint(uint64(o.HetJob), 10)
		}
		if boot := ns.Spec.Boot; boot != nil && boot.TopologyKey != "" {
			nearJob(spec, boot, pod.Labels, near)
		}
	}
	if each := ns.Spec.EachHost; each != nil {
		onHost(spec, HostOf(each, pod.Name))
	}
	keepOff(spec, o.KeepOff)
	if boot := ns.Spec.Boot; o.ProvisioningRequest != "" && boot != nil && boot.ProvisioningRequest != nil {
		pod.Annotations[v1alpha1.AnnotationConsumeProvisioningRequest] = o.ProvisioningRequest
		pod.Annotations[v1alpha1.AnnotationProvisioningClassName] = boot.ProvisioningRequest.ClassName
	}
	return nil
}

// nearJob draws the pod to the pods of the same job, which the label names. The first of them matches its own term, and
// the scheduler lets it go anywhere.
func nearJob(spec *corev1.PodSpec, boot *v1alpha1.BootPolicy, ofPod map[string]string, label string) {
	term := corev1.PodAffinityTerm{
		TopologyKey: boot.TopologyKey,
		// Another Slurm cluster in the namespace may have a job of the same number.
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			v1alpha1.LabelCluster: ofPod[v1alpha1.LabelCluster], label: ofPod[label],
		}},
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.PodAffinity == nil {
		spec.Affinity.PodAffinity = &corev1.PodAffinity{}
	}
	affinity := spec.Affinity.PodAffinity
	if boot.TopologyMode == v1alpha1.TopologyRequired {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = append(affinity.RequiredDuringSchedulingIgnoredDuringExecution, term)
		return
	}
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.WeightedPodAffinityTerm{Weight: 100, PodAffinityTerm: term})
}
