package pods

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// dynamicSet is what mode Dynamic needs to know of a NodeSet; nil in mode Cloud.
func dynamicSet(spec *v1alpha1.NodeSetSpec) *powersave.Dynamic {
	if spec.Mode != v1alpha1.ModeDynamic {
		return nil
	}
	d := &powersave.Dynamic{
		CPUs:       spec.Shape.CPUs,
		Sockets:    value(spec.Shape.Sockets),
		Cores:      value(spec.Shape.CoresPerSocket),
		Threads:    value(spec.Shape.ThreadsPerCore),
		Memory:     spec.Shape.RealMemory,
		Gres:       spec.Shape.Gres,
		Features:   slices.Clone(spec.Shape.Features),
		Weight:     value(spec.Shape.Weight),
		Partitions: slices.Clone(spec.Partitions),
	}
	if spec.Suspend != nil {
		d.IdleTime = duration(spec.Suspend.IdleTime)
	}
	return d
}

// NodeLine is what a NodeName line says of nodes of the shape, and what a node of mode Dynamic registers with: slurmd hands it to
// slurmctld, which reads it as such a line (node_mgr.c create_dynamic_reg_node). Without CPUs or RealMemory in it slurmd would offer the
// whole host.
func NodeLine(shape *v1alpha1.Shape) string {
	words := []string{fmt.Sprintf("CPUs=%d", shape.CPUs)}
	if shape.Sockets != nil && shape.CoresPerSocket != nil && shape.ThreadsPerCore != nil {
		words = append(words, fmt.Sprintf("Sockets=%d CoresPerSocket=%d ThreadsPerCore=%d", *shape.Sockets, *shape.CoresPerSocket, *shape.ThreadsPerCore))
	}
	words = append(words, fmt.Sprintf("RealMemory=%d", shape.RealMemory))
	if shape.Gres != "" {
		words = append(words, "Gres="+shape.Gres)
	}
	if len(shape.Features) > 0 {
		words = append(words, "Feature="+strings.Join(shape.Features, ","))
	}
	if shape.Weight != nil {
		words = append(words, fmt.Sprintf("Weight=%d", *shape.Weight))
	}
	return strings.Join(words, " ")
}

// checkDynamic reports what mode Dynamic has no use for.
func checkDynamic(spec *v1alpha1.NodeSetSpec) error {
	var problems []error
	if s := spec.Suspend; s != nil && s.Timeout != nil {
		problems = append(problems, errors.New("spec.suspend.timeout is not supported: remove it; a pod is waited for until it is gone"))
	}
	if b := spec.Boot; b != nil && (b.Strategy != "" || b.TopologyKey != "" || b.ProvisioningRequest != nil) {
		problems = append(problems, errors.New("spec.boot: strategy, topologyKey and provisioningRequest need mode Cloud: remove them; in mode Dynamic no node is made for one job alone"))
	}
	if spec.LookAhead != nil {
		problems = append(problems, errors.New("spec.lookAhead needs mode Cloud: remove it; in mode Dynamic use spec.replicas or spec.replicaWindows"))
	}
	return errors.Join(problems...)
}
