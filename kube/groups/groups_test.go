package groups

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

var _ Interface = fake.NewClientset()

// counting counts the requests that ask it.
type counting struct {
	flowcontrol.RateLimiter
	asked int
}

func (c *counting) Wait(context.Context) error {
	c.asked++
	return nil
}

func TestGroups(t *testing.T) {
	var paths []string
	var connections int
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		assert.Contains(t, r.UserAgent(), "groups.test")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{}`))
	}))
	api.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections++
		}
	}
	api.Start()
	t.Cleanup(api.Close)
	limit := &counting{RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}
	c, err := New(&rest.Config{Host: api.URL, RateLimiter: limit})
	require.NoError(t, err)
	ctx, o := t.Context(), metav1.GetOptions{}
	_, err = c.AppsV1().Deployments("slurm").Get(ctx, "d", o)
	require.NoError(t, err)
	_, err = c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.CoordinationV1().Leases("slurm").Get(ctx, "l", o)
	require.NoError(t, err)
	_, err = c.CoreV1().Pods("slurm").Get(ctx, "p", o)
	require.NoError(t, err)
	_, err = c.EventsV1().Events("slurm").Get(ctx, "e", o)
	require.NoError(t, err)
	_, err = c.PolicyV1().PodDisruptionBudgets("slurm").Get(ctx, "b", o)
	require.NoError(t, err)
	_, err = c.RbacV1().RoleBindings("slurm").Get(ctx, "r", o)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"/apis/apps/v1/namespaces/slurm/deployments/d",
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		"/apis/coordination.k8s.io/v1/namespaces/slurm/leases/l",
		"/api/v1/namespaces/slurm/pods/p",
		"/apis/events.k8s.io/v1/namespaces/slurm/events/e",
		"/apis/policy/v1/namespaces/slurm/poddisruptionbudgets/b",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/slurm/rolebindings/r",
	}, paths)
	assert.Equal(t, 1, connections)
	assert.Equal(t, 7, limit.asked)
}

func TestRefused(t *testing.T) {
	_, err := New(&rest.Config{Host: "http://127.0.0.1:1", QPS: 5})
	require.ErrorContains(t, err, "5 requests per second with a burst of 0: it must be 1 at least")
	_, err = New(&rest.Config{Host: "http://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}})
	require.ErrorContains(t, err, "/nowhere")
}
