package pods

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

func TestHistoryPlan(t *testing.T) {
	have := func(revisions ...string) (all []appsv1.ControllerRevision) {
		for i, r := range revisions {
			all = append(all, appsv1.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{Name: "cpu-" + r, Labels: map[string]string{v1alpha1.LabelRevision: r}}, Revision: int64(i + 3),
			})
		}
		return all
	}
	for name, tc := range map[string]struct {
		have        []appsv1.ControllerRevision
		now, most   string
		limit       int
		wantNumber  int64
		wantThere   bool
		wantDropped []string
	}{
		"the first":            {now: "a", most: "a", limit: 2, wantNumber: 1},
		"as it is":             {have: have("a", "b"), now: "b", most: "b", limit: 2, wantThere: true},
		"another":              {have: have("a", "b"), now: "c", most: "b", limit: 2, wantNumber: 5},
		"back to a former":     {have: have("a", "b"), now: "a", most: "b", limit: 2, wantNumber: 5, wantThere: true},
		"too many":             {have: have("a", "b", "c", "d"), now: "e", most: "e", limit: 2, wantNumber: 7, wantDropped: []string{"cpu-a", "cpu-b"}},
		"the oldest is in use": {have: have("a", "b", "c", "d"), now: "d", most: "a", limit: 1, wantThere: true, wantDropped: []string{"cpu-b"}},
		"none to be kept":      {have: have("a", "b"), now: "b", most: "b", limit: 0, wantThere: true, wantDropped: []string{"cpu-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.have)
			number, there, drop := historyPlan(tc.have, historyKept{revision: tc.now, current: tc.most, limit: tc.limit})
			assert.Equal(t, tc.wantNumber, number)
			assert.Equal(t, tc.wantThere, there)
			assert.Equal(t, tc.wantDropped, drop)
			assert.Equal(t, before, tc.have)
		})
	}
}

// With each status the newest revision is in the history, and nothing is written when it is.
func TestHistory(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	c, kube, _ := testClient(t, ns)
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	c.opts.Now = func() time.Time { return now }
	first := ns.Spec.Template
	update := func(current string) {
		t.Helper()
		set, _ := c.nodeSet("cpu")
		require.NoError(t, c.UpdateStatus(t.Context(), powersave.NodeSetCounts{
			Name: "cpu", Generation: 1, Update: &powersave.UpdateCounts{Revision: revision(&set.Spec), Current: current},
		}))
	}
	change := func(image string) {
		set, _ := c.nodeSet("cpu")
		changed := set.DeepCopy()
		slurmd(changed).Image = image
		require.NoError(t, c.nodeSets.Update(changed))
	}
	numbers := func() map[string]int64 {
		list, err := kube.AppsV1().ControllerRevisions("slurm").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		n := map[string]int64{}
		for _, r := range list.Items {
			n[r.Name] = r.Revision
		}
		return n
	}
	calls := func() (n int) {
		for _, a := range kube.Actions() {
			if a.GetResource().Resource == "controllerrevisions" {
				n++
			}
		}
		return n
	}
	update(goodRevision)
	assert.Equal(t, map[string]int64{"cpu-" + goodRevision: 1}, numbers())
	record, err := kube.AppsV1().ControllerRevisions("slurm").Get(t.Context(), "cpu-"+goodRevision, metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, metav1.IsControlledBy(record, ns))
	assert.Equal(t, labels.Set{v1alpha1.LabelCluster: "tide", v1alpha1.LabelNodeSet: "cpu", v1alpha1.LabelRevision: goodRevision}, labels.Set(record.Labels))
	var data v1alpha1.NodeSetSpec
	require.NoError(t, json.Unmarshal(record.Data.Raw, &data))
	assert.Equal(t, first, data.Template)
	assert.Equal(t, ns.Spec.Shape, data.Shape)

	before := calls()
	update(goodRevision)
	update(goodRevision)
	assert.Equal(t, before, calls(), "nothing is looked at twice")

	fail := errors.New("away")
	kube.PrependReactor("list", "controllerrevisions", func(clienttesting.Action) (bool, runtime.Object, error) { return fail != nil, nil, fail })
	change("other:1")
	update(goodRevision)
	before = calls()
	update(goodRevision)
	assert.Equal(t, before, calls(), "not again at once")
	now, fail = now.Add(historyRetry), nil
	update(goodRevision)
	assert.Len(t, numbers(), 2)

	change("slurmtide/slurm:26.05")
	update(goodRevision)
	assert.EqualValues(t, 3, numbers()["cpu-"+goodRevision], "the former one is the newest again")

	set, _ := c.nodeSet("cpu")
	set = set.DeepCopy()
	set.Spec.RevisionHistoryLimit = new(int32(0))
	require.NoError(t, c.nodeSets.Update(set))
	update(goodRevision)
	assert.Equal(t, []string{"cpu-" + goodRevision}, slices.Collect(maps.Keys(numbers())))

	// What others have made is theirs.
	foreign := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "cpu-foreign", Namespace: "slurm", Labels: labels.Merge(record.Labels, labels.Set{v1alpha1.LabelRevision: "foreign"})}}
	_, err = kube.AppsV1().ControllerRevisions("slurm").Create(t.Context(), foreign, metav1.CreateOptions{})
	require.NoError(t, err)
	change("other:2")
	update(goodRevision)
	assert.Contains(t, numbers(), "cpu-foreign")
}
