package stack

import (
	"context"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Forward makes a port of the control plane's pod reachable on this host's loopback until ctx is done, and returns the address.
// Ports that listen on the pod's loopback only can be reached as well.
func (s *Stack) Forward(ctx context.Context, port int) (address string, err error) {
	return s.ForwardPod(ctx, slurmctldPod, port)
}

// ForwardPod does the same for any pod of the namespace.
func (s *Stack) ForwardPod(ctx context.Context, pod string, port int) (address string, err error) {
	transport, upgrader, err := spdy.RoundTripperFor(s.config)
	if err != nil {
		return "", fmt.Errorf("preparing port forward: %w", err)
	}
	url := s.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.Options.Namespace).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	ready := make(chan struct{})
	forward, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf(":%d", port)}, ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		return "", fmt.Errorf("preparing port forward: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forward.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return "", fmt.Errorf("forwarding port %d: %w", port, err)
	}
	ports, err := forward.GetPorts()
	if err != nil {
		return "", fmt.Errorf("forwarding port %d: %w", port, err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), nil
}

// JWTKey returns the key that tokens for slurmrestd are signed with.
func (s *Stack) JWTKey(ctx context.Context) ([]byte, error) {
	secret, err := s.kube.CoreV1().Secrets(s.Options.Namespace).Get(ctx, secretJWTKey, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the token key: %w", err)
	}
	return secret.Data[jwtKey], nil
}
