package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// DefaultHostTaint is put on hosts whose hardware is bad.
const DefaultHostTaint = v1alpha1.AnnotationBadHardware + ":" + string(corev1.TaintEffectNoSchedule)

// ParseTaint reads key[=value]:Effect, as kubectl taint writes it. NoExecute is refused: it would take running jobs along.
func ParseTaint(s string) (*corev1.Taint, error) {
	name, effect, found := strings.Cut(s, ":")
	if !found {
		return nil, fmt.Errorf("taint %q has no effect: write key:NoSchedule or key=value:NoSchedule", s)
	}
	taint := &corev1.Taint{Effect: corev1.TaintEffect(effect)}
	taint.Key, taint.Value, _ = strings.Cut(name, "=")
	switch taint.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule:
	case corev1.TaintEffectNoExecute:
		return nil, fmt.Errorf("taint %q: NoExecute would end all jobs on the host: use NoSchedule, with which they run on and no new ones come", s)
	default:
		return nil, fmt.Errorf("taint %q: unknown effect %q: use NoSchedule or PreferNoSchedule", s, effect)
	}
	if problems := validation.IsQualifiedName(taint.Key); len(problems) > 0 {
		return nil, fmt.Errorf("taint %q: key %q: %s", s, taint.Key, strings.Join(problems, "; "))
	}
	if problems := validation.IsValidLabelValue(taint.Value); len(problems) > 0 {
		return nil, fmt.Errorf("taint %q: value %q: %s", s, taint.Value, strings.Join(problems, "; "))
	}
	return taint, nil
}

// hostMark is one verdict in the annotation v1alpha1.AnnotationBadHardware of a host.
type hostMark struct {
	Node   string `json:"node"` // of Slurm
	PodUID string `json:"podUID"`
	Reason string `json:"reason"`
	Time   string `json:"time"` // RFC 3339
}

const (
	hostMarksKept = 10  // the newest
	markReason    = 256 // longest reason in the annotation, in bytes
)

// TaintHost puts Options.HostTaint on the host, and who found it bad, why and when into its annotation. A verdict that
// stands there already is not acted upon again: if its taint is gone, somebody has taken it off because the host is mended.
// A host that is gone is no error.
func (c *Client) TaintHost(ctx context.Context, a powersave.TaintHost) error {
	if c.opts.HostTaint == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	var host *corev1.Node
	marked := false
	err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		host, marked, err = c.taintHost(ctx, a)
		return err
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && !marked:
		return nil
	case err != nil:
		return hostRight(classify(err, "marking host "+a.Host, "patch "+hostResource, c.namespace))
	}
	note := fmt.Sprintf("Slurm node %s was drained: %s; tainted %s", a.Node, a.Reason, c.opts.HostTaint.ToString())
	c.log.Warn("host marked for bad hardware", "host", a.Host, "node", a.Node, "reason", a.Reason, "taint", c.opts.HostTaint.ToString())
	const reason, action = "BadHardware", "Taint"
	c.event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: host.Name, UID: host.UID}, corev1.EventTypeWarning, reason, action, note)
	c.NodeSetEvent(a.NodeSet, corev1.EventTypeWarning, reason, action, "host "+a.Host+": "+note)
	return nil
}

// taintHost also says whether there was something to do.
func (c *Client) taintHost(ctx context.Context, a powersave.TaintHost) (host *corev1.Node, marked bool, err error) {
	host, err = c.kube.CoreV1().Nodes().Get(ctx, a.Host, metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	var marks []hostMark
	if text := host.Annotations[v1alpha1.AnnotationBadHardware]; text != "" && json.Unmarshal([]byte(text), &marks) != nil {
		marks = nil // not ours, or of another version
	}
	mark := hostMark{Node: a.Node, PodUID: a.UID, Reason: shorten(a.Reason, markReason), Time: c.opts.Now().UTC().Format(time.RFC3339)}
	if slices.ContainsFunc(marks, func(m hostMark) bool { return m.PodUID == mark.PodUID && m.Reason == mark.Reason }) {
		return host, false, nil
	}
	marks = append(marks, mark)
	annotation, err := json.Marshal(marks[max(0, len(marks)-hostMarksKept):])
	if err != nil {
		return nil, false, err
	}
	taints := host.Spec.Taints
	if !slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(c.opts.HostTaint) }) {
		taints = append(slices.Clone(taints), *c.opts.HostTaint)
	}
	// The resource version keeps taints that come meanwhile: a patch replaces the list.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": host.ResourceVersion, "annotations": map[string]string{v1alpha1.AnnotationBadHardware: string(annotation)},
		},
		"spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return nil, false, err
	}
	host, err = c.kube.CoreV1().Nodes().Patch(ctx, a.Host, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return host, err == nil, err
}

// CheckHostMarks asks the API server whether TaintHost may do its work. A Forbidden error names what is missing.
func (c *Client) CheckHostMarks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	missing, err := c.missing(ctx, "", Right{Resource: hostResource, Verbs: []string{"get", "patch"}})
	if err != nil || len(missing) == 0 {
		return err
	}
	return hostRight(&Error{
		Class: Forbidden, Doing: "checking the bridge's rights", Missing: missing, Err: errors.New("missing: " + strings.Join(missing, ", ")),
	})
}

// hostRight says where rights on hosts belong.
func hostRight(e *Error) *Error {
	if len(e.Missing) > 0 {
		e.Hint = "the right to get and patch nodes is missing: add it to a ClusterRole of the bridge's service account"
	}
	return e
}
