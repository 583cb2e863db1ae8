package controlplane

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane/inplace"
	"github.com/slurmtide/slurmtide/kube/pods/message"
)

// maxMessage is what a condition's message may have, in bytes; the API server takes 32768.
const maxMessage = 4096

// maxNote is what an Event's note may have; the API server takes 1024.
const maxNote = 1000

// Problem is why an object cannot be carried out. Reason is a word for programs.
type Problem struct{ Reason, Message string }

func (p *Problem) Error() string { return p.Message }

// SeenController is what became of a Controller so far.
type SeenController struct {
	Problem *Problem // nil: it can be carried out
	// HostKeys is what is wrong with the host keys of a NodeSet; the Controller is carried out.
	HostKeys *Problem
	Volume   *Problem // why the claim for its state has another size than is asked for
	Found    []string // Secrets with its keys that were there before it
	// Unbound is why the claim for its state has no volume, while its pod waits for a host; "" if that is not why.
	Unbound string
	// Uncreated is why there is no pod of slurmctld, "" if nobody has said so.
	Uncreated string
	Hash      string // of the configuration that it asks for; "" with a Problem
	// Pods are slurmctld's, the first one's and its backups', as far as there are any.
	Pods []*corev1.Pod
	// NodesGo says that nodes are in the configuration for no longer than they have pods.
	NodesGo bool
	// Sidecars is the condition of what runs beside slurmctld.
	Sidecars metav1.Condition
	// Lacks is why the slurmdbd of its Accounting does not answer; "" if it does, or if there is none.
	Lacks string
}

// reportOf is what the pod says of its configurations.
func reportOf(pod *corev1.Pod) (r inplace.Report) {
	if pod != nil {
		_ = json.Unmarshal([]byte(pod.Annotations[inplace.Annotation]), &r) // what cannot be read says nothing
	}
	return r
}

// ControllerStatus is the status that follows.
func ControllerStatus(c *v1alpha1.Controller, seen SeenController) v1alpha1.ControllerStatus {
	s := *c.Status.DeepCopy()
	s.ObservedGeneration, s.ClusterName = c.Generation, ClusterName(c)
	set := func(one metav1.Condition) { setCondition(&s.Conditions, one, c.Generation) }
	well := "the Controller can be used"
	if len(seen.Found) > 0 {
		well += "; Secrets that were there before it and stay without it have its keys: " + strings.Join(seen.Found, ", ")
	}
	set(accepted(cmp.Or(seen.Problem, seen.HostKeys), well))
	if c.Spec.External != nil {
		set(metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionUnknown, Reason: "External", Message: "slurmctld runs elsewhere"})
		return s
	}
	pod, told := podInControl(c, seen.Pods)
	one := waitsForAccounting(available(pod, seen.Uncreated), seen.Lacks)
	if seen.Unbound != "" {
		one.Message += "; " + seen.Unbound
	}
	set(one)
	s.InControl = ""
	if c.Spec.Backups > 0 {
		if told {
			s.InControl = pod.Name
		}
		set(backupsReady(c, seen.Pods, s.InControl))
	} else {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionBackupsReady)
	}
	if seen.Volume != nil {
		set(metav1.Condition{Type: v1alpha1.ConditionVolumeAsWanted, Status: metav1.ConditionFalse, Reason: seen.Volume.Reason, Message: seen.Volume.Message})
	} else if seen.Problem == nil {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionVolumeAsWanted)
	}
	report := reportOf(pod)
	if report.InForce != "" {
		s.ConfigInForce = report.InForce
	}
	set(configInForce(seen, report))
	set(seen.Sidecars)
	return s
}

func accepted(p *Problem, well string) metav1.Condition {
	if p != nil {
		return metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: p.Reason, Message: p.Message}
	}
	return metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Valid", Message: well}
}

func configInForce(seen SeenController, r inplace.Report) metav1.Condition {
	one := metav1.Condition{Type: v1alpha1.ConditionConfigInForce, Status: metav1.ConditionFalse}
	stays := ""
	if r.InForce != "" {
		stays = "; the configuration before it stays in force"
	}
	switch {
	case seen.Problem != nil:
		one.Reason, one.Message = "NotMade", "there is no new configuration: "+seen.Problem.Message+stays
	case r.Rejected == seen.Hash && seen.Hash != "":
		one.Reason, one.Message = "Rejected", "slurmctld refuses the configuration: "+r.Error+stays
	case r.InForce == seen.Hash && seen.Hash != "" && len(behind(seen.Pods, seen.Hash)) > 0:
		one.Reason, one.Message = "Pending", "slurmctld runs with the configuration; those that stand by have not all read it yet: "+strings.Join(behind(seen.Pods, seen.Hash), ", ")
	case r.InForce == seen.Hash && seen.Hash != "" && r.Behind+r.NodesError != "":
		one.Reason, one.Message = "Pending", "slurmctld runs with the configuration; "+nodesBehind(r)
		if r.Late {
			one.Reason = "NodesBehind"
		}
	case r.InForce == seen.Hash && seen.Hash != "":
		one.Status, one.Reason, one.Message = metav1.ConditionTrue, "InForce", "slurmctld and the nodes that are up run with the configuration"
	default:
		one.Reason, one.Message = "Pending", "slurmctld has not read the configuration yet"
		if r.Rejected == "" && r.Error != "" {
			one.Message += ": " + r.Error
		}
		one.Message += stays
	}
	return one
}

