package place

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// racks has the host h1 in rack 1 and so on.
func racks(nodeSet, host string) (string, bool, error) {
	switch {
	case nodeSet == "plain":
		return "", true, nil
	case host == "bare":
		return "", false, errors.New("host bare: label rack is missing")
	case strings.HasPrefix(host, "h"):
		return "default:s" + host[1:], true, nil
	}
	return "", false, nil
}

func aPod(node, uid, host string) powersave.Pod {
	return powersave.Pod{Node: node, UID: uid, NodeSet: "cpu", Host: host, Phase: powersave.PodRunning}
}

func said(orders []Order) (all []string) {
	for _, o := range orders {
		all = append(all, fmt.Sprint(o.Place, " ", o.Nodes()))
	}
	return all
}

func TestPlaces(t *testing.T) {
	var p Places
	_, any := p.Next()
	assert.False(t, any)
	for _, one := range []powersave.Pod{aPod("n1", "a", "h2"), aPod("n0", "b", "h2"), aPod("n2", "c", "h1"), aPod("n3", "d", ""), aPod("n4", "e", "bare"), aPod("n5", "f", "new")} {
		p.Take(began, one)
	}
	going := aPod("n6", "g", "h1")
	going.Phase = powersave.PodTerminating
	p.Take(began, going)
	orders, troubles := p.Due(began, racks)
	assert.Equal(t, []string{"default:s1 [n2]", "default:s2 [n0 n1]"}, said(orders), "by place; those without a host, or that go, are left out")
	assert.Equal(t, []Trouble{{"cpu", unplaced, errors.New("host bare: label rack is missing")}}, troubles)

	p.Done(began, orders[0], nil, nil)
	p.Done(began, orders[1], []string{"n1"}, nil)
	at, _ := p.Next()
	assert.Equal(t, began.Add(soon), at)
	orders, troubles = p.Due(at, racks)
	assert.Equal(t, []string{"default:s2 [n1]"}, said(orders), "the one alone that is not known yet")
	assert.Empty(t, troubles, "that has been told")
	p.Done(at, orders[0], nil, errors.New("refused"))

	orders, _ = p.Due(at.Add(soon), racks)
	assert.Empty(t, orders, "what is refused has to wait")
	orders, troubles = p.Due(at.Add(later), racks)
	assert.Equal(t, []string{"default:s2 [n1]"}, said(orders))
	assert.Len(t, troubles, 2, "one more host is not known for long now")
	p.Done(at.Add(later), orders[0], nil, nil)
	orders, _ = p.Due(at.Add(2*later), racks)
	assert.Empty(t, orders, "it is known")

	// The host is moved to another rack.
	orders, _ = p.Due(at.Add(3*later), func(string, string) (string, bool, error) { return "default:s9", true, nil })
	assert.Equal(t, []string{"default:s9 [n0 n1 n2 n4 n5]"}, said(orders))
}

func TestPlacesOfAnotherPod(t *testing.T) {
	var p Places
	p.Take(began, aPod("n0", "a", "h1"))
	orders, _ := p.Due(began, racks)
	p.Take(began, aPod("n0", "b", "h2")) // while Slurm is told of the first one
	p.Done(began, orders[0], nil, nil)
	orders, _ = p.Due(began, racks)
	assert.Equal(t, []string{"default:s2 [n0]"}, said(orders))
	p.Gone("n0", "a")
	p.Done(began, orders[0], nil, nil)
	p.Take(began, aPod("n0", "b", "h2"))
	orders, _ = p.Due(began.Add(time.Second), racks)
	assert.Empty(t, orders, "the same pod")
	p.Again(began)
	orders, _ = p.Due(began, racks)
	assert.Len(t, orders, 1)
	p.Gone("n0", "b")
	orders, _ = p.Due(began, racks)
	assert.Empty(t, orders)
}

// Of NodeSets without spec.topology nothing is to be told: their pods cost nothing until NodeSets change.
func TestNothingToTell(t *testing.T) {
	var p Places
	plain := aPod("n0", "a", "h1")
	plain.NodeSet = "plain"
	p.Take(began, plain)
	_, any := p.Next()
	assert.True(t, any)
	orders, troubles := p.Due(began, racks)
	assert.Empty(t, orders)
	assert.Empty(t, troubles)
	p.Take(began, plain)
	_, any = p.Next()
	assert.False(t, any)
	never := func(string, string) (string, bool, error) { return "default:s9", true, nil }
	orders, _ = p.Due(began.Add(24*time.Hour), never)
	assert.Empty(t, orders, "nothing has changed")
	p.Look(began) // spec.topology is there now
	orders, _ = p.Due(began, never)
	assert.Equal(t, []string{"default:s9 [n0]"}, said(orders))
}

