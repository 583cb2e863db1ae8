package pods

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// The CRD's defaults, for a strategy that does not say how many nodes may be out.
const (
	defaultMaxUnavailable = "25%"
	defaultMaxScheduled   = "100%"
)

// revision names what a NodeSet's pods are made from: the template, the shape, and who comes by ssh. What else is in a pod is its own boot's (job, offering), or
// the bridge's (--conf-server). In mode Cloud features and weight are slurmctld's alone, in slurm.conf: no pod has to be replaced for them.
func revision(spec *v1alpha1.NodeSetSpec) string {
	from := *spec
	if from.Mode != v1alpha1.ModeDynamic {
		from.Shape.Features, from.Shape.Weight = nil, nil
	}
	return hash(madeFrom(&from))
}

// specHash names what a NodeSet's boots depend on: all of its spec but what says how many nodes are to be up. Autoscalers write that all
// the time, and no boot that has failed goes better for it.
func specHash(spec *v1alpha1.NodeSetSpec) string {
	of := *spec
	of.Replicas, of.ReplicaWindows, of.LookAhead, of.MaxPoweredUp = nil, nil, nil, nil
	return hash(json.Marshal(of))
}

func hash(text []byte, err error) string {
	if err != nil { // of what the API server has sent as JSON
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5])
}

// madeFrom is what pods are made from, as JSON. What is not used is left out of it: a new version of Slurmtide alone makes no new revision.
func madeFrom(spec *v1alpha1.NodeSetSpec) ([]byte, error) {
	ssh := spec.SSH
	if !SSHEnabled(spec) {
		ssh = nil
	}
	return json.Marshal(struct {
		Template any                  `json:"template"`
		Shape    v1alpha1.Shape       `json:"shape"`
		SSH      *v1alpha1.NodeSetSSH `json:"ssh,omitempty"`
		v1alpha1.UserOptions
	}{spec.Template, spec.Shape, ssh, spec.UserOptions})
}

// rolling is how outdated pods are replaced; nil: they are not.
func rolling(spec *v1alpha1.NodeSetSpec) *powersave.RollingUpdate {
	_, most, replaced := maxUnavailable(spec.UpdateStrategy)
	if !replaced {
		return nil
	}
	if percent, is := strings.CutSuffix(most.StrVal, "%"); most.Type == intstr.String && is {
		n, err := strconv.Atoi(percent)
		if err != nil {
			return nil // checkUpdate says so
		}
		return &powersave.RollingUpdate{MaxUnavailable: n, Percent: true}
	}
	return &powersave.RollingUpdate{MaxUnavailable: most.IntValue()}
}

// maxUnavailable is the limit of a strategy, and the field that says it; replaced is false if the strategy leaves outdated pods alone.
func maxUnavailable(s *v1alpha1.UpdateStrategy) (field string, most intstr.IntOrString, replaced bool) {
	var given *intstr.IntOrString
	switch {
	case s == nil:
		return "", most, false
	case s.Type == v1alpha1.UpdateRolling:
		field, most = "rollingUpdate", intstr.FromString(defaultMaxUnavailable)
		if s.RollingUpdate != nil {
			given = s.RollingUpdate.MaxUnavailable
		}
	case s.Type == v1alpha1.UpdateScheduled:
		field, most = "scheduled", intstr.FromString(defaultMaxScheduled)
		if s.Scheduled != nil {
			given = s.Scheduled.MaxUnavailable
		}
	default:
		return "", most, false
	}
	if given != nil {
		most = *given
	}
	return "spec.updateStrategy." + field + ".maxUnavailable", most, true
}

// once is a beginning that does not come again.
type once time.Time

// Next implements powersave.Schedule.
func (o once) Next(t time.Time) time.Time {
	if at := time.Time(o); at.After(t) {
		return at
	}
	return time.Time{}
}

// updateWindow is when outdated pods are replaced; nil: at any time. One that cannot be read never begins.
func updateWindow(spec *v1alpha1.NodeSetSpec) (*powersave.UpdateWindow, error) {
	s := spec.UpdateStrategy
	if s == nil || s.Type != v1alpha1.UpdateScheduled {
		return nil, nil
	}
	never := &powersave.UpdateWindow{Schedule: once{}}
	const where = "spec.updateStrategy.scheduled"
	if s.Scheduled == nil {
		return never, errors.New(where + " is missing: type Scheduled needs its start and duration")
	}
	w := &powersave.UpdateWindow{Duration: s.Scheduled.Duration.Duration}
	if w.Duration < time.Minute {
		return never, fmt.Errorf("%s.duration is %s: must be 1m or more", where, w.Duration)
	}
	if at, err := time.Parse(time.RFC3339, s.Scheduled.Start); err == nil {
		if s.Scheduled.TimeZone != "" {
			return never, fmt.Errorf("%s.timeZone: remove it: the start %s has its own", where, s.Scheduled.Start)
		}
		w.Schedule = once(at)
		return w, nil
	}
	again, err := schedule(v1alpha1.ReplicaWindow{Start: s.Scheduled.Start, TimeZone: s.Scheduled.TimeZone})
	if err != nil {
		return never, fmt.Errorf("%s: start %q, timeZone %q: %w; use a time like 2026-12-01T22:00:00Z, or five fields of cron", where, s.Scheduled.Start, s.Scheduled.TimeZone, err)
	}
	if again.Next(time.Unix(0, 0)).IsZero() {
		return never, fmt.Errorf("%s: there is no day like that of start %q", where, s.Scheduled.Start)
	}
	w.Schedule = again
	return w, nil
}

// checkUpdate reports an updateStrategy that cannot be carried out.
func checkUpdate(spec *v1alpha1.NodeSetSpec) error {
	field, most, replaced := maxUnavailable(spec.UpdateStrategy)
	if !replaced {
		return nil
	}
	if spec.Mode == v1alpha1.ModeDynamic && spec.UpdateStrategy.Type == v1alpha1.UpdateScheduled {
		return errors.New("spec.updateStrategy: type Scheduled needs mode Cloud: use RollingUpdate; in mode Dynamic a node that a reservation names stays as it is")
	}
	if r := rolling(spec); r == nil || r.MaxUnavailable < 1 || r.Percent && r.MaxUnavailable > 100 || most.Type == intstr.String && !r.Percent {
		return fmt.Errorf("%s is %s: must be 1 or more, or from 1%% to 100%%", field, most.String())
	}
	_, err := updateWindow(spec)
	return err
}

// notReserved tells why an update's window is not reserved. Half a command is worse than none.
func notReserved(why string) string {
	const most = 3 * maxNote / 4
	switch {
	case why == "":
		return ""
	case len(why) > most:
		why = "the reason, and what to do, are too long for here: see the log of the bridge, \"the window of an update is not reserved in Slurm\""
	}
	return "; not reserved in Slurm: " + why
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
		refused := notReserved(counts.Refused)
		updated.Message = shorten(fmt.Sprintf("%d of %d pods are not of revision %s: %s", counts.Outdated, counts.Outdated+counts.Updated, counts.Revision, counts.Text), maxNote-len(refused)) + refused
	}
	if counts.Why == powersave.UpdateUnread {
		updated.Status = metav1.ConditionUnknown
	}
	return []metav1.Condition{updated}
}
