package pods

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// Observe tells what the engine needs to know of a pod.
//
// Reason and Message are empty while a pod makes its normal way, and say what holds it up or
// ended it otherwise: the scheduler's "Unschedulable", the kubelet's "ErrImagePull",
// "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError",
// "CrashLoopBackOff", "OutOfcpu", "Evicted", the runtime's "OOMKilled", "Error", "StartError". A slurmd
// that ended with status 0 is "Completed", and Failed as well: no slurmd ends by itself.
//
// A deletion timestamp outranks everything: a terminating pod is nobody's any more, whatever it does.
// A pod without a readable generation annotation has generation 0.
func Observe(p *corev1.Pod) powersave.Pod {
	generation, _ := strconv.ParseInt(p.Annotations[v1alpha1.AnnotationGeneration], 10, 64)
	seen := powersave.Pod{
		Node:       p.Name,
		NodeSet:    p.Labels[v1alpha1.LabelNodeSet],
		UID:        string(p.UID),
		Generation: generation,
		Request:    p.Annotations[v1alpha1.AnnotationRequest],
		Host:       p.Spec.NodeName,
		Created:    p.CreationTimestamp.Time,
	}
	seen.Phase, seen.Reason, seen.Message = phase(p)
	if p.DeletionTimestamp != nil {
		seen.Phase = powersave.PodTerminating
	}
	return seen
}

func phase(p *corev1.Pod) (ph powersave.PodPhase, reason, message string) {
	slurmd := containerStatus(p.Status.ContainerStatuses, v1alpha1.ContainerSlurmd)
	switch {
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
		reason, message = ending(p, slurmd)
		return powersave.PodFailed, reason, message
	case p.Status.Phase == corev1.PodUnknown || p.Status.Reason == "NodeLost":
		return powersave.PodUnknown, cmp.Or(p.Status.Reason, "NodeLost"), cmp.Or(p.Status.Message, "the host "+p.Spec.NodeName+" does not answer")
	case slurmd != nil && slurmd.State.Terminated != nil:
		// Another container keeps the pod alive; the node is gone all the same.
		reason, message = terminated(slurmd)
		return powersave.PodFailed, reason, message
	case p.Spec.NodeName == "":
		reason, message = notScheduled(p)
		return powersave.PodPending, reason, message
	case slurmd != nil && slurmd.State.Running != nil:
		if condition(p, corev1.PodReady).Status == corev1.ConditionTrue {
			return powersave.PodReady, "", ""
		}
		return powersave.PodRunning, "", ""
	}
	reason, message = notStarted(p)
	return powersave.PodScheduled, reason, message
}

// ending explains a pod that ended. The kubelet's own reason (Evicted, OutOfcpu, …) comes first;
// then an init container that failed, because slurmd never ran; then slurmd.
func ending(p *corev1.Pod, slurmd *corev1.ContainerStatus) (reason, message string) {
	if p.Status.Reason != "" {
		return p.Status.Reason, p.Status.Message
	}
	if c := condition(p, corev1.DisruptionTarget); c.Status == corev1.ConditionTrue {
		return c.Reason, c.Message
	}
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; s.State.Terminated != nil && s.State.Terminated.ExitCode != 0 && !started(slurmd) {
			return terminated(s)
		}
	}
	if slurmd != nil && slurmd.State.Terminated != nil {
		return terminated(slurmd)
	}
	return string(p.Status.Phase), cmp.Or(p.Status.Message, "the pod ended and does not say why")
}

// started reports whether a container ran at all.
func started(s *corev1.ContainerStatus) bool {
	return s != nil && s.State.Terminated != nil && !s.State.Terminated.StartedAt.IsZero()
}

func terminated(s *corev1.ContainerStatus) (reason, message string) {
	t := s.State.Terminated
	text := fmt.Sprintf("container %s ended with exit code %d", s.Name, t.ExitCode)
	if t.Signal != 0 {
		text = fmt.Sprintf("container %s was ended by signal %d", s.Name, t.Signal)
	}
	if m := strings.TrimSpace(t.Message); m != "" {
		text += ": " + m
	}
	return cmp.Or(t.Reason, "Error"), text
}

func notScheduled(p *corev1.Pod) (reason, message string) {
	if c := condition(p, corev1.PodScheduled); c.Status == corev1.ConditionFalse {
		return c.Reason, c.Message
	}
	return "", ""
}

// notStarted explains a pod that is on a host and whose slurmd does not run yet.
func notStarted(p *corev1.Pod) (reason, message string) {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			w := s.State.Waiting
			if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
				continue
			}
			message = fmt.Sprintf("container %s (image %s)", s.Name, s.Image)
			if w.Message != "" {
				message += ": " + w.Message
			}
			if t := s.LastTerminationState.Terminated; t != nil {
				message += fmt.Sprintf("; it last ended with exit code %d (%s)", t.ExitCode, t.Reason)
			}
			return w.Reason, message
		}
	}
	return "", ""
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
