package dynamic

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// What a pod fails of that a planner finds when it begins is held against the offering it is on, and against the NodeSet as it is now only if the pod is made of that.
func TestFoundPodFails(t *testing.T) {
	for name, tc := range map[string]struct {
		changed  bool // since the pod was made, as by somebody who corrects the image
		offering string
		trouble  powersave.Trouble
		rests    bool
	}{
		"of the present revision":            {trouble: powersave.TroubleImage, rests: true},
		"of another one":                     {changed: true, trouble: powersave.TroubleImage},
		"on an offering":                     {offering: "spot", trouble: powersave.TroubleCapacity, rests: true},
		"of another revision on one":         {changed: true, offering: "spot", trouble: powersave.TroubleCapacity},
		"of another revision, misconfigured": {changed: true, offering: "spot", trouble: powersave.TroubleConfig},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-9]", 1, func(s *powersave.NodeSet) {
				s.Revision, s.SpecHash = "r1", "h1"
				if tc.offering != "" {
					s.Offerings = []powersave.Offering{{Name: tc.offering}, {Name: "other"}}
				}
			})
			for range 4 {
				w.second(false)
			}
			require.Len(t, w.pods, 1)
			if tc.changed {
				w.sets[0].Revision, w.sets[0].SpecHash, w.sets[0].SpecGeneration = "r2", "h2", 2
			}
			w.planner = New(Config{Owner: owner})
			for _, p := range w.pods {
				require.Equal(t, tc.offering, p.Offering)
				p.Trouble, p.Reason, p.Message = tc.trouble, "Bad", "it cannot be"
			}
			for range 30 {
				w.second(false)
				if w.created == 2 {
					break
				}
			}
			var open []string // breakers that keep new pods back
			for _, b := range w.planner.Counts("")[0].Breakers {
				if b.State == powersave.BreakerOpen && b.SpecHash == w.sets[0].SpecHash {
					assert.Equal(t, tc.trouble, b.Class)
					open = append(open, b.Key.NodeSet+"/"+b.Key.Offering)
				}
			}
			if tc.rests {
				assert.Equal(t, []string{"dyn/" + tc.offering}, open)
			} else {
				assert.Empty(t, open)
			}
			assert.Equal(t, !tc.rests || tc.offering != "", w.created == 2, "another pod is made")
			for _, p := range w.pods {
				if tc.rests && tc.offering != "" {
					assert.Equal(t, "other", p.Offering)
				} else {
					assert.Equal(t, tc.offering, p.Offering)
				}
			}
			assert.Empty(t, w.broken)
		})
	}
}
