package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pingSlurmrestd asks slurmrestd for slurmctld's pulse with a fresh token, in bash alone: the image has no HTTP client.
// v0.0.42 is the one API version that both Slurm versions speak.
const pingSlurmrestd = `set -e
token=$(scontrol token lifespan=60)
exec 3<>/dev/tcp/127.0.0.1/6820
printf 'GET /slurm/v0.0.42/ping/ HTTP/1.1\r\nHost: localhost\r\nX-SLURM-USER-TOKEN: %s\r\nConnection: close\r\n\r\n' "${token#SLURM_JWT=}" >&3
read -r status <&3
case $status in *' 200 '*) ;; *) { echo "slurmrestd answers $status"; cat <&3; } >&2; exit 1 ;; esac
`

// WaitReady waits until slurmctld and slurmrestd answer and the bridge's container runs. Errors carry what helps to find the cause:
// the pod's state, its events and the last lines of every container's log. Give ctx a deadline.
func (s *Stack) WaitReady(ctx context.Context) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	var last error
	for {
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		// What the last complete look said is worth more than that time ran out in the middle of one.
		if ctx.Err() == nil {
			last = err
		}
		if hopeless, ok := errors.AsType[*hopelessError](err); ok {
			return s.explain(ctx, hopeless)
		}
		select {
		case <-ctx.Done():
			return s.explain(ctx, errors.Join(last, ctx.Err()))
		case <-ticker.C:
		}
	}
}

// hopelessError is a state that waiting does not improve.
type hopelessError struct{ reason string }

func (e *hopelessError) Error() string { return e.reason }

// ready returns nil when everything answers, or what does not.
func (s *Stack) ready(ctx context.Context) error {
	pod, err := s.kube.CoreV1().Pods(s.Options.Namespace).Get(ctx, slurmctldPod, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("looking for the control plane's pod: %w", err)
	}
	if err := containersRun(pod, containerNames(s.Options)); err != nil {
		return err
	}
	// `scontrol ping` exits 0 also when it finds slurmctld down.
	out, _, err := s.Exec(ctx, ContainerSlurmctld, "scontrol", "ping")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "is UP") {
		return fmt.Errorf("slurmctld does not answer: %s", strings.TrimSpace(out))
	}
	if _, _, err := s.Exec(ctx, ContainerSlurmctld, "timeout", "5", "bash", "-c", pingSlurmrestd); err != nil {
		return fmt.Errorf("slurmrestd does not answer: %w", err)
	}
	return nil
}

// Waiting reasons that a local image or a wrong manifest will not leave.
var hopelessReasons = []string{"ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}

// hopelessRestarts is how often a container may end before it counts as broken: the bridge or slurmrestd may be too early once.
const hopelessRestarts = 3

// containersRun returns nil when all of the containers run.
func containersRun(pod *corev1.Pod, names []string) error {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := status.State.Waiting; w != nil && slices.Contains(hopelessReasons, w.Reason) {
			return &hopelessError{fmt.Sprintf("container %s cannot start: %s: %s (is image %s loaded into the cluster?)", status.Name, w.Reason, w.Message, status.Image)}
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if w := status.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" && status.RestartCount >= hopelessRestarts {
			return &hopelessError{fmt.Sprintf("container %s ended %d times", status.Name, status.RestartCount+1)}
		}
	}
	for _, name := range names {
		i := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == name })
		if i < 0 || pod.Status.ContainerStatuses[i].State.Running == nil {
			return fmt.Errorf("container %s does not run yet", name)
		}
	}
	return nil
}
