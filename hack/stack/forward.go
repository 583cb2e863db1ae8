package stack

import (
	"context"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Forward makes a port of the control plane's pod reachable on this host's loopback until ctx is done, and returns the address.
// Ports that listen on the pod's loopback only can be reached as well. A connection that the pod refuses, because nobody listens there yet or the container
// starts again, is closed; the next one is tried anew.
func (s *Stack) Forward(ctx context.Context, port int) (address string, err error) {
	return s.ForwardPod(ctx, slurmctldPod, port)
}

// ForwardPod does the same for any pod of the namespace.
func (s *Stack) ForwardPod(ctx context.Context, pod string, port int) (address string, err error) {
	local, ended, err := s.forward(ctx, pod, 0, port)
	if err != nil {
		return "", err
	}
	// client-go gives the whole forward up with the first connection that the pod refuses.
	go func() {
		<-ended
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if _, ended, err := s.forward(ctx, pod, local, port); err == nil {
				<-ended
			}
		}, pollEvery)
	}()
	return fmt.Sprintf("127.0.0.1:%d", local), nil
}

// forward makes port of the pod reachable as the port local of the loopback, 0 for any; ended is closed once it no longer is.
func (s *Stack) forward(ctx context.Context, pod string, local, port int) (listening int, ended <-chan struct{}, err error) {
	transport, upgrader, err := spdy.RoundTripperFor(s.config)
	if err != nil {
		return 0, nil, fmt.Errorf("preparing port forward: %w", err)
	}
	url := s.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.Options.Namespace).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	ready := make(chan struct{})
	ports := []string{fmt.Sprintf("%d:%d", local, port)}
	forward, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, ports, ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		return 0, nil, fmt.Errorf("preparing port forward: %w", err)
	}
	done, failed := make(chan struct{}), error(nil)
	go func() {
		defer close(done)
		failed = forward.ForwardPorts()
	}()
	select {
	case <-ready:
	case <-done:
		return 0, nil, fmt.Errorf("forwarding port %d: %w", port, failed)
	}
	forwarded, err := forward.GetPorts()
	if err != nil {
		return 0, nil, fmt.Errorf("forwarding port %d: %w", port, err)
	}
	return int(forwarded[0].Local), done, nil
}

// JWTKey returns the key that tokens for slurmrestd are signed with.
func (s *Stack) JWTKey(ctx context.Context) ([]byte, error) {
	secret, err := s.kube.CoreV1().Secrets(s.Options.Namespace).Get(ctx, secretJWTKey, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the token key: %w", err)
	}
	return secret.Data[jwtKey], nil
}
