package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
)

// others are nodes of somebody else, at most n of them.
func others(n int) scaler.NodeSet {
	return scaler.NodeSet{Name: fmt.Sprintf("partition=other maxNodes=%d", n), Max: n, Shape: shape, Partitions: []string{"other"}}
}

// A ScaledObject that describes its nodes anew does not share jobs and nodes with its own old description.
func TestChangedDescription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		s.nodes = append(s.nodes, scaler.Node{Name: "x-0", Partitions: []string{"other"}, State: scaler.NodeUp, Shape: shape, AllocCPUs: 4})
		w := start(t, s, ns)
		for id := range uint32(5) {
			s.submit(id+1, "other")
		}
		time.Sleep(2 * time.Second)
		with := func(who string, n int) (int, error) {
			f, err := w.With(t.Context(), who, others(n))
			if err != nil {
				return 0, err
			}
			d, ok := f.NodeSet(others(n).Name)
			require.True(t, ok)
			return d.Nodes(), nil
		}
		got, err := with("slurm/a", 3)
		require.NoError(t, err)
		assert.Equal(t, 3, got)
		time.Sleep(editedAfter)
		got, err = with("slurm/a", 10)
		require.NoError(t, err)
		assert.Equal(t, 6, got, "one in use and five for the jobs, at once")
		f, err := w.Latest()
		require.NoError(t, err)
		_, ok := f.NodeSet(others(3).Name)
		assert.False(t, ok)

		// Two triggers that disagree are told so, whichever asks second.
		_, err = with("slurm/a", 4)
		var conflict *ConflictError
		require.ErrorAs(t, err, &conflict)
		assert.Equal(t, ConflictError{Partition: "other", Other: others(10).Name, Wanted: others(4).Name}, *conflict)
		got, err = with("slurm/a", 10)
		require.NoError(t, err)
		assert.Equal(t, 6, got)

		// What somebody else says, too, stays, and two cannot say different things of the same nodes.
		time.Sleep(editedAfter)
		_, err = with("slurm/b", 10)
		require.NoError(t, err)
		_, err = with("slurm/a", 3)
		require.ErrorAs(t, err, &conflict)
		assert.Equal(t, ConflictError{Partition: "other", Other: others(10).Name, Wanted: others(3).Name, By: "slurm/b"}, *conflict)
		time.Sleep(time.Second)
		got, err = with("slurm/b", 10)
		require.NoError(t, err)
		assert.Equal(t, 6, got)
		time.Sleep(editedAfter)
		for _, who := range []string{"slurm/b", "slurm/a"} {
			got, err = with(who, 3)
			require.NoError(t, err)
			assert.Equal(t, 3, got)
		}

		// In another partition it may say what it likes.
		_, err = w.With(t.Context(), "slurm/b", scaler.NodeSet{Name: "partition=cpu", Max: 1, Shape: shape, Partitions: []string{"cpu"}})
		require.NoError(t, err)
		w.mu.Lock()
		assert.Len(t, w.claims, 3)
		w.mu.Unlock()
		time.Sleep(extraUnused + 10*time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Empty(t, w.claims)
		assert.Empty(t, w.extras)
	})
}

