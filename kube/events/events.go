// Package events records Kubernetes Events: equal ones are counted on one, and a storm of them is no storm of writes.
package events

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/slurmtide/slurmtide/kube/groups"
)

// How many writes are made at once, and then in a second. What is more is left out.
const (
	objectBurst, objectRate = 25, 1. / 300 // about one object, as of other parts of Kubernetes
	kindBurst, kindRate     = 100, 5.      // about all objects of a kind: thousands of pods fail as one
)

// Recorder is told of Events.
type Recorder = events.EventRecorder

// Start returns a recorder for what source ("slurmtide.io/bridge") sees; it works until stop, and neither it nor anything that it does waits for the API server.
// wrote, if there is one, is called for each request that writes.
//
// Events of the same type, reason, action and note about the same object are one, until there was none for six minutes: client-go's broadcaster makes it with the first, notes
// with the second that it is a series, and counts the others without a write, but for one when the series ends. See newest for what the same note is.
func Start(ctx context.Context, kube groups.Interface, source string, wrote func()) (recorder Recorder, stop func(), err error) {
	broadcaster := events.NewBroadcaster(newLimited(&events.EventSinkImpl{Interface: kube.EventsV1()}, wrote))
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		broadcaster.Shutdown()
		return nil, nil, fmt.Errorf("starting to record Events: %w", err)
	}
	return &newest{Recorder: broadcaster.NewRecorder(scheme.Scheme, source), notes: map[matter]*notes{}}, broadcaster.Shutdown, nil
}

// How many notes of one matter have Events of their own at a time, and how long a note is remembered: as long as the broadcaster continues its series.
const (
	mostNotes = 5
	pause     = 6 * time.Minute
)

// newest has a note that says something else make another Event: the broadcaster would count it on the first one, and the API server lets nobody change the note of an Event.
// Notes that differ in numbers alone are the same: those of the nodes of a NodeSet that fail as one.
type newest struct {
	Recorder

	mu    sync.Mutex
	notes map[matter]*notes
	swept time.Time
}

// matter is what the broadcaster goes by.
type matter struct {
	about                corev1.ObjectReference
	kind, reason, action string
}

type notes struct {
	seen map[string]time.Time // when last
	last string
}

var numbers = regexp.MustCompile(`[0-9]+`)

// Eventf tells of an Event.
func (n *newest) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	text := fmt.Sprintf(note, args...)
	if about, err := reference.GetReference(scheme.Scheme, regarding); err == nil { // else the recorder says so
		marked := about.DeepCopy()
		// The broadcaster tells Events apart by it, too, and limited takes it away again.
		marked.ResourceVersion = n.mark(matter{*about, kind, reason, action}, numbers.ReplaceAllString(text, "0"))
		regarding = marked
	}
	n.Recorder.Eventf(regarding, related, kind, reason, action, "%s", text)
}

// mark gives the note on whose Event this one is to be counted: itself, or the last one if there are too many.
func (n *newest) mark(of matter, note string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	old := func(_ string, at time.Time) bool { return now.Sub(at) > pause }
	if now.Sub(n.swept) > pause {
		n.swept = now
		maps.DeleteFunc(n.notes, func(_ matter, one *notes) bool { return old("", one.seen[one.last]) })
	}
	one := n.notes[of]
	if one == nil {
		one = &notes{seen: map[string]time.Time{}}
		n.notes[of] = one
	}
	maps.DeleteFunc(one.seen, old)
	if _, known := one.seen[note]; known || len(one.seen) < mostNotes {
		one.last = note
	}
	one.seen[one.last] = now
	return one.last
}

// limited passes on what may be written. It stands behind the broadcaster, which counts what it does not write.
type limited struct {
	events.EventSink
	object *record.EventCorrelator // for its filter of spam
	wrote  func()

	mu    sync.Mutex
	kinds map[string]flowcontrol.PassiveRateLimiter
}

func newLimited(to events.EventSink, wrote func()) *limited {
	if wrote == nil {
		wrote = func() {}
	}
	return &limited{
		EventSink: to, wrote: wrote, kinds: map[string]flowcontrol.PassiveRateLimiter{},
		object: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{BurstSize: objectBurst, QPS: objectRate}),
	}
}

func (l *limited) mayWrite(e *eventsv1.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, err := l.object.EventCorrelate(&corev1.Event{
		InvolvedObject: e.Regarding, Source: corev1.EventSource{Component: e.ReportingController}, Type: e.Type, Reason: e.Reason, Message: e.Note,
	})
	if err == nil && seen.Skip {
		return false
	}
	kind := l.kinds[e.Regarding.Kind]
	if kind == nil {
		kind = flowcontrol.NewTokenBucketPassiveRateLimiter(kindRate, kindBurst)
		l.kinds[e.Regarding.Kind] = kind
	}
	return kind.TryAccept()
}

// Create makes an Event, or leaves it out.
func (l *limited) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e = e.DeepCopy() // the broadcaster may keep it
	e.Regarding.ResourceVersion = ""
	if !l.mayWrite(e) {
		return e, nil // should there be more of it, that makes it
	}
	l.wrote()
	return l.EventSink.Create(ctx, e)
}

// Patch writes how often an Event was seen, or leaves that for the next time.
func (l *limited) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	if !l.mayWrite(e) {
		return e, nil
	}
	l.wrote()
	return l.EventSink.Patch(ctx, e, data)
}
