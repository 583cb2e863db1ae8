package pods

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// savedBreakers reads what setBreakers wrote.
func savedBreakers(ns *v1alpha1.NodeSet) []powersave.BreakerRecord {
	var records []powersave.BreakerRecord
	add := func(offering string, s *v1alpha1.BreakerStatus) {
		if s.Failures == 0 && s.State != v1alpha1.BreakerBackingOff && s.State != v1alpha1.BreakerProbing {
			return
		}
		r := powersave.BreakerRecord{
			Key: powersave.BreakerKey{NodeSet: ns.Name, Offering: offering}, State: breakerStates[s.State], Class: powersave.Trouble(s.Class),
			Reason: s.Reason, Failures: int(s.Failures), Tries: int(s.Tries), Spec: s.SpecGeneration, SpecHash: s.SpecHash,
		}
		if r.SpecHash == "" && r.Spec == ns.Generation { // of a version that did not know of it
			r.SpecHash = specHash(&ns.Spec)
		}
		if s.RetryTime != nil {
			r.Until = s.RetryTime.Time
		}
		records = append(records, r)
	}
	if own := ns.Status.Breaker; own != nil {
		add("", own)
	}
	for i := range ns.Status.Offerings {
		o := &ns.Status.Offerings[i]
		add(o.Name, &o.BreakerStatus)
	}
	return records
}

var breakerStates = map[v1alpha1.BreakerState]powersave.BreakerState{
	v1alpha1.BreakerAvailable:  powersave.BreakerClosed,
	v1alpha1.BreakerBackingOff: powersave.BreakerOpen,
	v1alpha1.BreakerProbing:    powersave.BreakerHalfOpen,
}

// setBreakers enters the breakers into the status and returns the conditions that follow from them.
func setBreakers(status *v1alpha1.NodeSetStatus, ns *v1alpha1.NodeSet, counts *powersave.NodeSetCounts) []metav1.Condition {
	records := map[string]powersave.BreakerRecord{}
	for _, r := range counts.Breakers {
		records[r.Key.Offering] = r
	}
	status.Breaker, status.Offerings = nil, nil
	own, failed := records[""]
	if failed {
		s := breakerStatus(own)
		status.Breaker = &s
	}
	capacity := metav1.Condition{Type: v1alpha1.ConditionCapacityAvailable, Status: metav1.ConditionTrue, Reason: "NoFailure", Message: "no pod failed lately for lack of room"}
	healthy := metav1.Condition{Type: v1alpha1.ConditionBootsHealthy, Status: metav1.ConditionTrue, Reason: "NoFailure", Message: "boots do not keep failing"}
	if failed && own.State != powersave.BreakerClosed {
		which := &healthy
		if own.Class == powersave.TroubleCapacity || own.Class == powersave.TroubleQuota {
			which = &capacity
		}
		which.Status, which.Reason, which.Message = metav1.ConditionFalse, conditionReason(own.Class), shorten(breakerMessage(own), maxNote)
	}
	var blocked []string // what is to be said of offerings that cannot be used
	var reason string
	for _, o := range ns.Spec.Offerings {
		s := v1alpha1.OfferingStatus{Name: o.Name, Nodes: int32(counts.InUse[o.Name]), BreakerStatus: v1alpha1.BreakerStatus{State: v1alpha1.BreakerAvailable}}
		if r, failed := records[o.Name]; failed {
			s.BreakerStatus = breakerStatus(r)
			if r.State != powersave.BreakerClosed {
				blocked = append(blocked, fmt.Sprintf("offering %s: %s", o.Name, breakerMessage(r)))
				reason = conditionReason(r.Class)
			}
		}
		status.Offerings = append(status.Offerings, s)
	}
	if len(blocked) > 0 && len(blocked) == len(ns.Spec.Offerings) {
		capacity.Status, capacity.Reason = metav1.ConditionFalse, reason
		capacity.Message = shorten(strings.Join(blocked, ". "), maxNote)
	}
	return []metav1.Condition{capacity, healthy}
}

func breakerStatus(r powersave.BreakerRecord) v1alpha1.BreakerStatus {
	s := v1alpha1.BreakerStatus{
		State: v1alpha1.BreakerAvailable, Class: string(r.Class), Reason: shorten(r.Reason, maxNote),
		Failures: int32(r.Failures), Tries: int32(r.Tries), SpecGeneration: r.Spec, SpecHash: r.SpecHash,
	}
	switch r.State {
	case powersave.BreakerOpen:
		s.State = v1alpha1.BreakerBackingOff
	case powersave.BreakerHalfOpen:
		s.State = v1alpha1.BreakerProbing
	case powersave.BreakerClosed:
		return s
	}
	if !r.Until.IsZero() {
		s.RetryTime = new(metav1.NewTime(r.Until.Truncate(time.Second))) // all that the API server keeps
	}
	return s
}

func breakerMessage(r powersave.BreakerRecord) string {
	switch {
	case r.State == powersave.BreakerHalfOpen:
		return r.Reason + "; one pod tries it now"
	case r.Until.IsZero():
		return r.Reason + "; tried again when the NodeSet is changed"
	}
	return fmt.Sprintf("%s; tried again at %s", r.Reason, r.Until.UTC().Format(time.RFC3339))
}

// conditionReason is a class as a word that conditions accept.
func conditionReason(class powersave.Trouble) string {
	return cmp.Or(map[powersave.Trouble]string{
		powersave.TroubleCapacity:  "NoCapacity",
		powersave.TroubleQuota:     "QuotaExceeded",
		powersave.TroubleImage:     "BadImage",
		powersave.TroubleConfig:    "BadConfiguration",
		powersave.TroubleCrash:     "SlurmdCrashes",
		powersave.TroubleRefused:   "RegistrationRefused",
		powersave.TroubleBootstrap: "NeverRegisters",
	}[class], "Failing")
}
