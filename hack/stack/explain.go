package stack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// explainTime bounds the look at a stack that failed; the caller's context has often ended by then.
const explainTime = 10 * time.Second

// explain adds the control plane's state to a failure.
func (s *Stack) explain(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
	defer cancel()
	return fmt.Errorf("stack %s (Slurm %s) is not ready: %w\n%s", s.Options.Namespace, s.Options.SlurmVersion, cause, s.Describe(ctx))
}

// Describe tells what is known of the control plane's pod: containers, events, the last lines of the logs. It is for error
// messages, so what cannot be read is left out or said in its place.
func (s *Stack) Describe(ctx context.Context) string {
	var b strings.Builder
	pod, err := s.kube.CoreV1().Pods(s.Options.Namespace).Get(ctx, slurmctldPod, metav1.GetOptions{})
	if err != nil {
		fmt.Fprintf(&b, "pod %s: %v\n", slurmctldPod, err)
		pod = &corev1.Pod{}
	} else {
		describePod(&b, pod)
	}
	if events, err := s.kube.CoreV1().Events(s.Options.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		describeEvents(&b, events.Items)
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		s.describeLog(ctx, &b, status)
	}
	return b.String()
}

func describePod(b *strings.Builder, pod *corev1.Pod) {
	fmt.Fprintf(b, "pod %s: %s %s %s\n", pod.Name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			fmt.Fprintf(b, "  %s: %s\n", c.Type, c.Message)
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		state := "waiting"
		switch {
		case c.State.Running != nil:
			state = "running"
		case c.State.Terminated != nil:
			state = fmt.Sprintf("ended with status %d (%s)", c.State.Terminated.ExitCode, c.State.Terminated.Reason)
		case c.State.Waiting != nil:
			state = fmt.Sprintf("waiting: %s %s", c.State.Waiting.Reason, c.State.Waiting.Message)
		}
		fmt.Fprintf(b, "  container %s: %s, %d restarts\n", c.Name, state, c.RestartCount)
	}
}

// describeEvents shows the warnings, newest last.
func describeEvents(b *strings.Builder, events []corev1.Event) {
	slices.SortStableFunc(events, func(x, y corev1.Event) int { return x.LastTimestamp.Compare(y.LastTimestamp.Time) })
	for _, e := range events {
		if e.Type == corev1.EventTypeWarning {
			fmt.Fprintf(b, "event on %s %s: %s: %s\n", strings.ToLower(e.InvolvedObject.Kind), e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

func (s *Stack) describeLog(ctx context.Context, b *strings.Builder, status corev1.ContainerStatus) {
	if status.State.Waiting != nil && status.RestartCount == 0 {
		return // it never ran
	}
	log, err := s.kube.CoreV1().Pods(s.Options.Namespace).GetLogs(slurmctldPod, &corev1.PodLogOptions{
		Container: status.Name,
		TailLines: new(int64(20)),
		// A container that waits for its next start has said why in its last life.
		Previous: status.State.Waiting != nil,
	}).DoRaw(ctx)
	if err != nil {
		fmt.Fprintf(b, "log of %s: %v\n", status.Name, err)
		return
	}
	if text := strings.TrimSpace(string(log)); text != "" {
		fmt.Fprintf(b, "log of %s:\n  %s\n", status.Name, strings.ReplaceAll(text, "\n", "\n  "))
	}
}