// nodesBehind says of which nodes it is not known that they have read the configuration.
func nodesBehind(r inplace.Report) string {
	switch {
	case r.NodesError != "":
		return "whether its nodes do is not known: " + r.NodesError
	case !r.Late:
		return "slurmd has not read it yet on " + r.Behind
	}
	said := "slurmd has not read it on " + r.Behind
	if r.Silent != "" {
		said += "; no answer from " + r.Silent
	}
	return said + ": see its log, or power the node down (scontrol update nodename=NAME state=power_down_asap), since slurmd reads it when it starts"
}

// unschedulable is the reason while the scheduler finds no host for a pod.
const unschedulable = "Unschedulable"

// available looks at slurmctld's pod. uncreated is why there is none.
func available(pod *corev1.Pod, uncreated string) metav1.Condition {
	one := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse}
	if pod == nil {
		one.Reason, one.Message = withoutPod("slurmctld", uncreated)
		return one
	}
	if ready(pod, ContainerSlurmctld) {
		one.Status, one.Reason, one.Message = metav1.ConditionTrue, "Answers", "slurmctld answers"
		return one
	}
	if reason, message := trouble(pod, ContainerSlurmctld); reason != "" {
		one.Reason, one.Message = reason, message
		return one
	}
	one.Reason, one.Message = "Starting", fmt.Sprintf("slurmctld in pod %s does not answer yet", pod.Name)
	return one
}

// trouble is what keeps a pod from running, "" if nothing does that Kubernetes knows of. main is the container that matters.
func trouble(pod *corev1.Pod, main string) (reason, why string) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return unschedulable, fmt.Sprintf("pod %s: %s", pod.Name, c.Message)
		}
	}
	for _, s := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
		ended := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
		said := ""
		if ended != nil && ended.ExitCode != 0 {
			said = fmt.Sprintf(" (exit code %d): %s", ended.ExitCode, message.LastWords(ended.Message))
		}
		switch w := s.State.Waiting; {
		case w != nil && (w.Reason == "CrashLoopBackOff" || s.Name == main && ended != nil):
			return "Fails", fmt.Sprintf("container %s of pod %s ends again and again%s", s.Name, pod.Name, said)
		case w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating":
			return cmp.Or(w.Reason, "Waiting"), fmt.Sprintf("container %s of pod %s: %s", s.Name, pod.Name, w.Message)
		case s.Name == main && s.State.Terminated != nil:
			return "Fails", fmt.Sprintf("container %s of pod %s has ended%s", s.Name, pod.Name, said)
		}
	}
	return "", ""
}

// RestApiStatus is the status that follows. d is nil if there is no Deployment yet.
//
//nolint:revive // as the kind
func RestApiStatus(r *v1alpha1.RestApi, problem *Problem, d *appsv1.Deployment, pods []*corev1.Pod) v1alpha1.RestApiStatus {
	s := *r.Status.DeepCopy()
	s.ObservedGeneration = r.Generation
	s.Selector = labels.Set(restApiLabels(r)).String()
	set := func(one metav1.Condition) { setCondition(&s.Conditions, one, r.Generation) }
	set(accepted(problem, "the RestApi can be used"))
	one := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: "NoPods", Message: "there are no pods of slurmrestd yet"}
	if d != nil {
		s.Replicas = d.Status.Replicas
		one = replicasAnswer(d, pods, "answer")
	}
	set(one)
	return s
}

// replicasAnswer looks at a Deployment and its pods, none of whose containers ends by itself; do is what they do when all is well.
func replicasAnswer(d *appsv1.Deployment, pods []*corev1.Pod, do string) metav1.Condition {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	one := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: "Starting", Message: fmt.Sprintf("%d of %d %s", d.Status.ReadyReplicas, want, do)}
	if d.Status.ReadyReplicas >= want {
		one.Status, one.Reason = metav1.ConditionTrue, "Answers"
	}
	reason, why := CannotCreate, unmade(d)
	for _, pod := range pods {
		if why == "" && pod.DeletionTimestamp == nil {
			reason, why = replicaTrouble(pod)
		}
	}
	if why == "" {
		return one
	}
	if one.Status != metav1.ConditionTrue {
		one.Reason = reason
	}
	one.Message += "; " + why
	return one
}

// replicaTrouble is what keeps a pod from running, "" if nothing does that Kubernetes knows of.
func replicaTrouble(pod *corev1.Pod) (reason, why string) {
	if reason, why = trouble(pod, ""); reason != "" {
		return reason, why
	}
	for _, s := range pod.Status.ContainerStatuses {
		ended := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
		if !s.Ready && ended != nil && ended.ExitCode != 0 {
			return "Fails", fmt.Sprintf("container %s of pod %s ends again and again (exit code %d): %s", s.Name, pod.Name, ended.ExitCode, message.LastWords(ended.Message))
		}
	}
	return "", ""
}

func setCondition(all *[]metav1.Condition, one metav1.Condition, generation int64) {
	one.ObservedGeneration = generation
	one.Message = shorten(one.Message, maxMessage)
	meta.SetStatusCondition(all, one)
}

// shorten cuts s to at most limit bytes, between characters.
func shorten(s string, limit int) string {
	const mark = "..."
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(mark)], "") + mark
}
