package powersave

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// A new leader goes on with what the one before held against NodeSets, but knows better what has failed since here.
func TestBreakersAreTakenOver(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	saved := func(reason string, until time.Duration) []BreakerRecord {
		return []BreakerRecord{{Key: BreakerKey{NodeSet: "cpu"}, State: BreakerOpen, Class: TroubleCapacity, Reason: reason, Until: now.Add(until), Failures: 3, Tries: 3}}
	}
	set := NodeSet{Name: "cpu", UID: "1", Nodes: slurmconf.NewHostlist("cpu-0")}
	for name, tt := range map[string]struct {
		others bool
		own    bool // a breaker is open here
		want   string
	}{
		"another one led":       {others: true, want: "capacity: theirs"},
		"both have failed":      {others: true, own: true, want: "capacity: ours"},
		"the same bridge again": {},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(Config{})
			set.Breakers = nil
			e.Step(now, NodeSetsRead{NodeSets: []NodeSet{set}})
			if tt.own {
				e.breakers.Failed(now, Attempt{NodeSet: "cpu"}, TroubleCapacity, "ours")
			}
			set.Breakers = saved("theirs", 10*time.Minute)
			e.Step(now, NodeSetsRead{NodeSets: []NodeSet{set}})
			e.Step(now, Leading{Leading: true, Others: tt.others})
			choice := e.breakers.Look(now, set, nil)
			assert.Equal(t, tt.want == "", choice.OK)
			assert.Equal(t, tt.want, choice.Why)
		})
	}
}
