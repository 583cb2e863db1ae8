package pods

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// pinnedSet is a NodeSet with spec.eachHost.
type pinnedSet struct {
	each        *v1alpha1.EachHost
	nodes       slurmconf.Hostlist
	tolerations []corev1.Toleration
}

// pin takes in which NodeSets have spec.eachHost, and looks at all hosts anew.
func (w *watcher) pin(sets []*v1alpha1.NodeSet, checked []powersave.NodeSet) {
	before := len(w.pinned)
	w.pinned = nil
	for _, ns := range sets {
		i := slices.IndexFunc(checked, func(set powersave.NodeSet) bool { return set.Name == ns.Name })
		if ns.Spec.EachHost != nil && i >= 0 {
			w.pinned = append(w.pinned, pinnedSet{ns.Spec.EachHost, checked[i].Nodes, ns.Spec.Template.Spec.Tolerations})
		}
	}
	if before+len(w.pinned) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.hosts.seen)) {
		w.reviewHost(name)
	}
}

// repelsPinned names the taint that keeps the pod of the node off a host which has that one alone. While it has no pod, nothing but its template
// tells what that tolerates.
func (w *watcher) repelsPinned(host string, taints []corev1.Taint) string {
	for _, set := range w.pinned {
		if node, ok := NodeOn(set.each, host); !ok || !set.nodes.Contains(node) {
			continue
		}
		for i := range taints {
			if keepsOff(&taints[i], set.tolerations) {
				return "tainted " + taints[i].Key
			}
		}
	}
	return ""
}
