package loop

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/scaler/dynamic"
)

// stuck is a Kubernetes that makes pods when it is let.
type stuck struct {
	*world
	gate chan struct{}
}

func (s stuck) Create(ctx context.Context, a powersave.CreatePod) (string, error) {
	<-s.gate
	return s.world.Create(ctx, a)
}

// What waits for its turn is dropped when another bridge leads.
func TestOrdersEndWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		w := begin(t, func(w *world, c *Config) { c.Kubernetes, c.Parallel = stuck{w, gate}, 1 })
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		w.submit(3)
		time.Sleep(5 * time.Second)
		w.loop.Lead(false)
		time.Sleep(time.Second)
		close(gate)
		time.Sleep(10 * time.Second)
		assert.Len(t, w.said(), 1, "the one that was under way")
	})
}

// What takes something down has to begin soon, or Slurm is read again first.
func TestOrdersThatWait(t *testing.T) {
	for name, tc := range map[string]struct {
		within, wait time.Duration
		over, want   bool
	}{
		"at once":       {dynamic.ActOn, 0, false, true},
		"soon":          {dynamic.ActOn, 4 * time.Second, false, true},
		"late":          {dynamic.ActOn, 6 * time.Second, false, false},
		"whenever":      {0, 6 * time.Second, false, true},
		"another leads": {0, time.Second, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Config{})
				l.over = make(chan struct{})
				slots := make(chan struct{}, 1)
				slots <- struct{}{}
				done := false
				l.do(t.Context(), slots, dynamic.DeleteRecord{Node: "dyn-0"}, tc.within, func(context.Context) error {
					done = true
					return nil
				})
				time.Sleep(tc.wait)
				if tc.over {
					close(l.over)
					l.calls.Wait() // nothing waits on
				}
				<-slots
				synctest.Wait()
				assert.Equal(t, tc.want, done)
				if !tc.over {
					assert.Len(t, l.inbox.Take(), 1, "the planner is told")
				}
			})
		})
	}
	assert.True(t, outcome(errLate).Late)
}

// Not even if there is a turn to be had.
func TestNoOrdersWithoutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{})
		l.over = make(chan struct{})
		close(l.over)
		for range 50 {
			l.do(t.Context(), l.creates, dynamic.CreatePod{Node: "dyn-0"}, 0, func(context.Context) error {
				t.Error("another bridge leads")
				return nil
			})
		}
		l.calls.Wait()
	})
}

// taken is a Slurm in which a job starts on a drained node, somebody having put it back, right before its pod is to go.
type taken struct {
	*world
	done *bool
}

func (b taken) Nodes(ctx context.Context, names ...string) ([]powersave.SlurmNode, error) {
	b.mu.Lock()
	if r := b.records[names[0]]; r != nil && !*b.done {
		*b.done = true
		r.State = powersave.NodeAllocated | powersave.NodeDynamicNorm
		b.running[names[0]] = true
	}
	b.mu.Unlock()
	return b.world.Nodes(ctx, names...)
}

func TestNodeIsLookedAtOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := false
		w := begin(t, func(w *world, c *Config) { c.Slurm = taken{w, &done} })
		set := w.set()
		set.Floor = 1
		w.loop.NodeSets([]powersave.NodeSet{set})
		time.Sleep(10 * time.Second)
		set.Floor, set.SpecGeneration = 0, 2
		w.loop.NodeSets([]powersave.NodeSet{set})
		time.Sleep(2 * time.Minute)
		require.True(t, done)
		require.NotContains(t, w.said(), "delete dyn-0")
	})
}

// busy is a Slurm in which a slurmd registers right before its record is to be forgotten.
type busy struct {
	*world
	done *bool
}

func (b busy) Nodes(ctx context.Context, names ...string) ([]powersave.SlurmNode, error) {
	b.mu.Lock()
	r, pod := b.records[names[0]], b.pods[names[0]]
	if r != nil && pod.UID == "" && !*b.done {
		*b.done = true
		r.State = powersave.NodeIdle | powersave.NodeDynamicNorm
	}
	b.mu.Unlock()
	return b.world.Nodes(ctx, names...)
}

func TestRecordIsLookedAtOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := false
		w := begin(t, func(w *world, c *Config) { c.Slurm = busy{w, &done} })
		set := w.set()
		set.Floor = 1
		w.loop.NodeSets([]powersave.NodeSet{set})
		time.Sleep(10 * time.Second)
		set.Floor, set.SpecGeneration = 0, 2
		w.loop.NodeSets([]powersave.NodeSet{set})
		time.Sleep(2 * time.Minute)
		require.True(t, done)
		calls := w.said()
		again := slices.Index(calls, "update drain dyn-0slurmtide: its pod is gone")
		require.Positive(t, again, "%q", calls)
		require.Equal(t, []string{"forget dyn-0"}, calls[again+1:])
		require.NotContains(t, calls[:again], "forget dyn-0")
	})
}

// named is a Slurm in which a job or a reservation comes to name a node right after the read that has its record go.
type named struct {
	*world
	change func(*world)
	done   *bool
}

func (b *named) QueueJobs(ctx context.Context, since time.Time) ([]scaler.Job, time.Time, error) {
	jobs, at, err := b.world.QueueJobs(ctx, since)
	b.mu.Lock()
	defer b.mu.Unlock()
	r, pod := b.records["dyn-0"], b.pods["dyn-0"]
	if r != nil && pod.UID == "" && r.State.Any(powersave.NodeDrain) && since.IsZero() && !*b.done {
		*b.done = true
		b.change(b.world)
		b.changed = time.Now()
	}
	return jobs, at, err
}

func TestRecordIsNamedAtLast(t *testing.T) {
	for name, change := range map[string]func(*world){
		"job":         func(w *world) { w.excludes = "dyn-0" },
		"reservation": func(w *world) { w.reserved = map[string]string{"r": "dyn-[0-1]"} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := false
				w := begin(t, func(w *world, c *Config) { c.Slurm = &named{world: w, change: change, done: &done} })
				set := w.set()
				set.Floor = 1
				w.loop.NodeSets([]powersave.NodeSet{set})
				time.Sleep(10 * time.Second)
				set.Floor, set.SpecGeneration = 0, 2
				w.loop.NodeSets([]powersave.NodeSet{set})
				time.Sleep(2 * time.Minute)
				require.True(t, done, "%q", w.said())
				require.NotContains(t, w.said(), "forget dyn-0")
			})
		})
	}
}

// Slurm is left alone for as long as a read took, whoever waits.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, func(w *world, _ *Config) { w.slow, w.never = 3*time.Second, true })
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		w.submit(1)
		time.Sleep(30 * time.Second)
		require.Contains(t, w.said(), "create dyn-0")
		before := w.readCount()
		time.Sleep(time.Minute)
		assert.InDelta(t, 10, w.readCount()-before, 1)
	})
}

// slurm.conf may change.
func TestOptionsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		time.Sleep(35 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Equal(t, 4, w.selects)
	})
}

func TestHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		set := w.set()
		set.Floor = 1
		w.loop.NodeSets([]powersave.NodeSet{set})
		time.Sleep(5 * time.Second)
		w.loop.HostsSynced([]powersave.Host{{Name: "h"}, {Name: "other", Trouble: powersave.HostCordoned}})
		time.Sleep(20 * time.Second)
		require.NotContains(t, w.said(), "update drain dyn-0slurmtide: host: h is cordoned")
		w.loop.Host(powersave.Host{Name: "h", Trouble: powersave.HostCordoned})
		time.Sleep(100 * time.Millisecond)
		require.Contains(t, w.said(), "update drain dyn-0slurmtide: host: h is cordoned", "at once")
		time.Sleep(10 * time.Second)
		require.Contains(t, w.said(), "delete dyn-0")
		require.Contains(t, w.said(), "create dyn-1")
	})
}

// A host that is not in the list is gone.
func TestHostMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		set := w.set()
		set.Floor = 1
		w.loop.NodeSets([]powersave.NodeSet{set})
		time.Sleep(5 * time.Second)
		w.loop.HostsSynced(nil)
		time.Sleep(20 * time.Second)
		require.Contains(t, w.said(), "update drain dyn-0slurmtide: host: h is gone")
		require.NotContains(t, w.said(), "delete dyn-0")
	})
}

// What somebody else has written into the status, as a bridge that led before may, late, is put right though nothing happens.
func TestStatusOfSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		w.loop.NodeSets([]powersave.NodeSet{w.set()})
		time.Sleep(10 * time.Second)
		var was powersave.NodeSetCounts
		w.mu.Lock()
		was, w.status = w.status, powersave.NodeSetCounts{Name: "dyn", PoweredUp: 7}
		w.mu.Unlock()
		time.Sleep(statusCheck + time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		require.NotZero(t, was.Nodes)
		assert.Equal(t, was, w.status)
	})
}
