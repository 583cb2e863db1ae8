package powersave

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var breakerStart = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// breakerTest is a NodeSet with breakers and a clock.
type breakerTest struct {
	t   assert.TestingT
	b   Breakers
	set NodeSet
	now time.Time
	use Use
}

func newBreakerTest(t assert.TestingT, offerings ...Offering) *breakerTest {
	bt := &breakerTest{t: t, now: breakerStart, set: NodeSet{Name: "cpu", UID: "1", SpecGeneration: 1, Offerings: offerings}}
	bt.b.NodeSets([]NodeSet{bt.set})
	return bt
}

func (bt *breakerTest) later(d time.Duration) { bt.now = bt.now.Add(d) }

func (bt *breakerTest) pick() Choice { return bt.b.Pick(bt.now, bt.set, bt.use) }

// picked wants leave for the offering, as a probe or not.
func (bt *breakerTest) picked(offering string, probe bool) Attempt {
	c := bt.pick()
	assert.True(bt.t, c.OK, "refused: %s", c.Why)
	assert.Equal(bt.t, offering, c.Offering)
	assert.Equal(bt.t, probe, c.Probe(), "probe")
	return c.Attempt
}

// refused wants no leave before this much time has passed; 0 stands for no time known.
func (bt *breakerTest) refused(class Trouble, after time.Duration, why string) {
	c := bt.pick()
	assert.False(bt.t, c.OK)
	assert.Equal(bt.t, class, c.Class)
	assert.Contains(bt.t, c.Why, why)
	if after == 0 {
		assert.Zero(bt.t, c.Until)
	} else {
		assert.Equal(bt.t, after, c.Until.Sub(bt.now))
	}
}

func (bt *breakerTest) fail(a Attempt, class Trouble) {
	bt.b.Failed(bt.now, a, class, "it is "+string(class))
}

