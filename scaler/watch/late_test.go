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
	l.mu.Unlock()
	time.Sleep(l.writes)
	l.mu.Lock()
	return jobs, at, l.fails
}

func (l *long) PeekJobs(_ context.Context, ids []uint32, known map[uint32]string) (jobs []scaler.Job, marks map[uint32]string, err error) {
	takes := 5 * time.Millisecond
	l.do(func() { takes += l.peekHangs })
	time.Sleep(takes)
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
			assert.Less(t, l.peeks, 6)
			l.peekErr = nil
		})
		assert.Equal(t, 1, strings.Count(log.String(), "looking for them failed"), log.String())
		time.Sleep(time.Minute)
		l.submit(102, "cpu")
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, pending())
	})
}

// While all jobs cannot be read, new ones do not make it look as if they could.
func TestPeekHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ns := longQueue(time.Second)
		w, _ := runLong(t, l, ns, slog.New(slog.DiscardHandler))
		l.do(func() { l.peekHangs = time.Hour })
		time.Sleep(40 * time.Second)
		_, err := w.Latest()
		require.ErrorContains(t, err, "slurmrestd has not answered for ")
		require.ErrorContains(t, err, " (new jobs)")
	})
}

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

func TestLateJobs(t *testing.T) {
	job := func(ids ...uint32) (jobs []scaler.Job) {
		for _, id := range ids {
			jobs = append(jobs, scaler.Job{ID: id})
		}
		return jobs
	}
	ids := func(jobs []scaler.Job) (ids []uint32) {
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		return ids
	}
	marks := func(of ...uint32) map[uint32]string {
		m := map[uint32]string{}
		for _, id := range of {
			m[id] = "PENDING"
		}
		return m
	}
	fresh := func() *lateJobs {
		l := newLateJobs()
		l.begin()
		l.all(nil, job(5, 7))
		return &l
	}
	t.Run("nothing is known", func(t *testing.T) {
		l := newLateJobs()
		asked, _ := l.ask()
		assert.Empty(t, asked)
	})
	t.Run("those to come", func(t *testing.T) {
		asked, known := fresh().ask()
		assert.Len(t, asked, window)
		assert.EqualValues(t, 8, asked[0])
		assert.Empty(t, known)
	})
	t.Run("found while all are read", func(t *testing.T) {
		l := fresh()
		l.take(job(8), marks(8))
		l.begin()
		l.take(job(9), marks(8, 9))
		before := job(5, 7)
		l.all(before, before)
		assert.Equal(t, []uint32{5, 7, 9}, ids(l.with(before)), "8 has ended and is forgotten, 9 came after")
		assert.EqualValues(t, 9, l.last)
	})
	t.Run("read with all", func(t *testing.T) {
		l := fresh()
		l.take(job(8), marks(8))
		l.begin()
		all := []scaler.Job{{ID: 5}, {ID: 7}, {ID: 8, Reason: "Resources"}}
		l.all(job(5, 7), all)
		assert.Equal(t, all, l.with(all), "once, and as it is now")
	})
	t.Run("started while all are read", func(t *testing.T) {
		l := fresh()
		l.take(job(8), marks(8))
		l.begin()
		_, went, _ := l.take(nil, map[uint32]string{8: "RUNNING"})
		assert.True(t, went)
		all := job(5, 7, 8)
		l.all(job(5, 7), all)
		assert.Equal(t, []uint32{5, 7}, ids(l.with(all)), "the read of all began before")
		l.begin()
		l.all(all, all)
		assert.Equal(t, []uint32{5, 7, 8}, ids(l.with(all)), "it waits again")
	})
	t.Run("starts and waits again while all are read", func(t *testing.T) {
		l := fresh()
		l.take(job(8), marks(8))
		l.begin()
		l.take(nil, map[uint32]string{8: "RUNNING"})
		l.take(job(8), marks(8))
		all := job(5, 7, 8)
		l.all(job(5, 7), all)
		assert.Equal(t, []uint32{5, 7, 8}, ids(l.with(all)))
	})
	t.Run("not looked at by slurmctld", func(t *testing.T) {
		l := fresh()
		first := []scaler.Job{{ID: 8, Reason: "None"}, {ID: 9, Reason: "Resources"}}
		l.take(first, marks(8, 9))
		_, known := l.ask()
		assert.Equal(t, marks(9), known, "8 is read again")
		came, went, _ := l.take(first[:1], marks(8, 9))
		assert.False(t, came || went)
		came, went, _ = l.take([]scaler.Job{{ID: 8, Reason: "QOSMaxJobsPerUserLimit"}}, marks(8, 9))
		assert.Equal(t, []bool{true, false}, []bool{came, went})
		_, known = l.ask()
		assert.Equal(t, marks(8, 9), known)
	})
	t.Run("place for others", func(t *testing.T) {
		l := fresh()
		var many []scaler.Job
		var of []uint32
		for id := range uint32(mostLate) {
			many, of = append(many, scaler.Job{ID: 8 + id}), append(of, 8+id)
		}
		l.take(many, marks(of...))
		asked, _ := l.ask()
		assert.Len(t, asked, mostLate, "no more are looked for")
		l.begin()
		l.all(nil, many)
		asked, _ = l.ask()
		assert.Len(t, asked, mostLate/2+window)
		assert.EqualValues(t, 8+mostLate/2, asked[0], "the newest stay")
		assert.Len(t, l.with(many), mostLate)
	})
	t.Run("the newest has ended", func(t *testing.T) {
		l := fresh()
		l.take(nil, map[uint32]string{40: "COMPLETED"})
		l.begin()
		l.all(job(5, 7), job(5))
		asked, _ := l.ask()
		assert.EqualValues(t, 41, asked[0], "IDs are not given out twice")
	})
	t.Run("small numbers again", func(t *testing.T) {
		l := fresh()
		l.begin()
		l.all(job(5, 7), job(1, 2, 5))
		asked, _ := l.ask()
		assert.EqualValues(t, 3, asked[0])
	})
	t.Run("an array is not looked at again", func(t *testing.T) {
		l := fresh()
		l.take([]scaler.Job{{ID: 8, ArrayTasks: "0-9"}}, map[uint32]string{8: "8_* PENDING"})
		asked, known := l.ask()
		assert.Empty(t, known)
		assert.EqualValues(t, 9, asked[0])
		came, went, _ := l.take(nil, map[uint32]string{9: "9_0 RUNNING"})
		assert.False(t, came || went)
		l.begin()
		l.all(job(5, 7), []scaler.Job{{ID: 5}, {ID: 7}, {ID: 8, ArrayTasks: "1-9"}})
		assert.Equal(t, "1-9", l.with(nil)[0].ArrayTasks)
	})
	t.Run("more", func(t *testing.T) {
		_, _, more := fresh().take(nil, marks(7+window))
		assert.True(t, more)
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
