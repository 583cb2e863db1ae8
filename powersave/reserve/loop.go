package reserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Slurm is what the loop needs of slurmctld. internal/slurmrest's Client implements it.
type Slurm interface {
	// Reserved returns all reservations by name.
	Reserved(ctx context.Context) (map[string]powersave.Reserve, error)
	// Reserve makes a reservation that no job may use, or changes it: jobs that run are left alone. A zero begin stays as it is. An error may
	// have the method NotOffered() bool: this Slurm cannot be asked to.
	Reserve(ctx context.Context, name string, nodes []string, begin, end time.Time) error
	// Unreserve removes a reservation. One that is gone is no error.
	Unreserve(ctx context.Context, name string) error
}

// Config says what the loop works on. All fields but the times are required.
type Config struct {
	Slurm Slurm
	// Namespace of the NodeSets: it is part of the reservations' names.
	Namespace string
	// Tell hands to the engine what came of a reservation. It must not wait.
	Tell func(powersave.UpdateReserved)
	Log  *slog.Logger
	// Every is how often reservations are looked at while there are some. Default 30 s.
	Every time.Duration
	// Pause is the time between two looks at least. Default 1 s.
	Pause time.Duration
}

const callTimeout = 30 * time.Second

// Loop is the daemon's part for reservations. Its methods may be called from any goroutine.
type Loop struct {
	Config

	mu      sync.Mutex
	leading bool
	anew    bool              // it has led, or not, since Run looked: others may have been at work
	told    map[string]string // why a NodeSet's is not as wished, as last told
	wishes  map[string]wish
	changed chan struct{} // closed at the next change of any of them
}

// New returns a Loop; Run starts it.
func New(c Config) *Loop {
	if c.Every == 0 {
		c.Every = 30 * time.Second
	}
	if c.Pause == 0 {
		c.Pause = time.Second
	}
	return &Loop{Config: c, told: map[string]string{}, changed: make(chan struct{})}
}

// Name is what the reservation for a NodeSet's update is called. Neither part of it can be taken for the other: a namespace has no dot.
func Name(namespace, nodeSet string) string { return prefix(namespace) + nodeSet }

func prefix(namespace string) string { return "slurmtide." + namespace + "." }

func (l *Loop) change(f func()) {
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Lead takes whether this bridge leads. What was told is forgotten when that changes, for so it is by the engine.
func (l *Loop) Lead(leading bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading != leading {
		l.change(func() { l.leading, l.anew = leading, true })
		clear(l.told)
	}
}

// Counts takes the engine's figures: what its updates want to be reserved. Nil: which NodeSets there are has not been read;
// without a NodeSet nothing is to be reserved.
func (l *Loop) Counts(counts []powersave.NodeSetCounts) {
	wishes := wishesOf(counts)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !reflect.DeepEqual(wishes, l.wishes) {
		l.change(func() { l.wishes = wishes })
	}
}

// Run works until ctx is done. While nothing is wished for, and nothing of ours was found when that began, Slurm is not asked.
func (l *Loop) Run(ctx context.Context) error {
	again := true // what a bridge of before has left is looked for
	for ctx.Err() == nil {
		l.mu.Lock()
		wishes, leading, changed := l.wishes, l.leading, l.changed
		again, l.anew = again || l.anew, false
		l.mu.Unlock()
		var every <-chan time.Time
		if again = again || wants(wishes); leading && again && wishes != nil {
			if again = l.look(ctx, wishes); again {
				every = time.After(l.Every)
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-every:
		}
		select { // news that come close together share a look
		case <-ctx.Done():
		case <-time.After(l.Pause):
		}
	}
	return nil
}

// wants says whether anything is to be reserved.
func wants(wishes map[string]wish) bool {
	for _, w := range wishes {
		if w.reserve != nil {
			return true
		}
	}
	return false
}

// look makes Slurm's reservations what is wished; false: there is none, and none is wished for.
func (l *Loop) look(ctx context.Context, wishes map[string]wish) (again bool) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := l.Slurm.Reserved(call)
	if err != nil {
		l.Log.Warn("reading reservations", "error", err)
		for name, w := range wishes {
			if w.reserve != nil {
				l.tell(name, err.Error())
			}
		}
		return true
	}
	have := own(all, prefix(l.Namespace))
	failed := map[string]string{}
	for _, s := range plan(time.Now(), have, wishes) {
		if failed[s.NodeSet] == "" {
			failed[s.NodeSet] = l.take(call, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wishes)) {
		if wishes[name].known {
			l.tell(name, failed[name])
		}
	}
	return len(have) > 0 || wants(wishes)
}

// take does one step, and says why it failed.
func (l *Loop) take(ctx context.Context, s Step) (failed string) {
	name, nodes := Name(l.Namespace, s.NodeSet), slurmconf.CompressHostlist(s.Nodes)
	var err error
	if s.Drop {
		err = l.Slurm.Unreserve(ctx, name)
	} else {
		err = l.Slurm.Reserve(ctx, name, s.Nodes, s.Begin, s.End)
	}
	var not interface{ NotOffered() bool }
	switch cannot := errors.As(err, &not) && not.NotOffered(); {
	case cannot && s.Made: // somebody has made it by hand, as he was told to
		return ""
	case cannot:
		begin := "now" // the same words with every look
		if s.Begin.After(time.Now()) {
			begin = fmt.Sprintf("uts%d", s.Begin.Unix())
		}
		return fmt.Sprintf("%v; by hand: scontrol create reservation Flags=MAINT,IGNORE_JOBS Users=root ReservationName=%s StartTime=%s EndTime=uts%d Nodes=%s",
			err, name, begin, s.End.Unix(), nodes)
	case err != nil:
		return err.Error()
	case s.Drop:
		l.Log.Info("reservation removed", "reservation", name, "nodeset", s.NodeSet)
	default:
		l.Log.Info("reserved", "reservation", name, "nodeset", s.NodeSet, "nodes", nodes, "from", s.Begin, "to", s.End)
	}
	return ""
}

// tell says what is new about the reservation of a NodeSet.
func (l *Loop) tell(nodeSet, failed string) {
	l.mu.Lock()
	known := l.told[nodeSet] == failed
	l.told[nodeSet] = failed
	l.mu.Unlock()
	if known {
		return
	}
	if failed != "" {
		l.Log.Warn("the window of an update is not reserved in Slurm", "nodeset", nodeSet, "error", strings.TrimSpace(failed))
	}
	l.Tell(powersave.UpdateReserved{NodeSet: nodeSet, Err: failed})
}