// A node of mode Dynamic is told of when its slurmd runs, and what Slurm does not know for long less and less often.
func TestNotRegistered(t *testing.T) {
	var p Places
	one := aPod("n0", "a", "h1")
	one.Dynamic, one.Phase = true, powersave.PodScheduled
	p.Take(began, one)
	orders, _ := p.Due(began, racks)
	assert.Empty(t, orders, "bound, and no more")
	_, any := p.Next()
	assert.False(t, any)
	one.Phase = powersave.PodReady
	p.Take(began, one)
	at, waits := began, []time.Duration{}
	for range 6 {
		orders, _ = p.Due(at, racks)
		assert.Equal(t, []string{"default:s1 [n0]"}, said(orders))
		p.Done(at, orders[0], []string{"n0"}, nil)
		next, _ := p.Next()
		waits, at = append(waits, next.Sub(at)), next
	}
	assert.Equal(t, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}, waits)
	orders, _ = p.Due(at, racks)
	p.Done(at, orders[0], nil, nil)
	orders, _ = p.Due(at.Add(lookAgain), racks)
	assert.Empty(t, orders)

	// One of mode Cloud is known from slurm.conf.
	cloud := aPod("n1", "b", "h1")
	cloud.Phase = powersave.PodScheduled
	p.Take(at, cloud)
	orders, _ = p.Due(at, racks)
	assert.Equal(t, []string{"default:s1 [n1]"}, said(orders))
}

// A host of which nothing is known for a minute is told of, once: the bridge may lack the right to read hosts.
func TestHostUnseen(t *testing.T) {
	var p Places
	p.Take(began, aPod("n0", "a", "new"))
	var told []time.Duration
	next := began
	for next.Sub(began) < 5*time.Minute {
		_, troubles := p.Due(next, racks)
		for _, one := range troubles {
			assert.Equal(t, unseen, one.Kind)
			require.EqualError(t, one.Err, "host new cannot be seen: it is gone, or the bridge may not read nodes: give it the right to list and watch them")
			told = append(told, next.Sub(began))
		}
		next, _ = p.Next()
		p.Look(next) // NodeSets change all the time where they are scaled
	}
	assert.Equal(t, time.Minute, told[0])

	// It was told of when the host was there: the host goes, and soon its pod.
	p.Take(began, aPod("n1", "b", "h1"))
	orders, _ := p.Due(began, racks)
	p.Done(began, orders[0], nil, nil)
	none := func(string, string) (string, bool, error) { return "", false, nil }
	for i := range 5 {
		_, troubles := p.Due(began.Add(time.Duration(i)*lookAgain), func(nodeSet, host string) (string, bool, error) {
			if host == "new" {
				return racks(nodeSet, "h2")
			}
			return none(nodeSet, host)
		})
		assert.Empty(t, troubles)
	}
}

func TestSplit(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		err     error
		unknown []string
		rest    error
	}{
		"all went well":           {},
		"refused":                 {refused, nil, refused},
		"some are unknown":        {unregistered{}, []string{"n0"}, nil},
		"and the others refused":  {errors.Join(refused, unregistered{}), []string{"n0"}, errors.Join(refused)},
		"unknown, in other words": {fmt.Errorf("telling: %w", unregistered{}), []string{"n0"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			unknown, rest := split(tc.err)
			assert.Equal(t, tc.unknown, unknown)
			assert.Equal(t, tc.rest, rest)
		})
	}
}

type numbered struct {
	number int
	nodes  string
}

func (n numbered) Error() string   { return "update nodes " + n.nodes + ": refused" }
func (n numbered) SlurmError() int { return n.number }

// A trouble is told once an hour of a NodeSet, whichever nodes or hosts the words are about.
func TestSaidOnce(t *testing.T) {
	said := saidOf{}
	told := func(at time.Time, nodeSet string, err error) bool {
		kind, err := kindOf(err)
		return said.once(at, Trouble{nodeSet, kind, err})
	}
	assert.True(t, told(began, "cpu", numbered{1, "n0"}))
	for i := range 100 {
		assert.False(t, told(began.Add(time.Duration(i)*time.Second), "cpu", fmt.Errorf("telling: %w", numbered{1, fmt.Sprint("n", i)})))
	}
	assert.True(t, told(began, "gpu", numbered{1, "n0"}), "another NodeSet")
	assert.True(t, told(began, "cpu", numbered{2, "n0"}), "another error")
	assert.True(t, told(began, "cpu", errors.New("connection refused")))
	assert.True(t, told(began, "cpu", oldSlurm{}))
	assert.True(t, said.once(began, Trouble{"cpu", unplaced, errors.New("host h1: label rack is missing")}))
	assert.False(t, said.once(began, Trouble{"cpu", unplaced, errors.New("host h2: label rack is missing")}))
	assert.Len(t, said, 6)
	assert.True(t, told(began.Add(sayAgain), "cpu", numbered{1, "n0"}), "it is long ago")
	assert.Len(t, said, 6)
}

