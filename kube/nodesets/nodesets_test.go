package nodesets

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/scaler"
)

func nodeSet(name, nodes string, age int) *v1alpha1.NodeSet {
	return &v1alpha1.NodeSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "slurm", UID: types.UID(name), Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(1e9-int64(age), 0))},
		Spec:       v1alpha1.NodeSetSpec{ClusterRef: v1alpha1.ClusterRef{Name: "c"}, NodeNames: nodes, Shape: v1alpha1.Shape{CPUs: 4, RealMemory: 1000, Gres: "gpu:h100:2"}},
	}
}

func dynamic(set *v1alpha1.NodeSet, partitions ...string) *v1alpha1.NodeSet {
	set.Spec.Mode, set.Spec.Partitions = v1alpha1.ModeDynamic, partitions
	return set
}

func TestSets(t *testing.T) {
	shape := &scaler.Shape{CPUs: 4, Memory: 1000, Gres: "gpu:h100:2"}
	for name, tc := range map[string]struct {
		list   []*v1alpha1.NodeSet
		sets   []scaler.NodeSet
		owners map[string]string
	}{
		"none": {nil, []scaler.NodeSet{}, map[string]string{}},
		"two": {
			[]*v1alpha1.NodeSet{nodeSet("b", "b-0", 1), nodeSet("a", "a-[0-1]", 1)},
			[]scaler.NodeSet{{Name: "a", Max: 2, Shape: shape}, {Name: "b", Max: 1, Shape: shape}},
			map[string]string{"a-0": "a", "a-1": "a", "b-0": "b"},
		},
		"the older one keeps a node": {
			[]*v1alpha1.NodeSet{nodeSet("young", "n-[0-2]", 1), nodeSet("old", "n-[1-3]", 2)},
			[]scaler.NodeSet{{Name: "old", Max: 3, Shape: shape}, {Name: "young", Max: 1, Shape: shape}},
			map[string]string{"n-0": "young", "n-1": "old", "n-2": "old", "n-3": "old"},
		},
		"mode Dynamic": {
			[]*v1alpha1.NodeSet{dynamic(nodeSet("d", "d-[0-1]", 1), "dyn")},
			[]scaler.NodeSet{{Name: "d", Max: 2, Shape: shape, Partitions: []string{"dyn"}}},
			map[string]string{"d-0": "d", "d-1": "d"},
		},
		"names that cannot be read": {
			[]*v1alpha1.NodeSet{nodeSet("a", "a-[", 1)},
			[]scaler.NodeSet{{Name: "a", Shape: shape}},
			map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sets, owners := Sets(tc.list)
			assert.Equal(t, tc.sets, sets)
			assert.Equal(t, tc.owners, owners)
		})
	}
}

func TestUpdate(t *testing.T) {
	c := newCache(nil, "slurm", "c", nil)
	_, _, err := c.NodeSets()
	require.EqualError(t, err, "the NodeSets in namespace slurm have not been read yet: waiting for Kubernetes")
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	changes := func(change func(), synced bool) bool {
		changed := c.Changed()
		change()
		c.update(store, synced)
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	put := func(set *v1alpha1.NodeSet) func() { return func() { require.NoError(t, store.Update(set)) } }
	assert.False(t, changes(put(nodeSet("a", "a-0", 1)), false), "half a list is none")
	_, _, err = c.NodeSets()
	require.Error(t, err)
	assert.True(t, changes(put(nodeSet("b", "b-0", 1)), true))
	sets, owner, err := c.NodeSets()
	require.NoError(t, err)
	assert.Len(t, sets, 2)
	assert.Equal(t, "b", owner("b-0"))
	assert.Empty(t, owner("x"))

	status := nodeSet("a", "a-0", 1)
	status.Status.PoweredUp = 3
	assert.False(t, changes(put(status), false), "a status changes nothing")
	foreign := nodeSet("x", "x-0", 1)
	foreign.Spec.ClusterRef.Name = "another"
	assert.False(t, changes(put(foreign), false))
	more := nodeSet("a", "a-[0-4]", 1)
	more.Generation = 2
	assert.True(t, changes(put(more), false))
	sets, _, err = c.NodeSets()
	require.NoError(t, err)
	assert.Equal(t, 5, sets[0].Max)
	assert.True(t, changes(func() { require.NoError(t, store.Delete(more)) }, false))
}