func TestBreaker(t *testing.T) {
	for name, run := range map[string]func(*breakerTest){
		"lets everything through at first": func(bt *breakerTest) {
			bt.picked("", false)
			bt.picked("", false)
			assert.Empty(bt.t, bt.b.Snapshot("cpu"))
		},
		"capacity opens at once, then one probe": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.refused(TroubleCapacity, time.Minute, "capacity: it is capacity")
			bt.later(time.Minute)
			bt.picked("", true)
			bt.refused(TroubleCapacity, 0, "one pod tries it now")
		},
		"a probe that fails opens for twice as long, up to the most": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleQuota)
			for _, minutes := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
				bt.refused(TroubleQuota, minutes*time.Minute, "quota")
				bt.later(minutes*time.Minute - time.Second)
				bt.refused(TroubleQuota, time.Second, "quota")
				bt.later(time.Second)
				bt.fail(bt.picked("", true), TroubleQuota)
			}
		},
		"a probe that succeeds closes and resets": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.later(time.Minute)
			bt.fail(bt.picked("", true), TroubleCapacity)
			bt.later(2 * time.Minute)
			bt.b.Succeeded(bt.picked("", true))
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.refused(TroubleCapacity, time.Minute, "")
		},
		"a probe that nobody wants any more makes way for the next": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.later(time.Minute)
			bt.b.ProbeGone(bt.picked("", true))
			bt.picked("", true)
		},
		"a probe on a lost host makes way for the next": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.later(time.Minute)
			bt.fail(bt.picked("", true), TroubleLost)
			bt.picked("", true)
		},
		"a probe nobody reports on is forgotten": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.later(time.Minute)
			old := bt.picked("", true)
			bt.later(30*time.Minute - 1)
			bt.refused(TroubleCapacity, 0, "")
			bt.later(1)
			bt.picked("", true)
			bt.fail(old, TroubleCapacity)
			bt.b.ProbeGone(old)
			bt.refused(TroubleCapacity, 0, "one pod tries it now")
		},
		"failures at the same time count once": func(bt *breakerTest) {
			one, two := bt.picked("", false), bt.picked("", false)
			bt.fail(one, TroubleCapacity)
			bt.later(10 * time.Second)
			bt.fail(two, TroubleCapacity)
			bt.refused(TroubleCapacity, 50*time.Second, "")
			assert.Equal(bt.t, 1, bt.b.Snapshot("cpu")[0].Failures)
		},
		"a failure of an old attempt is not the probe's": func(bt *breakerTest) {
			one, two := bt.picked("", false), bt.picked("", false)
			bt.fail(one, TroubleCapacity)
			bt.later(time.Minute)
			bt.picked("", true)
			bt.fail(two, TroubleCapacity)
			bt.refused(TroubleCapacity, 0, "one pod tries it now")
		},
		"a host found earlier does not prove capacity": func(bt *breakerTest) {
			one, two := bt.picked("", false), bt.picked("", false)
			bt.fail(one, TroubleCapacity)
			bt.b.Succeeded(two)
			bt.refused(TroubleCapacity, time.Minute, "")
		},
		"three crashes in a row open": func(bt *breakerTest) {
			for _, class := range []Trouble{TroubleCrash, TroubleBootstrap} {
				bt.fail(bt.picked("", false), class)
			}
			bt.fail(bt.picked("", false), TroubleRefused)
			bt.refused(TroubleRefused, time.Minute, "it is refused")
			bt.later(time.Minute)
			bt.fail(bt.picked("", true), TroubleCrash)
			bt.refused(TroubleCrash, 2*time.Minute, "it is crash")
		},
		"a success between crashes starts the count again": func(bt *breakerTest) {
			for range 3 {
				bt.fail(bt.picked("", false), TroubleCrash)
				bt.fail(bt.picked("", false), TroubleCrash)
				bt.b.Succeeded(bt.picked("", false))
			}
		},
		"a success after crashes closes": func(bt *breakerTest) {
			fine := bt.picked("", false)
			for range 3 {
				bt.fail(bt.picked("", false), TroubleBootstrap)
			}
			bt.b.Succeeded(fine)
			bt.picked("", false)
		},
		"image waits for a new spec": func(bt *breakerTest) {
			old := bt.picked("", false)
			bt.fail(bt.picked("", false), TroubleImage)
			bt.later(1000 * time.Hour)
			bt.refused(TroubleImage, 0, "not tried again before the NodeSet is changed")
			bt.b.Succeeded(old)
			bt.refused(TroubleImage, 0, "")
			bt.set.SpecGeneration = 2
			bt.fail(bt.picked("", true), TroubleConfig)
			bt.refused(TroubleConfig, 0, "")
			bt.set.SpecGeneration = 3
			bt.b.Succeeded(bt.picked("", true))
			bt.picked("", false)
		},
		"image found after capacity outlasts it": func(bt *breakerTest) {
			late := bt.picked("", false)
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.fail(late, TroubleImage)
			bt.later(time.Hour)
			bt.refused(TroubleImage, 0, "")
		},
		"a failure of an older spec does not close the new one": func(bt *breakerTest) {
			late := bt.picked("", false)
			bt.set.SpecGeneration = 2
			bt.fail(late, TroubleImage)
			bt.b.Succeeded(bt.picked("", true))
			bt.picked("", false)
		},
		"a new spec is tried before the time is up": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.set.SpecGeneration = 2
			bt.fail(bt.picked("", true), TroubleCapacity)
			bt.refused(TroubleCapacity, 2*time.Minute, "")
		},
		"more nodes are no new spec": func(bt *breakerTest) {
			bt.set.SpecHash = "a"
			bt.fail(bt.picked("", false), TroubleImage)
			bt.set.SpecGeneration = 2
			bt.refused(TroubleImage, 0, "not tried again before the NodeSet is changed")
			bt.set.SpecGeneration, bt.set.SpecHash = 3, "b"
			bt.fail(bt.picked("", true), TroubleCapacity)
			bt.set.SpecGeneration = 4
			bt.refused(TroubleCapacity, 2*time.Minute, "")
		},
		"where no hash is known any change is a new spec": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleImage)
			bt.set.SpecHash = "a"
			bt.refused(TroubleImage, 0, "")
			bt.set.SpecGeneration = 2
			bt.picked("", true)
		},
		"a missing right closes the NodeSet for a while": func(bt *breakerTest) {
			old, late := bt.picked("", false), bt.picked("", false)
			bt.b.Refused(bt.now, bt.picked("", false), "no right")
			bt.refused(TroubleConfig, time.Minute, "config: no right")
			bt.b.Refused(bt.now, old, "no right")
			bt.later(time.Minute)
			bt.b.Refused(bt.now, bt.picked("", true), "no right")
			bt.refused(TroubleConfig, 2*time.Minute, "config: no right")
			bt.fail(late, TroubleImage)
			bt.later(time.Hour)
			bt.refused(TroubleImage, 0, "not tried again before the NodeSet is changed")
		},
		"lost opens nothing": func(bt *breakerTest) {
			for range 10 {
				bt.fail(bt.picked("", false), TroubleLost)
			}
			assert.Empty(bt.t, bt.b.Snapshot("cpu"))
		},
		"backoff of the NodeSet": func(bt *breakerTest) {
			bt.set.BackoffInitial, bt.set.BackoffMax = 10*time.Second, 25*time.Second
			bt.b.NodeSets([]NodeSet{bt.set})
			bt.fail(bt.picked("", false), TroubleCapacity)
			for _, seconds := range []time.Duration{10, 20, 25, 25} {
				bt.refused(TroubleCapacity, seconds*time.Second, "")
				bt.later(seconds * time.Second)
				bt.fail(bt.picked("", true), TroubleCapacity)
			}
		},
		"a shorter backoff counts at once": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.set.BackoffMax = 5 * time.Second
			bt.b.NodeSets([]NodeSet{bt.set})
			bt.refused(TroubleCapacity, 5*time.Second, "")
		},
		"a clock set back": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleCapacity)
			bt.later(-100 * time.Hour)
			bt.refused(TroubleCapacity, time.Minute, "")
			bt.later(time.Minute)
			bt.picked("", true)
		},
		"what is gone is forgotten": func(bt *breakerTest) {
			bt.fail(bt.picked("", false), TroubleImage)
			bt.set.UID = "2"
			bt.b.NodeSets([]NodeSet{bt.set})
			bt.picked("", false)
			bt.fail(bt.picked("", false), TroubleImage)
			bt.b.NodeSets(nil)
			assert.Empty(bt.t, bt.b.Snapshot("cpu"))
			bt.fail(Attempt{NodeSet: "cpu", Spec: 1}, TroubleImage)
			assert.Empty(bt.t, bt.b.Snapshot("cpu"))
		},
	} {
		t.Run(name, func(t *testing.T) { run(newBreakerTest(t)) })
	}
}

