package pods

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// HostOf is the host on which a node of a NodeSet with spec.eachHost runs.
func HostOf(each *v1alpha1.EachHost, node string) string {
	if each.Domain == "" {
		return node
	}
	return node + "." + each.Domain
}

// NodeOn is the node of a host; false: the host has none, since its name is another domain's, or cannot be the name of a pod.
func NodeOn(each *v1alpha1.EachHost, host string) (node string, ok bool) {
	node, ok = host, true
	if each.Domain != "" {
		node, ok = strings.CutSuffix(host, "."+each.Domain)
	}
	return node, ok && checkNodeName(node) == nil
}

// checkEachHost reports what does not go with spec.eachHost.
func checkEachHost(spec *v1alpha1.NodeSetSpec) error {
	if spec.EachHost == nil {
		return nil
	}
	var problems []error
	if spec.Mode == v1alpha1.ModeDynamic {
		problems = append(problems, errors.New("spec.eachHost needs mode Cloud: in mode Dynamic Slurmtide chooses names, and would try the same full host again and again"))
	}
	if len(spec.Offerings) > 0 {
		problems = append(problems, errors.New("spec.eachHost goes without spec.offerings: a node that stays with its host has no alternative; select hosts in spec.template"))
	}
	if boot := spec.Boot; boot != nil && (boot.TopologyKey != "" || boot.ProvisioningRequest != nil) {
		problems = append(problems, errors.New("spec.eachHost goes without topologyKey and provisioningRequest of spec.boot: where the pods run is settled; remove them"))
	}
	return errors.Join(problems...)
}

// onHost has the pod land on one host alone.
func onHost(spec *corev1.PodSpec, host string) {
	requireFields(spec, []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}})
}

// requireFields has the pod land only where the fields of hosts are so. Any one of several terms of the template is enough to land, so each of them gets them,
// but for empty ones, which match no host.
func requireFields(spec *corev1.PodSpec, fields []corev1.NodeSelectorRequirement) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := spec.Affinity.NodeAffinity
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: fields}}}
		return
	}
	for i := range required.NodeSelectorTerms {
		if term := &required.NodeSelectorTerms[i]; len(term.MatchExpressions)+len(term.MatchFields) > 0 {
			term.MatchFields = append(term.MatchFields, fields...)
		}
	}
}
