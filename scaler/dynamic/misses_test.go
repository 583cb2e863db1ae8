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

// No pods are made whose slurmd slurmctld would refuse, and none above spec.maxPoweredUp; the job's report says which of them it is.
func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		most, up int
		why      string
	}{
		"MaxNodeCount": {5, 0, "MaxNodeCount of slurm.conf is 5, and 2 are others"},
		"maxPoweredUp": {0, 3, "spec.maxPoweredUp is 3"},
		"both":         {9, 3, "spec.maxPoweredUp is 3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-99]", 0, func(s *powersave.NodeSet) { s.MaxPoweredUp = tc.up })
			w.most = tc.most
			for _, other := range []string{"cpu-0", "cpu-1"} {
				w.records[other] = &powersave.SlurmNode{Name: other, State: powersave.NodeIdle | powersave.NodeCloud | powersave.NodeDrain, Partitions: []string{"cloud"}}
			}
			w.submit(4)
			w.seconds(60)
			assert.Zero(t, w.created)
			require.Equal(t, []string{"no NodeSet can ever run a job, job: 1, miss: needs 4 nodes like those of NodeSet dyn, which has 3 (" + tc.why + ")"}, w.told())

			// Smaller ones run as far as that goes, and the rest waits for its turn, without a word.
			a, b := w.submit(2), w.submit(2)
			w.seconds(30)
			assert.True(t, a.running)
			assert.False(t, b.running)
			assert.Len(t, w.pods, 2)
			w.end(a)
			w.seconds(30)
			assert.True(t, b.running)
			c := w.submit(1)
			w.seconds(30)
			assert.True(t, c.running)
			assert.Len(t, w.pods, 3)
			w.submit(1)
			w.seconds(30)
			assert.Len(t, w.pods, 3)
			assert.Len(t, w.told(), 1)
			assert.Empty(t, w.broken)
		})
	}
}

// Records that were kept are used again within spec.maxPoweredUp only, and not by half for a job.
func TestLimitOfRecords(t *testing.T) {
	w := newWorld("dyn-[0-9]", 0)
	a := w.submit(3)
	w.seconds(30)
	require.True(t, a.running)
	held := w.submit(1)
	held.held, held.avoids = true, "dyn-0,dyn-1,dyn-2"
	w.end(a)
	w.seconds(120)
	require.Empty(t, w.pods)
	require.Len(t, w.records, 3)
	w.sets[0].MaxPoweredUp, w.sets[0].SpecGeneration = 1, 2
	w.submit(2)
	w.seconds(60)
	assert.Empty(t, w.pods)
	b := w.submit(1)
	w.seconds(30)
	assert.True(t, b.running)
	assert.Len(t, w.pods, 1)
	assert.Empty(t, w.broken)
}

// The floor says what it wants for.
func TestFloorAtMaxNodeCount(t *testing.T) {
	w := newWorld("dyn-[0-9]", 4)
	w.most = 3
	w.seconds(30)
	assert.Len(t, w.pods, 3)
	f := w.planner.Counts("")[0].Floor
	assert.Equal(t, powersave.FloorNoNodes, f.Why)
	assert.Equal(t, "slurmctld takes no more nodes: MaxNodeCount of slurm.conf is reached", f.Text)
}
