//go:build integration && scale

package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
)

// The manifests of the user guide for a scaler without KEDA, exactly as they are, before a kube-apiserver with RBAC. They name a namespace,
// and a Kubernetes cluster has one server of external metrics: one Slurm version has to do.
func TestScalerExample(t *testing.T) {
	t.Parallel()
	all := versions()
	c := deploy(t, "scaler-example", all[len(all)-1], stack.Options{
		Namespace: "slurm", ClusterName: "tide", OpenSlurmrestd: true, SuspendTime: 5,
		PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-5] Default=YES"},
	}, nodeSet{name: "cpu", nodes: "cpu-[0-5]"})
	kubectl(t, "", "apply", "-f", guide+"keda/scaler.yaml")
	c.answersKEDA()
	c.scalerRights()
	c.serveExternalMetrics()
	c.onlyTheAPIServerGetsIn()
	c.followedByHPA()
}

// rolledOut waits until the scaler is what its Deployment says, and returns its pod.
func (c *cluster) rolledOut() string {
	c.t.Helper()
	kubectl(c.t, "", "-n", c.ns, "rollout", "status", "deployment/slurmtide-scaler", fmt.Sprintf("--timeout=%v", patience))
	list, err := c.kube.CoreV1().Pods(c.ns).List(c.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=slurmtide-scaler"})
	require.NoError(c.t, err)
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			return p.Name
		}
	}
	require.FailNow(c.t, "the scaler has no pod")
	return ""
}

func (c *cluster) answersKEDA() {
	c.t.Helper()
	address, err := c.ForwardPod(c.ctx, c.rolledOut(), 9442)
	require.NoError(c.t, err)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(c.t, err)
	defer conn.Close()
	id := c.sbatch("sleep 600", "-N", "3", "--exclusive")
	request := &pb.GetMetricsRequest{ScaledObjectRef: &pb.ScaledObjectRef{Name: "cpu", Namespace: "slurm", ScalerMetadata: map[string]string{"cluster": "tide", "nodeSet": "cpu"}}}
	c.eventually("three nodes", func() (bool, string) {
		got, err := pb.NewExternalScalerClient(conn).GetMetrics(c.ctx, request)
		return err == nil && got.MetricValues[0].MetricValue == 3, fmt.Sprint(got, err)
	})
	c.slurm("scancel", id)
}

// scalerRights sees to it that the scaler may do what it needs, and nothing else.
func (c *cluster) scalerRights() {
	c.t.Helper()
	for right, want := range map[string]bool{
		"list slurmtide.io nodesets": true, "watch slurmtide.io nodesets": true,
		"get slurmtide.io nodesets": false, "patch slurmtide.io nodesets": false, "create core pods": false, "list core pods": false, "get core secrets": false,
	} {
		words := strings.Fields(right)
		review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(c.ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:slurm:slurmtide-scaler", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:slurm", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "slurm", Verb: words[0], Group: strings.TrimPrefix(words[1], "core"), Resource: words[2]},
		}}, metav1.CreateOptions{})
		require.NoError(c.t, err)
		assert.Equal(c.t, want, review.Status.Allowed, right)
	}
}

const externalMetrics = "/apis/external.metrics.k8s.io/v1beta1"