func TestBreakerOfferings(t *testing.T) {
	for name, run := range map[string]func(*breakerTest){
		"in order": func(bt *breakerTest) {
			bt.picked("spot", false)
			bt.fail(bt.picked("spot", false), TroubleCapacity)
			bt.fail(bt.picked("demand", false), TroubleQuota)
			bt.later(time.Minute)
			bt.refused(TroubleCapacity, 2*time.Minute, "offering spot: capacity: it is capacity; offering demand: quota: it is quota")
			bt.later(2 * time.Minute)
			bt.picked("spot", true)
			bt.picked("demand", true)
			bt.refused(TroubleCapacity, 0, "one pod tries it now")
		},
		"the next while a probe is out": func(bt *breakerTest) {
			bt.fail(bt.picked("spot", false), TroubleCapacity)
			bt.later(3 * time.Minute)
			probe := bt.picked("spot", true)
			bt.picked("demand", false)
			bt.b.Succeeded(probe)
			bt.picked("spot", false)
		},
		"limits": func(bt *breakerTest) {
			bt.set.Offerings[0].Limit, bt.set.Offerings[1].Limit = 2, 1
			bt.use = Use{"spot": {Taken: 1}}
			bt.picked("spot", false)
			bt.use["spot"] = Places{Taken: 2}
			bt.fail(bt.picked("demand", false), TroubleCapacity)
			bt.refused(TroubleCapacity, 3*time.Minute, "offering spot: all 2 nodes of its limit are in use; offering demand: capacity")
			assert.False(bt.t, bt.pick().Soon || bt.pick().Full, "the places may be its own job's")
			bt.use["spot"] = Places{Taken: 2, Ending: 1}
			assert.True(bt.t, bt.pick().Soon, "a place is about to be free")
			bt.use = Use{"spot": {Taken: 2}, "demand": {Taken: 5}}
			bt.later(3 * time.Minute)
			bt.refused(TroubleCapacity, 0, "offering demand: all 1 nodes of its limit are in use")
			assert.True(bt.t, bt.pick().Full)
			bt.use["demand"] = Places{}
			bt.picked("demand", true) // a limit reached must not have cost the probe
		},
		"trouble of the template is the NodeSet's": func(bt *breakerTest) {
			bt.fail(bt.picked("spot", false), TroubleImage)
			bt.refused(TroubleImage, 0, "image: it is image")
			assert.Equal(bt.t, BreakerKey{NodeSet: "cpu"}, bt.b.Snapshot("cpu")[0].Key)
		},
		"an attempt can be the probe of two": func(bt *breakerTest) {
			for range 3 {
				bt.fail(bt.picked("spot", false), TroubleCrash)
			}
			bt.fail(Attempt{NodeSet: "cpu", Offering: "spot", Spec: 1}, TroubleCapacity)
			bt.later(3 * time.Minute)
			both := bt.picked("spot", true)
			bt.refused(TroubleCrash, 0, "one pod tries it now")
			bt.fail(both, TroubleCapacity) // says nothing about crashes
			bt.b.Succeeded(bt.picked("demand", true))
			bt.picked("demand", false)
		},
		"no offering left, no probe of the NodeSet spent": func(bt *breakerTest) {
			bt.fail(bt.picked("spot", false), TroubleCapacity)
			bt.fail(bt.picked("demand", false), TroubleCapacity)
			for range 3 {
				bt.fail(Attempt{NodeSet: "cpu", Offering: "spot", Spec: 1}, TroubleCrash)
			}
			bt.later(time.Minute)
			bt.refused(TroubleCapacity, 2*time.Minute, "offering spot")
			bt.later(2 * time.Minute)
			bt.picked("spot", true)
		},
		"an offering that is gone": func(bt *breakerTest) {
			late := bt.picked("spot", false)
			bt.fail(bt.picked("spot", false), TroubleCapacity)
			bt.set.Offerings = bt.set.Offerings[1:]
			bt.b.NodeSets([]NodeSet{bt.set})
			bt.fail(late, TroubleCapacity)
			bt.fail(Attempt{NodeSet: "cpu", Spec: 1}, TroubleCapacity) // from before there were offerings
			assert.Empty(bt.t, bt.b.Snapshot("cpu"))
			bt.picked("demand", false)
		},
		"looking costs nothing": func(bt *breakerTest) {
			bt.fail(bt.picked("spot", false), TroubleCapacity)
			bt.later(3 * time.Minute)
			look := bt.b.Look(bt.now, bt.set, bt.use)
			assert.True(bt.t, look.OK)
			assert.Equal(bt.t, "spot", look.Offering)
			bt.picked("spot", true)
		},
	} {
		t.Run(name, func(t *testing.T) { run(newBreakerTest(t, Offering{Name: "spot"}, Offering{Name: "demand"})) })
	}
}

