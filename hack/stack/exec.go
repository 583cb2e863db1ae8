package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

// ExitError says that a command ran and failed.
type ExitError struct {
	Command []string
	Status  int
	Stderr  string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: exit status %d: %s", strings.Join(e.Command, " "), e.Status, strings.TrimSpace(e.Stderr))
}

// Exec runs a command in a container of the control plane's pod, as that container's user: Slurm's client programs in
// ContainerSlurmctld run as SlurmUser. A command that fails gives an *ExitError.
func (s *Stack) Exec(ctx context.Context, container string, command ...string) (stdout, stderr string, err error) {
	return s.ExecInput(ctx, nil, container, command...)
}

// ExecInput is Exec with something on standard input, a batch script for instance.
func (s *Stack) ExecInput(ctx context.Context, stdin io.Reader, container string, command ...string) (stdout, stderr string, err error) {
	return s.ExecPod(ctx, slurmctldPod, stdin, container, command...)
}

// ExecPod is ExecInput in any pod of the stack's namespace. In ContainerSlurmctld a shell that stays runs the command, see shell.go.
func (s *Stack) ExecPod(ctx context.Context, pod string, stdin io.Reader, container string, command ...string) (stdout, stderr string, err error) {
	if container == ContainerSlurmctld {
		return s.runInShell(ctx, pod, stdin, container, command)
	}
	executor, err := s.executor(pod, container, stdin != nil, command...)
	if err != nil {
		return "", "", err
	}
	var out, errOut bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: &errOut})
	if exit, ok := errors.AsType[exec.ExitError](err); ok {
		err = &ExitError{Command: command, Status: exit.ExitStatus(), Stderr: errOut.String()}
	} else if err != nil {
		err = fmt.Errorf("exec of %s in %s/%s: %w", strings.Join(command, " "), pod, container, err)
	}
	return out.String(), errOut.String(), err
}

func (s *Stack) executor(pod, container string, stdin bool, command ...string) (remotecommand.Executor, error) {
	request := s.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.Options.Namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: command, Stdin: stdin, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(s.config, "GET", request.URL().String())
	if err != nil {
		return nil, fmt.Errorf("preparing exec in %s/%s: %w", pod, container, err)
	}
	return executor, nil
}

// Signal sends a signal (a name without SIG) to a process of the control plane's pod: slurmctld or a bridge. Kubernetes starts a
// container that ended again, after a wait when it happens often.
func (s *Stack) Signal(ctx context.Context, signal, container string) error {
	const bridgeOn = "^[^ ]*slurmtide bridge .*--spool="
	pattern, ok := map[string]string{
		ContainerSlurmctld: "^slurmctld -D", ContainerBridge: bridgeOn + spoolDir + "( |$)", ContainerBridge2: bridgeOn + SecondSpool + "( |$)",
	}[container]
	if !ok {
		return fmt.Errorf("no way to signal %q: only %s and the bridges run as the user who sends", container, ContainerSlurmctld)
	}
	// The pod's processes are one namespace, see objects.go. Eldest: a child that is about to run a program still looks like its parent.
	if _, _, err := s.Exec(ctx, ContainerSlurmctld, "pkill", "-"+signal, "--oldest", "-f", pattern); err != nil {
		return fmt.Errorf("signalling %s: %w", container, err)
	}
	return nil
}
