package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/events"
	"github.com/slurmtide/slurmtide/powersave"
)

const (
	fieldManager = "slurmtide"
	// maxNote is what the API server accepts in an event, in bytes.
	maxNote = 1024
)

// statusKey is all that a status is made of.
type statusKey struct {
	uid    types.UID
	counts powersave.NodeSetCounts
}

// UpdateStatus writes the counts into the status of the NodeSet they name, with conditions that say
// whether the NodeSet is accepted, whether Slurm knows its nodes, whether its floor is reached and, if the breakers are known,
// whether boots get room and go well. It makes no request when nothing has changed, and none for a NodeSet that is gone.
func (c *Client) UpdateStatus(ctx context.Context, counts powersave.NodeSetCounts) error {
	ns, missing := c.nodeSet(counts.Name)
	if missing != nil {
		if missing.Class == Invalid {
			return nil
		}
		return missing
	}
	if counts.Generation > ns.Generation { // of another one, that had the name before
		return nil
	}
	counts.Generation = cmp.Or(counts.Generation, ns.Generation)
	c.keepHistory(ctx, ns, counts.Update)
	key := statusKey{uid: ns.UID, counts: counts}
	c.mu.Lock()
	unchanged := reflect.DeepEqual(c.written[counts.Name], key)
	ns, others := newest(ns, c.left[counts.Name])
	c.mu.Unlock()
	if unchanged && !others {
		return nil
	}
	status := c.newStatus(ns, counts)
	if !equality.Semantic.DeepEqual(status, &ns.Status) {
		doing := "writing the status of NodeSet " + counts.Name
		patch, err := statusPatch(status)
		if err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
		answer, err := c.tide.SlurmtideV1alpha1().NodeSets(c.namespace).Patch(ctx, counts.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: fieldManager}, "status")
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return classify(err, doing, "patch nodesets.slurmtide.io/status", c.namespace)
		}
		c.warnOfProblem(ns, status)
		ns = answer
	}
	c.mu.Lock()
	c.written[counts.Name], c.left[counts.Name] = key, ns
	c.mu.Unlock()
	return nil
}

// warnOfProblem records an Event for what keeps a NodeSet from being used, when it is found and when it becomes something else.
func (c *Client) warnOfProblem(ns *v1alpha1.NodeSet, status *v1alpha1.NodeSetStatus) {
	was, is := meta.FindStatusCondition(ns.Status.Conditions, v1alpha1.ConditionAccepted), meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted)
	if is.Status == metav1.ConditionFalse && (was == nil || was.Status != is.Status || was.Message != is.Message) {
		c.NodeSetEvent(ns.Name, corev1.EventTypeWarning, "NotAccepted", "Check", is.Message)
	}
}

// newest is the NodeSet as the watch has it, with the status as we left it if the watch does not know that yet: compared with an older
// one, a status that is as it was before would pass for written. others: somebody else has written it since, as another bridge that led.
func newest(watched, left *v1alpha1.NodeSet) (set *v1alpha1.NodeSet, others bool) {
	if left == nil || left.UID != watched.UID {
		return watched, false
	}
	age, err := resourceversion.CompareResourceVersion(watched.ResourceVersion, left.ResourceVersion)
	if err != nil || age >= 0 {
		return watched, err == nil && !equality.Semantic.DeepEqual(watched.Status, left.Status)
	}
	behind := *watched
	behind.ResourceVersion, behind.Status = left.ResourceVersion, left.Status
	return &behind, false
}

// statusPatch is a merge patch that also removes what the status no longer has.
func statusPatch(status *v1alpha1.NodeSetStatus) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, err
	}
	for name, optional := range map[string][]string{
		"breaker": {"state", "class", "reason", "retryTime", "failures", "tries", "specGeneration", "specHash"}, "floor": {"ahead"},
		"boots": {"p95Seconds", "recentMilliseconds"}, "offerings": nil,
		"updateRevision": nil, "currentRevision": nil, "updatedNodes": nil, "outdatedNodes": nil, "replacingNodes": nil,
	} {
		if fields[name] == nil {
			fields[name] = nil
		}
		if object, ok := fields[name].(map[string]any); ok { // is merged, too
			for _, key := range optional {
				if object[key] == nil {
					object[key] = nil
				}
			}
		}
	}
	return json.Marshal(map[string]any{"status": fields})
}