func TestBreakerSurvivesRestart(t *testing.T) {
	bt := newBreakerTest(t, Offering{Name: "spot"}, Offering{Name: "demand"})
	bt.set.SpecHash = "a"
	bt.fail(bt.picked("spot", false), TroubleCapacity)
	bt.later(3 * time.Minute)
	bt.fail(bt.picked("spot", true), TroubleCapacity)
	bt.fail(bt.picked("demand", false), TroubleCrash)
	saved := bt.b.Snapshot("cpu")
	assert.Equal(t, []BreakerRecord{
		{Key: BreakerKey{NodeSet: "cpu"}, State: BreakerClosed, Class: TroubleCrash, Reason: "it is crash", Failures: 1, Spec: 1, SpecHash: "a"},
		{Key: BreakerKey{NodeSet: "cpu", Offering: "spot"}, State: BreakerOpen, Class: TroubleCapacity, Reason: "it is capacity", Failures: 2, Tries: 2, Spec: 1, SpecHash: "a",
			Until: bt.now.Add(6 * time.Minute)},
	}, saved)

	again := func(saved []BreakerRecord) *breakerTest {
		next := &breakerTest{t: t, now: bt.now, set: bt.set}
		next.set.Breakers = saved
		next.b.NodeSets([]NodeSet{next.set})
		return next
	}
	next := again(saved)
	assert.Equal(t, saved, next.b.Snapshot("cpu"))
	next.picked("demand", false)
	next.later(6 * time.Minute)
	next.picked("spot", true)

	// The probe that was out is forgotten; its pod may still be there, and is no probe.
	saved = next.b.Snapshot("cpu")
	require.Equal(t, BreakerHalfOpen, saved[1].State)
	bt.now = next.now
	last := again(saved)
	last.b.Succeeded(Attempt{NodeSet: "cpu", Offering: "spot", Spec: 1})
	last.picked("spot", true)

	// What is known is newer than what was saved.
	last.set.Breakers = nil
	last.b.NodeSets([]NodeSet{last.set})
	require.Len(t, last.b.Snapshot("cpu"), 1)
}

