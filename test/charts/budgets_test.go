//go:build charts

package charts

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodDisruptionBudgets: which pods of those that our code makes each is for, and how many may be away. A release beside it has pods of the same kinds.
func TestBudgets(t *testing.T) {
	const (
		sets     = "nodeSets: {cpu: {spec: {nodeNames: cpu-0, shape: {cpus: 1, realMemory: 100}}}}\n"
		other    = "accounting: {enabled: true, spec: {storageConfig: {host: db, passwordKeyRef: {name: db, key: password}}}}\nloginSets: {other: {spec: {}}}\n"
		external = "external: {host: a}, slurmKeyRef: {name: a, key: b}, jwtKeyRef: {name: a, key: b}"
	)
	type budget struct {
		away string // maxUnavailable
		pods []string
	}
	for name, test := range map[string]struct {
		slurm, slurmtide string
		want             map[string]budget
	}{
		"none": {sets + "loginSets: {one: {spec: {}}, single: {spec: {replicas: 1}}, own: {spec: {replicas: 2}, podDisruptionBudget: {}}, idle: {spec: {replicas: 0}}}\n" +
			"accounting: {enabled: true, spec: {storageConfig: {host: db, passwordKeyRef: {name: db, key: password}}}}", "", nil},
		"of their own accord": {
			sets + "controller: {spec: {backups: 1, persistence: {accessModes: [ReadWriteMany]}}}\nloginSets: {one: {spec: {}}, two: {spec: {replicas: 2}}}", "",
			map[string]budget{"tide-controller": {"1", []string{"tide-controller-0", "tide-controller-1"}}, "two-login": {"1", []string{"two-login"}}},
		},
		"asked for": {
			sets + `
controller: {podDisruptionBudget: {maxUnavailable: 0}}
restApi: {spec: {replicas: 2}, podDisruptionBudget: {maxUnavailable: 1}}
accounting: {enabled: true, spec: {storageConfig: {host: db, passwordKeyRef: {name: db, key: password}}}, podDisruptionBudget: {maxUnavailable: 0}}
loginSets: {one: {spec: {}, podDisruptionBudget: {maxUnavailable: 0}}, two: {spec: {replicas: 4}, podDisruptionBudget: {maxUnavailable: 50%}}}
`, `
controller: {podDisruptionBudget: {maxUnavailable: 2}}
scaler: {enabled: true, clusters: [{name: a, slurmrestd: b}], podDisruptionBudget: {maxUnavailable: 1}}
exporter: {enabled: true, clusters: [{name: a, slurmrestd: b}, {name: c, slurmrestd: d}], podDisruptionBudget: {maxUnavailable: 1}}
`,
			map[string]budget{
				"tide-controller": {"0", []string{"tide-controller-0"}}, "tide-restapi": {"1", []string{"tide-restapi"}}, "tide-accounting": {"0", []string{"tide-accounting-0"}},
				"one-login": {"0", []string{"one-login"}}, "two-login": {"50%", []string{"two-login"}},
				"slurmtide-controller": {"2", []string{"slurmtide-controller"}}, "slurmtide-scaler": {"1", []string{"slurmtide-scaler"}},
				"slurmtide-exporter-a": {"1", []string{"slurmtide-exporter-a"}}, "slurmtide-exporter-c": {"1", []string{"slurmtide-exporter-c"}},
			},
		},
		"slurmdbd elsewhere": {sets + "accounting: {enabled: true, spec: {" + external + "}, podDisruptionBudget: {maxUnavailable: 0}}", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n, got := newNeighborhood(), map[string]budget{}
			n.install(t, "slurm", "ebb", "slurm", other)
			n.install(t, "slurm", "tide", "slurm", test.slurm)
			n.install(t, "slurmtide", "slurmtide", "slurm", test.slurmtide)
			for _, object := range decode(t, n.objects["slurm"]) {
				o, ok := object.(*policyv1.PodDisruptionBudget)
				if !ok {
					continue
				}
				selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
				require.NoError(t, err)
				list, err := n.informers.Core().V1().Pods().Lister().Pods(o.Namespace).List(selector)
				require.NoError(t, err)
				names := []string{}
				for _, pod := range list {
					names = append(names, pod.Name)
				}
				slices.Sort(names)
				got[o.Name] = budget{o.Spec.MaxUnavailable.String(), names}
			}
			if test.want == nil {
				assert.Empty(t, got)
				return
			}
			assert.Equal(t, test.want, got)
		})
	}
}
