// Package sim_test drives powersave.Engine with a model of Slurm and a model of Kubernetes through
// random schedules: jobs that share nodes, pods that find no host, late, doubled, failed and lost
// calls, crashes of the bridge, administrators who interfere. What must hold whatever happens is
// checked all the time; what must not last is checked from when nothing keeps the bridge from its
// work. A schedule follows from its seed, and rapid shrinks what fails to the steps that matter.
package sim_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	schedules = flag.Int("schedules", 300, "how many schedules to try")
	first     = flag.Uint64("first", 1, "seed of the first schedule")
	show      = flag.Bool("show", false, "print what happens in the first schedule")
	brief     = flag.Bool("brief", false, "stop at the first failure, and do not tell its story")
)

// failure is a broken promise, with the seeds of the schedules that broke it.
type failure struct {
	seeds []uint64
	how   string
}

// try runs schedules from a seed on, on all processors. It stops early when enough of them fail.
func try(from uint64, count, enough int) map[string]*failure {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // little lives for long
	found := map[string]*failure{}
	var mu sync.Mutex
	var next atomic.Int64
	var bad atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			w := &world{}
			for {
				i := next.Add(1) - 1
				if i >= int64(count) || bad.Load() >= int64(enough) {
					return
				}
				seed := from + uint64(i)
				s := plan(seed)
				w.begin(s)
				if i%100 == 0 {
					w.hash = fnv.New64a()
				}
				w.run()
				if w.hash != nil && w.hash.Sum64() != actions(s) {
					w.breaks(determinism, "the same schedule led to other actions")
				}
				if len(w.broken) == 0 {
					continue
				}
				bad.Add(1)
				mu.Lock()
				for promise, how := range w.broken {
					if found[promise] == nil {
						found[promise] = &failure{how: how}
					}
					found[promise].seeds = append(found[promise].seeds, seed)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return found
}

func TestSchedules(t *testing.T) {
	if *show {
		s := plan(*first)
		t.Logf("\n%s", s)
		(&world{schedule: s, out: os.Stdout}).run()
	}
	began, used := time.Now(), cpu(t)
	enough := 200
	if *brief {
		enough = 1
	}
	found := try(*first, *schedules, enough)
	took, used := time.Since(began), cpu(t)-used
	for _, promise := range slices.Sorted(maps.Keys(found)) {
		f := found[promise]
		slices.Sort(f.seeds)
		if *brief {
			t.Errorf("%s in %d schedules, seeds %v: %s", promise, len(f.seeds), f.seeds[:min(len(f.seeds), 5)], f.how)
			continue
		}
		seed := f.seeds[0]
		s := minimise(t, seed, promise)
		var story strings.Builder
		(&world{schedule: s, out: &story, stopAt: promise}).run()
		t.Errorf("%s in %d schedules, seeds %v: %s\n\nSeed %d, shrunk to %s\n\n%s", promise, len(f.seeds), f.seeds[:min(len(f.seeds), 5)], f.how, seed, s, story.String())
	}
	t.Logf("%d schedules in %.1fs, %.0f a second, %.0f a second of one core's time", *schedules, took.Seconds(), float64(*schedules)/took.Seconds(), float64(*schedules)/used.Seconds())
}

// BenchmarkSchedules says how many schedules one core tries a second while the others are at rest: they may share what makes it fast.
func BenchmarkSchedules(b *testing.B) {
	const count = 20000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	used := cpu(b)
	for b.Loop() {
		require.Empty(b, try(*first, count, 1))
	}
	b.ReportMetric(float64(count*b.N)/(cpu(b)-used).Seconds(), "schedules/core-s")
}

// cpu is the time this process has used, which does not depend on what else the machine does.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const determinism = "determinism"

// wavers says that a schedule does not always lead to the same actions.
func wavers(s schedule) bool {
	first := actions(s)
	return actions(s) != first
}

// actions is a hash of all that is done in a schedule.
func actions(s schedule) uint64 {
	h := fnv.New64a()
	(&world{schedule: s, hash: h}).run()
	return h.Sum64()
}

// minimise has rapid look for the smallest schedule that breaks the promise, starting with that of the seed.
func minimise(t *testing.T, seed uint64, promise string) schedule {
	t.Helper()
	for name, value := range map[string]string{"seed": fmt.Sprint(seed), "checks": "5", "nofailfile": "true", "shrinktime": "20s"} {
		require.NoError(t, flag.Set("rapid."+name, value))
	}
	least := plan(seed)
	rapid.Check(quiet{t}, func(t *rapid.T) {
		s := plans.Draw(t, "")
		if promise == determinism && wavers(s) || (&world{schedule: s, stopAt: promise}).run().broken[promise] != "" {
			least = s // rapid ends with the smallest
			t.FailNow()
		}
	})
	return least
}

// quiet is a test that does not mind failing, and says nothing.
type quiet struct{ *testing.T }

func (quiet) Logf(string, ...any)   {}
func (quiet) Log(...any)            {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Error(...any)          {}
func (quiet) Fail()                 {}
func (quiet) FailNow()              {}
func (quiet) Failed() bool          { return false }
