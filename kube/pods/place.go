package pods

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// maxKept is how long an annotation of a host may be to be kept: what tells of a place is short, and hosts have others of many KiB.
const maxKept = 512

// placed is what Slurm can read as Topology=: names of topologies and their units.
var placed = regexp.MustCompile(`^[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)+(,[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)+)*$`)

// Place is where in the network a pod of a NodeSet is that is bound to a host, as Topology= of Slurm; "" if nothing is to be said of the NodeSet's nodes. known is false
// if the host has not been read yet. The error says what the host lacks.
func (c *Client) Place(nodeSet, host string) (place string, known bool, err error) {
	c.mu.Lock()
	hosts := c.hosts
	c.mu.Unlock()
	ns, _ := c.nodeSet(nodeSet)
	if ns == nil || ns.Spec.Topology == nil {
		return "", true, nil
	}
	if hosts == nil {
		return "", false, nil
	}
	obj, _, _ := hosts.GetByKey(host) // a store in memory has no errors
	node, ok := obj.(*corev1.Node)
	if !ok {
		return "", false, nil
	}
	place, err = placeOf(ns.Spec.Topology, node.Labels, node.Annotations)
	if err != nil {
		return "", true, fmt.Errorf("host %s: %w", host, err)
	}
	return place, true, nil
}

// placeOf is a host's place by its labels or by its annotation.
func placeOf(t *v1alpha1.Topology, labels, annotations map[string]string) (string, error) {
	if t.NodeAnnotation != "" {
		value := annotations[t.NodeAnnotation]
		switch {
		case value == "":
			return "", fmt.Errorf("annotation %s of spec.topology.nodeAnnotation is missing, or longer than %d bytes", t.NodeAnnotation, maxKept)
		case !placed.MatchString(value):
			return "", fmt.Errorf("annotation %s is no topology: %q; write <topology>:<unit>, several separated by commas", t.NodeAnnotation, value)
		}
		return value, nil
	}
	parts := []string{cmp.Or(t.Name, "default")}
	var missing []error
	for _, key := range t.NodeLabels {
		if labels[key] == "" {
			missing = append(missing, fmt.Errorf("label %s of spec.topology.nodeLabels is missing", key))
		}
		parts = append(parts, labels[key])
	}
	if missing != nil {
		return "", errors.Join(missing...)
	}
	return strings.Join(parts, ":"), nil
}

// short keeps what Place may read of a host's annotations.
func short(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range annotations {
		if len(value) <= maxKept {
			kept[key] = value
		}
	}
	return kept
}
