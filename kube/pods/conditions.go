package pods

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// HostCondition is a condition of hosts that is as bad as a cordon, one of node-problem-detector for example.
type HostCondition struct {
	Type   corev1.NodeConditionType
	Status corev1.ConditionStatus
}

// ParseHostConditions reads what --host-conditions says: TYPE or TYPE=STATUS, True unless it is said.
func ParseHostConditions(words []string) (conditions []HostCondition, err error) {
	for _, word := range words {
		name, status, said := strings.Cut(word, "=")
		if !said {
			status = string(corev1.ConditionTrue)
		}
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return nil, fmt.Errorf("condition %q: type %q: %s", word, name, strings.Join(problems, "; "))
		}
		switch corev1.ConditionStatus(status) {
		case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
		default:
			return nil, fmt.Errorf("condition %q: unknown status %q: use True, False or Unknown", word, status)
		}
		if name == string(corev1.NodeReady) {
			return nil, fmt.Errorf("condition %q: Ready is always looked at: leave it out", word)
		}
		conditions = append(conditions, HostCondition{corev1.NodeConditionType(name), corev1.ConditionStatus(status)})
	}
	return conditions, nil
}

// badCondition names the first of the host's conditions that is as bad as a cordon, "" if none is.
func (c *Client) badCondition(of []corev1.NodeCondition) string {
	for _, bad := range c.opts.HostConditions {
		if !slices.ContainsFunc(of, func(is corev1.NodeCondition) bool { return is.Type == bad.Type && is.Status == bad.Status }) {
			continue
		}
		if bad.Status == corev1.ConditionTrue {
			return string(bad.Type)
		}
		return string(bad.Type) + "=" + string(bad.Status)
	}
	return ""
}

// badHosts are those with such a condition, sorted. The scheduler knows nothing of it: new pods have to be kept off them.
func (c *Client) badHosts() (names []string) {
	c.mu.Lock()
	hosts := c.hosts
	c.mu.Unlock()
	if hosts == nil || len(c.opts.HostConditions) == 0 {
		return nil
	}
	for _, obj := range hosts.List() {
		if node, ok := obj.(*corev1.Node); ok && c.badCondition(node.Status.Conditions) != "" {
			names = append(names, node.Name)
		}
	}
	slices.Sort(names)
	return names
}

// keepOff has the pod land on none of the hosts.
func keepOff(spec *corev1.PodSpec, hosts []string) {
	if len(hosts) == 0 {
		return
	}
	var others []corev1.NodeSelectorRequirement
	for _, host := range hosts { // a requirement about names takes one value
		others = append(others, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{host}})
	}
	requireFields(spec, others)
}
