package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

func TestLookAhead(t *testing.T) {
	spec := v1alpha1.NodeSetSpec{}
	assert.Nil(t, lookAhead(&spec), "off by default")
	spec.LookAhead = &v1alpha1.LookAhead{MaxNodes: 4}
	assert.Equal(t, &powersave.LookAhead{MaxNodes: 4}, lookAhead(&spec))
	spec.LookAhead = &v1alpha1.LookAhead{
		MaxNodes: 4, MaxNodesPerAccount: new(int32(2)), LeadTime: &metav1.Duration{Duration: time.Minute},
		Accounts: []v1alpha1.AccountLimit{{Name: "a", MaxNodes: 3}, {Name: "b"}}, Sources: []v1alpha1.LookAheadSource{v1alpha1.LookAheadBeginTime},
	}
	assert.Equal(t, &powersave.LookAhead{MaxNodes: 4, MaxPerAccount: 2, Lead: time.Minute, PerAccount: map[string]int{"a": 3, "b": 0}, Sources: []string{"BeginTime"}}, lookAhead(&spec))
	spec.Mode = v1alpha1.ModeDynamic
	assert.Nil(t, lookAhead(&spec))
}

func TestBootTimesSurvive(t *testing.T) {
	assert.Nil(t, bootStatus(nil))
	few := powersave.BootTimes{time.Second, 1500 * time.Millisecond}
	assert.Equal(t, &v1alpha1.BootStatus{RecentMilliseconds: []int64{1000, 1500}}, bootStatus(few))
	enough := few.With(2 * time.Second).With(9 * time.Second).With(3 * time.Second)
	saved := bootStatus(enough)
	assert.Equal(t, "9.0", saved.P95Seconds)
	assert.Equal(t, enough, savedBoots(&v1alpha1.NodeSet{Status: v1alpha1.NodeSetStatus{Boots: saved}}))
	assert.Empty(t, savedBoots(&v1alpha1.NodeSet{}))
	for range 100 {
		enough = enough.With(time.Minute)
	}
	assert.Len(t, bootStatus(enough).RecentMilliseconds, 20, "the CRD allows no more")
}

func TestLeadTime(t *testing.T) {
	boots := powersave.BootTimes{time.Second, time.Second, time.Second, time.Second, 12 * time.Second}
	for name, tc := range map[string]struct {
		look  powersave.LookAhead
		boots powersave.BootTimes
		want  time.Duration
	}{
		"nothing is known": {powersave.LookAhead{}, boots[:4], time.Minute},
		"learned":          {powersave.LookAhead{}, boots, 17 * time.Second},
		"given":            {powersave.LookAhead{Lead: time.Second}, boots, time.Second},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, tc.look.LeadTime(tc.boots)) })
	}
}
