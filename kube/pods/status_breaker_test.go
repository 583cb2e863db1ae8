package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

func TestBreakersInStatus(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.Spec.Offerings = []v1alpha1.Offering{{Name: "spot"}, {Name: "demand"}}
	until := time.Date(2026, 5, 1, 12, 3, 4, 567, time.UTC)
	record := func(offering string, state powersave.BreakerState, class powersave.Trouble, until time.Time) powersave.BreakerRecord {
		return powersave.BreakerRecord{
			Key: powersave.BreakerKey{NodeSet: "cpu", Offering: offering}, State: state, Class: class,
			Reason: "it is " + string(class), Until: until, Failures: 4, Tries: 2, Spec: 1, SpecHash: "0123456789",
		}
	}
	const capacity, healthy = v1alpha1.ConditionCapacityAvailable, v1alpha1.ConditionBootsHealthy
	type says struct{ kind, reason, message string }
	for name, tc := range map[string]struct {
		records []powersave.BreakerRecord
		want    []says // conditions that are False
	}{
		"all well": {records: []powersave.BreakerRecord{}},
		"failures that opened nothing": {records: []powersave.BreakerRecord{
			record("", powersave.BreakerClosed, powersave.TroubleCrash, time.Time{}),
		}},
		"one offering rests": {records: []powersave.BreakerRecord{
			record("spot", powersave.BreakerOpen, powersave.TroubleCapacity, until),
		}},
		"every offering rests": {
			records: []powersave.BreakerRecord{
				record("demand", powersave.BreakerHalfOpen, powersave.TroubleQuota, until),
				record("spot", powersave.BreakerOpen, powersave.TroubleCapacity, until),
			},
			want: []says{{capacity, "QuotaExceeded", "offering spot: it is capacity; tried again at 2026-05-01T12:03:04Z. offering demand: it is quota; one pod tries it now"}},
		},
		"no room for the NodeSet": {
			records: []powersave.BreakerRecord{record("", powersave.BreakerOpen, powersave.TroubleCapacity, until)},
			want:    []says{{capacity, "NoCapacity", "it is capacity; tried again at 2026-05-01T12:03:04Z"}},
		},
		"bad image": {
			records: []powersave.BreakerRecord{record("", powersave.BreakerOpen, powersave.TroubleImage, time.Time{})},
			want:    []says{{healthy, "BadImage", "it is image; tried again when the NodeSet is changed"}},
		},
		"never registers, and no room": {
			records: []powersave.BreakerRecord{
				record("", powersave.BreakerOpen, powersave.TroubleBootstrap, until),
				record("demand", powersave.BreakerOpen, powersave.TroubleCapacity, until),
				record("spot", powersave.BreakerOpen, powersave.TroubleCapacity, until),
			},
			want: []says{
				{healthy, "NeverRegisters", "it is bootstrap; tried again at 2026-05-01T12:03:04Z"},
				{capacity, "NoCapacity", "offering spot: it is capacity; tried again at 2026-05-01T12:03:04Z. offering demand: it is capacity; tried again at 2026-05-01T12:03:04Z"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, tide := testClient(t, ns.DeepCopy())
			read := func() *v1alpha1.NodeSet {
				got, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(t.Context(), "cpu", metav1.GetOptions{})
				require.NoError(t, err)
				require.NoError(t, c.nodeSets.Update(got))
				return got
			}
			counts := powersave.NodeSetCounts{Name: "cpu", InUse: map[string]int{"spot": 3}, Breakers: tc.records}
			require.NoError(t, c.UpdateStatus(t.Context(), counts))
			got := read()

			want := map[string]says{}
			for _, s := range tc.want {
				want[s.kind] = s
			}
			for _, kind := range []string{capacity, healthy} {
				condition := meta.FindStatusCondition(got.Status.Conditions, kind)
				require.NotNil(t, condition)
				wanted, bad := want[kind]
				if !bad {
					assert.Equal(t, metav1.ConditionTrue, condition.Status, kind)
					continue
				}
				assert.Equal(t, metav1.ConditionFalse, condition.Status, kind)
				assert.Equal(t, wanted, says{kind, condition.Reason, condition.Message})
			}
			require.Len(t, got.Status.Offerings, 2)
			assert.EqualValues(t, 3, got.Status.Offerings[0].Nodes)

			// What was written comes back, to the second.
			saved := []powersave.BreakerRecord{}
			for _, r := range tc.records {
				r.Until = r.Until.Truncate(time.Second)
				saved = append(saved, r)
			}
			assert.ElementsMatch(t, saved, inUTC(engineNodeSet(got).Breakers))

			// And what has ended goes away, as do offerings that were removed.
			got.Spec.Offerings = nil
			require.NoError(t, tide.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("nodesets"), got, "slurm"))
			read()
			require.NoError(t, c.UpdateStatus(t.Context(), powersave.NodeSetCounts{Name: "cpu", Breakers: []powersave.BreakerRecord{}}))
			got = read()
			assert.Nil(t, got.Status.Breaker)
			assert.Empty(t, got.Status.Offerings)
			assert.True(t, meta.IsStatusConditionTrue(got.Status.Conditions, capacity))
			assert.True(t, meta.IsStatusConditionTrue(got.Status.Conditions, healthy))
		})
	}
}

