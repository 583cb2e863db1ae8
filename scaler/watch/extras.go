package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
)

const (
	// extraUnused is how long an extra NodeSet is kept that nobody asks for. Whoever asks less often waits for a reckoning each time.
	extraUnused = time.Minute
	// editedAfter tells a trigger that was changed from two that disagree: those are asked for side by side.
	editedAfter = 2 * time.Second
	maxExtras   = 100
	maxClaims   = 10_000
)

// extra is a NodeSet of Watcher.With.
type extra struct {
	set   scaler.NodeSet
	used  map[string]time.Time // when each of those who ask for it last did
	since uint64               // Watcher.extrasNow from which figures are right for it
}

// claim is what somebody says of a partition's nodes.
type claim struct{ who, partition string }

// ConflictError says that the nodes of a partition are described in two ways: by one ScaledObject, by two whose nodes cannot be told apart,
// or by somebody who does not say who he is.
type ConflictError struct {
	Partition     string
	Other, Wanted string        // the two descriptions, as names of NodeSets
	Age           time.Duration // of Other, if it is the same ScaledObject's
	By            string        // whose Other is, if it is not the same's
	Nobody        bool          // Wanted is nobody's
}

func (e *ConflictError) Error() string {
	if e.By != "" {
		way := "give features by which the nodes can be told apart"
		if e.Nobody {
			way = "tell whose ScaledObject this is"
		}
		return fmt.Sprintf("the ScaledObject %s says of the nodes of partition %s: %q, and not %q; say the same, or %s", e.By, e.Partition, e.Other, e.Wanted, way)
	}
	return fmt.Sprintf("the same ScaledObject has said otherwise of the nodes of partition %s %.1fs ago: %q, and not %q; let all its triggers say the same. "+
		"After a change this passes within %v", e.Partition, e.Age.Seconds(), e.Other, e.Wanted, editedAfter)
}

// With returns the newest figures with one more NodeSet in them, known by its name: one that Kubernetes does not tell
// of, with Shape, Partitions and Max. The first time it waits until they are worked out. The NodeSet is kept as long
// as somebody asks for it every minute or so.
//
// If who is not empty, it is whose NodeSet that is. When it asks for another one in the same partition, the first counts no longer,
// as if nobody had asked for it: its trigger was changed, and the old description would take nodes and jobs from the new one.
// Two at the same time are a *ConflictError. Whoever is nobody, with an empty who, cannot describe otherwise what somebody has described; nor can somebody else, unless CPUs, GPUs or features tell the nodes apart.
func (w *Watcher) With(ctx context.Context, who string, set scaler.NodeSet) (Figures, error) {
	for {
		var f Figures
		w.mu.Lock()
		e, err := w.use(who, set)
		reckoned := err == nil && w.reckoned >= e.since
		if err == nil {
			f, err = w.latest()
		}
		changed := w.changed
		w.mu.Unlock()
		if err != nil {
			return Figures{}, err
		}
		if _, ok := f.NodeSet(set.Name); ok && reckoned {
			return f, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Figures{}, fmt.Errorf("waiting for the figures of %s: %w", set.Name, ctx.Err())
		}
	}
}

// use notes that who asks for the NodeSet. It needs w.mu.
func (w *Watcher) use(who string, set scaler.NodeSet) (*extra, error) {
	now := w.cfg.Now()
	if len(w.claims) >= maxClaims {
		who = ""
	}
	dropped := false
	if who != "" {
		for _, p := range set.Partitions {
			gone, err := w.claim(now, claim{who, p}, set.Name)
			if err != nil {
				return nil, err
			}
			dropped = dropped || gone
		}
	}
	e, ok := w.extras[set.Name]
	if !ok {
		gone, err := w.beside(who, set)
		if err != nil {
			return nil, err
		}
		dropped = dropped || gone
		if len(w.extras) >= maxExtras {
			return nil, fmt.Errorf("there are %d node shapes in use already, the most that are kept: let triggers share shapes", maxExtras)
		}
		e = &extra{set: set, used: map[string]time.Time{}}
		w.extras[set.Name] = e
	}
	if !ok || dropped {
		w.extrasNow++
		e.since = w.extrasNow
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	e.used[who] = now
	return e, nil
}

// beside sees to it that a new NodeSet can stand beside the others of its partitions: jobs and nodes are shared out among them. It needs w.mu.
func (w *Watcher) beside(who string, set scaler.NodeSet) (gone bool, err error) {
	for name, e := range w.extras {
		i := slices.IndexFunc(set.Partitions, func(p string) bool { return slices.Contains(e.set.Partitions, p) })
		if i < 0 {
			continue
		}
		var by string
		for who := range e.used {
			by = max(by, who)
		}
		switch {
		case by == "" && who != "":
			delete(w.extras, name)
			gone = true
		case by != "" && (who == "" || same(e.set.Shape, set.Shape)):
			return false, &ConflictError{Partition: set.Partitions[i], Other: name, Wanted: set.Name, By: by, Nobody: who == ""}
		}
	}
	return gone, nil
}

// same tells whether nodes of two shapes cannot be told apart, see own.
func same(a, b *scaler.Shape) bool {
	gpus := cards{}
	return gpus.alike(a, b) && gpus.alike(b, a)
}

// claim gives up what was said before, and tells whether that NodeSet is gone. It needs w.mu.
func (w *Watcher) claim(now time.Time, key claim, name string) (gone bool, err error) {
	if before := w.extras[w.claims[key]]; before != nil && before.set.Name != name {
		asked, known := before.used[key.who]
		if age := now.Sub(asked); known && age < editedAfter {
			return false, &ConflictError{Partition: key.partition, Other: before.set.Name, Wanted: name, Age: age}
		}
		delete(before.used, key.who)
		if gone = len(before.used) == 0; gone {
			delete(w.extras, before.set.Name)
		}
	}
	w.claims[key] = name
	return gone, nil
}

// extraSets are those that are still asked for, ordered by name, and the extrasNow at which they were.
func (w *Watcher) extraSets(now time.Time) ([]scaler.NodeSet, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sets []scaler.NodeSet
	for name, e := range w.extras {
		for who, t := range e.used {
			if now.Sub(t) > extraUnused {
				delete(e.used, who)
			}
		}
		if len(e.used) == 0 {
			delete(w.extras, name)
			continue
		}
		sets = append(sets, e.set)
	}
	for key, name := range w.claims {
		if e, ok := w.extras[name]; !ok || e.used[key.who].IsZero() {
			delete(w.claims, key)
		}
	}
	slices.SortFunc(sets, func(a, b scaler.NodeSet) int { return strings.Compare(a.Name, b.Name) })
	return sets, w.extrasNow
}
