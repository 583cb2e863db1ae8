package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/scaler"
)

// long is a slurmctld with so many jobs that slurmrestd writes them for a while; they are as they were when it began to.
type long struct {
	*slurm
	writes  time.Duration
	peeks   int
	read    int // single jobs
	peekErr error

	peekHangs time.Duration
	ids       []uint32 // last looked at
}

func (l *long) QueueJobs(_ context.Context, since time.Time) ([]scaler.Job, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	if !since.IsZero() && since.Unix()-1 >= l.changedAt {
		return nil, time.Time{}, nil
	}
	jobs := slices.DeleteFunc(slices.Clone(l.jobs), func(j scaler.Job) bool { return j.State == scaler.JobEnded })
	l.asked = append(l.asked, "jobs")
	writes := l.writes
	l.mu.Unlock()
	time.Sleep(writes)
	l.mu.Lock()
	return jobs, at, l.fails
}

func (l *long) PeekJobs(ctx context.Context, ids []uint32, known map[uint32]string) (jobs []scaler.Job, marks map[uint32]string, err error) {
	takes := 5 * time.Millisecond
	l.do(func() { takes += l.peekHangs })
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peeks++
	l.ids = ids
	marks = map[uint32]string{}
	for _, j := range l.jobs {
		if !slices.Contains(ids, j.ID) {
			continue
		}
		if marks[j.ID] = fmt.Sprint(j.ID, j.ArrayTasks, j.State); j.State == scaler.JobPending && marks[j.ID] != known[j.ID] {
			jobs = append(jobs, j)
			l.read++
		}
	}
	return jobs, marks, l.peekErr
}

// set changes a job's state.
func (l *long) set(id uint32, state scaler.JobState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.jobs {
		if l.jobs[i].ID == id {
			l.jobs[i].State = state
		}
	}
	l.changedAt = time.Now().Unix()
}

// do is for what needs the lock.
func (l *long) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func longQueue(writes time.Duration) (*long, *sets) {
	s, ns := cluster()
	l := &long{slurm: s, writes: writes}
	l.submit(100, "other")
	return l, ns
}

// runLong starts a Watcher and lets it read all once.
func runLong(t *testing.T, l *long, ns *sets, log *slog.Logger) (w *Watcher, pending func() int64) {
	t.Helper()
	w = New(Config{Queue: l, NodeSets: ns, Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	time.Sleep(l.writes + time.Second)
	return w, func() int64 {
		f, err := w.Latest()
		require.NoError(t, err)
		seen, n := map[uint32]bool{}, int64(0)
		for _, j := range f.Snapshot.Jobs {
			require.False(t, seen[j.ID], "job %d counts twice", j.ID)
			seen[j.ID] = true
			if j.State == scaler.JobPending && j.Partitions == "cpu" {
				n++
			}
		}
		return n
	}
}

// However long all jobs take to be read, a new one counts within a second, and no longer than it waits.
func TestNewJobsOfLongQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(20 * time.Second)
		_, pending := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		require.Zero(t, pending())
		reads := 0
		id := uint32(100)
		for i := range 60 { // at any time of reads and rests
			id++
			l.submit(id, "cpu")
			time.Sleep(time.Second)
			require.EqualValues(t, 1, pending(), "after %d s", i)
			l.set(id, []scaler.JobState{scaler.JobRunning, scaler.JobEnded}[i%2])
			time.Sleep(time.Second)
			require.Zero(t, pending(), "after %d s", i)
			time.Sleep(time.Duration(i%7) * 100 * time.Millisecond)
		}
		l.do(func() { reads, l.peeks = l.peeks, 0 })
		assert.Less(t, reads, 400, "twice a second, and once more for a job that is new")
		assert.Equal(t, 60, l.read, "each new job is read once")

		for range 5 {
			id++
			l.submit(id, "cpu")
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 5, pending())
		time.Sleep(time.Minute)
		require.EqualValues(t, 5, pending())
	})
}

// A crowd is seen at once as far as it is looked after, and all of it with the next read.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(20 * time.Second)
		_, pending := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		for id := range uint32(600) {
			l.submit(101+id, "cpu")
		}
		time.Sleep(time.Second)
		seen := pending()
		assert.GreaterOrEqual(t, seen, int64(mostLate))
		assert.Less(t, seen, int64(mostLate+window))
		time.Sleep(time.Minute)
		assert.EqualValues(t, 600, pending())
	})
}

