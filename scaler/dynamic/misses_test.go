package dynamic

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// told are the reports of jobs that can never run.
func (w *world) told() (texts []string) {
	for _, r := range w.reports {
		if strings.Contains(r.Text, "can ever run") {
			texts = append(texts, r.Text)
		}
	}
	return texts
}

// A job that can never run is reported once, with what comes nearest, and has no nodes made.
func TestMisses(t *testing.T) {
	w := newWorld("dyn-[0-2]", 0)
	w.submit(4)
	w.seconds(60)
	require.Equal(t, []string{"no NodeSet can ever run a job, job: 1, miss: needs 4 nodes like those of NodeSet dyn, which has 3"}, w.told())
	assert.True(t, w.reports[0].Warning)
	assert.Zero(t, w.created)
	assert.Len(t, w.planner.Misses(), 1)

	// While others take names it is told no other story.
	w.submit(2)
	w.seconds(30)
	require.Equal(t, 1, w.running())
	assert.Len(t, w.told(), 1)

	// More names are room for it.
	more, err := slurmconf.ParseHostlist("dyn-[0-9]")
	require.NoError(t, err)
	w.sets[0].Nodes, w.sets[0].SpecGeneration = more, 2
	w.seconds(60)
	assert.Empty(t, w.planner.Misses())
	assert.Equal(t, 2, w.running())
	assert.Empty(t, w.broken)
}

// A NodeSet that rests, or has no names left, could run the job another time.
func TestNoMissWhileItRests(t *testing.T) {
	w := newWorld("dyn-[0-9]", 0)
	w.submit(3)
	for len(w.pods) < 3 {
		w.second(false)
	}
	for _, p := range w.pods {
		p.Trouble, p.Reason, p.Message = powersave.TroubleCapacity, "Unschedulable", "0/5 nodes are available"
	}
	for range 30 {
		w.second(false)
	}
	require.Equal(t, powersave.BreakerOpen, w.planner.Counts("")[0].Breakers[0].State)
	assert.Empty(t, w.told())
	assert.Empty(t, w.planner.Misses())
}