// Whoever asks by hand does not bear on what ScaledObjects get.
func TestNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		w := start(t, s, ns)
		s.submit(1, "other")
		s.submit(2, "other")
		time.Sleep(2 * time.Second)
		with := func(who string, n int) (int, error) {
			f, err := w.With(t.Context(), who, others(n))
			d, _ := f.NodeSet(others(n).Name)
			return d.Nodes(), err
		}
		got, err := with("", 1)
		require.NoError(t, err)
		assert.Equal(t, 1, got)
		got, err = with("slurm/a", 5)
		require.NoError(t, err)
		assert.Equal(t, 2, got, "as if nobody had asked")
		_, err = with("", 1)
		require.EqualError(t, err, `the ScaledObject slurm/a says of the nodes of partition other: "partition=other maxNodes=5", and not "partition=other maxNodes=1"; say the same, or tell whose ScaledObject this is`)
		got, err = with("", 5)
		require.NoError(t, err)
		assert.Equal(t, 2, got)
		_, err = with("slurm/b", 7)
		require.EqualError(t, err, `the ScaledObject slurm/a says of the nodes of partition other: "partition=other maxNodes=5", and not "partition=other maxNodes=7"; say the same, or give features by which the nodes can be told apart`)
		kind := scaler.NodeSet{Name: "ib", Max: 3, Shape: &scaler.Shape{CPUs: 4, Memory: 1000, Features: []string{"ib"}}, Partitions: []string{"other"}}
		_, err = w.With(t.Context(), "slurm/b", kind)
		require.NoError(t, err, "there may be several kinds of nodes")
	})
}

// An operator whose nodes have gone leaves their records behind, and shapes may stand in slurm.conf: neither takes the place of a node that could be.
func TestRecordsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		for i := range 3 {
			s.nodes = append(s.nodes, scaler.Node{Name: fmt.Sprintf("x-%d", i), Partitions: []string{"other"}, Shape: shape, Gone: true})
		}
		s.nodes = append(s.nodes,
			scaler.Node{Name: "x-3", Partitions: []string{"other"}, Shape: shape, Gone: true, AllocCPUs: 4}, // has jobs all the same
			scaler.Node{Name: "x-4", Partitions: []string{"other"}, Shape: shape})                           // drained
		w := start(t, s, ns)
		s.submit(1, "other")
		s.submit(2, "other")
		s.submit(3, "other")
		time.Sleep(2 * time.Second)
		f, err := w.With(t.Context(), "", others(4))
		require.NoError(t, err)
		d, _ := f.NodeSet(others(4).Name)
		assert.Equal(t, 1, d.InUse)
		assert.Equal(t, 2, d.New.Greedy, "four are the most, one is in use and one drained")
		assert.Equal(t, 3, d.Nodes())
	})
}

// What somebody gives up bears on what another has said at once, too.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		w := start(t, s, ns)
		for id := range uint32(5) {
			s.submit(id+1, "other")
		}
		time.Sleep(2 * time.Second)
		ib := scaler.NodeSet{Name: "1 ib", Max: 10, Shape: &scaler.Shape{CPUs: 4, Memory: 1000, Features: []string{"ib"}}, Partitions: []string{"other"}}
		plain := scaler.NodeSet{Name: "2 plain", Max: 10, Shape: shape, Partitions: []string{"other"}}
		with := func(who string, set scaler.NodeSet) int {
			f, err := w.With(t.Context(), who, set)
			require.NoError(t, err)
			d, _ := f.NodeSet(set.Name)
			return d.Nodes()
		}
		assert.Zero(t, with("slurm/b", plain)*with("slurm/a", ib)*with("slurm/b", plain), "all jobs go to one of them")
		require.Equal(t, 5, with("slurm/a", ib))
		time.Sleep(editedAfter)
		assert.Equal(t, 5, with("slurm/a", plain))
	})
}

// A begin time is nothing that Slurm reports as a change when it comes.
func TestBeginTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		w := start(t, s, ns)
		time.Sleep(10 * time.Second)
		for _, wait := range []time.Duration{6100 * time.Millisecond, 7700 * time.Millisecond, 9300 * time.Millisecond} {
			before := nodes(t, w, "cpu")
			begin := time.Now().Add(wait)
			s.submit(uint32(len(s.jobs)+1), "cpu")
			s.mu.Lock()
			s.jobs[len(s.jobs)-1].Begin = begin
			s.mu.Unlock()
			time.Sleep(wait - time.Millisecond)
			assert.Equal(t, before, nodes(t, w, "cpu"), "not before")
			time.Sleep(time.Second)
			assert.Equal(t, before+1, nodes(t, w, "cpu"), "a second later")
		}
	})
}

