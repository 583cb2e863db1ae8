package powersave

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWaiting(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	boot := func(from int, phase Phase, problem string, jobs ...uint32) Boot {
		return Boot{Phase: phase, Problem: problem, Jobs: jobs, Times: Timeline{Requested: at(from)}}
	}
	for name, test := range map[string]struct {
		boots []Boot
		want  []Waiting
	}{
		"none":       {nil, []Waiting{}},
		"for no job": {[]Boot{boot(0, PhasePending, "")}, []Waiting{}},
		"the first, the last and the first problem": {
			[]Boot{boot(2, PhaseRunning, "", 7), boot(1, PhasePending, "no host", 7), boot(3, PhasePending, "no quota", 7)},
			[]Waiting{{Job: 7, Since: at(1), Boots: 3, Phases: []int{0, 0, 0, 2, 0, 1}, Last: PhasePending, Problem: "no host"}},
		},
		"several, the longest first": {
			[]Boot{boot(2, PhaseAccepted, "", 9, 8), boot(1, PhaseRemoving, "", 10)},
			[]Waiting{
				{Job: 10, Since: at(1), Boots: 1, Phases: []int{1, 0, 0, 0, 0, 0}, Last: PhaseRemoving},
				{Job: 8, Since: at(2), Boots: 1, Phases: []int{0, 1, 0, 0, 0, 0}, Last: PhaseAccepted},
				{Job: 9, Since: at(2), Boots: 1, Phases: []int{0, 1, 0, 0, 0, 0}, Last: PhaseAccepted},
			},
		},
		"adopted, of which no request is known": {
			[]Boot{{Phase: PhaseRunning, Jobs: []uint32{7}, Times: Timeline{Accepted: at(5)}}},
			[]Waiting{{Job: 7, Since: at(5), Boots: 1, Phases: []int{0, 0, 0, 0, 0, 1}, Last: PhaseRunning}},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, Status{Boots: test.boots}.Waiting()) })
	}
}
