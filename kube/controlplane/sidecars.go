package controlplane

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods/message"
)

// staysUp is how long a container that has ended has to run until it is said to: one that ends again and again runs for moments in between.
const staysUp = time.Minute

// sidecarsReady looks at what runs beside slurmctld in its pods at the time now, and tells when to look again, 0 if only a change of a pod matters.
func sidecarsReady(pods []*corev1.Pod, now time.Time) (one metav1.Condition, again time.Duration) {
	var run, starting, trouble []string
	reason := ""
	for _, pod := range pods {
		if hostSilent(pod) {
			reason = cmp.Or(reason, "HostSilent")
			trouble = append(trouble, fmt.Sprintf("nobody knows what runs in pod %s: its host is silent", pod.Name))
			continue
		}
		for _, s := range pod.Status.ContainerStatuses {
			if s.Name == ContainerSlurmctld {
				continue
			}
			why, said, until := sidecarTrouble(&s, now)
			switch {
			case pod.DeletionTimestamp != nil:
				starting = append(starting, fmt.Sprintf("%s of pod %s, which ends", s.Name, pod.Name))
			case why != "":
				reason = cmp.Or(reason, why)
				trouble = append(trouble, fmt.Sprintf("container %s of pod %s %s", s.Name, pod.Name, said))
			case s.State.Running == nil:
				starting = append(starting, fmt.Sprintf("%s of pod %s", s.Name, pod.Name))
			case !slices.Contains(run, s.Name):
				run = append(run, s.Name)
			}
			again = sooner(again, until)
		}
	}
	one = metav1.Condition{Type: v1alpha1.ConditionSidecarsReady, Status: metav1.ConditionFalse}
	switch {
	case trouble != nil:
		one.Reason, one.Message = reason, strings.Join(trouble, "; ")
	case starting != nil:
		one.Reason, one.Message = "Starting", "not started yet: "+strings.Join(starting, ", ")
	case run == nil:
		one.Reason, one.Message = "Starting", "nothing runs beside slurmctld yet"
	default:
		one.Status, one.Reason, one.Message = metav1.ConditionTrue, "Run", "beside slurmctld run "+strings.Join(run, ", ")
	}
	return one, again
}

// sidecarTrouble is what keeps a container from running, reason "" if nothing does that Kubernetes knows of, and when time alone may change that.
func sidecarTrouble(s *corev1.ContainerStatus, now time.Time) (reason, said string, until time.Duration) {
	if w := s.State.Waiting; w != nil && w.Message != "" && w.Reason != "CrashLoopBackOff" {
		return cmp.Or(w.Reason, "Waiting"), "waits: " + w.Message, 0
	}
	last := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	if last == nil {
		return "", "", 0
	}
	if r := s.State.Running; r != nil {
		if until = staysUp - now.Sub(r.StartedAt.Time); until <= 0 {
			return "", "", 0
		}
	}
	said = fmt.Sprintf("does not stay up; it ended last with exit code %d", last.ExitCode)
	if words := message.LastWords(last.Message); words != "" {
		said += ": " + words
	}
	return "Fails", said, until
}
