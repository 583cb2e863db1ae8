package place

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// Slurm is what the loop needs of slurmctld. internal/slurmrest's Client implements it.
type Slurm interface {
	// UpdateNodes returns an error with the method MissingNodes() []string if slurmctld does not know some of them. All others have been told then, unless that error is
	// one of several.
	UpdateNodes(context.Context, powersave.NodeUpdate) error
}

// Config says what the loop works on. All is required.
type Config struct {
	Slurm Slurm
	Place Of
	// Warn tells whoever looks after a NodeSet; reason is that of an Event.
	Warn func(nodeSet, reason, text string)
	Log  *slog.Logger
}

const (
	// gather is how long others may come that are told of in the same request.
	gather      = 200 * time.Millisecond
	callTimeout = 30 * time.Second
)

// Loop tells Slurm where nodes are. Only the bridge that leads does. Its methods may be called from any goroutine.
type Loop struct {
	Config

	mu      sync.Mutex
	leading bool
	places  Places
	said    saidOf
	news    chan struct{}
}

// New returns a Loop; Run starts it.
func New(c Config) *Loop {
	return &Loop{Config: c, said: saidOf{}, news: make(chan struct{}, 1)}
}

func (l *Loop) change(f func()) {
	l.mu.Lock()
	f()
	l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default: // it is told already
	}
}

// Lead takes whether this bridge leads. One that begins to has everything told.
func (l *Loop) Lead(leading bool) {
	l.change(func() {
		if leading && !l.leading {
			clear(l.said)
			l.places.Again(time.Now())
		}
		l.leading = leading
	})
}

// NodeSets takes that NodeSets have changed.
func (l *Loop) NodeSets() { l.change(func() { l.places.Look(time.Now()) }) }

// Pod takes the newest state of a pod.
func (l *Loop) Pod(p powersave.Pod) { l.change(func() { l.places.Take(time.Now(), p) }) }

// PodGone takes that a pod is no more.
func (l *Loop) PodGone(node, uid string) { l.change(func() { l.places.Gone(node, uid) }) }

// Run works until ctx is done.
func (l *Loop) Run(ctx context.Context) error {
	for {
		wait := time.Hour
		l.mu.Lock()
		if at, any := l.places.Next(); any && l.leading {
			wait = max(time.Until(at), gather)
		}
		l.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-l.news:
			timer.Stop()
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(gather):
			}
		case <-timer.C:
		}
		l.round(ctx)
	}
}

func (l *Loop) round(ctx context.Context) {
	l.mu.Lock()
	if !l.leading {
		l.mu.Unlock()
		return
	}
	orders, troubles := l.places.Due(time.Now(), l.Place)
	l.mu.Unlock()
	for _, t := range troubles {
		l.warn(t)
	}
	for _, o := range orders {
		l.tell(ctx, o)
	}
}

func (l *Loop) tell(ctx context.Context, o Order) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := l.Slurm.UpdateNodes(call, powersave.NodeUpdate{Nodes: o.Nodes(), Topology: o.Place})
	unknown, err := split(err)
	l.mu.Lock()
	l.places.Done(time.Now(), o, unknown, err)
	l.mu.Unlock()
	switch {
	case err == nil && len(unknown) < len(o.Pods):
		l.Log.Info("Slurm knows where nodes are", "topology", o.Place, "nodes", len(o.Pods)-len(unknown))
	case err == nil, ctx.Err() != nil:
		// They have not registered yet.
	default:
		kind, err := kindOf(err)
		for _, t := range o.refused(kind, err) {
			l.warn(t)
		}
	}
}

// kindOf says what Slurm refuses, in other words where those of the error do not tell what to do.
func kindOf(err error) (Kind, error) {
	if old, ok := errors.AsType[interface {
		error
		NotOffered() bool
	}](err); ok && old.NotOffered() {
		return notOffered, fmt.Errorf("spec.topology needs Slurm 25.11 or newer: remove it, or upgrade Slurm (%w)", err)
	}
	kind := Kind{Reason: notOffered.Reason}
	if numbered, ok := errors.AsType[interface {
		error
		SlurmError() int
	}](err); ok {
		kind.Code = numbered.SlurmError()
	}
	return kind, err
}

type missingNodes interface {
	error
	MissingNodes() []string
}

// split takes the nodes that slurmctld does not know out of an error. What is left befell the others.
func split(err error) (unknown []string, rest error) {
	missing, ok := errors.AsType[missingNodes](err)
	if !ok {
		return nil, err
	}
	if several, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		for _, e := range several.Unwrap() {
			if _, gone := errors.AsType[missingNodes](e); !gone {
				rest = errors.Join(rest, e)
			}
		}
	}
	return missing.MissingNodes(), rest
}

// warn tells of a trouble, unless it has been told.
func (l *Loop) warn(t Trouble) {
	l.mu.Lock()
	now := l.said.once(time.Now(), t)
	l.mu.Unlock()
	if !now {
		return
	}
	l.Log.Warn("Slurm is not told where nodes are", "nodeset", t.NodeSet, "error", t.Err)
	l.Warn(t.NodeSet, t.Kind.Reason, "Slurm is not told where the nodes are: "+t.Err.Error())
}
