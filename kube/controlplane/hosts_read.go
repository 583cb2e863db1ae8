package controlplane

import (
	"context"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// unread is what of hosts may not be done: list, watch.
type unread struct {
	mu     sync.Mutex
	denied map[string]bool
}

func (u *unread) is() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.denied["list"] || u.denied["watch"]
}

// note takes in how a request ended, and tells whether that is another answer than before. Errors of other kinds say nothing. Who may watch needs no list:
// the first watch streams all there is, and a list is asked for when that is refused alone.
func (u *unread) note(verb string, err error) (news bool) {
	denied := apierrors.IsForbidden(err)
	if err != nil && !denied {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if news = u.denied[verb] != denied; news {
		if u.denied == nil {
			u.denied = map[string]bool{}
		}
		u.denied[verb] = denied
	}
	if verb == "watch" && !denied && u.denied["list"] {
		news, u.denied["list"] = true, false
	}
	return news
}

// watchHosts keeps hosts once it runs, for which rights are needed that not everybody gives.
func (l *Loop) watchHosts() cache.SharedIndexInformer {
	nodes := l.kube.CoreV1().Nodes()
	note := func(verb string, err error) {
		if l.unread.note(verb, err) {
			for _, k := range l.setsOnHosts(nil) {
				l.queue.Add(k)
			}
		}
	}
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := nodes.List(ctx, o)
			note("list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := nodes.Watch(ctx, o)
			note("watch", err)
			return w, err
		},
	}, l.kube), &corev1.Node{}, 0, cache.Indexers{})
	_ = i.SetTransform(slim) // fails only when the informer runs already, as does the next
	_ = i.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsForbidden(err) { // of which the conditions tell
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
	l.watch(i, l.setsOnHosts, func(before, now metav1.Object) bool {
		b, ok1 := before.(*corev1.Node)
		n, ok2 := now.(*corev1.Node)
		return !ok1 || !ok2 || !reflect.DeepEqual(b.Labels, n.Labels) || !reflect.DeepEqual(b.Spec, n.Spec)
	})
	return i
}

// setsOnHosts are the NodeSets with spec.eachHost.
func (l *Loop) setsOnHosts(metav1.Object) (keys []key) {
	all, _ := l.nodeSets.List(everything)
	for _, set := range all {
		if set.Spec.EachHost != nil {
			keys = append(keys, key{kindNodeSet, set.Namespace, set.Name})
		}
	}
	return keys
}
