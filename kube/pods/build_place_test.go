package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

func TestBuildPlaces(t *testing.T) {
	own := corev1.Toleration{Key: "slurm", Operator: corev1.TolerationOpExists}
	spot := corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists}
	near := corev1.PodAffinityTerm{
		TopologyKey:   "zone",
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"slurmtide.io/cluster": "tide", "slurmtide.io/job": "4711"}},
	}
	west := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"west"}}
	notOn := func(host string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{host}}
	}
	on := func(host string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{host}}
	}
	templates := corev1.PodAffinityTerm{TopologyKey: "rack"}
	const consume, class = "autoscaling.x-k8s.io/consume-provisioning-request", "autoscaling.x-k8s.io/provisioning-class-name"
	for name, tc := range map[string]struct {
		boot            *v1alpha1.BootPolicy
		eachHost        *v1alpha1.EachHost
		options         PodOptions
		template        func(*corev1.PodSpec)
		wantSelector    map[string]string
		wantTolerations []corev1.Toleration
		wantLabels      map[string]string // beside those of every pod
		wantAnnotations map[string]string // beside those of every pod
		wantAffinity    *corev1.Affinity
		wantErr         string
	}{
		"nothing said": {},
		"offering": {
			options:         PodOptions{Offering: "spot"},
			wantSelector:    map[string]string{"pool": "spot"},
			wantTolerations: []corev1.Toleration{spot},
			wantLabels:      map[string]string{"slurmtide.io/offering": "spot"},
		},
		"offering beside the template": {
			options: PodOptions{Offering: "spot"},
			template: func(s *corev1.PodSpec) {
				s.NodeSelector = map[string]string{"arch": "arm64", "pool": "spot"}
				s.Tolerations = []corev1.Toleration{own}
			},
			wantSelector:    map[string]string{"arch": "arm64", "pool": "spot"},
			wantTolerations: []corev1.Toleration{own, spot},
			wantLabels:      map[string]string{"slurmtide.io/offering": "spot"},
		},
		"offering that adds nothing": {
			options: PodOptions{Offering: "any"}, wantLabels: map[string]string{"slurmtide.io/offering": "any"},
		},
		"offering that was removed": {
			options: PodOptions{Offering: "reserved"}, wantErr: `NodeSet cpu: spec.offerings has no "reserved" (any more)`,
		},
		"job": {
			boot: &v1alpha1.BootPolicy{}, options: PodOptions{Job: 4711}, wantLabels: map[string]string{"slurmtide.io/job": "4711", "slurmtide.io/busy": "true"},
		},
		"job in one domain if possible": {
			boot: &v1alpha1.BootPolicy{TopologyKey: "zone"}, options: PodOptions{Job: 4711},
			wantLabels: map[string]string{"slurmtide.io/job": "4711", "slurmtide.io/busy": "true"},
			wantAffinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: near}},
			}},
		},
		"job in one domain, beside the template's": {
			boot: &v1alpha1.BootPolicy{TopologyKey: "zone", TopologyMode: v1alpha1.TopologyRequired}, options: PodOptions{Job: 4711},
			template: func(s *corev1.PodSpec) {
				s.Affinity = &corev1.Affinity{
					NodeAffinity: &corev1.NodeAffinity{},
					PodAffinity:  &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{templates}},
				}
			},
			wantLabels: map[string]string{"slurmtide.io/job": "4711", "slurmtide.io/busy": "true"},
			wantAffinity: &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{},
				PodAffinity:  &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{templates, near}},
			},
		},
		"het job in one domain": {
			boot: &v1alpha1.BootPolicy{TopologyKey: "zone", TopologyMode: v1alpha1.TopologyRequired}, options: PodOptions{Job: 4711, HetJob: 4710},
			wantLabels: map[string]string{"slurmtide.io/job": "4711", "slurmtide.io/het-job": "4710", "slurmtide.io/busy": "true"},
			wantAffinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"slurmtide.io/cluster": "tide", "slurmtide.io/het-job": "4710"}},
			}}}},
		},
		"not on hosts in a bad condition": {
			options: PodOptions{KeepOff: []string{"h1", "h2"}},
			wantAffinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{notOn("h1"), notOn("h2")}}},
			}}},
		},
		"not on hosts in a bad condition, beside the template's": {
			options: PodOptions{KeepOff: []string{"h1"}},
			template: func(s *corev1.PodSpec) {
				s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{west}}, {}, {MatchFields: []corev1.NodeSelectorRequirement{notOn("h0")}}},
				}}}
			},
			wantAffinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{west}, MatchFields: []corev1.NodeSelectorRequirement{notOn("h1")}}, {},
					{MatchFields: []corev1.NodeSelectorRequirement{notOn("h0"), notOn("h1")}},
				},
			}}},
		},
		"on the host of its name": {
			eachHost: &v1alpha1.EachHost{},
			wantAffinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{on("cpu-1")}}},
			}}},
		},
		"on its host of a domain, beside the template's, if it is in no bad condition": {
			eachHost: &v1alpha1.EachHost{Domain: "ec2.internal"}, options: PodOptions{KeepOff: []string{"h1"}},
			template: func(s *corev1.PodSpec) {
				s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{west}}, {}, {MatchFields: []corev1.NodeSelectorRequirement{notOn("h0")}}},
				}}}
			},
			wantAffinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{west}, MatchFields: []corev1.NodeSelectorRequirement{on("cpu-1.ec2.internal"), notOn("h1")}}, {},
					{MatchFields: []corev1.NodeSelectorRequirement{notOn("h0"), on("cpu-1.ec2.internal"), notOn("h1")}},
				},
			}}},
		},
		"topology without a job": {boot: &v1alpha1.BootPolicy{TopologyKey: "zone"}},
		"room made beforehand": {
			boot:            &v1alpha1.BootPolicy{ProvisioningRequest: &v1alpha1.ProvisioningRequest{ClassName: "atomic"}},
			options:         PodOptions{ProvisioningRequest: "job-4711"},
			wantAnnotations: map[string]string{consume: "job-4711", class: "atomic"},
		},
		"room made beforehand for a NodeSet that asks for none now": {options: PodOptions{ProvisioningRequest: "job-4711"}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNodeSet("cpu", "cpu-[0-9]")
			plain, err := build(ns, "cpu-1", 1, "r", PodOptions{Cluster: "tide"})
			require.NoError(t, err)

			ns.Spec.Boot, ns.Spec.EachHost = tc.boot, tc.eachHost
			ns.Spec.Offerings = []v1alpha1.Offering{
				{Name: "spot", NodeSelector: map[string]string{"pool": "spot"}, Tolerations: []corev1.Toleration{spot}}, {Name: "any"},
			}
			if tc.template != nil {
				tc.template(&ns.Spec.Template.Spec)
			}
			before := ns.DeepCopy()
			tc.options.Cluster = "tide"
			pod, err := build(ns, "cpu-1", 1, "r", tc.options)
			if tc.wantErr != "" {
				require.EqualError(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, before, ns, "build must not change the NodeSet")
			want := plain
			want.Labels = labels.Merge(labels.Merge(plain.Labels, labels.Set{v1alpha1.LabelRevision: revision(&ns.Spec)}), tc.wantLabels)
			want.Annotations = labels.Merge(plain.Annotations, tc.wantAnnotations)
			want.Spec.NodeSelector, want.Spec.Tolerations, want.Spec.Affinity = tc.wantSelector, tc.wantTolerations, tc.wantAffinity
			assert.Equal(t, want, pod)
		})
	}
}
