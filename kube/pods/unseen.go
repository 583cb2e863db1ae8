package pods

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lookForUnseen is how often pods are looked for that Create has told of and the watch has not, and how old that news has to be.
const lookForUnseen = 5 * time.Second

// unseenPod is a pod that Create told of. If it came and went while the watch was broken, no watch ever tells of its end: an informer
// compares lists only with what it has seen.
type unseenPod struct {
	uid   string
	since time.Time
}

// toldOf notes that Create told of a pod.
func (c *Client) toldOf(node, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unseen[node] = unseenPod{uid, c.opts.Now()}
}

func (c *Client) seen(node, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unseen[node].uid == uid {
		delete(c.unseen, node)
	}
}

// overdue are the pods that the watch should have told of by now; none while it is broken.
func (c *Client) overdue() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]string{}
	if c.health.Err != nil {
		return all
	}
	for node, p := range c.unseen {
		if c.opts.Now().Sub(p.since) >= lookForUnseen {
			all[node] = p.uid
		}
	}
	return all
}

// findUnseen tells of the end of pods that the watch never saw, until ctx ends.
func (w *watcher) findUnseen(ctx context.Context) {
	tick := time.NewTicker(lookForUnseen)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for node, uid := range w.client.overdue() {
			if !w.knows(node, uid) && w.client.exists(ctx, node, uid) {
				continue // the watch is late
			}
			w.client.seen(node, uid)
			w.mu.Lock()
			if w.pods[node].observed.UID != uid { // else the watch tells the rest, too
				w.handler.PodGone(node, uid)
			}
			w.mu.Unlock()
		}
	}
}

func (w *watcher) knows(node, uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[node].observed.UID == uid
}

// exists says whether the pod may be there: only a clear answer counts against that.
func (c *Client) exists(ctx context.Context, node, uid string) bool {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	pod, err := c.kube.CoreV1().Pods(c.namespace).Get(ctx, node, metav1.GetOptions{})
	return err == nil && string(pod.UID) == uid || err != nil && !apierrors.IsNotFound(err)
}