// Everyone whose nodes are in an order hears that it was refused.
func TestRefusedOfAll(t *testing.T) {
	gpu := aPod("n1", "b", "h1")
	gpu.NodeSet = "gpu"
	err := errors.New("refused")
	o := Order{"default:s1", []powersave.Pod{aPod("n0", "a", "h1"), gpu, aPod("n2", "c", "h1")}}
	assert.Equal(t, []Trouble{{"cpu", notOffered, err}, {"gpu", notOffered, err}}, o.refused(notOffered, err))
}

func TestManyTogether(t *testing.T) {
	var p Places
	for i := range together + 1 {
		p.Take(began, aPod(fmt.Sprintf("n%03d", i), "a", "h1"))
	}
	orders, _ := p.Due(began, racks)
	assert.Len(t, orders, 2)
	assert.Len(t, orders[0].Pods, together)
}

// slurmFake notes what it is told.
type slurmFake struct {
	mu   sync.Mutex
	told []string
	err  error
}

func (s *slurmFake) UpdateNodes(_ context.Context, u powersave.NodeUpdate) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, fmt.Sprint(u.Topology, " ", u.Nodes))
	return s.err
}

func (s *slurmFake) answers(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *slurmFake) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.told
	s.told = nil
	return all
}

type oldSlurm struct{}

func (oldSlurm) Error() string    { return "update nodes: not offered" }
func (oldSlurm) NotOffered() bool { return true }

type unregistered struct{}

func (unregistered) Error() string          { return "slurmctld does not know them" }
func (unregistered) MissingNodes() []string { return []string{"n0"} }

// warnings are what the loop has told of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) so() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slurm := &slurmFake{}
		warnings := &warnings{}
		l := New(Config{Slurm: slurm, Place: racks, Log: slog.New(slog.DiscardHandler), Warn: func(nodeSet, reason, text string) {
			warnings.add(nodeSet + " " + reason + ": " + text)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		heard := func(after time.Duration) []string {
			time.Sleep(after)
			synctest.Wait()
			return slurm.heard()
		}

		l.Pod(aPod("n0", "a", ""))
		l.Pod(aPod("n1", "b", "h1"))
		assert.Empty(t, heard(time.Hour), "another bridge leads")
		l.Lead(true)
		l.Pod(aPod("n0", "a", "h1"))
		assert.Equal(t, []string{"default:s1 [n0 n1]"}, heard(time.Second))
		assert.Empty(t, heard(time.Hour))

		l.Lead(false)
		l.Lead(true)
		assert.Equal(t, []string{"default:s1 [n0 n1]"}, heard(time.Second), "all, once more")
		l.PodGone("n1", "b")

		slurm.answers(unregistered{})
		l.Pod(aPod("n0", "c", "h2"))
		assert.Equal(t, []string{"default:s2 [n0]"}, heard(time.Second))
		assert.Empty(t, warnings.so())
		slurm.answers(nil)
		assert.Equal(t, []string{"default:s2 [n0]"}, heard(soon+time.Second), "when it has registered")

		slurm.answers(oldSlurm{})
		l.Pod(aPod("n1", "d", "bare"))
		l.Pod(aPod("n2", "e", "h1"))
		assert.Equal(t, []string{"default:s1 [n2]"}, heard(time.Second))
		assert.Equal(t, []string{"default:s1 [n2]"}, heard(later+time.Second))
		assert.Equal(t, []string{
			"cpu PlaceUnknown: Slurm is not told where the nodes are: host bare: label rack is missing",
			"cpu PlaceRefused: Slurm is not told where the nodes are: spec.topology needs Slurm 25.11 or newer: remove it, or upgrade Slurm (update nodes: not offered)",
		}, warnings.so(), "once")
		slurm.answers(nil)
		l.NodeSets()
		assert.Equal(t, []string{"default:s1 [n2]"}, heard(time.Second), "somebody may have put it right")

		before := len(warnings.so())
		l.Pod(aPod("n3", "f", "new"))
		l.Pod(aPod("n4", "g", "newer"))
		assert.Empty(t, heard(patience-soon))
		assert.Len(t, warnings.so(), before)
		heard(10 * time.Minute)
		require.Len(t, warnings.so(), before+1)
		assert.Contains(t, warnings.so()[before], "cpu PlaceUnknown: Slurm is not told where the nodes are: host new cannot be seen")
		cancel()
		assert.NoError(t, <-done)
	})
}