// Figures are as old as the older of what they were made of, and whoever waits hears when they are good again, though nothing has changed.
func TestAgeAndRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ns := cluster()
		w := New(Config{Queue: s, NodeSets: ns, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = w.Run(ctx) }()
		time.Sleep(4 * time.Second)
		f, err := w.Latest()
		require.NoError(t, err)
		s.mu.Lock()
		var read time.Time
		for i, what := range s.asked {
			if what == "partitions" {
				read = s.times[i]
			}
		}
		s.mu.Unlock()
		assert.Equal(t, read, f.Read)
		cancel()
		synctest.Wait()

		s, ns = cluster()
		w = New(Config{Queue: s, NodeSets: ns, AllEvery: time.Hour, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel = context.WithCancel(t.Context())
		go func() { _ = w.Run(ctx) }()
		time.Sleep(1200 * time.Millisecond)
		s.fail(errors.New("away"))
		time.Sleep(900 * time.Millisecond) // it has failed once
		s.fail(nil)
		changed := w.Changed()
		s.counts()
		<-changed
		assert.Zero(t, s.counts()["nodes"], "new figures would be told of in any case")
		cancel()
		synctest.Wait()
	})
}

// Nodes are read as often as it takes: a quiet Slurm is no error, however short the age is that figures may have.
func TestShortMaxAge(t *testing.T) {
	for _, age := range []time.Duration{2 * time.Second, 5 * time.Second, DefaultMaxAge} {
		synctest.Test(t, func(t *testing.T) {
			s, ns := cluster()
			w := New(Config{Queue: s, NodeSets: ns, MaxAge: age, Log: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = w.Run(ctx) }()
			time.Sleep(time.Second)
			for range 1000 {
				time.Sleep(53 * time.Millisecond)
				_, err := w.Latest()
				require.NoError(t, err, age)
			}
			cancel()
			synctest.Wait()
		})
	}
}

// Nor is one whose nodes, or jobs, take long to read.
func TestSlowReadsAreNoError(t *testing.T) {
	for _, n := range []int{0, 1, 2, 5, 8, 9, 10, 11, 12, 15, 20, 29} {
		synctest.Test(t, func(t *testing.T) {
			s, ns := cluster()
			if s.more = time.Duration(n) * time.Second; n%3 == 2 {
				s.takes, s.more = s.more, 0
			}
			w := New(Config{Queue: s, NodeSets: ns, Log: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = w.Run(ctx) }()
			time.Sleep(2 * time.Minute)
			for i := range uint32(400) {
				time.Sleep(533 * time.Millisecond)
				if i%50 == 0 {
					s.submit(i+1, "cpu")
				}
				if _, err := w.Latest(); !assert.NoError(t, err, "%v for nodes, %v for both", s.more, s.takes) {
					break
				}
			}
			cancel()
			<-done
		})
	}
}

// hanging is a log that nobody reads until it is closed.
type hanging struct {
	slog.Handler
	read chan struct{}
}

func (hanging) Enabled(context.Context, slog.Level) bool { return true }

func (h hanging) Handle(context.Context, slog.Record) error {
	<-h.read
	return nil
}

// Answers do not wait for the log.
func TestLogThatHangs(t *testing.T) {
	log := hanging{slog.DiscardHandler, make(chan struct{})}
	w := New(Config{Queue: &slurm{}, Log: slog.New(log)})
	noted, answered := make(chan struct{}), make(chan struct{})
	changed := w.Changed()
	go func() {
		defer close(noted)
		w.note(errors.New("away"))
	}()
	<-changed
	go func() {
		defer close(answered)
		_, err := w.Latest()
		assert.EqualError(t, err, "Slurm's queue has not been read yet: away")
	}()
	select {
	case <-answered:
	case <-time.After(5 * time.Second):
		assert.Fail(t, "it waits for the log")
	}
	close(log.read)
	<-noted
	<-answered
}
