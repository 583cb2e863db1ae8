//go:build integration && scale

package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// A plain HPA, without KEDA, reads the queue through kube-apiserver. There is one such API in a cluster, so one Slurm version has to do.
func TestExternalMetrics(t *testing.T) {
	t.Parallel()
	version := stack.Versions()[len(stack.Versions())-1]
	if only := strings.Fields(os.Getenv("SLURM_VERSIONS")); len(only) > 0 {
		version = only[len(only)-1]
	}
	c := deploy(t, "hpa", version, stack.Options{
		NoBridge: true, SuspendTime: 3600, ResumeTimeout: 3600, PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-5] Default=YES"},
	}, nodeSet{name: "cpu", nodes: "cpu-[0-5]"})
	const name = "slurmtide-scaler"
	address := net.JoinHostPort(addressTowardsCluster(t), freePort(t))
	cert, key, ca := selfSigned(t, name+"."+c.ns+".svc", x509.ExtKeyUsageServerAuth)
	// With the rights of the user guide, and no others.
	kubectl(t, c.manifests("keda/scaler.yaml", "ServiceAccount", "Role", "RoleBinding"), "apply", "-f", "-")
	rights := c.manifests("external-metrics.yaml", "RoleBinding", "ClusterRoleBinding")
	kubectl(t, rights, "apply", "-f", "-")
	t.Cleanup(func() { // they are not in the test's namespace
		_, err := tryKubectl(context.WithoutCancel(t.Context()), rights, "delete", "-f", "-")
		assert.NoError(t, err)
	})
	d := startScaler(c, "--kubeconfig", c.kubeconfigOf("slurmtide-scaler"), "--external-metrics", address, "--tls-cert", cert, "--tls-key", key)
	d.registerAPI(name, address, ca)

	const path = "/apis/external.metrics.k8s.io/v1beta1"
	get := func(metric, selector string) (string, error) {
		text, err := c.kube.CoreV1().RESTClient().Get().AbsPath(path, "namespaces", c.ns, metric).Param("labelSelector", selector).DoRaw(c.ctx)
		return string(text), err
	}
	c.eventually("the API", func() (bool, string) {
		text, err := get("slurm-nodes", "nodeSet=cpu")
		return err == nil && strings.Contains(text, `"value":"0"`), fmt.Sprint(text, err, d.log)
	})
	text, err := get("slurm-nodes", "nodeSet=cup")
	require.ErrorContains(t, err, "could not find the requested resource", text)
	assert.Contains(t, text, `there is no NodeSet \"cup\" (did you mean cpu?)`)
	resources, err := c.kube.Discovery().ServerResourcesForGroupVersion("external.metrics.k8s.io/v1beta1")
	require.NoError(t, err)
	assert.Len(t, resources.APIResources, 4)

	// Past kube-apiserver nobody gets in, whatever he says of himself.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is about the client here
	r, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "https://"+address+path, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("X-Remote-User", "admin")
	r.Header.Set("X-Remote-Group", "system:masters")
	resp, err := client.Do(r)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)

	c.scaleByHPA()
	c.sbatch("sleep 600", "-N", "3", "--exclusive")
	start := time.Now()
	c.eventually("three replicas", func() (bool, string) {
		deployment, err := c.kube.AppsV1().Deployments(c.ns).Get(c.ctx, "follower", metav1.GetOptions{})
		require.NoError(t, err)
		hpa, err := c.kube.AutoscalingV2().HorizontalPodAutoscalers(c.ns).Get(c.ctx, "follower", metav1.GetOptions{})
		require.NoError(t, err)
		return *deployment.Spec.Replicas == 3, fmt.Sprintf("%d replicas, %+v", *deployment.Spec.Replicas, hpa.Status)
	})
	t.Logf("the HPA followed after %v", time.Since(start))
}

// registerAPI gives the scaler a Service, and the API group to it.
func (d *scalerProcess) registerAPI(name, address string, ca []byte) {
	c := d.c
	host, port, err := net.SplitHostPort(address)
	require.NoError(c.t, err)
	number, err := strconv.ParseInt(port, 10, 32)
	require.NoError(c.t, err)
	_, err = c.kube.CoreV1().Services(c.ns).Create(c.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	_, err = c.kube.DiscoveryV1().EndpointSlices(c.ns).Create(c.ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}}},
		Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(number))}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	const path = "/apis/apiregistration.k8s.io/v1/apiservices"
	const api = "v1beta1.external.metrics.k8s.io"
	object, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": api},
		"spec": map[string]any{
			"group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "caBundle": ca,
			"service": map[string]any{"name": name, "namespace": c.ns},
		},
	})
	require.NoError(c.t, err)
	require.NoError(c.t, c.kube.CoreV1().RESTClient().Post().AbsPath(path).Body(object).SetHeader("Content-Type", "application/json").Do(c.ctx).Error())
	c.t.Cleanup(func() { // before the scaler goes: with an API that nobody serves no namespace can be deleted
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), time.Minute)
		defer cancel()
		assert.NoError(c.t, c.kube.CoreV1().RESTClient().Delete().AbsPath(path, api).Do(ctx).Error())
	})
}

// scaleByHPA makes a Deployment whose pods are never scheduled, and an HPA that gives it as many as Slurm needs nodes.
func (c *cluster) scaleByHPA() {
	labels := map[string]string{"app": "follower"}
	template := stack.PodTemplate(c.Options)
	template.Labels = labels
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "slurmtide.io/test"}}
	_, err := c.kube.AppsV1().Deployments(c.ns).Create(c.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "follower"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	_, err = c.kube.AutoscalingV2().HorizontalPodAutoscalers(c.ns).Create(c.ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "follower"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "follower"}, MaxReplicas: 6,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "slurm-nodes", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"nodeSet": "cpu"}}},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewQuantity(1, resource.DecimalSI)},
			}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// addressTowardsCluster is the host's address that the cluster can reach.
func addressTowardsCluster(t *testing.T) string {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(t, err)
	conn, err := net.Dial("udp", strings.TrimPrefix(config.Host, "https://")) // nothing is sent
	require.NoError(t, err)
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	require.NoError(t, err)
	return host
}

func freePort(t *testing.T) string {
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	return port
}
