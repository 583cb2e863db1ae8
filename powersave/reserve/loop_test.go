package reserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

type fakeSlurm struct {
	mu    sync.Mutex
	have  map[string]powersave.Reserve
	fail  error
	reads int
	calls []string
}

type notOffered struct{ error }

func (notOffered) NotOffered() bool { return true }

func (f *fakeSlurm) Reserved(context.Context) (map[string]powersave.Reserve, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return maps.Clone(f.have), nil
}

func (f *fakeSlurm) Reserve(_ context.Context, name string, nodes []string, begin, end time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf("reserve %s %v", name, nodes))
	if f.fail == nil {
		f.have[name] = powersave.Reserve{Nodes: slurmconf.CompressHostlist(nodes), Begin: begin, End: end}
	}
	return f.fail
}

func (f *fakeSlurm) Unreserve(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "remove "+name)
	if f.fail == nil {
		delete(f.have, name)
	}
	return f.fail
}

func (f *fakeSlurm) took() (calls []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls, f.calls = f.calls, nil
	return calls
}

func (f *fakeSlurm) fails(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *fakeSlurm) read() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func testLoop(t *testing.T, f *fakeSlurm, try func(l *Loop, told func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all []string
		l := New(Config{Slurm: f, Namespace: "slurm", Log: slog.New(slog.DiscardHandler), Tell: func(r powersave.UpdateReserved) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r.NodeSet+": "+r.Err)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { assert.NoError(t, l.Run(ctx)) })
		try(l, func() (told []string) {
			mu.Lock()
			defer mu.Unlock()
			told, all = all, nil
			return told
		})
		cancel()
		running.Wait()
	})
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func counts(reserve *powersave.Reserve) []powersave.NodeSetCounts {
	return []powersave.NodeSetCounts{{Name: "cpu", Update: &powersave.UpdateCounts{Revision: "r2", Reserve: reserve}}}
}

func TestLoop(t *testing.T) {
	f := &fakeSlurm{have: map[string]powersave.Reserve{}}
	testLoop(t, f, func(l *Loop, told func() []string) {
		window := powersave.Reserve{Begin: time.Now().Add(time.Hour), End: time.Now().Add(2 * time.Hour), Nodes: "cpu-[0-1]"}
		l.Counts(counts(&window))
		settle(time.Minute)
		assert.Zero(t, f.read(), "another bridge leads")
		l.Lead(true)
		settle(2 * time.Second)
		assert.Equal(t, []string{"reserve slurmtide.slurm.cpu [cpu-0 cpu-1]"}, f.took())
		settle(time.Minute)
		assert.Empty(t, f.took())

		fewer := window
		fewer.Nodes = "cpu-1"
		l.Counts(counts(&fewer))
		settle(2 * time.Second)
		assert.Equal(t, []string{"reserve slurmtide.slurm.cpu [cpu-1]"}, f.took())
		f.mu.Lock()
		delete(f.have, "slurmtide.slurm.cpu")
		f.mu.Unlock()
		settle(31 * time.Second)
		assert.Equal(t, []string{"reserve slurmtide.slurm.cpu [cpu-1]"}, f.took(), "somebody has removed it")

		f.fails(errors.New("away"))
		l.Counts(counts(nil))
		settle(2 * time.Second)
		assert.Equal(t, []string{"remove slurmtide.slurm.cpu"}, f.took())
		assert.Equal(t, []string{"cpu: away"}, told())
		f.fails(nil)
		settle(31 * time.Second)
		assert.Equal(t, []string{"remove slurmtide.slurm.cpu"}, f.took())
		assert.Equal(t, []string{"cpu: "}, told())
		settle(time.Minute)
		before := f.read()
		settle(time.Hour)
		assert.Equal(t, before, f.read(), "there is nothing to be looked at")
	})
}

// A bridge that begins removes what one of before has left, and asks once.
func TestLeft(t *testing.T) {
	f := &fakeSlurm{have: map[string]powersave.Reserve{"slurmtide.slurm.cpu": {}, "slurmtide.slurm.gone": {}, "root_1": {}}}
	testLoop(t, f, func(l *Loop, _ func() []string) {
		l.Lead(true)
		settle(time.Minute)
		assert.Zero(t, f.read(), "what is wished is not known")
		l.Counts(nil)
		settle(time.Minute)
		assert.Zero(t, f.read(), "nor is it now")
		l.Counts(counts(nil))
		settle(time.Minute)
		assert.Equal(t, []string{"remove slurmtide.slurm.cpu", "remove slurmtide.slurm.gone"}, f.took())
		assert.Contains(t, f.have, "root_1")
	})
}

