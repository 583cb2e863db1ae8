package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/hack/demo/printed"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
)

// facts is what the demo knows of the cluster: the newest look at Slurm, the bridge's status, and the slurmd pods.
type facts struct {
	Slurm     printed.Look
	SlurmErr  error // of the newest look, if it failed
	Bridge    bridge.Status
	BridgeErr error
	Pods      map[string]podFact // by node
	Downs     []*powerDown       // in the order of their beginning
}

// podFact is one slurmd pod.
type podFact struct {
	Node, UID string
	Phase     string    // as kubectl shows it
	Seen      time.Time // first
	GPUs      int64     // nvidia.com/gpu that Kubernetes gave it
}

// powerDown is one node's way down. A zero time was not seen.
type powerDown struct {
	Node      string    `json:"node"`
	UID       string    `json:"-"`         // of the pod
	Up        time.Time `json:"-"`         // the pod was first seen
	Requested time.Time `json:"requested"` // slurmctld started SuspendProgram
	Accepted  time.Time `json:"accepted"`  // the bridge read the request
	Deleting  time.Time `json:"deleting"`  // the pod is being deleted
	Gone      time.Time `json:"gone"`      // the pod is gone
	Free      time.Time `json:"free"`      // a look at Slurm after that showed the node at rest
}

// down returns the record of the pod's end, a new one if need be.
func (f *facts) down(node, uid string) *powerDown {
	for _, d := range f.Downs {
		if d.UID == uid {
			return d
		}
	}
	d := &powerDown{Node: node, UID: uid}
	if p := f.Pods[node]; p.UID == uid {
		d.Up = p.Seen
	}
	f.Downs = append(f.Downs, d)
	return d
}

func setOnce(t *time.Time, now time.Time) {
	if t.IsZero() {
		*t = now
	}
}

func (f *facts) seePod(p *corev1.Pod, now time.Time) {
	if f.Pods == nil {
		f.Pods = map[string]podFact{}
	}
	seen := now
	if known := f.Pods[p.Name]; known.UID == string(p.UID) {
		seen = known.Seen
	}
	f.Pods[p.Name] = podFact{Node: p.Name, UID: string(p.UID), Phase: podPhase(p), Seen: seen, GPUs: podGPUs(p)}
	if p.DeletionTimestamp != nil {
		setOnce(&f.down(p.Name, string(p.UID)).Deleting, now)
	}
}

func (f *facts) losePod(name, uid string, now time.Time) {
	d := f.down(name, uid)
	setOnce(&d.Deleting, now)
	setOnce(&d.Gone, now)
	if f.Pods[name].UID == uid {
		delete(f.Pods, name)
	}
}

// seeOffs adds to each power-down the request that the bridge carried out with it.
func (f *facts) seeOffs(list []powersave.Off) {
	for _, d := range f.Downs {
		for _, o := range list {
			if o.UID == d.UID {
				d.Requested, d.Accepted = o.Times.Requested, o.Times.Accepted
			}
		}
	}
}

// seeSlurm takes a look that ended at now.
func (f *facts) seeSlurm(l printed.Look, now time.Time) {
	f.Slurm, f.SlurmErr = l, nil
	state := map[string]printed.Node{}
	for _, n := range l.Nodes {
		state[n.Name] = n
	}
	for _, d := range f.Downs {
		// A look older than the pod's end shows a node that is up or POWERING_DOWN.
		s := state[d.Node].State()
		if !d.Gone.IsZero() && s.Any(powersave.NodePoweredDown|powersave.NodePoweringUp) && !s.Any(powersave.NodePoweringDown) {
			setOnce(&d.Free, now)
		}
	}
}

// atZero says what is still up, or nothing when all nodes are at rest.
func (f *facts) atZero() string {
	switch e := f.Bridge.Engine; {
	case f.SlurmErr != nil:
		return "Slurm cannot be read: " + f.SlurmErr.Error()
	case f.BridgeErr != nil:
		return "the bridge does not answer: " + f.BridgeErr.Error()
	case len(f.Slurm.Nodes) == 0:
		return "Slurm was not read yet"
	case len(f.Pods) > 0:
		return "there are slurmd pods: " + compress(f.Pods)
	case f.Bridge.Spool.Depth > 0 || f.Bridge.Spool.Bad > 0:
		return "the spool is not empty"
	case len(e.Boots)+len(e.Offs)+e.Requests+e.Gates > 0:
		return "the bridge still has requests in hand"
	}
	awake, words := map[string]bool{}, ""
	for _, n := range f.Slurm.Nodes {
		if !n.Off() {
			awake[n.Name], words = true, n.Words()
		}
	}
	if len(awake) > 0 {
		return "Slurm shows " + compress(awake) + " " + words
	}
	for _, d := range f.Downs {
		if d.Free.IsZero() {
			return "Slurm was not read since the pod of " + d.Node + " went"
		}
	}
	return ""
}

// podPhase is the pod's phase, finer where it helps: a pod that has a host is no longer just Pending.
func podPhase(p *corev1.Pod) string {
	switch {
	case p.DeletionTimestamp != nil:
		return "Terminating"
	case p.Status.Phase != corev1.PodPending:
		return string(p.Status.Phase)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			return c.State.Waiting.Reason
		}
	}
	if p.Spec.NodeName != "" {
		return "Scheduled"
	}
	return "Pending"
}

func podGPUs(p *corev1.Pod) int64 {
	var n int64
	for _, c := range p.Spec.Containers {
		gpus := c.Resources.Limits["nvidia.com/gpu"]
		n += gpus.Value()
	}
	return n
}

// world holds the facts for everybody who adds to them or waits for them.
type world struct {
	mu      sync.Mutex
	facts   facts
	changed chan struct{}
}

func newWorld() *world { return &world{changed: make(chan struct{})} }

// update changes the facts and wakes everybody who waits.
func (w *world) update(change func(*facts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.facts)
	close(w.changed)
	w.changed = make(chan struct{})
}

// read calls f with the facts, which it must not keep, and returns a channel that is closed at the next change.
func (w *world) read(f func(*facts)) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.facts)
	return w.changed
}

// wait returns when cond is true or an error, which it passes on, or when ctx ends.
func (w *world) wait(ctx context.Context, cond func(*facts) (bool, error)) error {
	for {
		var done bool
		var err error
		changed := w.read(func(f *facts) { done, err = cond(f) })
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
