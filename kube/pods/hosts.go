package pods

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/slurmtide/slurmtide/powersave"
)

const hostResource = "nodes"

// hostSeen is what of a host matters, and the trouble that was handed over.
type hostSeen struct {
	cordoned, silent bool
	taints           []corev1.Taint
	condition        string // as bad as a cordon; "" if none is
	told             powersave.Host
}

// hosts are the Kubernetes nodes.
type hosts struct {
	seen   map[string]*hostSeen
	ready  bool
	denied bool
}

// watchHosts works until ctx ends. Without the right to read hosts it does nothing but say so.
func (w *watcher) watchHosts(ctx context.Context) error {
	c := w.client
	informer := cache.NewSharedIndexInformer(source(w, c.kube, hostResource, c.kube.CoreV1().Nodes(), metav1.ListOptions{}), &corev1.Node{}, 0, cache.Indexers{})
	if err := informer.SetTransform(c.slimHost); err != nil {
		return err
	}
	if err := informer.SetWatchErrorHandlerWithContext(w.watchEnded); err != nil {
		return err
	}
	read, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.hostChanged,
		UpdateFunc: func(_, obj any) { w.hostChanged(obj) },
		DeleteFunc: w.hostGone,
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.hosts = informer.GetStore()
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	select {
	case <-read.HasSyncedChecker().Done():
		w.hostsSynced()
	case <-ctx.Done():
	}
	<-done
	return nil
}

func (w *watcher) hostsSynced() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts.ready = true
	all := make([]powersave.Host, 0, len(w.hosts.seen))
	for name, h := range w.hosts.seen {
		h.told = w.hostNow(name, h)
		all = append(all, h.told)
	}
	slices.SortFunc(all, func(a, b powersave.Host) int { return strings.Compare(a.Name, b.Name) })
	w.handler.HostsSynced(all)
}

func (w *watcher) hostChanged(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	w.newsReceived()
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.hosts.seen[node.Name]
	if h == nil {
		h = &hostSeen{told: powersave.Host{Name: node.Name, Trouble: powersave.HostGone}} // as it may have been
		w.hosts.seen[node.Name] = h
	}
	h.cordoned, h.taints = node.Spec.Unschedulable, node.Spec.Taints
	h.silent = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
	h.condition = w.client.badCondition(node.Status.Conditions)
	w.reviewHost(node.Name)
}

// reviewHost hands over the host's trouble if it is another than before.
func (w *watcher) reviewHost(name string) {
	h := w.hosts.seen[name]
	if h == nil || !w.hosts.ready {
		return
	}
	if now := w.hostNow(name, h); now != h.told {
		h.told = now
		w.handler.Host(now)
	}
}

func (w *watcher) hostNow(name string, h *hostSeen) powersave.Host {
	return powersave.Host{Name: name, Trouble: w.hostTrouble(name, h), Repels: w.repelsPinned(name, h.taints)}
}

func (w *watcher) hostGone(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.hosts.seen, node.Name)
	if w.hosts.ready {
		w.handler.Host(powersave.Host{Name: node.Name, Trouble: powersave.HostGone})
	}
}

func (w *watcher) hostTrouble(name string, h *hostSeen) string {
	if h.cordoned {
		return powersave.HostCordoned
	}
	for i := range h.taints {
		if w.repels(name, &h.taints[i]) {
			return "tainted " + h.taints[i].Key
		}
	}
	if h.silent {
		return powersave.HostNotReady
	}
	if h.condition != "" {
		return "in condition " + h.condition
	}
	return ""
}

// repels says that a taint keeps pods like those on the host off it. They tolerated all there were when they came, so
// the taint is newer.
func (w *watcher) repels(host string, taint *corev1.Taint) bool {
	for _, p := range w.pods {
		if p.observed.Host == host && keepsOff(taint, p.tolerations) {
			return true
		}
	}
	return false
}

// keepsOff says that no new pod with these tolerations comes to a host with the taint.
func keepsOff(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	switch {
	case taint.Effect != corev1.TaintEffectNoSchedule && taint.Effect != corev1.TaintEffectNoExecute:
		return false
	case taint.Key == corev1.TaintNodeUnschedulable, taint.Key == corev1.TaintNodeNotReady, taint.Key == corev1.TaintNodeUnreachable:
		return false // known by other signs
	}
	return !scheduling.TolerationsTolerateTaint(klog.Background(), tolerations, taint, true)
}

// hostsRead says once that hosts may not be read.
func (w *watcher) hostsRead(verb string, err error) {
	if err == nil {
		if w.hosts.denied {
			w.hosts.denied = false
			w.client.log.Info("hosts can be read again")
		}
		return
	}
	e := classify(err, verb+"ing "+hostResource, verb+" "+hostResource, w.client.namespace)
	if e.Class != Forbidden || w.hosts.denied { // all else hits the pods' watch as well, which is reported
		return
	}
	w.hosts.denied = true
	if len(e.Missing) > 0 {
		e.Hint = "the right to list and watch nodes is missing: add it to a ClusterRole of the bridge's service account"
	}
	w.handler.HostsUnread(e)
}

// slimHost drops what neither hostChanged nor badHosts nor Place reads.
func (c *Client) slimHost(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Node{
		TypeMeta:   node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels, Annotations: short(node.Annotations)},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
	}
	for _, is := range node.Status.Conditions {
		if is.Type == corev1.NodeReady || slices.ContainsFunc(c.opts.HostConditions, func(bad HostCondition) bool { return is.Type == bad.Type }) {
			slim.Status.Conditions = append(slim.Status.Conditions, corev1.NodeCondition{Type: is.Type, Status: is.Status})
		}
	}
	return slim, nil
}
