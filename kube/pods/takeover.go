package pods

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// takeOver hands all NodeSets over once more, with the statuses that the bridge that led before has left: while it led they were not
// looked at. It is for who has just got the lease, after which nobody else writes them: a watch may not have told of the last write yet.
func (c *Client) takeOver(ctx context.Context) error {
	c.mu.Lock()
	w, store := c.watcher, c.nodeSets
	c.mu.Unlock()
	if w == nil {
		return nil // they are still to be read
	}
	ctx, cancel := context.WithTimeout(ctx, leaseCall)
	defer cancel()
	list, err := c.tide.SlurmtideV1alpha1().NodeSets(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return classify(err, "reading the NodeSets' statuses, to begin to lead", "list nodesets."+v1alpha1.GroupName, c.namespace)
	}
	statuses := make(map[types.UID]v1alpha1.NodeSetStatus, len(list.Items))
	for i := range list.Items {
		statuses[list.Items[i].UID] = list.Items[i].Status
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.nodeSetsReady {
		return nil
	}
	sets, _ := c.ownNodeSets(store)
	for i, ns := range sets {
		if status, ok := statuses[ns.UID]; ok {
			now := *ns
			now.Status, sets[i] = status, &now
		}
	}
	w.handler.NodeSets(Validate(sets))
	return nil
}

// end sees to it that no call of the handler follows.
func (w *watcher) end() {
	w.client.mu.Lock()
	w.client.watcher = nil
	w.client.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodeSetsReady = false
}