// What is read fast is not looked at in between.
func TestShortQueuesAreReadWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(100 * time.Millisecond)
		_, pending := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		for id := range uint32(20) {
			l.submit(101+id, "cpu")
			time.Sleep(time.Second)
			require.EqualValues(t, id+1, pending())
		}
		assert.Zero(t, l.peeks)
	})
}

// Nor does it matter how long nodes take: new jobs are looked for meanwhile, too.
func TestNewJobsWhileNodesAreRead(t *testing.T) {
	for _, more := range []time.Duration{450 * time.Millisecond, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l, ns := longQueue(2 * time.Second)
			l.more = more
			_, pending := runLong(t, l, ns, slog.New(slog.DiscardHandler))
			time.Sleep(10 * time.Second)
			for id := range uint32(200) {
				l.submit(101+id, "cpu")
				time.Sleep(time.Second)
				require.EqualValues(t, 1, pending())
				l.set(101+id, scaler.JobEnded)
				time.Sleep(time.Second + time.Duration(id%7)*100*time.Millisecond)
				require.Zero(t, pending())
			}
		})
	}
}

// What somebody asks for anew is reckoned at once, also while all is read.
func TestWithWhileAllIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(20 * time.Second)
		w, _ := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		for n := range 60 {
			l.do(func() { l.changedAt = time.Now().Unix() })
			start := time.Now()
			_, err := w.With(t.Context(), "", scaler.NodeSet{Name: fmt.Sprint(n)})
			require.NoError(t, err)
			require.Less(t, time.Since(start), time.Second)
			time.Sleep(time.Second)
			ns.set([]scaler.NodeSet{{Name: "cpu"}, {Name: fmt.Sprint("set", n)}})
			time.Sleep(time.Second)
			f, err := w.Latest()
			require.NoError(t, err)
			_, ok := f.NodeSet(fmt.Sprint("set", n))
			require.True(t, ok)
		}
	})
}

// Where a job runs that was found and has started nodes tell only when they are read again; that is soon.
func TestNodesFollowLateJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(20 * time.Second)
		w, pending := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		for id := range uint32(9) {
			time.Sleep(40*time.Second + time.Duration(id)*3*time.Second)
			f, err := w.Latest()
			require.NoError(t, err)
			require.False(t, f.NodesOlder)
			l.submit(101+id, "cpu")
			time.Sleep(time.Second)
			require.EqualValues(t, 1, pending())
			l.set(101+id, scaler.JobRunning)
			l.do(func() {
				l.jobs[len(l.jobs)-1].Nodes = l.nodes[id].Name
				l.nodes[id].State, l.nodes[id].AllocCPUs = scaler.NodeUp, 4
			})
			time.Sleep(time.Second)
			f, err = w.Latest()
			require.NoError(t, err)
			require.True(t, f.NodesOlder, id)
			time.Sleep(90 * time.Second)
			require.EqualValues(t, id+1, nodes(t, w, "cpu"))
			f, err = w.Latest()
			require.NoError(t, err)
			require.False(t, f.NodesOlder)
		}
	})
}

// IDs that begin again, with high ones still about and small ones in use, make new jobs late once, until all are read.
func TestIDsBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(20 * time.Second)
		for id := uint32(1); id < 3000; id += 2 {
			l.submit(id, "other")
		}
		l.submit(0x03feffff, "other")
		_, pending := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		l.submit(2, "cpu")
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, pending())
		l.do(func() { l.read = 0 })
		for i := range uint32(20) {
			l.submit(4+2*i, "cpu")
			time.Sleep(time.Second)
			require.EqualValues(t, 2+i, pending())
			l.submit(0x03fe0000-i*10000, "other") // are queued once more
		}
		l.do(func() { assert.Less(t, l.read, 50, "jobs that are known are not read again") })
	})
}

// When the queue has become short nothing is looked at in between, and what was found before counts no longer than it waits.
func TestQueueBecomesShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(20 * time.Second)
		_, pending := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		for id := range uint32(30) {
			l.submit(101+id, "cpu")
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 30, pending())
		l.do(func() { l.writes = 10 * time.Millisecond })
		time.Sleep(time.Minute)
		for id := range uint32(30) {
			l.set(101+id, scaler.JobRunning)
			time.Sleep(3 * time.Second)
			require.EqualValues(t, 29-id, pending())
		}
	})
}

