package pods

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// defaultMaxUnavailable is the CRD's, for a strategy that says nothing but its type.
const defaultMaxUnavailable = "25%"

// revision names what a NodeSet's pods are made from: the template and the shape. What else is in a pod is its own boot's (job, offering), or
// the bridge's (--conf-server). In mode Cloud features and weight are slurmctld's alone, in slurm.conf: no pod has to be replaced for them.
func revision(spec *v1alpha1.NodeSetSpec) string {
	from := *spec
	if from.Mode != v1alpha1.ModeDynamic {
		from.Shape.Features, from.Shape.Weight = nil, nil
	}
	text, err := madeFrom(&from)
	if err != nil { // of what the API server has sent as JSON
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5])
}

// madeFrom is what pods are made from, as JSON.
func madeFrom(spec *v1alpha1.NodeSetSpec) ([]byte, error) {
	return json.Marshal(struct {
		Template any            `json:"template"`
		Shape    v1alpha1.Shape `json:"shape"`
	}{spec.Template, spec.Shape})
}

// rolling is how outdated pods are replaced; nil: they are not.
func rolling(spec *v1alpha1.NodeSetSpec) *powersave.RollingUpdate {
	s := spec.UpdateStrategy
	if s == nil || s.Type != v1alpha1.UpdateRolling {
		return nil
	}
	most := maxUnavailable(s)
	if percent, is := strings.CutSuffix(most.StrVal, "%"); most.Type == intstr.String && is {
		n, err := strconv.Atoi(percent)
		if err != nil {
			return nil // checkUpdate says so
		}
		return &powersave.RollingUpdate{MaxUnavailable: n, Percent: true}
	}
	return &powersave.RollingUpdate{MaxUnavailable: most.IntValue()}
}

func maxUnavailable(s *v1alpha1.UpdateStrategy) intstr.IntOrString {
	if s.RollingUpdate == nil || s.RollingUpdate.MaxUnavailable == nil {
		return intstr.FromString(defaultMaxUnavailable)
	}
	return *s.RollingUpdate.MaxUnavailable
}

// checkUpdate reports an updateStrategy that cannot be carried out.
func checkUpdate(spec *v1alpha1.NodeSetSpec) error {
	s := spec.UpdateStrategy
	if s == nil || s.Type != v1alpha1.UpdateRolling {
		return nil
	}
	if spec.Mode == v1alpha1.ModeDynamic {
		return fmt.Errorf("spec.updateStrategy: type %s needs mode Cloud: remove it; in mode Dynamic a change reaches nodes that are made later", s.Type)
	}
	most := maxUnavailable(s)
	if r := rolling(spec); r == nil || r.MaxUnavailable < 1 || r.Percent && r.MaxUnavailable > 100 || most.Type == intstr.String && !r.Percent {
		return fmt.Errorf("spec.updateStrategy.rollingUpdate.maxUnavailable is %s: must be 1 or more, or from 1%% to 100%%", most.String())
	}
	return nil
}

// updateStatus enters the revisions into the status and returns its condition; none while nothing is known of them.
func updateStatus(status *v1alpha1.NodeSetStatus, counts *powersave.UpdateCounts) []metav1.Condition {
	if counts == nil {
		return nil
	}
	status.UpdateRevision, status.CurrentRevision = counts.Revision, counts.Current
	status.UpdatedNodes, status.OutdatedNodes, status.ReplacingNodes = int32(counts.Updated), int32(counts.Outdated), int32(counts.Replacing)
	updated := metav1.Condition{Type: v1alpha1.ConditionUpdated, Status: metav1.ConditionTrue, Reason: "UpToDate", Message: "all pods are of revision " + counts.Revision}
	if counts.Outdated > 0 {
		updated.Status, updated.Reason = metav1.ConditionFalse, string(counts.Why)
		updated.Message = shorten(fmt.Sprintf("%d of %d pods are not of revision %s: %s", counts.Outdated, counts.Outdated+counts.Updated, counts.Revision, counts.Text), maxNote)
	}
	if counts.Why == powersave.UpdateUnread {
		updated.Status = metav1.ConditionUnknown
	}
	return []metav1.Condition{updated}
}
