package controlplane

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// SeenAccounting is what became of an Accounting so far.
type SeenAccounting struct {
	Problem *Problem    // nil: it can be carried out
	Pod     *corev1.Pod // slurmdbd's; nil: there is none
	// Uncreated is why there is none, "" if nobody has said so.
	Uncreated string
	// Log is the end of what slurmdbd has said, the last minute of it if it answers.
	Log string
}

// ReasonDatabaseFails is why an Accounting is not available while its database is not.
const ReasonDatabaseFails = "DatabaseFails"

// AccountingStatus is the status that follows.
func AccountingStatus(a *v1alpha1.Accounting, seen SeenAccounting) v1alpha1.AccountingStatus {
	s := *a.Status.DeepCopy()
	s.ObservedGeneration = a.Generation
	set := func(one metav1.Condition) { setCondition(&s.Conditions, one, a.Generation) }
	set(accepted(seen.Problem, "the Accounting can be used"))
	if a.Spec.External != nil {
		set(metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionUnknown, Reason: "External", Message: "slurmdbd runs elsewhere"})
		return s
	}
	set(slurmdbdAvailable(a, seen))
	return s
}

// slurmdbdAvailable looks at slurmdbd's pod. slurmdbd does not end when its database is away: at its start it waits without listening, and later it listens
// and fails. So what it says counts.
func slurmdbdAvailable(a *v1alpha1.Accounting, seen SeenAccounting) metav1.Condition {
	one := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse}
	if seen.Pod == nil {
		one.Reason, one.Message = withoutPod("slurmdbd", seen.Uncreated)
		return one
	}
	running := runs(seen.Pod, ContainerSlurmdbd)
	if running {
		if said := databaseError(seen.Log); said != "" {
			one.Reason, one.Message = ReasonDatabaseFails, "slurmdbd waits for its database: "+said+remedy(a, said)
			return one
		}
	}
	if ready(seen.Pod, ContainerSlurmdbd) {
		one.Status, one.Reason, one.Message = metav1.ConditionTrue, "Answers", "slurmdbd answers"
		return one
	}
	if reason, message := trouble(seen.Pod, ContainerSlurmdbd); reason != "" {
		one.Reason, one.Message = reason, message
		return one
	}
	one.Reason, one.Message = "Starting", fmt.Sprintf("slurmdbd in pod %s does not answer yet", seen.Pod.Name)
	return one
}

// lacksKey says that an Accounting cannot be carried out because a Secret is not there.
func lacksKey(a *v1alpha1.Accounting) bool {
	if a == nil {
		return false
	}
	one := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionAccepted)
	return one != nil && one.Reason == "KeyMissing"
}

func containerStatus(pod *corev1.Pod, name string) (corev1.ContainerStatus, bool) {
	if pod != nil {
		for _, s := range pod.Status.ContainerStatuses {
			if s.Name == name {
				return s, true
			}
		}
	}
	return corev1.ContainerStatus{}, false
}

// ready tells whether a container answers.
func ready(pod *corev1.Pod, container string) bool {
	s, ok := containerStatus(pod, container)
	return ok && s.Ready && !hostSilent(pod)
}

// hostSilent tells whether nobody hears of a pod's host: then nobody takes back what was said of its containers, only the pod is no longer ready.
func hostSilent(pod *corev1.Pod) bool {
	return condition(pod, corev1.ContainersReady) == corev1.ConditionTrue && condition(pod, corev1.PodReady) == corev1.ConditionFalse
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func runs(pod *corev1.Pod, container string) bool {
	s, ok := containerStatus(pod, container)
	return ok && s.State.Running != nil
}

// connectionError is what slurmdbd says when it does not reach its database, or is not let in (mysql_common.c). Other errors of queries say nothing of that.
var connectionError = regexp.MustCompile(`error: (mysql_real_connect failed: (\d+) .*|.*mysql_query failed: (2006|2013) [^\n]*)`)

// databaseError is the last error of the connection in a log, without its time, so that the same one looks the same; "" if there is none.
func databaseError(log string) string {
	last := ""
	for line := range strings.Lines(log) {
		if m := connectionError.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			last = m[1]
		}
	}
	return last
}

// remedy says what to do about it. The numbers are MySQL's.
func remedy(a *v1alpha1.Accounting, said string) string {
	s := a.Spec.StorageConfig
	if s == nil {
		return ""
	}
	_, rest, _ := strings.Cut(said, "failed: ")
	number, _, _ := strings.Cut(rest, " ")
	switch number {
	case "2002", "2003", "2005", "2006", "2013":
		return fmt.Sprintf("; see that MariaDB or MySQL runs, and that pods reach it at %s:%d (spec.storageConfig)", s.Host, s.Port)
	case "1045", "1698":
		text := fmt.Sprintf("; give user %s of the database the password that spec.storageConfig.passwordKeyRef names, or the other way round", s.Username)
		if s.TLS == nil || s.TLS.Certificate == nil { // the server does not say which
			text += "; if it wants TLS, or a certificate, of this user, set spec.storageConfig.tls"
		}
		return text
	case "1044", "1142", "1227":
		return fmt.Sprintf("; give user %s its rights: GRANT ALL ON %s.* TO '%s'@'%%'", s.Username, s.Database, s.Username)
	case "1129", "1130":
		return fmt.Sprintf("; let user %s connect from the pods' addresses: CREATE USER '%s'@'%%'", s.Username, s.Username)
	case "2026":
		return "; see that the Secrets of spec.storageConfig.tls hold certificates and key in PEM, and that the server's are good"
	}
	return ""
}

// waitsForAccounting says so of a slurmctld that has started and does not answer: at its very first start it has no state to go by, and waits for slurmdbd
// (controller.c, _retry_init_db_conn). lacks is why slurmdbd is not there.
func waitsForAccounting(one metav1.Condition, lacks string) metav1.Condition {
	if lacks != "" && one.Reason == "Starting" {
		one.Reason, one.Message = "WaitsForAccounting", one.Message+"; the first time it needs slurmdbd for that: "+lacks
	}
	return one
}
