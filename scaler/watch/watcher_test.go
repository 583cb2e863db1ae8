package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
)

var shape = &scaler.Shape{CPUs: 4, Memory: 1000}

// slurm is a slurmctld whose clock counts whole seconds.
type slurm struct {
	mu        sync.Mutex
	jobs      []scaler.Job
	nodes     []scaler.Node
	changedAt int64 // last_job_update
	takes     time.Duration
	more      time.Duration // that nodes take
	fails     error
	hides     bool // partitions
	asked     []string
	times     []time.Time
}

func (s *slurm) ask(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.times = append(s.asked, what), append(s.times, time.Now())
	return s.fails
}

func (s *slurm) take() {
	s.mu.Lock()
	d := s.takes
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *slurm) QueuePartitions(context.Context) ([]scaler.Partition, error) {
	if s.hides {
		return nil, s.ask("partitions")
	}
	return []scaler.Partition{{Name: "cpu"}, {Name: "other"}}, s.ask("partitions")
}

func (s *slurm) QueueNodes(context.Context) ([]scaler.Node, error) {
	err := s.ask("nodes")
	s.take()
	time.Sleep(s.more)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.nodes), err
}

func (s *slurm) QueueJobs(_ context.Context, since time.Time) ([]scaler.Job, time.Time, error) {
	s.mu.Lock()
	unchanged := !since.IsZero() && since.Unix()-1 >= s.changedAt
	s.mu.Unlock()
	if unchanged {
		return nil, time.Time{}, s.ask("unchanged")
	}
	err := s.ask("jobs")
	s.take()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.jobs), time.Now(), err
}

// submit makes a job for one whole node.
func (s *slurm) submit(id uint32, partition string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, scaler.Job{ID: id, Reason: "Resources", Priority: 1, Request: scaler.Request{Partitions: partition, Tasks: 1, CPUs: 4, CPUsPerTask: 4, Memory: 1000}})
	s.changedAt = time.Now().Unix()
}

func (s *slurm) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// counts empties the record and counts what was asked for.
func (s *slurm) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, what := range s.asked {
		n[what]++
	}
	s.asked, s.times = nil, nil
	return n
}

// sets are NodeSets that can change.
type sets struct {
	mu      sync.Mutex
	list    []scaler.NodeSet
	owners  map[string]string
	changed chan struct{}
	err     error
}

func (s *sets) NodeSets() ([]scaler.NodeSet, func(string) string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owners := s.owners
	return s.list, func(n string) string { return owners[n] }, s.err
}

func (s *sets) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *sets) set(list []scaler.NodeSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.err = list, nil
	close(s.changed)
	s.changed = make(chan struct{})
}

func cluster() (*slurm, *sets) {
	s := &slurm{takes: 10 * time.Millisecond}
	ns := &sets{changed: make(chan struct{}), owners: map[string]string{}, list: []scaler.NodeSet{{Name: "cpu"}}}
	for i := range 10 {
		name := fmt.Sprintf("cpu-%d", i)
		s.nodes = append(s.nodes, scaler.Node{Name: name, Partitions: []string{"cpu"}, State: scaler.NodeOff, Shape: shape})
		ns.owners[name] = "cpu"
	}
	return s, ns
}

// start runs a Watcher for the time of the test.
func start(t *testing.T, s *slurm, ns NodeSets) *Watcher {
	w := New(Config{Queue: s, NodeSets: ns, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, w.Run(ctx))
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func nodes(t *testing.T, w *Watcher, set string) int {
	t.Helper()
	f, err := w.Latest()
	require.NoError(t, err)
	d, ok := f.NodeSet(set)
	require.True(t, ok)
	return d.Nodes()
}

func TestNewJobIsSeenWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		w := start(t, s, ns)
		_, err := w.Latest()
		require.ErrorContains(t, err, "has not been read yet")
		time.Sleep(10 * time.Second)
		assert.Zero(t, nodes(t, w, "cpu"))
		for id := range uint32(20) {
			time.Sleep(3*time.Second + time.Duration(id)*41*time.Millisecond)
			changed := w.Changed()
			submitted := time.Now()
			s.submit(id+1, "cpu")
			<-changed
			assert.LessOrEqual(t, time.Since(submitted), 600*time.Millisecond)
			assert.Equal(t, min(10, int(id)+1), nodes(t, w, "cpu"))
		}
	})
}

func TestQuietSlurmIsAskedLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		start(t, s, ns)
		time.Sleep(10 * time.Second)
		s.counts()
		time.Sleep(time.Minute)
		n := s.counts()
		assert.InDelta(t, 118, n["unchanged"], 3)
		assert.Equal(t, 2, n["jobs"])
		assert.InDelta(t, 12, n["nodes"], 1)
		assert.InDelta(t, n["nodes"], n["partitions"], 1, "one of them may be under way")
	})
}

// Jobs change all the time and reads take long: two thirds of the time nothing is read.
func TestBusySlurmGetsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		s.takes = 2 * time.Second
		start(t, s, ns)
		stop := make(chan struct{})
		go func() {
			for id := uint32(1); ; id++ {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					s.submit(id, "cpu")
				}
			}
		}()
		time.Sleep(20 * time.Second)
		s.counts()
		time.Sleep(5 * time.Minute)
		close(stop)
		n := s.counts()
		reads := time.Duration(n["jobs"]) * s.takes
		assert.LessOrEqual(t, reads, 102*time.Second)
		assert.GreaterOrEqual(t, reads, 60*time.Second)
		assert.LessOrEqual(t, time.Duration(n["nodes"])*s.takes, 102*time.Second)
		assert.GreaterOrEqual(t, n["nodes"], 20)
	})
}

func TestOldFiguresAreAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		w := start(t, s, ns)
		s.submit(1, "cpu")
		time.Sleep(2 * time.Second)
		assert.Equal(t, 1, nodes(t, w, "cpu"))
		s.fail(errors.New("slurmctld is away"))
		time.Sleep(24 * time.Second)
		assert.Equal(t, 1, nodes(t, w, "cpu"), "still young enough")
		time.Sleep(7 * time.Second)
		_, err := w.Latest()
		var old *NotReadError
		require.ErrorAs(t, err, &old)
		assert.GreaterOrEqual(t, old.Age, 30*time.Second)
		assert.Regexp(t, `^Slurm's queue was last read \d+s ago: slurmctld is away$`, err.Error())
		s.counts()
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, s.counts()["partitions"], 13, "asked every five seconds")
		changed := w.Changed()
		s.fail(nil)
		<-changed
		synctest.Wait()
		assert.Equal(t, 1, nodes(t, w, "cpu"))
	})
}

func TestNeverRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		s.fails = errors.New("refused")
		w := start(t, s, ns)
		time.Sleep(time.Minute)
		_, err := w.Latest()
		require.EqualError(t, err, "Slurm's queue has not been read yet: refused")
		_, err = w.With(t.Context(), "", scaler.NodeSet{Name: "x"})
		require.EqualError(t, err, "Slurm's queue has not been read yet: refused")
	})
}

// A token that may not see the partitions is no empty queue.
func TestHiddenPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		s.hides = true
		w := start(t, s, ns)
		s.submit(1, "cpu")
		time.Sleep(time.Minute)
		_, err := w.Latest()
		require.EqualError(t, err, "Slurm's queue has not been read yet: there are no partitions in Slurm's answer: may the token's user see them? It has to be SlurmUser, or an operator")
	})
}

// A read that hangs is named.
func TestHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		w := start(t, s, ns)
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		s.takes = 5 * time.Minute
		s.mu.Unlock()
		time.Sleep(40 * time.Second)
		_, err := w.Latest()
		require.Error(t, err)
		assert.Regexp(t, `^Slurm's queue was last read \d+s ago: slurmrestd has not answered for \d+s \(nodes\)$`, err.Error())
		time.Sleep(20 * time.Minute)
		_, err = w.Latest()
		require.NoError(t, err, "reads that take long make figures good for longer")
	})
}

func TestNodeSetsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		ns.err = errors.New("NodeSets not read")
		w := start(t, s, ns)
		s.submit(1, "cpu")
		time.Sleep(3 * time.Second)
		_, err := w.Latest()
		require.EqualError(t, err, "Slurm's queue has not been read yet: NodeSets not read")
		ns.set([]scaler.NodeSet{{Name: "other"}})
		synctest.Wait()
		time.Sleep(100 * time.Millisecond) // the reads that were due
		f, err := w.Latest()
		require.NoError(t, err)
		_, ok := f.NodeSet("cpu")
		assert.False(t, ok)
		ns.set([]scaler.NodeSet{{Name: "cpu"}})
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, 1, nodes(t, w, "cpu"))
		// Names without records count once they have room in a partition that is known.
		ns.set([]scaler.NodeSet{{Name: "cpu", Max: 12, Shape: shape}})
		for id := range uint32(20) {
			s.submit(id+2, "cpu")
		}
		time.Sleep(2 * time.Second)
		assert.Equal(t, 12, nodes(t, w, "cpu"))
	})
}

// A NodeSet of somebody else, whose nodes have no records while they are away.
func TestWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		s.nodes = append(s.nodes, scaler.Node{Name: "slinky-0", Partitions: []string{"other"}, State: scaler.NodeUp, Shape: shape, AllocCPUs: 4, GresUsed: "gpu:h100:2(IDX:0-1)"})
		s.jobs = []scaler.Job{{ID: 100, State: scaler.JobRunning, Nodes: "slinky-0"}}
		w := start(t, s, ns)
		time.Sleep(2 * time.Second)
		set := scaler.NodeSet{Name: "partition=other", Max: 3, Shape: shape, Partitions: []string{"other"}}
		f, err := w.With(t.Context(), "", set)
		require.NoError(t, err)
		d, _ := f.NodeSet(set.Name)
		assert.Equal(t, 1, d.Nodes())
		assert.Equal(t, Use{Jobs: 1, CPUs: 4, GPUs: 2}, d.Running)
		for id := range uint32(5) {
			s.submit(id+1, "other")
		}
		time.Sleep(time.Second)
		assert.Equal(t, 3, nodes(t, w, set.Name), "one in use, two more can be made")

		for i := range maxExtras - 1 {
			_, err = w.With(t.Context(), "", scaler.NodeSet{Name: fmt.Sprint(i)})
			require.NoError(t, err)
		}
		_, err = w.With(t.Context(), "", scaler.NodeSet{Name: "one too many"})
		require.ErrorContains(t, err, "100 node shapes")
		time.Sleep(extraUnused + time.Minute)
		f, err = w.With(t.Context(), "", scaler.NodeSet{Name: "one too many"})
		require.NoError(t, err)
		assert.Len(t, f.Report.NodeSets, 2, "those that nobody asks for are forgotten")
	})
}

// telling is a slurmrestd that knows how nodes are handed out.
type telling struct {
	*slurm
	told  bool
	asked atomic.Int32
}

func (s *telling) Select(context.Context) (scaler.Select, bool, error) {
	s.asked.Add(1)
	return scaler.Select{CPUs: true}, s.told, nil
}

func TestSelect(t *testing.T) {
	for name, told := range map[string]bool{"told": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ns := cluster()
				queue := &telling{slurm: s, told: told}
				w := New(Config{Queue: queue, NodeSets: ns, Options: scaler.Options{Select: scaler.Select{NoMemory: true}}, Log: slog.New(slog.DiscardHandler)})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _ = w.Run(ctx) }()
				time.Sleep(5 * time.Minute)
				f, err := w.Latest()
				require.NoError(t, err)
				want := scaler.Select{NoMemory: true}
				if told {
					want = scaler.Select{CPUs: true}
				}
				assert.Equal(t, want, f.Snapshot.Select)
				assert.EqualValues(t, 1, queue.asked.Load())
				time.Sleep(6 * time.Minute)
				assert.EqualValues(t, 2, queue.asked.Load())
				cancel()
				synctest.Wait()
			})
		})
	}
}
