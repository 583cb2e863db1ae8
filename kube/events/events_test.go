package events

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// told is a recorder and the API server behind it.
type told struct {
	*testing.T
	kube *fake.Clientset
	Recorder
	counted *atomic.Int64
}

// recording runs a test in a bubble of fake time.
func recording(t *testing.T, test func(*told)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		var counted atomic.Int64
		recorder, stop, err := Start(t.Context(), kube, "slurmtide.io/bridge", func() { counted.Add(1) })
		require.NoError(t, err)
		defer stop()
		r := &told{t, kube, recorder, &counted}
		test(r)
		synctest.Wait()
		assert.EqualValues(t, r.writes(""), counted.Load())
	})
}

func (r *told) warn(kind, name, reason, note string) {
	r.Eventf(&corev1.ObjectReference{Kind: kind, Namespace: "slurm", Name: name}, nil, corev1.EventTypeWarning, reason, "Boot", "%s", note)
	synctest.Wait() // or the broadcaster drops what it is told faster than it can think
}

// writes are the requests to the API server.
func (r *told) writes(kind string) (n int) {
	for _, a := range r.kube.Actions() {
		if a.GetVerb() != "list" && (kind == "" || a.GetVerb() == kind) {
			n++
		}
	}
	return n
}

func (r *told) events() []eventsv1.Event {
	all, err := r.kube.EventsV1().Events("slurm").List(r.Context(), metav1.ListOptions{})
	require.NoError(r, err)
	return all.Items
}

// TestStorm: a thousand pods that fail at once, and again, are a hundred writes, and then few a second; what their NodeSet is told of all of them is one Event.
func TestStorm(t *testing.T) {
	recording(t, func(r *told) {
		for i := range 1000 {
			r.warn("Pod", fmt.Sprint("cpu-", i), "BootFailed", "capacity: no room")
			r.warn("NodeSet", "cpu", "BootFailed", fmt.Sprintf("node cpu-%d: capacity: no room", i))
		}
		assert.Equal(t, kindBurst+1, r.writes("create"))
		assert.Equal(t, 1, r.writes("patch"), "the NodeSet's has become a series")
		for i := range 1000 {
			r.warn("Pod", fmt.Sprint("gpu-", i), "BootFailed", "capacity: no room")
		}
		assert.Equal(t, kindBurst+1, r.writes("create"))
		time.Sleep(10 * time.Second)
		for i := range 1000 {
			r.warn("Pod", fmt.Sprint("fat-", i), "BootFailed", "capacity: no room")
		}
		assert.Equal(t, kindBurst+1+10*int(kindRate), r.writes("create"))

		time.Sleep(15 * time.Minute) // the series is over
		var sets []eventsv1.Event
		for _, e := range r.events() {
			if e.Regarding.Kind == "NodeSet" {
				sets = append(sets, e)
			}
		}
		require.Len(t, sets, 1)
		assert.EqualValues(t, 1000, sets[0].Series.Count)
		assert.Equal(t, "node cpu-0: capacity: no room", sets[0].Note)
		assert.Equal(t, 2, r.writes("patch"), "and that was written once")
	})
}

// TestEqual: what goes on for hours is one Event, which is kept alive; after a pause it is another one.
func TestEqual(t *testing.T) {
	recording(t, func(r *told) {
		for range 240 {
			r.warn("NodeSet", "cpu", "BootFailed", "capacity: no room")
			time.Sleep(30 * time.Second)
		}
		assert.Len(t, r.events(), 1)
		assert.Equal(t, 1, r.writes("create"))
		assert.LessOrEqual(t, r.writes("patch"), 1+4, "every half hour")
		time.Sleep(15 * time.Minute)
		assert.EqualValues(t, 240, r.events()[0].Series.Count)
		r.warn("NodeSet", "cpu", "BootFailed", "capacity: no room")
		assert.Len(t, r.events(), 2)
	})
}

// TestOneObject: who has something new to say of one object all the time is not heard for ever; others are.
func TestOneObject(t *testing.T) {
	recording(t, func(r *told) {
		for i := range 60 {
			r.warn("Controller", "tide", fmt.Sprint("Accepted", i), "another reason")
		}
		assert.Equal(t, objectBurst, r.writes(""))
		r.warn("Controller", "other", "AcceptedNot", "a reason")
		assert.Equal(t, objectBurst+1, r.writes(""))
		time.Sleep(5*time.Minute + time.Second)
		r.warn("Controller", "tide", "Accepted60", "one more")
		r.warn("Controller", "tide", "Accepted61", "and one more")
		assert.Equal(t, objectBurst+2, r.writes(""))
	})
}

// notes are what the Events say, in the order in which they were made.
func (r *told) notes() (all []string) {
	list := r.events()
	slices.SortFunc(list, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	for _, e := range list {
		assert.Empty(r, e.Regarding.ResourceVersion)
		all = append(all, e.Note)
	}
	return all
}

// TestNotes: an Event says what is so now. What differs in numbers alone is the same, and so is the sixth thing that is said of one matter within minutes.
func TestNotes(t *testing.T) {
	for name, test := range map[string]struct {
		pause time.Duration
		told  []string
		want  []string
	}{
		"another error":  {time.Second, []string{"no such plugin", "no such file", "no such file"}, []string{"no such plugin", "no such file"}},
		"back and forth": {time.Second, []string{"a", "b", "a", "b", "a", "b"}, []string{"a", "b"}},
		"numbers":        {time.Second, []string{"node cpu-1 failed", "node cpu-20 failed"}, []string{"node cpu-1 failed"}},
		"too many":       {time.Second, strings.Split("abcdefghij", ""), strings.Split("abcde", "")},
		"seldom":         {time.Hour, strings.Split("abcdefghij", ""), strings.Split("abcdefghij", "")},
		"without end":    {3 * time.Minute, strings.Split("abcdefghij", ""), strings.Split("abcdefghij", "")},
	} {
		t.Run(name, func(t *testing.T) {
			recording(t, func(r *told) {
				for _, note := range test.told {
					r.warn("Controller", "tide", "AcceptedInvalid", note)
					time.Sleep(test.pause)
				}
				assert.Equal(t, test.want, r.notes())
				time.Sleep(15 * time.Minute) // series are over
				seen := 0
				for _, e := range r.events() {
					if e.Series == nil {
						seen++
					} else {
						seen += int(e.Series.Count)
					}
				}
				assert.Equal(t, len(test.told), seen)
			})
		})
	}
}

// TestForgets: what was told long ago takes no memory.
func TestForgets(t *testing.T) {
	recording(t, func(r *told) {
		for i := range 100 {
			r.warn("Pod", fmt.Sprint("cpu-", i), "BootFailed", "capacity: no room")
		}
		time.Sleep(time.Hour)
		r.warn("NodeSet", "cpu", "BootFailed", "capacity: no room")
		n, ok := r.Recorder.(*newest)
		require.True(t, ok)
		assert.Len(t, n.notes, 1)
	})
}