// Whatever happens: never two probes of a breaker at once, a breaker is open for its time and no
// longer, and image and config are not tried again before the spec changes.
func TestBreakerProperties(t *testing.T) {
	classes := []Trouble{TroubleCapacity, TroubleQuota, TroubleImage, TroubleConfig, TroubleCrash, TroubleRefused, TroubleBootstrap, TroubleLost}
	rapid.Check(t, func(t *rapid.T) {
		bt := newBreakerTest(t, []Offering{{Name: "a", Limit: 3}, {Name: "b"}}[:rapid.IntRange(0, 2).Draw(t, "offerings")]...)
		bt.use = Use{}
		type out struct {
			Attempt
			since time.Time
		}
		var outs []out
		take := func(t *rapid.T) Attempt {
			if len(outs) == 0 {
				t.Skip("nothing is out") // rapid draws another action
			}
			i := rapid.IntRange(0, len(outs)-1).Draw(t, "which")
			a := outs[i].Attempt
			outs = append(outs[:i:i], outs[i+1:]...)
			bt.use[a.Offering] = Places{Taken: bt.use[a.Offering].Taken - 1}
			return a
		}
		opened := map[BreakerKey]time.Duration{} // newest open time since the last closing
		barred := 0                              // newest spec that image or config bars
		spec := 0
		nth := func(a Attempt) (n int) { // spec it is of, generations apart
			_, err := fmt.Sscanf(a.SpecHash, "h%d", &n)
			require.NoError(t, err)
			return n
		}
		change := func(*rapid.T) {
			spec++
			bt.set.SpecGeneration++
			bt.set.SpecHash = fmt.Sprintf("h%d", spec)
		}
		change(t)
		t.Repeat(map[string]func(*rapid.T){
			"pick": func(t *rapid.T) {
				c := bt.pick()
				if !c.OK {
					if !c.Until.IsZero() && (!c.Until.After(bt.now) || c.Until.Sub(bt.now) > DefaultBackoffMax) {
						t.Fatalf("retry at %v, now %v", c.Until, bt.now)
					}
					return
				}
				if limit := map[string]int{"a": 3}[c.Offering]; limit > 0 && bt.use[c.Offering].Taken >= limit {
					t.Fatal("limit of offering ", c.Offering)
				}
				if nth(c.Attempt) <= barred {
					t.Fatal("tried again with the same spec")
				}
				bt.use.Add(c.Offering, false)
				outs = append(outs, out{c.Attempt, bt.now})
			},
			"fail": func(t *rapid.T) {
				a, class := take(t), rapid.SampledFrom(classes).Draw(t, "class")
				bt.b.Failed(bt.now, a, class, "why")
				if untilChanged(class) {
					barred = max(barred, nth(a))
				} else if a.setProbe != 0 {
					barred = 0 // the newest spec has got further
				}
			},
			"succeed": func(t *rapid.T) {
				a := take(t)
				bt.b.Succeeded(a)
				if a.setProbe != 0 {
					barred = 0
				}
			},
			"gone": func(t *rapid.T) { bt.b.ProbeGone(take(t)) },
			"wait": func(t *rapid.T) { bt.later(time.Duration(rapid.IntRange(1, 1200).Draw(t, "seconds")) * time.Second) },
			"spec": change,
			"more": func(*rapid.T) { bt.set.SpecGeneration++ },
			"restart": func(*rapid.T) {
				bt.set.Breakers = bt.b.Snapshot("cpu")
				bt.b = Breakers{}
				bt.b.NodeSets([]NodeSet{bt.set})
				for i := range outs { // what a restart knows of them
					outs[i].Attempt = Attempt{NodeSet: "cpu", Offering: outs[i].Offering, Spec: outs[i].Spec, SpecHash: outs[i].SpecHash}
				}
			},
			"": func(t *rapid.T) {
				probes := map[string]int{}
				for _, o := range outs {
					if bt.now.Sub(o.since) >= probeForgotten {
						continue
					}
					if o.setProbe != 0 {
						probes[""]++
					}
					if o.offeringProbe != 0 {
						probes[o.Offering]++
					}
				}
				for key, n := range probes {
					if n > 1 {
						t.Fatalf("%d probes of %q are out", n, key)
					}
				}
				seen := map[BreakerKey]bool{}
				for _, r := range bt.b.Snapshot("cpu") {
					if r.State == BreakerClosed {
						continue
					}
					seen[r.Key] = true
					if untilChanged(r.Class) {
						continue
					}
					openTime := bt.b.openTime(bt.b.known[r.Key])
					if openTime < max(opened[r.Key], DefaultBackoffInitial) || openTime > DefaultBackoffMax {
						t.Fatalf("%v: open for %v after %v", r.Key, openTime, opened[r.Key])
					}
					opened[r.Key] = openTime
				}
				for key := range opened {
					if !seen[key] {
						delete(opened, key)
					}
				}
			},
		})
	})
}

func ExampleBreakers() {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	set := NodeSet{Name: "cpu", Offerings: []Offering{{Name: "spot"}, {Name: "on-demand"}}}
	var b Breakers
	b.NodeSets([]NodeSet{set})

	first := b.Pick(now, set, nil)
	b.Failed(now, first.Attempt, TroubleCapacity, "0/3 nodes are available")
	fmt.Println(first.Offering, "then", b.Pick(now, set, nil).Offering)

	probe := b.Pick(now.Add(3*time.Minute), set, nil)
	fmt.Println("later", probe.Offering, "probe:", probe.Probe())
	// Output:
	// spot then on-demand
	// later spot probe: true
}
