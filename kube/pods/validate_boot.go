package pods

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// engineNodeSet is what the engine decides with, but for the nodes and what is wrong with them.
func engineNodeSet(ns *v1alpha1.NodeSet) powersave.NodeSet {
	set := powersave.NodeSet{Name: ns.Name, UID: string(ns.UID), SpecGeneration: ns.Generation, SpecHash: specHash(&ns.Spec), Breakers: savedBreakers(ns)}
	setFloor(&set, ns)
	set.Revision, set.Rolling = revision(&ns.Spec), rolling(&ns.Spec)
	set.Window, _ = updateWindow(&ns.Spec) // checkUpdate says what is wrong with it
	set.LookAhead, set.BootTimes = lookAhead(&ns.Spec), savedBoots(ns)
	if boot := ns.Spec.Boot; boot != nil {
		set.Strategy = powersave.BootStrategy(boot.Strategy)
		set.AskForRoom = boot.ProvisioningRequest != nil
		set.Deadline, set.UnschedulableGrace = duration(boot.Deadline), duration(boot.UnschedulableGrace)
	}
	if backoff := ns.Spec.Backoff; backoff != nil {
		set.BackoffInitial, set.BackoffMax = duration(backoff.Initial), duration(backoff.Max)
	}
	offerings := slices.Clone(ns.Spec.Offerings)
	slices.SortStableFunc(offerings, func(a, b v1alpha1.Offering) int { return cmp.Compare(value(a.Weight), value(b.Weight)) })
	for _, o := range offerings {
		set.Offerings = append(set.Offerings, powersave.Offering{Name: o.Name, Limit: int(value(o.Limit))})
	}
	if each := ns.Spec.EachHost; each != nil {
		set.Pinned, set.HostSuffix = true, HostOf(each, "")
	}
	set.Dynamic = dynamicSet(&ns.Spec)
	return set
}

// checkBoot reports what is wrong with offerings, boot and backoff.
func checkBoot(spec *v1alpha1.NodeSetSpec) error {
	return errors.Join(checkOfferings(spec), checkTimes(spec))
}

// checkOfferings reports offerings that contradict each other or the template.
func checkOfferings(spec *v1alpha1.NodeSetSpec) error {
	var problems []error
	seen := map[string]bool{}
	for _, o := range spec.Offerings {
		where := fmt.Sprintf("spec.offerings[%s]", o.Name)
		if wrong := validation.IsValidLabelValue(o.Name); o.Name == "" || len(wrong) > 0 {
			problems = append(problems, fmt.Errorf("spec.offerings: the name %q cannot be a label: use letters, digits, \"-\", \"_\" and \".\", at most 63 characters", o.Name))
		}
		if seen[o.Name] {
			problems = append(problems, fmt.Errorf("spec.offerings: the name %q stands twice", o.Name))
		}
		seen[o.Name] = true
		for _, key := range slices.Sorted(maps.Keys(o.NodeSelector)) {
			if there, set := spec.Template.Spec.NodeSelector[key]; set && there != o.NodeSelector[key] {
				problems = append(problems, fmt.Errorf("%s.nodeSelector: %s=%s contradicts %s=%s in spec.template.spec.nodeSelector: remove it from the template",
					where, key, o.NodeSelector[key], key, there))
			}
		}
		if o.Limit != nil && *o.Limit < 1 {
			problems = append(problems, fmt.Errorf("%s.limit is %d: must be 1 or more, or absent for no limit", where, *o.Limit))
		}
	}
	return errors.Join(problems...)
}

// checkTimes reports times of boot and backoff that make no sense.
func checkTimes(spec *v1alpha1.NodeSetSpec) error {
	var problems []error
	boot, backoff := spec.Boot, spec.Backoff
	if boot == nil {
		boot = &v1alpha1.BootPolicy{}
	}
	if backoff == nil {
		backoff = &v1alpha1.BackoffPolicy{}
	}
	for _, field := range []struct {
		path string
		d    *metav1.Duration
	}{
		{"spec.boot.deadline", boot.Deadline},
		{"spec.boot.unschedulableGrace", boot.UnschedulableGrace},
		{"spec.backoff.initial", backoff.Initial},
		{"spec.backoff.max", backoff.Max},
	} {
		if field.d != nil && field.d.Duration <= 0 {
			problems = append(problems, fmt.Errorf("%s is %s: must be more than 0s", field.path, field.d.Duration))
		}
	}
	if i, m := duration(backoff.Initial), duration(backoff.Max); m > 0 && i > m {
		problems = append(problems, fmt.Errorf("spec.backoff: initial %s is more than max %s", i, m))
	}
	if boot.TopologyMode != "" && boot.TopologyKey == "" {
		problems = append(problems, errors.New("spec.boot.topologyMode needs spec.boot.topologyKey beside it"))
	}
	return errors.Join(problems...)
}

func duration(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

func value(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}
