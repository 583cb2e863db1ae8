package main

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
)

// made is how long it took until pods were there, and until all were Running.
type made struct {
	Created   float64 `json:"created_s"`
	Running   float64 `json:"running_s"`
	PerSecond float64 `json:"created_per_second"`
}

// sight watches pods.
type sight struct {
	mu                     sync.Mutex
	pods                   map[string]bool // those that are there, and whether they are Running
	running                int
	created, ran, lastGone time.Time // when the newest of each was seen
	stop                   chan struct{}
}

// watch sees the pods with a label until stop is closed.
func (b *bench) watch(selector string) *sight {
	s := &sight{pods: map[string]bool{}, stop: make(chan struct{})}
	factory := informers.NewSharedInformerFactoryWithOptions(b.kube, 0, informers.WithNamespace(b.Options.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }),
		informers.WithTransform(func(obj any) (any, error) { // ten thousand are kept
			if p, ok := obj.(*corev1.Pod); ok {
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Status: corev1.PodStatus{Phase: p.Status.Phase}}, nil
			}
			return obj, nil
		}))
	seen := func(obj any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p := obj.(*corev1.Pod)
		ran, known := s.pods[string(p.UID)]
		if !known {
			s.created = time.Now()
		}
		if p.Status.Phase == corev1.PodRunning && !ran {
			s.running++
			s.ran = time.Now()
		}
		s.pods[string(p.UID)] = ran || p.Status.Phase == corev1.PodRunning
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) },
		DeleteFunc: func(obj any) {
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.pods, string(obj.(*corev1.Pod).UID))
			s.lastGone = time.Now()
		},
	})
	if err != nil {
		panic(err) // only of an informer that was stopped
	}
	factory.Start(s.stop)
	factory.WaitForCacheSync(s.stop)
	return s
}

// wait waits until n pods have been Running, or, if n is 0, until none is left.
func (b *bench) wait(s *sight, n int) error {
	return b.eventually(fleetPatient, func() (bool, string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n == 0 {
			return len(s.pods) == 0, fmt.Sprintf("%d pods are left", len(s.pods)), nil
		}
		return s.running >= n, fmt.Sprintf("%d pods of %d are there, %d have run", len(s.pods), n, s.running), nil
	})
}

func (s *sight) since(began time.Time, n int) made {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := made{Created: s.created.Sub(began).Seconds(), Running: s.ran.Sub(began).Seconds()}
	m.PerSecond = float64(n) / m.Created
	return m
}

// direct creates pods like the bridge's of a NodeSet, all at once, and takes them away.
func (b *bench) direct(ns *v1alpha1.NodeSet, nodes int) (made, error) {
	const label = "direct=yes"
	s := b.watch(label)
	defer close(s.stop)
	set := ns.DeepCopy()
	set.UID = "direct"
	began := time.Now()
	if err := b.createDirect(set, nodes); err != nil {
		return made{}, err
	}
	if err := b.wait(s, nodes); err != nil {
		return made{}, err
	}
	m := s.since(began, nodes)
	if err := b.kube.CoreV1().Pods(b.Options.Namespace).DeleteCollection(b.ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}, metav1.ListOptions{LabelSelector: label}); err != nil {
		return m, err
	}
	return m, b.wait(s, 0)
}

// createDirect creates the pods that the bridge would create, all at once.
func (b *bench) createDirect(ns *v1alpha1.NodeSet, nodes int) error {
	var wg sync.WaitGroup
	failed := make(chan error, nodes)
	for i := range nodes {
		pod, err := pods.Build(ns, fmt.Sprintf("direct-%d", i), 1, "direct", pods.PodOptions{ConfServer: b.ConfServer()})
		if err != nil {
			return err
		}
		pod.Labels, pod.OwnerReferences = map[string]string{"direct": "yes"}, nil // none of the bridge's business
		wg.Go(func() {
			if _, err := b.kube.CoreV1().Pods(b.Options.Namespace).Create(b.ctx, pod, metav1.CreateOptions{}); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}
