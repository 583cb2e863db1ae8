package pods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

func TestPlaceOf(t *testing.T) {
	labels := map[string]string{"example.com/zone": "z1", "example.com/rack": "r2"}
	annotations := map[string]string{"line": "topo-switch:s2,topo-block:b2", "bad": "s2", "worse": "a:b\nState=DOWN", "empty": ""}
	for name, test := range map[string]struct {
		of          v1alpha1.Topology
		want, wrong string
	}{
		"a label":            {v1alpha1.Topology{NodeLabels: []string{"example.com/rack"}}, "default:r2", ""},
		"levels":             {v1alpha1.Topology{Name: "net", NodeLabels: []string{"example.com/zone", "example.com/rack"}}, "net:z1:r2", ""},
		"a label is missing": {v1alpha1.Topology{NodeLabels: []string{"example.com/rack", "x"}}, "", "label x of spec.topology.nodeLabels is missing"},
		"annotation":         {v1alpha1.Topology{NodeAnnotation: "line"}, "topo-switch:s2,topo-block:b2", ""},
		"no unit":            {v1alpha1.Topology{NodeAnnotation: "bad"}, "", "write <topology>:<unit>"},
		"two lines":          {v1alpha1.Topology{NodeAnnotation: "worse"}, "", "is no topology"},
		"empty":              {v1alpha1.Topology{NodeAnnotation: "empty"}, "", "annotation empty of spec.topology.nodeAnnotation is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := placeOf(&test.of, labels, annotations)
			assert.Equal(t, test.want, got)
			if test.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.wrong)
		})
	}
}

// What Place reads is kept of a host, and no more.
func TestSlimHostKeepsPlace(t *testing.T) {
	slim, err := slimHost(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "h", Labels: map[string]string{"rack": "r2"}, Annotations: map[string]string{"line": "a:b", "long": strings.Repeat("x", maxKept+1)},
	}})
	require.NoError(t, err)
	node := slim.(*corev1.Node)
	assert.Equal(t, map[string]string{"rack": "r2"}, node.Labels)
	assert.Equal(t, map[string]string{"line": "a:b"}, node.Annotations)
}