// Reads of a long queue cost slurmrestd much: nothing but changes makes them frequent.
func TestQuietLongQueueIsReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(17 * time.Second)
		w, _ := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		time.Sleep(time.Minute)
		l.counts()
		for range 3600 {
			time.Sleep(time.Second)
			f, err := w.Latest()
			require.NoError(t, err)
			require.Less(t, time.Since(f.Read), 40*time.Second)
		}
		assert.InDelta(t, 3600/(restAll*17+17), l.counts()["jobs"], 2)
		for id := range uint32(36) {
			l.submit(101+id, "other")
			time.Sleep(100 * time.Second)
		}
		assert.InDelta(t, 2*36, l.counts()["jobs"], 3, "a read that was due to a change, and the one that sees what changed in its second, are as good")
	})
}

// Without answers new jobs come with the next read of all, as they would without looking.
func TestPeekFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(10 * time.Second)
		l.peekErr = errors.New("404")
		var log strings.Builder
		_, pending := runLong(t, l, ns, slog.New(slog.NewTextHandler(&log, nil)))
		l.submit(101, "cpu")
		time.Sleep(5 * time.Second)
		require.Zero(t, pending())
		time.Sleep(40 * time.Second)
		require.EqualValues(t, 1, pending())
		time.Sleep(3 * time.Minute)
		l.do(func() {
			assert.Less(t, l.peeks, 12)
			l.peekErr = nil
		})
		assert.Equal(t, 1, strings.Count(log.String(), "looking for them failed"), log.String())
		time.Sleep(time.Minute)
		l.submit(102, "cpu")
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, pending())
	})
}

// A look that hangs holds up no read: new jobs come with those, and at once when looks are answered again.
func TestPeekHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(time.Second)
		var log strings.Builder
		w, pending := runLong(t, l, ns, slog.New(slog.NewTextHandler(&log, nil)))
		l.do(func() { l.peekHangs = time.Hour })
		for id := range uint32(20) {
			l.submit(101+id, "cpu")
			time.Sleep(10 * time.Second)
			require.EqualValues(t, id+1, pending())
			f, err := w.Latest()
			require.NoError(t, err)
			require.Less(t, time.Since(f.Read), 10*time.Second)
		}
		require.Contains(t, log.String(), "looking for them failed")
		l.do(func() { l.peekHangs, l.writes = 0, 20*time.Second })
		time.Sleep(3 * time.Minute)
		for id := range uint32(40) {
			l.submit(121+id, "cpu")
			time.Sleep(time.Second)
			require.EqualValues(t, id+21, pending())
		}
	})
}

// While all jobs cannot be read, new ones do not make it look as if they could.
func TestNewJobsAloneAreNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(10 * time.Second)
		w, _ := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		l.fail(errors.New("out of memory"))
		l.submit(101, "cpu")
		time.Sleep(3 * time.Minute)
		var old *NotReadError
		_, err := w.Latest()
		require.ErrorAs(t, err, &old)
		assert.ErrorContains(t, err, "out of memory")
	})
}

// Jobs come, start, wait again and end at any time: in the end all that wait are counted, each once at any time.
func TestLateJobsAtRandom(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			l, ns := longQueue(time.Duration(1000+random.IntN(14000)) * time.Millisecond)
			_, pending := runLong(t, l, ns, slog.New(slog.DiscardHandler))
			id := uint32(100)
			for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
				switch n := random.IntN(4); {
				case n == 0 || id == 100:
					id += 1 + uint32(random.IntN(3)) // tasks of arrays take some
					l.submit(id, "cpu")
				case n == 3:
					l.do(func() { // forgotten
						l.jobs = slices.DeleteFunc(l.jobs, func(j scaler.Job) bool { return j.State == scaler.JobEnded })
					})
				default:
					l.set(101+uint32(random.IntN(int(id-100))), []scaler.JobState{scaler.JobPending, scaler.JobRunning, scaler.JobEnded}[random.IntN(3)])
				}
				time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
				pending()
			}
			time.Sleep(2 * time.Minute)
			waits := int64(0)
			l.do(func() {
				for _, j := range l.jobs {
					if j.State == scaler.JobPending && j.Partitions == "cpu" {
						waits++
					}
				}
			})
			require.Equal(t, waits, pending(), "seed %d", seed)
		})
	}
}
