//go:build integration && keda

package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// hostAddress is where pods reach servers of this process.
func hostAddress(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(t, err)
	// Nothing is sent: this only asks which address of the host faces the cluster.
	conn, err := net.Dial("udp", strings.TrimPrefix(config.Host, "https://"))
	require.NoError(t, err)
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	require.NoError(t, err)
	return host
}

// followNumber is a Deployment that has as many pods as a server of ours says.
const followNumber = `
apiVersion: v1
kind: Namespace
metadata: {name: keda-itself}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: target, namespace: keda-itself}
spec:
  replicas: 0
  selector: {matchLabels: {app: target}}
  template:
    metadata: {labels: {app: target}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: pause, image: "slurmtide.local/pause:1", imagePullPolicy: Never}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: target, namespace: keda-itself}
spec:
  scaleTargetRef: {name: target}
  pollingInterval: 1
  cooldownPeriod: 2
  maxReplicaCount: 20
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp: {stabilizationWindowSeconds: 0, tolerance: "0", policies: [{type: Pods, value: 1000, periodSeconds: 15}]}
        scaleDown: {stabilizationWindowSeconds: 0, tolerance: "0", policies: [{type: Pods, value: 1000, periodSeconds: 15}]}
  triggers:
  - type: metrics-api
    metadata: {url: "http://%s/", valueLocation: nodes, targetValue: "1"}
`

// KEDA alone, without Slurm: its operator, its metrics server and Kubernetes' autoscaler work together on the local cluster, so
// that a failure of the tests with Slurm is ours.
func TestKEDAItself(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(t, err, "KUBECONFIG must name the test cluster")
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	var want atomic.Int32
	listener, err := net.Listen("tcp", net.JoinHostPort(hostAddress(t), "0"))
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := want.Load()
		if n < 0 {
			http.Error(w, "unknown", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"nodes": %d}`, n)
	})}
	go server.Serve(listener) //nolint:errcheck // ends with Close
	defer server.Close()

	kubectl(t, fmt.Sprintf(followNumber, listener.Addr()), "apply", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if t.Failed() {
			out, err := tryKubectl(ctx, "", "-n", "keda-itself", "describe", "scaledobjects,hpa")
			t.Log(out, err)
		}
		// The finalizer is KEDA's: the ScaledObject first, while KEDA runs.
		_, err := tryKubectl(ctx, "", "-n", "keda-itself", "delete", "scaledobject", "target")
		require.NoError(t, err)
		_, err = tryKubectl(ctx, "", "delete", "namespace", "keda-itself")
		require.NoError(t, err)
	})
	scale := func() *autoscalingv1.Scale {
		s, err := kube.AppsV1().Deployments("keda-itself").GetScale(t.Context(), "target", metav1.GetOptions{})
		require.NoError(t, err)
		return s
	}
	reaches := func(n int32) {
		t.Helper()
		began := time.Now()
		want.Store(n)
		var s *autoscalingv1.Scale
		require.Eventually(t, func() bool {
			s = scale()
			return s.Spec.Replicas == n && s.Status.Replicas == n
		}, patience, 200*time.Millisecond)
		t.Logf("%d replicas after %s", n, time.Since(began).Round(100*time.Millisecond))
	}
	reaches(7)
	reaches(11)
	reaches(10) // 10% is the autoscaler's tolerance, unless it is told otherwise
	want.Store(-1)
	time.Sleep(20 * time.Second) // longer than the autoscaler's period of 15 s, and than cooldownPeriod
	require.EqualValues(t, 10, scale().Spec.Replicas, "a number that cannot be read is not 0")
	reaches(3)
	reaches(0)
}
