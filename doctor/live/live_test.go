package live

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/internal/manifest"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const nodeSets = `
- metadata: {name: cpu, namespace: slurm, creationTimestamp: "2026-01-01T00:00:00Z"}
  spec:
    clusterRef: {name: tide}
    nodeNames: cpu-[0-9]
    replicas: 3
    shape: {cpus: 4, realMemory: 8000, gres: "gpu:2", features: [fast]}
    boot: {deadline: 4m, provisioningRequest: {className: x}}
    topology: {}
    template: {spec: {containers: [{name: slurmd, image: i}]}}
  status: {boots: {p95Seconds: "12.5"}}
- metadata: {name: dyn, namespace: slurm, creationTimestamp: "2026-01-02T00:00:00Z"}
  spec:
    clusterRef: {name: tide}
    mode: Dynamic
    partitions: [dyn]
    nodeNames: cpu-9,dyn-[0-9]
    shape: {cpus: 1, realMemory: 1000}
    template: {spec: {containers: [{name: slurmd, image: i, resources: {requests: {memory: 1Gi}}}]}}
`

// sets are those of the text.
func sets(t *testing.T) (all []*v1alpha1.NodeSet) {
	t.Helper()
	require.NoError(t, manifest.Unmarshal([]byte(nodeSets), &all))
	return all
}

func list(t *testing.T, text string) slurmconf.Hostlist {
	t.Helper()
	h, err := slurmconf.ParseHostlist(text)
	require.NoError(t, err)
	return h
}

func TestNodeSets(t *testing.T) {
	got := NodeSets(sets(t))
	require.Len(t, got, 2)
	assert.Contains(t, got[1].Problem, "cpu-9 stand already in the older NodeSet cpu")
	got[1].Problem = ""
	assert.Equal(t, []doctor.NodeSet{
		{Name: "slurm/cpu", Nodes: list(t, "cpu-[0-9]"), CPUs: 4, RealMemory: 8000, Gres: "gpu:2", Features: []string{"fast"}, Memory: 8128,
			Floor: 3, Deadline: 4 * time.Minute, P95: 12500 * time.Millisecond, Topology: true},
		{Name: "slurm/dyn", Dynamic: true, Nodes: list(t, "cpu-9,dyn-[0-9]"), CPUs: 1, RealMemory: 1000, Partitions: []string{"dyn"}},
	}, got)
}

// apiServer has the NodeSets, allows all but some rights, and its clock is an hour ahead.
func apiServer(t *testing.T, refuse ...string) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/namespaces/slurm/nodesets"):
			assert.Equal(t, "spec.clusterRef.name=tide", r.URL.Query().Get("fieldSelector"))
			answer := v1alpha1.NodeSetList{TypeMeta: metav1.TypeMeta{Kind: "NodeSetList", APIVersion: v1alpha1.GroupName + "/v1alpha1"}}
			for _, ns := range sets(t) {
				answer.Items = append(answer.Items, *ns)
			}
			assert.NoError(t, json.NewEncoder(w).Encode(answer))
		case strings.HasSuffix(r.URL.Path, "/namespaces/slurm/pods"):
			assert.Equal(t, "slurmtide.io/cluster=tide", r.URL.Query().Get("labelSelector"))
			_, _ = w.Write([]byte(podList))
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // protobuf
			assert.NoError(t, err)
			review, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
			if !assert.True(t, ok, "%T", obj) {
				return
			}
			review.TypeMeta = metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}
			a := review.Spec.ResourceAttributes
			review.Status.Allowed = true
			for _, name := range refuse {
				review.Status.Allowed = review.Status.Allowed && name != a.Verb+" "+a.Resource+" in "+a.Namespace
			}
			assert.NoError(t, json.NewEncoder(w).Encode(review))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func facts(t *testing.T) doctor.Facts {
	t.Helper()
	f := doctor.FromTexts(slurmconf.Version{Major: 26, Minor: 5}, map[string]string{"slurm.conf": "ClusterName=Tide\nSlurmctldHost=a\nNodeName=metal\nNodeName=cpu-[0-9] State=CLOUD\n"})
	require.NotNil(t, f.Cluster)
	return f
}

func TestRead(t *testing.T) {
	slurmrestd, kubernetes := slurmctld(t, 2*time.Hour), apiServer(t, "delete pods in slurm", "create podtemplates in slurm", "watch nodes in ")
	f := facts(t)
	var waited []string
	waiting := map[string]bool{}
	require.NoError(t, Read(t.Context(), Config{
		Waits: func(what string) func() {
			assert.Empty(t, waiting, "for one at a time")
			waited, waiting[what] = append(waited, what), true
			return func() { delete(waiting, what) }
		},
		Kubernetes: kubernetes, Namespace: "slurm",
		Slurmrestd: &slurmrest.Config{Server: slurmrestd.URL, Token: slurmrest.Static("x"), Log: slog.New(slog.DiscardHandler)},
		Lookup: func(_ context.Context, name string) ([]string, error) {
			assert.Equal(t, "cpu-0", name)
			time.Sleep(time.Millisecond)
			return nil, assert.AnError
		},
	}, &f))
	assert.Equal(t, []string{"the API server at " + kubernetes.Host, "slurmrestd at " + slurmrestd.URL, "the name service, which looks up cpu-0"}, waited)
	assert.Empty(t, waiting)
	require.NotNil(t, f.Kubernetes)
	assert.Equal(t, "tide", f.Kubernetes.Cluster)
	assert.Len(t, f.Kubernetes.NodeSets, 2)
	a := f.Access
	assert.Empty(t, a.KubernetesError)
	assert.Equal(t, []string{"delete pods", "create podtemplates"}, a.MissingRights, "the second because a NodeSet asks for room")
	assert.Equal(t, []string{"watch nodes"}, a.MissingHostRights)
	assert.InDelta(t, time.Hour, a.Skew, float64(2*time.Second))
	assert.Empty(t, a.SlurmrestdError)
	assert.Equal(t, slurmconf.Version{Major: 24, Minor: 11}, a.Release)
	assert.Equal(t, "cpu-0", a.Name)
	assert.Positive(t, a.NameTook)
	assert.InDelta(t, 2*time.Hour, a.SlurmSkew, float64(2*time.Second))
	assert.Equal(t, &doctor.RunningFacts{Nodes: []doctor.RunningNode{
		{Name: "metal", Address: "192.0.2.1"},
		{Name: "cpu-0", Cloud: true, Address: "192.0.2.9", Pod: []string{"10.1.0.1", "fd00::1"}},
		{Name: "cpu-1", Cloud: true, Address: "cpu-1"},
		{Name: "cpu-2", Cloud: true, Address: "10.1.0.3"},
	}}, a.Running, "no names without cloud_dns; cpu-1 powers up; the pod of cpu-2 is in more networks")
	assert.Empty(t, f.Unread)
}

// What cannot be reached is a finding, and the rest is looked at.
func TestReadNobody(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	f := facts(t)
	require.NoError(t, Read(t.Context(), Config{
		Kubernetes: &rest.Config{Host: gone.URL}, Namespace: "slurm", Slurmrestd: &slurmrest.Config{Server: gone.URL, Token: slurmrest.Static("x"), Retries: -1, Log: slog.New(slog.DiscardHandler)},
	}, &f))
	assert.Nil(t, f.Kubernetes)
	assert.Contains(t, f.Access.KubernetesError, "connection refused")
	assert.Contains(t, f.Access.SlurmrestdError, "connection refused")
	assert.Nil(t, f.Access.Running)
	var rules []string
	for _, finding := range doctor.Check(f) {
		rules = append(rules, finding.Rule)
	}
	assert.Contains(t, rules, "kubernetes")
	assert.Contains(t, rules, "slurmrestd")
	assert.Contains(t, rules, "return-to-service")
	assert.NotContains(t, rules, "cloud-without-nodeset", "nobody knows")

	f = doctor.FromTexts(slurmconf.Version{Major: 26, Minor: 5}, map[string]string{"slurm.conf": "nonsense\n"})
	require.NoError(t, Read(t.Context(), Config{Namespace: "slurm"}, &f), "slurm.conf comes first")
	assert.Nil(t, f.Access)
}

// slurmrestd tells its version to anybody: whether the token is good the nodes show.
func TestReadRefused(t *testing.T) {
	for name, tt := range map[string]struct{ status, number int }{"a token of another key": {http.StatusNetworkAuthenticationRequired, 1007}, "slurmctld is busy": {http.StatusInternalServerError, 5004}} {
		t.Run(name, func(t *testing.T) {
			behind := slurmctld(t, 0).Config.Handler
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/nodes/") {
					behind.ServeHTTP(w, r)
					return
				}
				w.WriteHeader(tt.status)
				fmt.Fprintf(w, `{"errors":[{"error_number":%d,"error":"Protocol authentication error"}]}`, tt.number)
			}))
			t.Cleanup(server.Close)
			f := facts(t)
			require.NoError(t, Read(t.Context(), Config{
				Kubernetes: apiServer(t), Namespace: "slurm", Slurmrestd: &slurmrest.Config{Server: server.URL, Token: slurmrest.Static("x"), Retries: -1, Log: slog.New(slog.DiscardHandler)},
				Lookup: func(context.Context, string) ([]string, error) { return nil, assert.AnError },
			}, &f))
			refused := tt.number == 1007
			assert.Equal(t, refused, strings.Contains(f.Access.SlurmrestdError, "the token was refused"), f.Access.SlurmrestdError)
			assert.Equal(t, !refused, strings.Contains(strings.Join(f.Unread, "\n"), "nodes of slurmctld: "), "%q", f.Unread)
		})
	}
}
