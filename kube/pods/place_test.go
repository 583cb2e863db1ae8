package pods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

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

func TestPlace(t *testing.T) {
	plain, tree := newNodeSet("plain", "p-[0-9]"), newNodeSet("tree", "t-[0-9]")
	tree.Spec.Topology = &v1alpha1.Topology{NodeLabels: []string{"rack"}}
	c, _, _ := testClient(t, plain, tree)
	for name, test := range map[string]struct {
		nodeSet, host, want string
		hosts, known        bool
		wrong               string
	}{
		"nothing to tell":        {nodeSet: "plain", host: "h1", known: true},
		"the same, with hosts":   {nodeSet: "plain", host: "h1", hosts: true, known: true},
		"no NodeSet":             {nodeSet: "gone", host: "h1", known: true},
		"hosts are not read yet": {nodeSet: "tree", host: "h1"},
		"host is not seen yet":   {nodeSet: "tree", host: "h9", hosts: true},
		"known":                  {nodeSet: "tree", host: "h1", hosts: true, known: true, want: "default:r1"},
		"bare":                   {nodeSet: "tree", host: "h2", hosts: true, known: true, wrong: "host h2: label rack of spec.topology.nodeLabels is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			c.hosts = nil
			if test.hosts {
				c.hosts = cache.NewStore(cache.MetaNamespaceKeyFunc)
				require.NoError(t, c.hosts.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "h1", Labels: map[string]string{"rack": "r1"}}}))
				require.NoError(t, c.hosts.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "h2"}}))
			}
			place, known, err := c.Place(test.nodeSet, test.host)
			assert.Equal(t, test.want, place)
			assert.Equal(t, test.known, known)
			if test.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.wrong)
		})
	}
}

// What Place reads is kept of a host, and no more.
func TestSlimHostKeepsPlace(t *testing.T) {
	slim, err := (&Client{}).slimHost(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "h", Labels: map[string]string{"rack": "r2"}, Annotations: map[string]string{"line": "a:b", "long": strings.Repeat("x", maxKept+1)},
	}})
	require.NoError(t, err)
	node := slim.(*corev1.Node)
	assert.Equal(t, map[string]string{"rack": "r2"}, node.Labels)
	assert.Equal(t, map[string]string{"line": "a:b"}, node.Annotations)
}
