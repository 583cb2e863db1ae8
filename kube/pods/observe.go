package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods/message"
	"github.com/slurmtide/slurmtide/powersave"
)

// Observe tells what the engine needs to know of a pod, from the pod alone. What events tell of it
// besides, a Client adds.
//
// Reason, Message and Trouble are empty while a pod makes its normal way, and say what holds it up or
// ended it otherwise: the scheduler's "Unschedulable", the kubelet's "ErrImagePull",
// "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError",
// "CrashLoopBackOff", "OutOfcpu", "Evicted", the runtime's "OOMKilled", "Error", "StartError". A slurmd
// that ended with status 0 is "Completed", and Failed as well: no slurmd ends by itself.
//
// A deletion timestamp outranks everything: a terminating pod is nobody's any more, whatever it does, though jobs may run on in it until
// then. Its Trouble is TroubleLost if Kubernetes took it, and none otherwise.
// A pod without a readable generation annotation has generation 0.
func Observe(p *corev1.Pod) powersave.Pod {
	generation, _ := strconv.ParseInt(p.Annotations[v1alpha1.AnnotationGeneration], 10, 64)
	seen := powersave.Pod{
		Node:       p.Name,
		NodeSet:    p.Labels[v1alpha1.LabelNodeSet],
		Offering:   p.Labels[v1alpha1.LabelOffering],
		UID:        string(p.UID),
		Generation: generation,
		Request:    p.Annotations[v1alpha1.AnnotationRequest],
		Room:       p.Annotations[v1alpha1.AnnotationConsumeProvisioningRequest],
		Host:       p.Spec.NodeName,
		Created:    p.CreationTimestamp.Time,
		Busy:       p.Labels[v1alpha1.LabelBusy] == busy,
		Revision:   p.Labels[v1alpha1.LabelRevision],
		Dynamic:    p.Labels[v1alpha1.LabelMode] == string(v1alpha1.ModeDynamic),
	}
	ph, v := phase(p)
	seen.Phase = ph
	taken := condition(p, corev1.DisruptionTarget)
	if taken.Status == corev1.ConditionTrue && (v.trouble == powersave.TroubleNone || v.trouble == powersave.TroubleCrash && p.Status.Reason == "") {
		v = verdict{cmp.Or(taken.Reason, string(corev1.DisruptionTarget)), taken.Message, powersave.TroubleLost}
	}
	if p.DeletionTimestamp != nil {
		seen.Phase, seen.Ends = powersave.PodTerminating, p.DeletionTimestamp.Time
		if v.trouble != powersave.TroubleLost {
			v.trouble = powersave.TroubleNone
		}
	}
	seen.Reason, seen.Message, seen.Trouble = v.reason, message.Sentence(v.message), v.trouble
	return seen
}

// verdict is what is wrong with a pod: a CamelCase reason, words for people, and the class.
type verdict struct {
	reason, message string
	trouble         powersave.Trouble
}

func phase(p *corev1.Pod) (powersave.PodPhase, verdict) {
	slurmd := containerStatus(p.Status.ContainerStatuses, v1alpha1.ContainerSlurmd)
	switch {
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
		return powersave.PodFailed, ending(p, slurmd)
	case p.Status.Phase == corev1.PodUnknown || p.Status.Reason == "NodeLost":
		return powersave.PodUnknown, verdict{
			cmp.Or(p.Status.Reason, "NodeLost"), cmp.Or(p.Status.Message, "the host "+p.Spec.NodeName+" does not answer"), powersave.TroubleLost,
		}
	case slurmd != nil && slurmd.State.Terminated != nil:
		// Another container keeps the pod alive; the node is gone all the same.
		return powersave.PodFailed, terminated(slurmd)
	case p.Spec.NodeName == "":
		return powersave.PodPending, notScheduled(p)
	case slurmd != nil && slurmd.State.Running != nil:
		if condition(p, corev1.PodReady).Status == corev1.ConditionTrue {
			return powersave.PodReady, verdict{}
		}
		return powersave.PodRunning, verdict{}
	}
	return powersave.PodScheduled, notStarted(p)
}

// ending explains a pod that ended. The kubelet's own reason (Evicted, OutOfcpu, …) comes first;
// then an init container that failed, because slurmd never ran; then slurmd.
func ending(p *corev1.Pod, slurmd *corev1.ContainerStatus) verdict {
	if p.Status.Reason != "" {
		return verdict{p.Status.Reason, p.Status.Message, endTrouble(p.Status.Reason, p.Status.Message)}
	}
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; s.State.Terminated != nil && s.State.Terminated.ExitCode != 0 && !started(slurmd) {
			return terminated(s)
		}
	}
	if slurmd != nil && slurmd.State.Terminated != nil {
		return terminated(slurmd)
	}
	return verdict{string(p.Status.Phase), cmp.Or(p.Status.Message, "the pod ended and does not say why"), powersave.TroubleCrash}
}

// started reports whether a container ran at all.
func started(s *corev1.ContainerStatus) bool {
	return s != nil && s.State.Terminated != nil && !s.State.Terminated.StartedAt.IsZero()
}

func terminated(s *corev1.ContainerStatus) verdict {
	t := s.State.Terminated
	text := fmt.Sprintf("container %s ended with exit code %d", s.Name, t.ExitCode)
	if t.Signal != 0 {
		text = fmt.Sprintf("container %s was ended by signal %d", s.Name, t.Signal)
	}
	if m := message.LastWords(t.Message); m != "" {
		text += ": " + m
	}
	return verdict{cmp.Or(t.Reason, "Error"), text, containerTrouble(t)}
}

func notScheduled(p *corev1.Pod) verdict {
	if c := condition(p, corev1.PodScheduled); c.Status == corev1.ConditionFalse {
		return verdict{c.Reason, c.Message, schedulingTrouble(c.Reason, c.Message)}
	}
	return verdict{}
}

// notStarted explains a pod that is on a host and whose slurmd does not run yet.
func notStarted(p *corev1.Pod) verdict {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			w := s.State.Waiting
			if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
				continue
			}
			message := fmt.Sprintf("container %s (image %s)", s.Name, s.Image)
			if w.Message != "" {
				message += ": " + w.Message
			}
			if t := s.LastTerminationState.Terminated; t != nil {
				message += fmt.Sprintf("; it last ended with exit code %d (%s)", t.ExitCode, t.Reason)
			}
			return verdict{w.Reason, message, settled(waitingTrouble[w.Reason], w.Message)}
		}
	}
	return verdict{}
}

// sandboxReady reports whether the pod's volumes and sandbox are there, and only containers may be missing.
func sandboxReady(p *corev1.Pod) bool {
	return condition(p, corev1.PodReadyToStartContainers).Status == corev1.ConditionTrue ||
		slices.ContainsFunc(p.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Waiting == nil })
}

func containerStatus(all []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}
