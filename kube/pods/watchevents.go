package pods

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	eventResource = "events"
	// maxStrangers is how many pods that are not known are remembered by their events: the watches of events
	// and of pods are two, and other pods of the namespace have events as well.
	maxStrangers = 1000
)

// eventSelector leaves to the API server what every healthy pod causes, but for what says how its image came.
const eventSelector = "involvedObject.kind=Pod,reason!=Scheduled,reason!=Pulling,reason!=Created,reason!=Started,reason!=Killing"

// eventController feeds w.stories. It keeps no event: what matters of them is in the stories.
func (w *watcher) eventController() cache.Controller {
	c := w.client
	return cache.New(&cache.Config{
		Queue:         cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{}),
		ListerWatcher: source(w, c.kube, eventResource, c.kube.CoreV1().Events(c.namespace), metav1.ListOptions{FieldSelector: eventSelector}),
		ObjectType:    &corev1.Event{},
		Process: func(obj any, _ bool) error {
			if deltas, ok := obj.(cache.Deltas); ok {
				for _, d := range deltas {
					if e, ok := d.Object.(*corev1.Event); ok && d.Type != cache.Deleted {
						w.eventSeen(e)
					}
				}
			}
			return nil
		},
		WatchErrorHandlerWithContext: w.watchEnded,
	})
}

func (w *watcher) eventSeen(e *corev1.Event) {
	about := e.InvolvedObject
	if about.Kind != "Pod" || about.UID == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stories.hear(e)
	if p, known := w.pods[about.Name]; known && p.observed.UID == string(about.UID) {
		w.tell(p)
	}
}

// eventsRead says once that events may not be read. All the rest works without: verdicts that
// only events give come late or never.
func (w *watcher) eventsRead(verb string, err error) {
	switch {
	case err == nil:
		if w.deaf && verb == "watch" { // a list alone is of no use
			w.deaf = false
			w.client.log.Info("events can be read again")
		}
	case !w.deaf:
		e := classify(err, verb+"ing events", verb+" "+eventResource, w.client.namespace)
		if e.Class == Forbidden { // all else hits the pods' watch as well, which is reported
			w.deaf = true
			w.client.log.Warn("events cannot be read: what autoscalers and volumes say of a pod stays unknown", "error", e)
		}
	}
}

// stories are what events tell of pods, by UID. Of pods that are not known, or no more, only the
// newest maxStrangers are kept.
type stories struct {
	known   map[string]story
	strange map[string]story
	order   []string // in which strangers were first heard of
}

func newStories() *stories {
	return &stories{known: map[string]story{}, strange: map[string]story{}}
}

func (s *stories) hear(e *corev1.Event) {
	uid := string(e.InvolvedObject.UID)
	if told, ok := s.known[uid]; ok {
		told.hear(e)
		s.known[uid] = told
		return
	}
	told, ok := s.strange[uid]
	told.hear(e)
	if told == (story{}) {
		return
	}
	s.strange[uid] = told
	if !ok {
		s.order = append(s.order, uid)
	}
	if len(s.order) > maxStrangers {
		delete(s.strange, s.order[0])
		s.order = s.order[1:]
	}
}

func (s *stories) adopt(uid string) {
	if _, ok := s.known[uid]; !ok {
		s.known[uid] = s.strange[uid]
		delete(s.strange, uid)
	}
}

func (s *stories) forget(uid string) { delete(s.known, uid) }