// Slurm 24.11 can make none: it is said how to do it by hand, and what was made so is taken as it is.
func TestNotOffered(t *testing.T) {
	f := &fakeSlurm{have: map[string]powersave.Reserve{}, fail: notOffered{errors.New("not offered")}}
	testLoop(t, f, func(l *Loop, told func() []string) {
		begin := time.Unix(1795248000, 0)
		window := powersave.Reserve{Begin: begin, End: begin.Add(time.Hour), Nodes: "cpu-[0-1]"}
		l.Lead(true)
		l.Counts(counts(&window))
		settle(2 * time.Second)
		assert.Equal(t, []string{"cpu: not offered; by hand: scontrol create reservation Flags=MAINT,IGNORE_JOBS Users=root ReservationName=slurmtide.slurm.cpu " +
			"StartTime=uts1795248000 EndTime=uts1795251600 Nodes=cpu-[0-1]"}, told())
		f.mu.Lock()
		f.have["slurmtide.slurm.cpu"] = powersave.Reserve{Begin: begin, End: begin.Add(time.Hour), Nodes: "cpu-[0-9]"}
		f.mu.Unlock()
		settle(31 * time.Second)
		assert.Equal(t, []string{"cpu: "}, told())
	})
}

// The lease is lost and won again before the loop has looked: the engine has forgotten what it was told, and another bridge may have
// reserved something meanwhile.
func TestLostForAMoment(t *testing.T) {
	f := &fakeSlurm{have: map[string]powersave.Reserve{}, fail: errors.New("refused")}
	testLoop(t, f, func(l *Loop, told func() []string) {
		window := powersave.Reserve{Begin: time.Now().Add(time.Hour), End: time.Now().Add(2 * time.Hour), Nodes: "cpu-0"}
		l.Lead(true)
		l.Counts(counts(&window))
		settle(2 * time.Second)
		assert.Equal(t, []string{"cpu: refused"}, told())
		settle(time.Minute)
		assert.Empty(t, told(), "that is known")
		l.Lead(false)
		l.Lead(true)
		settle(2 * time.Second)
		assert.Equal(t, []string{"cpu: refused"}, told())

		f.fails(nil)
		l.Counts(counts(nil))
		settle(time.Hour)
		f.took()
		f.mu.Lock()
		f.have["slurmtide.slurm.cpu"] = powersave.Reserve{}
		f.mu.Unlock()
		l.Lead(false)
		l.Lead(true)
		settle(2 * time.Second)
		assert.Equal(t, []string{"remove slurmtide.slurm.cpu"}, f.took())
	})
}

// The last NodeSet is deleted.
func TestNoNodeSetLeft(t *testing.T) {
	f := &fakeSlurm{have: map[string]powersave.Reserve{}}
	testLoop(t, f, func(l *Loop, _ func() []string) {
		window := powersave.Reserve{Begin: time.Now().Add(time.Hour), End: time.Now().Add(2 * time.Hour), Nodes: "cpu-0"}
		l.Lead(true)
		l.Counts(counts(&window))
		settle(2 * time.Second)
		f.took()
		l.Counts([]powersave.NodeSetCounts{})
		settle(time.Minute)
		assert.Equal(t, []string{"remove slurmtide.slurm.cpu"}, f.took())
		before := f.read()
		settle(time.Hour)
		assert.Equal(t, before, f.read(), "there is nothing to be looked at")
	})
}

// While the window is open the same is said with every look.
func TestNotOfferedInTheWindow(t *testing.T) {
	f := &fakeSlurm{have: map[string]powersave.Reserve{}, fail: notOffered{errors.New("not offered")}}
	testLoop(t, f, func(l *Loop, told func() []string) {
		window := powersave.Reserve{Begin: time.Now().Add(-time.Minute), End: time.Now().Add(time.Hour), Nodes: "cpu-0"}
		l.Lead(true)
		l.Counts(counts(&window))
		settle(5 * time.Minute)
		all := told()
		assert.Len(t, all, 1)
		assert.Contains(t, all[0], " StartTime=now ")
	})
}
