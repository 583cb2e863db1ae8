//go:build integration && scale

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
)

// The scaler's manifest of the user guide, exactly as it is, before a kube-apiserver with RBAC. It names a namespace, so one Slurm version has to do.
func TestScalerExample(t *testing.T) {
	t.Parallel()
	all := versions()
	c := deploy(t, "scaler-example", all[len(all)-1], stack.Options{
		Namespace: "slurm", ClusterName: "tide", OpenSlurmrestd: true, NoBridge: true, SuspendTime: 3600, ResumeTimeout: 3600,
		PartitionLines: []string{"PartitionName=cpu Nodes=cpu-[0-5] Default=YES"},
	}, nodeSet{name: "cpu", nodes: "cpu-[0-5]"})
	kubectl(t, "", "apply", "-f", guide+"keda/scaler.yaml")
	kubectl(t, "", "-n", "slurm", "rollout", "status", "deployment/slurmtide-scaler", fmt.Sprintf("--timeout=%v", patience))
	list, err := c.kube.CoreV1().Pods("slurm").List(c.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=slurmtide-scaler"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	address, err := c.ForwardPod(c.ctx, list.Items[0].Name, 9442)
	require.NoError(t, err)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	c.sbatch("sleep 600", "-N", "3", "--exclusive")
	request := &pb.GetMetricsRequest{ScaledObjectRef: &pb.ScaledObjectRef{Name: "cpu", Namespace: "slurm", ScalerMetadata: map[string]string{"cluster": "tide", "nodeSet": "cpu"}}}
	c.eventually("three nodes", func() (bool, string) {
		got, err := pb.NewExternalScalerClient(conn).GetMetrics(c.ctx, request)
		return err == nil && got.MetricValues[0].MetricValue == 3, fmt.Sprint(got, err)
	})
	// It may do what it needs, and nothing else.
	for right, want := range map[string]bool{
		"list slurmtide.io nodesets": true, "watch slurmtide.io nodesets": true,
		"get slurmtide.io nodesets": false, "patch slurmtide.io nodesets": false, "create core pods": false, "list core pods": false, "get core secrets": false,
	} {
		words := strings.Fields(right)
		review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(c.ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:slurm:slurmtide-scaler", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:slurm", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "slurm", Verb: words[0], Group: strings.TrimPrefix(words[1], "core"), Resource: words[2]},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.Equal(t, want, review.Status.Allowed, right)
	}
}
