package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
)

const (
	diagnoseTimeout = 20 * time.Second
	diagnoseLines   = 8 // of each log
	diagnoseWidth   = 240
)

// diagnose tells what may help to find why a step failed. What cannot be read is said in its place.
func (d *demo) diagnose(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	var b strings.Builder
	section := func(title, text string, err error) {
		if err != nil {
			text += "\n" + err.Error()
		}
		fmt.Fprintf(&b, "\n--- %s\n", title)
		for line := range strings.Lines(strings.TrimSpace(text)) {
			fmt.Fprintln(&b, cut(strings.TrimRight(line, "\n"), diagnoseWidth))
		}
	}
	out, _, err := d.stack.Exec(ctx, stack.ContainerBridge, "slurmtide", "status")
	section("slurmtide status", out, err)
	out, _, err = d.stack.Exec(ctx, stack.ContainerSlurmctld, "sh", "-c", "squeue; sinfo -o '%N %T %E'")
	section("squeue and sinfo", out, err)
	pods, err := d.kube.CoreV1().Pods(d.settings.namespace).List(ctx, metav1.ListOptions{})
	if err == nil {
		out = podLines(pods.Items)
	}
	section("pods", out, err)
	for _, container := range []string{stack.ContainerBridge, stack.ContainerSlurmctld, stack.ContainerSlurmrestd} {
		log, err := d.kube.CoreV1().Pods(d.settings.namespace).
			GetLogs(controlPlanePod, &corev1.PodLogOptions{Container: container, TailLines: new(int64(diagnoseLines))}).DoRaw(ctx)
		section("last lines of "+container, string(log), err)
	}
	fmt.Fprintf(&b, "\nThe cluster stays up: look around with %s -n %s\n", d.settings.kubectl, d.settings.namespace)
	return b.String()
}

// podLines describes every pod in a line, and why it is not running.
func podLines(pods []corev1.Pod) string {
	rows := [][]string{{"NAME", "PHASE", "RESTARTS", "WHY"}}
	for _, p := range pods {
		var why []string
		var restarts int32
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			restarts += c.RestartCount
			if w := c.State.Waiting; w != nil {
				why = append(why, fmt.Sprintf("%s: %s %s", c.Name, w.Reason, w.Message))
			}
			if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
				why = append(why, fmt.Sprintf("%s: exit status %d %s", c.Name, t.ExitCode, t.Message))
			}
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
				why = append(why, c.Message)
			}
		}
		rows = append(rows, []string{p.Name, podPhase(&p), fmt.Sprint(restarts), strings.Join(why, "; ")})
	}
	return strings.Join(columns(rows), "\n")
}

// hints say what to try next.
func (d *demo) hints() string {
	kubectl := d.settings.kubectl + " -n " + d.settings.namespace
	exec := kubectl + " exec " + controlPlanePod + " -c "
	return fmt.Sprintf(`
The same in figures: %s. The cluster stays up; try

  %s get nodesets,pods
  %s%s -- sbatch --chdir=/tmp -N3 --wrap "srun hostname; sleep 60"
  %s%s -- sinfo -N -l
  %s%s -- slurmtide status
  make demo-down      # removes the cluster

`, d.settings.out, kubectl, exec, stack.ContainerSlurmctld, exec, stack.ContainerSlurmctld, exec, stack.ContainerBridge)
}