func TestStatusWithoutBreakers(t *testing.T) {
	c, _, tide := testClient(t)
	require.NoError(t, c.UpdateStatus(t.Context(), powersave.NodeSetCounts{Name: "cpu", Nodes: 10}))
	got, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(t.Context(), "cpu", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Nil(t, meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionBootsHealthy), "nothing may be said of what is not known")
}

func inUTC(records []powersave.BreakerRecord) []powersave.BreakerRecord {
	for i := range records {
		if !records[i].Until.IsZero() {
			records[i].Until = records[i].Until.UTC()
		}
	}
	return records
}

func TestEveryTroubleHasAConditionReason(t *testing.T) {
	seen := map[string]bool{}
	for _, class := range []powersave.Trouble{
		powersave.TroubleCapacity, powersave.TroubleQuota, powersave.TroubleImage, powersave.TroubleConfig,
		powersave.TroubleCrash, powersave.TroubleRefused, powersave.TroubleBootstrap,
	} {
		reason := conditionReason(class)
		assert.NotEqual(t, "Failing", reason, class)
		assert.False(t, seen[reason], reason)
		seen[reason] = true
	}
	assert.Equal(t, "Failing", conditionReason("of a newer version"))
}

// What a status no longer says must go from the object, too.
func TestBreakerWithoutRetryTime(t *testing.T) {
	c, _, tide := testClient(t)
	write := func(class powersave.Trouble, until time.Time) *v1alpha1.BreakerStatus {
		r := powersave.BreakerRecord{Key: powersave.BreakerKey{NodeSet: "cpu"}, State: powersave.BreakerOpen, Class: class, Until: until, Failures: 1}
		require.NoError(t, c.UpdateStatus(t.Context(), powersave.NodeSetCounts{Name: "cpu", Nodes: 10, Breakers: []powersave.BreakerRecord{r}}))
		ns, err := tide.SlurmtideV1alpha1().NodeSets("slurm").Get(t.Context(), "cpu", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, c.nodeSets.Update(ns))
		return ns.Status.Breaker
	}
	assert.NotNil(t, write(powersave.TroubleCapacity, time.Now()).RetryTime)
	assert.Nil(t, write(powersave.TroubleImage, time.Time{}).RetryTime)
}

// A status that was written before hashes were compares by generation: what failed is not tried again because the bridge is newer.
func TestBreakerOfFormerVersion(t *testing.T) {
	ns := newNodeSet("cpu", "cpu-[0-9]")
	ns.Generation = 5
	ns.Status.Breaker = &v1alpha1.BreakerStatus{State: v1alpha1.BreakerBackingOff, Class: "image", Failures: 1, Tries: 1, SpecGeneration: 5}
	may := func() bool {
		set := engineNodeSet(ns)
		var b powersave.Breakers
		b.NodeSets([]powersave.NodeSet{set})
		ns := ns.DeepCopy()
		ns.Generation, ns.Spec.Replicas = ns.Generation+1, new(int32(3)) // as soon as it is started
		return b.Look(time.Now(), engineNodeSet(ns), nil).OK
	}
	assert.False(t, may())
	ns.Status.Breaker.SpecGeneration = 4
	assert.True(t, may(), "somebody may have mended it meanwhile")
}

// Without the field a status must not keep the hash of the failure before.
func TestBreakerWithoutSpecHash(t *testing.T) {
	status := &v1alpha1.NodeSetStatus{Breaker: &v1alpha1.BreakerStatus{State: v1alpha1.BreakerBackingOff}}
	patch, err := statusPatch(status)
	require.NoError(t, err)
	assert.Contains(t, string(patch), `"specHash":null`)
}
