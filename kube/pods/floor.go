package pods

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// setFloor takes over how many nodes are to be up, and when.
func setFloor(set *powersave.NodeSet, ns *v1alpha1.NodeSet) {
	set.Floor, set.FloorWas, set.MaxPoweredUp = int(value(ns.Spec.Replicas)), floorWas(ns), int(value(ns.Spec.MaxPoweredUp))
	if ns.Status.Floor != nil {
		set.SuspendTimeWas = time.Duration(ns.Status.Floor.SuspendTimeSeconds) * time.Second
	}
	for _, w := range ns.Spec.ReplicaWindows {
		if starts, err := schedule(w); err == nil { // else checkWindows says so
			set.Windows = append(set.Windows, powersave.FloorWindow{Schedule: starts, Duration: w.Duration.Duration, Replicas: int(w.Replicas)})
		}
	}
}

// checkWindows reports windows that never open.
func checkWindows(spec *v1alpha1.NodeSetSpec) error {
	var problems []error
	for i, w := range spec.ReplicaWindows {
		starts, err := schedule(w)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("spec.replicaWindows[%d]: start %q, timeZone %q: %w", i, w.Start, w.TimeZone, err))
		case starts.Next(time.Unix(0, 0)).IsZero():
			problems = append(problems, fmt.Errorf("spec.replicaWindows[%d]: there is no day like that of start %q", i, w.Start))
		case w.Duration.Duration < time.Minute:
			problems = append(problems, fmt.Errorf("spec.replicaWindows[%d]: duration must be 1m or more", i))
		}
	}
	return errors.Join(problems...)
}

// floorWas is the floor that the status says is being kept.
func floorWas(ns *v1alpha1.NodeSet) int {
	if ns.Status.Floor == nil {
		return 0
	}
	return int(ns.Status.Floor.Wanted)
}

// floorStatus enters the floor into the status and returns its condition; none for a NodeSet that never had a floor.
func floorStatus(status *v1alpha1.NodeSetStatus, counts *powersave.FloorCounts) []metav1.Condition {
	reached := metav1.Condition{Type: v1alpha1.ConditionFloorReached, Status: metav1.ConditionTrue, Reason: "NoFloor", Message: "no nodes are wanted but those that jobs need"}
	status.Floor = nil
	switch {
	case counts == nil:
		if meta.FindStatusCondition(status.Conditions, reached.Type) == nil {
			return nil
		}
		return []metav1.Condition{reached}
	case counts.Why == powersave.FloorUnread:
		reached.Status, reached.Reason = metav1.ConditionUnknown, string(counts.Why)
		reached.Message = shorten(fmt.Sprintf("%d of %d nodes serve, as far as is known: %s", counts.Held, counts.Wanted, counts.Text), maxNote)
	case counts.Held < counts.Wanted:
		reached.Status, reached.Reason = metav1.ConditionFalse, string(counts.Why)
		reached.Message = shorten(fmt.Sprintf("%d of %d nodes serve: %s", counts.Held, counts.Wanted, cmp.Or(counts.Text, "others are booting")), maxNote)
	case counts.Wanted > 0:
		reached.Reason, reached.Message = "Held", fmt.Sprintf("%d of %d nodes serve", counts.Held, counts.Wanted)
	}
	if s := counts.SuspendTimeSeconds; counts.Wanted > 0 && s > 0 && time.Duration(s)*time.Second < powersave.SuspendTimeSafe {
		const safe = int(powersave.SuspendTimeSafe / time.Second)
		reached.Message = shorten(fmt.Sprintf("%s; SuspendTime is %d s: below %d s Slurm's power saving may take nodes of the floor now and then, when slurmctld or slurmrestd is slow. "+
			"Set SuspendTime=%d or more (a partition's too), or SuspendExcNodes=", reached.Message, s, safe, safe), maxNote)
	}
	status.Floor = &v1alpha1.FloorStatus{
		Wanted: int32(counts.Wanted), Held: int32(counts.Held), Reason: string(counts.Why), Ahead: int32(counts.Ahead), SuspendTimeSeconds: counts.SuspendTimeSeconds,
	}
	return []metav1.Condition{reached}
}
