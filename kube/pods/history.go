package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

const (
	// defaultHistory is the CRD's spec.revisionHistoryLimit.
	defaultHistory = 10
	historyRetry   = time.Minute
	historyRight   = "controllerrevisions.apps"
)

// historyKept says for what a NodeSet's history was brought up to date, or when that is to be tried again.
type historyKept struct {
	nodeSet           types.UID
	revision, current string
	limit             int
	again             time.Time
}

// keepHistory leaves a ControllerRevision of what a NodeSet's pods are made from now, and removes those that are too many. Without it
// nobody can look up what a revision was, and all else works: so what goes wrong is said and not returned.
func (c *Client) keepHistory(ctx context.Context, ns *v1alpha1.NodeSet, counts *powersave.UpdateCounts) {
	if counts == nil || counts.Revision != revision(&ns.Spec) || ns.DeletionTimestamp != nil { // the next counts know the newest
		return
	}
	now := c.opts.Now()
	kept := historyKept{nodeSet: ns.UID, revision: counts.Revision, current: counts.Current, limit: historyLimit(&ns.Spec)}
	c.mu.Lock()
	last := c.histories[ns.Name]
	again := last.again
	last.again = time.Time{}
	if last == kept && (again.IsZero() || again.After(now)) {
		c.mu.Unlock()
		return
	}
	c.histories[ns.Name] = kept
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	if err := c.writeHistory(ctx, ns, kept); err != nil {
		c.log.Warn("the history of revisions is not kept", "nodeset", ns.Name, "error", err)
		kept.again = now.Add(historyRetry)
		c.mu.Lock()
		c.histories[ns.Name] = kept
		c.mu.Unlock()
	}
}

func historyLimit(spec *v1alpha1.NodeSetSpec) int {
	if spec.RevisionHistoryLimit == nil {
		return defaultHistory
	}
	return int(*spec.RevisionHistoryLimit)
}

func (c *Client) writeHistory(ctx context.Context, ns *v1alpha1.NodeSet, kept historyKept) error {
	doing := "keeping revision " + kept.revision + " of NodeSet " + ns.Name
	all := c.kube.AppsV1().ControllerRevisions(c.namespace)
	list, err := all.List(ctx, metav1.ListOptions{LabelSelector: labels.Set(podLabels(c.opts.Cluster, ns.Name)).String()})
	if err != nil {
		return classify(err, doing, "list "+historyRight, c.namespace)
	}
	own := slices.DeleteFunc(list.Items, func(r appsv1.ControllerRevision) bool { return !metav1.IsControlledBy(&r, ns) })
	number, there, drop := historyPlan(own, kept)
	name := revisionName(ns.Name, kept.revision)
	switch {
	case number == 0:
	case there:
		patch, err := json.Marshal(map[string]any{"revision": number})
		if err != nil {
			return err
		}
		if _, err := all.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil && !apierrors.IsNotFound(err) {
			return classify(err, doing, "patch "+historyRight, c.namespace)
		}
	default:
		record, err := historyRecord(ns, c.opts.Cluster, number)
		if err != nil {
			return err
		}
		switch _, err := all.Create(ctx, record, metav1.CreateOptions{FieldManager: fieldManager}); {
		case apierrors.IsAlreadyExists(err):
			return &Error{Class: Conflict, Doing: doing, Err: errors.New("somebody else's ControllerRevision has the name " + name)}
		case err != nil:
			return classify(err, doing, "create "+historyRight, c.namespace)
		}
	}
	for _, old := range drop {
		if err := all.Delete(ctx, old, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return classify(err, doing, "delete "+historyRight, c.namespace)
		}
	}
	return nil
}

// historyPlan says which number the newest revision is to get, 0 if it is right as it is, whether it is there, and which others are too many: the
// oldest, but not those that most pods are of.
func historyPlan(have []appsv1.ControllerRevision, kept historyKept) (number int64, there bool, drop []string) {
	var others []appsv1.ControllerRevision
	var newest, own int64
	for _, r := range have {
		newest = max(newest, r.Revision)
		switch r.Labels[v1alpha1.LabelRevision] {
		case kept.revision:
			there, own = true, r.Revision
		case kept.current:
		default:
			others = append(others, r)
		}
	}
	if own < newest || newest == 0 {
		number = newest + 1
	}
	slices.SortFunc(others, func(a, b appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range others[:max(len(others)-kept.limit, 0)] {
		drop = append(drop, r.Name)
	}
	return number, there, drop
}

func revisionName(nodeSet, revision string) string { return nodeSet + "-" + revision }

func historyRecord(ns *v1alpha1.NodeSet, cluster string, number int64) (*appsv1.ControllerRevision, error) {
	raw, err := madeFrom(&ns.Spec)
	if err != nil {
		return nil, err
	}
	name := revision(&ns.Spec)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: revisionName(ns.Name, name), Namespace: ns.Namespace,
			Labels:          labels.Merge(podLabels(cluster, ns.Name), labels.Set{v1alpha1.LabelRevision: name}),
			OwnerReferences: []metav1.OwnerReference{ownerReference(ns)},
		},
		Data:     runtime.RawExtension{Raw: raw},
		Revision: number,
	}, nil
}
