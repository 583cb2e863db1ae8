package loop

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// looking is a world whose NodeSet looks 30 s ahead.
func looking(t *testing.T) *world {
	w := run(t)
	w.Lead(true)
	w.TakeNodeSets([]powersave.NodeSet{{Name: "cpu", Nodes: slurmconf.NewHostlist("cpu-0", "cpu-1"), LookAhead: &powersave.LookAhead{MaxNodes: 5, Lead: 30 * time.Second}}})
	return w
}

// Reservations that cannot be read are as they were, and one that is new is asked for soon.
func TestReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := looking(t)
		begin := time.Now().Add(2 * time.Minute)
		of := func(id uint32, name string) scaler.Job {
			return two(id, func(j *scaler.Job) { j.Reason, j.Reservation = "Reservation", name })
		}
		w.reservations = map[string]scaler.Reservation{"r": {Nodes: "cpu-[0-1]", Start: begin}}
		time.Sleep(30 * time.Second)
		assert.Zero(t, w.resvAsked, "no job waits for one")
		w.set(scaler.NodeOff, of(7, "r"))
		time.Sleep(65 * time.Second)
		assert.Len(t, w.now(), 1)
		assert.InDelta(t, 3, w.resvAsked, 1)
		w.slurm.mu.Lock()
		w.fails = errors.New("slurmctld is away")
		w.slurm.mu.Unlock()
		for range 80 {
			time.Sleep(time.Second)
			assert.Len(t, w.now(), 1, "%v before the start", time.Until(begin))
		}

		asks := func() int {
			w.slurm.mu.Lock()
			defer w.slurm.mu.Unlock()
			return w.resvAsked
		}
		for before := asks(); asks() == before; {
			time.Sleep(100 * time.Millisecond)
		}
		w.slurm.mu.Lock()
		w.fails, w.reservations = nil, map[string]scaler.Reservation{"s": {Nodes: "cpu-[0-1]", Start: time.Now().Add(20 * time.Second)}}
		w.slurm.mu.Unlock()
		w.set(scaler.NodeOff)
		time.Sleep(2 * time.Second)
		assert.Empty(t, w.now())
		w.set(scaler.NodeOff, of(8, "s"))
		time.Sleep(7 * time.Second)
		assert.Len(t, w.now(), 1)
	})
}

// The job before it ends without a word, and Slurm looks at dependencies once a minute only.
func TestJustEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := looking(t)
		waits := two(7, func(j *scaler.Job) {
			j.Reason, j.Dependent, j.Dependency = "Dependency", true, "afterok:1(unfulfilled)"
		})
		w.set(scaler.NodeOff, scaler.Job{ID: 1, State: scaler.JobRunning}, waits)
		time.Sleep(time.Minute)
		assert.Empty(t, w.now(), "it has no time limit")
		w.set(scaler.NodeOff, waits)
		time.Sleep(3 * time.Second)
		assert.Len(t, w.now(), 1)
		time.Sleep(80 * time.Second)
		assert.Len(t, w.now(), 1)
		time.Sleep(10 * time.Second)
		assert.Empty(t, w.now(), "Slurm does not let it go, whatever the reason")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, map[string]float64{"miss": 2}, w.results(t))
	})
}

// Jobs mostly end before their time limit. What was held for the one after them is what it takes.
func TestEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := looking(t)
		waits := two(7, func(j *scaler.Job) {
			j.Reason, j.Dependent, j.Dependency = "Dependency", true, "afterok:1(unfulfilled)"
		})
		w.set(scaler.NodeOff, scaler.Job{ID: 1, State: scaler.JobRunning, End: time.Now().Add(50 * time.Second)}, waits)
		time.Sleep(25 * time.Second)
		assert.Len(t, w.now(), 1)
		ready := two(7, func(j *scaler.Job) { j.Reason = "None" })
		w.set(scaler.NodeUp, ready)
		for range 5 { // slurmctld takes its time
			time.Sleep(time.Second)
			assert.Len(t, w.now(), 1)
		}
		w.set(scaler.NodeUp, scaler.Job{ID: 7, State: scaler.JobRunning, Nodes: "cpu-[0-1]", End: time.Now().Add(time.Hour)})
		time.Sleep(3 * time.Second)
		assert.Empty(t, w.now())
		assert.Equal(t, map[string]float64{"hit": 2}, w.results(t))
	})
}