// serveExternalMetrics makes the scaler the server of external metrics.
func (c *cluster) serveExternalMetrics() {
	c.t.Helper()
	cert, key, ca := selfSigned(c.t, "slurmtide-external-metrics.slurm.svc", x509.ExtKeyUsageServerAuth)
	kubectl(c.t, "", "-n", c.ns, "create", "secret", "generic", "slurmtide-external-metrics-tls", "--from-file=tls.crt="+cert, "--from-file=tls.key="+key)
	c.applyForNow("", guide+"hpa/rbac.yaml")
	kubectl(c.t, "", "-n", c.ns, "patch", "deployment", "slurmtide-scaler", "--patch-file", guide+"hpa/deployment.patch.yaml")
	c.rolledOut()
	text, err := os.ReadFile(guide + "hpa/apiservice.yaml")
	require.NoError(c.t, err)
	const none = `caBundle: ""`
	require.Contains(c.t, string(text), none)
	// It goes before the scaler does: with an API that nobody serves no namespace can be deleted.
	c.applyForNow(strings.Replace(string(text), none, "caBundle: "+base64.StdEncoding.EncodeToString(ca), 1), "-")

	get := func(metric, selector string) (string, error) {
		text, err := c.kube.CoreV1().RESTClient().Get().AbsPath(externalMetrics, "namespaces", c.ns, metric).Param("labelSelector", selector).DoRaw(c.ctx)
		return string(text), err
	}
	c.eventually("the API", func() (bool, string) {
		text, err := get("slurm-nodes", "nodeSet=cpu")
		return err == nil && strings.Contains(text, `"value":"0"`), fmt.Sprint(text, err)
	})
	wrong, err := get("slurm-nodes", "nodeSet=cup")
	require.ErrorContains(c.t, err, "could not find the requested resource", wrong)
	assert.Contains(c.t, wrong, `there is no NodeSet \"cup\" (did you mean cpu?)`)
	resources, err := c.kube.Discovery().ServerResourcesForGroupVersion("external.metrics.k8s.io/v1beta1")
	require.NoError(c.t, err)
	assert.Len(c.t, resources.APIResources, 4)
}

// onlyTheAPIServerGetsIn goes past kube-apiserver: nobody gets in, whatever he says of himself.
func (c *cluster) onlyTheAPIServerGetsIn() {
	c.t.Helper()
	address, err := c.ForwardPod(c.ctx, c.rolledOut(), 6443)
	require.NoError(c.t, err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is about the client here
	r, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "https://"+address+externalMetrics, http.NoBody)
	require.NoError(c.t, err)
	r.Header.Set("X-Remote-User", "admin")
	r.Header.Set("X-Remote-Group", "system:masters")
	resp, err := client.Do(r)
	require.NoError(c.t, err)
	resp.Body.Close()
	assert.Equal(c.t, http.StatusUnauthorized, resp.StatusCode)
}

// followedByHPA has an HPA scale the NodeSet, up with a job and down after it.
func (c *cluster) followedByHPA() {
	c.t.Helper()
	replicas := func(n int32) {
		c.t.Helper()
		start := time.Now()
		c.within(2*patience, time.Second, fmt.Sprintf("replicas %d, and as many nodes", n), func() (bool, string) {
			set, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Get(c.ctx, "cpu", metav1.GetOptions{})
			require.NoError(c.t, err)
			hpa, err := c.kube.AutoscalingV2().HorizontalPodAutoscalers(c.ns).Get(c.ctx, "cpu", metav1.GetOptions{})
			require.NoError(c.t, err)
			return set.Spec.Replicas != nil && *set.Spec.Replicas == n && set.Status.PoweredUp == n, fmt.Sprintf("spec %v, status %+v, HPA %+v", set.Spec.Replicas, set.Status, hpa.Status)
		})
		c.t.Logf("replicas %d after %v", n, time.Since(start).Round(100*time.Millisecond))
	}
	kubectl(c.t, "", "-n", c.ns, "scale", "nodesets", "cpu", "--replicas=1") // an HPA leaves what has 0 alone
	kubectl(c.t, "", "apply", "-f", guide+"hpa/horizontalpodautoscaler.yaml")
	replicas(1)
	id := c.sbatch("sleep 600", "-N", "3", "--exclusive")
	replicas(3)
	c.slurm("scancel", id)
	replicas(1)
}

// applyForNow applies a file ("-": the text), some of whose objects are in no namespace of the test's own, and takes them away at its end.
func (c *cluster) applyForNow(text, file string) {
	c.t.Helper()
	kubectl(c.t, text, "apply", "-f", file)
	t := c.t
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_, err := tryKubectl(ctx, text, "delete", "--ignore-not-found", "-f", file)
		assert.NoError(t, err)
	})
}