func (c *Client) newStatus(ns *v1alpha1.NodeSet, counts powersave.NodeSetCounts) *v1alpha1.NodeSetStatus {
	status := ns.Status.DeepCopy()
	status.ObservedGeneration = counts.Generation
	status.Nodes = int32(counts.Nodes)
	if counts.Unread == 0 { // else those of before are nearer to the truth: a bridge that has just begun would write that none is up
		status.PoweredUp, status.Replicas = int32(counts.PoweredUp), int32(counts.PoweredUp)
		status.Booting, status.Ready, status.Failed = int32(counts.Booting), int32(counts.Ready), int32(counts.Failed)
	}
	status.Selector = labels.Set(podLabels(c.opts.Cluster, ns.Name)).String()

	accepted := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Valid", Message: "the NodeSet can be used"}
	if ns.Spec.NodeNames == "" {
		accepted.Message = "the NodeSet can be used, and has no nodes yet: slurmtide controller says why in the condition HostsFollowed; where it does not run, write spec.nodeNames"
	}
	if counts.Problem != "" {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, "Invalid", shorten(counts.Problem, maxNote)
	}
	inSlurm := metav1.Condition{Type: v1alpha1.ConditionNodesInSlurm, Status: metav1.ConditionTrue, Reason: "Found", Message: "slurmctld knows every node"}
	switch {
	case counts.Stale != "":
		inSlurm.Status, inSlurm.Reason, inSlurm.Message = metav1.ConditionUnknown, string(powersave.FloorUnread), shorten(counts.Stale+": the figures are old", maxNote)
	case counts.Unknown > 0:
		inSlurm.Status, inSlurm.Reason = metav1.ConditionFalse, "Missing"
		inSlurm.Message = fmt.Sprintf("slurmctld does not know %d of %d nodes: add them to slurm.conf with State=CLOUD, or take them out of spec.nodeNames", counts.Unknown, counts.Nodes)
	case ns.Spec.Mode == v1alpha1.ModeDynamic:
		inSlurm.Reason, inSlurm.Message = "NotNeeded", "nodes register themselves"
	case counts.Unread > 0:
		inSlurm.Status, inSlurm.Reason = metav1.ConditionUnknown, string(powersave.FloorUnread)
		inSlurm.Message = fmt.Sprintf("slurmctld has not been asked yet whether it knows %d of %d nodes", counts.Unread, counts.Nodes)
	}
	conditions := []metav1.Condition{accepted, inSlurm}
	if counts.Breakers != nil {
		conditions = append(conditions, setBreakers(status, ns, &counts)...)
	}
	floor := status.Floor
	conditions = append(conditions, floorStatus(status, counts.Floor)...)
	if counts.Unread > 0 && counts.Unread == counts.Nodes && floor != nil { // nothing is known of it yet, and a floor to be lowered is remembered there
		status.Floor = floor
	}
	conditions = append(conditions, updateStatus(status, counts.Update)...)
	status.Boots = bootStatus(counts.BootTimes)
	for _, condition := range conditions {
		condition.ObservedGeneration = counts.Generation
		condition.LastTransitionTime = metav1.NewTime(c.opts.Now())
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

// NodeSetEvent records an Event on a NodeSet. kind is corev1.EventTypeNormal or EventTypeWarning, reason
// and action are CamelCase ("BootFailed", "Resume"). Nothing is recorded unless Run is
// running; the API server may drop events, so nothing may depend on them.
func (c *Client) NodeSetEvent(nodeSet, kind, reason, action, note string) {
	ns, missing := c.nodeSet(nodeSet)
	if missing != nil {
		return
	}
	c.event(&corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "NodeSet",
		Namespace: c.namespace, Name: nodeSet, UID: ns.UID,
	}, kind, reason, action, note)
}

// Warn records a warning on the NodeSet and, unless uid is empty, on the pod of the node.
func (c *Client) Warn(nodeSet, node, uid, reason, text string) {
	const action = "Boot"
	if uid != "" {
		c.PodEvent(powersave.Pod{Node: node, UID: uid}, corev1.EventTypeWarning, reason, action, text)
	}
	if nodeSet != "" {
		c.NodeSetEvent(nodeSet, corev1.EventTypeWarning, reason, action, text)
	}
}

// PodEvent records an Event on a pod; see NodeSetEvent.
func (c *Client) PodEvent(pod powersave.Pod, kind, reason, action, note string) {
	c.event(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: c.namespace, Name: pod.Node, UID: types.UID(pod.UID),
	}, kind, reason, action, note)
}

func (c *Client) event(about *corev1.ObjectReference, kind, reason, action, note string) {
	c.mu.Lock()
	recorder := c.recorder
	c.mu.Unlock()
	if recorder != nil {
		recorder.Eventf(about, nil, kind, reason, action, "%s", shorten(note, maxNote))
	}
}

func (c *Client) startRecorder(ctx context.Context) (stop func(), err error) {
	recorder, end, err := events.Start(ctx, c.kube, "slurmtide.io/bridge", nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.recorder = recorder
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		c.recorder = nil
		c.mu.Unlock()
		end()
	}, nil
}

// shorten cuts s to at most limit bytes, at a character boundary.
func shorten(s string, limit int) string {
	const mark = "..."
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(mark)], "") + mark
}
