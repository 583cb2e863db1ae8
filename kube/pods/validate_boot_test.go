package pods

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

func hours(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Hour} }

func TestCheckBoot(t *testing.T) {
	offerings := func(o ...v1alpha1.Offering) func(*v1alpha1.NodeSetSpec) {
		return func(s *v1alpha1.NodeSetSpec) { s.Offerings = o }
	}
	boot := func(b v1alpha1.BootPolicy) func(*v1alpha1.NodeSetSpec) {
		return func(s *v1alpha1.NodeSetSpec) { s.Boot = &b }
	}
	backoff := func(b v1alpha1.BackoffPolicy) func(*v1alpha1.NodeSetSpec) {
		return func(s *v1alpha1.NodeSetSpec) { s.Backoff = &b }
	}
	selects := func(pool string) map[string]string { return map[string]string{"pool": pool} }
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeSetSpec)
		want   string // "" accepts
	}{
		"nothing":         {func(*v1alpha1.NodeSetSpec) {}, ""},
		"two offerings":   {offerings(v1alpha1.Offering{Name: "spot", Limit: new(int32(1))}, v1alpha1.Offering{Name: "On_demand.2"}), ""},
		"same name":       {offerings(v1alpha1.Offering{Name: "spot"}, v1alpha1.Offering{Name: "spot"}), `spec.offerings: the name "spot" stands twice`},
		"no name":         {offerings(v1alpha1.Offering{}), `the name "" cannot be a label`},
		"name with space": {offerings(v1alpha1.Offering{Name: "on demand"}), `the name "on demand" cannot be a label`},
		"long name":       {offerings(v1alpha1.Offering{Name: strings.Repeat("a", 64)}), "at most 63 characters"},
		"limit 0":         {offerings(v1alpha1.Offering{Name: "spot", Limit: new(int32(0))}), "spec.offerings[spot].limit is 0: must be 1 or more, or absent"},
		"selector beside the template's": {func(s *v1alpha1.NodeSetSpec) {
			s.Template.Spec.NodeSelector = map[string]string{"arch": "arm64", "pool": "spot"}
			s.Offerings = []v1alpha1.Offering{{Name: "spot", NodeSelector: selects("spot")}}
		}, ""},
		"selector against the template's": {func(s *v1alpha1.NodeSetSpec) {
			s.Template.Spec.NodeSelector = selects("big")
			s.Offerings = []v1alpha1.Offering{{Name: "big", NodeSelector: selects("big")}, {Name: "spot", NodeSelector: selects("spot")}}
		}, "spec.offerings[spot].nodeSelector: pool=spot contradicts pool=big in spec.template.spec.nodeSelector: remove it from the template"},
		"boot":                 {boot(v1alpha1.BootPolicy{Strategy: v1alpha1.Greedy, Deadline: hours(1), UnschedulableGrace: hours(1), TopologyKey: "zone", TopologyMode: v1alpha1.TopologyRequired}), ""},
		"no deadline":          {boot(v1alpha1.BootPolicy{Deadline: hours(0)}), "spec.boot.deadline is 0s: must be more than 0s"},
		"negative grace":       {boot(v1alpha1.BootPolicy{UnschedulableGrace: hours(-1)}), "spec.boot.unschedulableGrace is -1h0m0s: must be more than 0s"},
		"topology without key": {boot(v1alpha1.BootPolicy{TopologyMode: v1alpha1.TopologyPreferred}), "spec.boot.topologyMode needs spec.boot.topologyKey"},
		"backoff":              {backoff(v1alpha1.BackoffPolicy{Initial: hours(1), Max: hours(1)}), ""},
		"one long rest":        {backoff(v1alpha1.BackoffPolicy{Initial: hours(100)}), ""},
		"backoff of nothing":   {backoff(v1alpha1.BackoffPolicy{Initial: hours(0), Max: hours(-1)}), "spec.backoff.initial is 0s: must be more than 0s\nspec.backoff.max is -1h0m0s: must be more than 0s"},
		"backoff that shrinks": {backoff(v1alpha1.BackoffPolicy{Initial: hours(2), Max: hours(1)}), "spec.backoff: initial 2h0m0s is more than max 1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &newNodeSet("cpu", "cpu-[0-9]").Spec
			tc.change(spec)
			err := checkBoot(spec)
			if tc.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

func TestEngineNodeSet(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.Generation = 7
	assert.Equal(t, powersave.NodeSet{Name: "cpu", UID: "uid-of-nodeset", SpecGeneration: 7, SpecHash: specHash(&ns.Spec), Revision: goodRevision}, engineNodeSet(ns))

	ns.Spec.Boot = &v1alpha1.BootPolicy{Strategy: v1alpha1.Greedy, Deadline: hours(1), UnschedulableGrace: hours(2), ProvisioningRequest: &v1alpha1.ProvisioningRequest{ClassName: "atomic"}}
	ns.Spec.Backoff = &v1alpha1.BackoffPolicy{Initial: hours(3), Max: hours(4)}
	ns.Spec.Offerings = []v1alpha1.Offering{
		{Name: "third", Weight: new(int32(5))}, {Name: "first"}, {Name: "fourth", Weight: new(int32(5)), Limit: new(int32(9))}, {Name: "second", Weight: new(int32(1))},
	}
	assert.Equal(t, powersave.NodeSet{
		Name: "cpu", UID: "uid-of-nodeset", SpecGeneration: 7, SpecHash: specHash(&ns.Spec), Strategy: powersave.Greedy, Deadline: time.Hour, UnschedulableGrace: 2 * time.Hour, AskForRoom: true,
		BackoffInitial: 3 * time.Hour, BackoffMax: 4 * time.Hour, Revision: goodRevision,
		Offerings: []powersave.Offering{{Name: "first"}, {Name: "second"}, {Name: "third"}, {Name: "fourth", Limit: 9}},
	}, engineNodeSet(ns))
}
