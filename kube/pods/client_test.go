package pods

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/powersave"
)

var (
	podResource = schema.GroupResource{Resource: "pods"}
	podKind     = schema.GroupKind{Kind: "Pod"}
)

// testClient is a Client over fakes that has read one NodeSet, cpu.
func testClient(t *testing.T, nodeSets ...*v1alpha1.NodeSet) (*Client, *kubefake.Clientset, *tidefake.Clientset) {
	t.Helper()
	if nodeSets == nil {
		nodeSets = []*v1alpha1.NodeSet{newNodeSet("cpu", "cpu-[0-9]")}
	}
	kube, tide := kubefake.NewClientset(), tidefake.NewSimpleClientset()
	kube.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		pod.UID = types.UID("uid-of-" + pod.Name)
		return false, nil, nil
	})
	c := newClient(kube, tide, "slurm", "tide", Options{
		PodOptions: PodOptions{ConfServer: "slurmctld:6817"},
		Now:        func() time.Time { return time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC) },
	})
	c.nodeSets = cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, ns := range nodeSets {
		require.NoError(t, c.nodeSets.Add(ns))
		require.NoError(t, tide.Tracker().Add(ns))
	}
	return c, kube, tide
}

func fail(kube *kubefake.Clientset, verb string, err error) {
	kube.PrependReactor(verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

func TestCreate(t *testing.T) {
	c, kube, _ := testClient(t)
	uid, err := c.Create(t.Context(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 7, Request: "req"})
	require.NoError(t, err)
	assert.Equal(t, "uid-of-cpu-1", uid)
	pod, err := kube.CoreV1().Pods("slurm").Get(t.Context(), "cpu-1", metav1.GetOptions{})
	require.NoError(t, err)
	seen := Observe(pod)
	assert.Equal(t, powersave.Pod{Node: "cpu-1", NodeSet: "cpu", UID: uid, Generation: 7, Request: "req", Phase: powersave.PodPending, Revision: goodRevision}, seen)

	again, err := c.Create(t.Context(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 7, Request: "another-request"})
	require.NoError(t, err, "the same boot, asked for twice")
	assert.Equal(t, uid, again)
}

func TestCreateHealsTimeoutAfterCommit(t *testing.T) {
	c, kube, _ := testClient(t)
	timedOut := false
	kube.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if timedOut {
			return false, nil, nil
		}
		timedOut = true
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		pod.UID = "made-it"
		require.NoError(t, kube.Tracker().Add(pod))
		return true, nil, apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	})
	_, err := c.Create(t.Context(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 7, Request: "req"})
	require.Error(t, err)
	assert.True(t, IsTransient(err))
	uid, err := c.Create(t.Context(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 7, Request: "req"})
	require.NoError(t, err)
	assert.Equal(t, "made-it", uid)
}

func TestCreateConflicts(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*corev1.Pod)
		want      string
		permanent bool
	}{
		"older boot": {func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationGeneration] = "6" }, `is of boot "6", not of boot 7`, false},
		"no boot":    {func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.AnnotationGeneration) }, `is of boot "", not of boot 7`, false},
		"elsewhere":  {func(p *corev1.Pod) { p.Labels[v1alpha1.LabelOffering] = "spot" }, `is on offering "spot", not on ""`, false},
		"other set":  {func(p *corev1.Pod) { p.Labels[v1alpha1.LabelNodeSet] = "gpu" }, "belongs to NodeSet gpu", false},
		"going":      {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()); p.Finalizers = []string{"test/hold"} }, "is being deleted", false},
		"old owner":  {func(p *corev1.Pod) { p.OwnerReferences[0].UID = "former" }, "is owned by an object that has been deleted", false},
		"no owner":   {func(p *corev1.Pod) { p.OwnerReferences = nil }, "is owned by an object that has been deleted or is not the NodeSet", false},
		"foreign":    {func(p *corev1.Pod) { p.Labels = nil }, "does not belong to Slurm cluster tide", true},
		"other cluster": {func(p *corev1.Pod) { p.Labels[v1alpha1.LabelCluster] = "wave" },
			"does not belong to Slurm cluster tide", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t)
			pod, err := Build(newNodeSet("cpu", "cpu-[0-9]"), "cpu-1", 7, "req", c.opts.PodOptions)
			require.NoError(t, err)
			pod.UID = "there-before"
			tc.change(pod)
			require.NoError(t, kube.Tracker().Add(pod))

			_, err = c.Create(t.Context(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 7, Request: "req"})
			require.ErrorContains(t, err, "creating pod cpu-1: a pod of that name exists and "+tc.want)
			assert.True(t, IsConflict(err))
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tc.permanent, e.Permanent())
			assert.Empty(t, e.Trouble(), "it says nothing of the NodeSet's other nodes")
			existing, ok := e.ExistingPod()
			assert.Equal(t, !tc.permanent, ok, "only a pod of the cluster may be reported: whoever hears of one may delete it")
			if ok {
				assert.Equal(t, "there-before", existing.UID)
			}
		})
	}
}

func TestCreateRefusals(t *testing.T) {
	broken := newNodeSet("broken", "b-1")
	broken.Spec.Shape.Gres = "gpu:x:y"
	c, kube, _ := testClient(t, broken)
	_, err := c.Create(t.Context(), powersave.CreatePod{NodeSet: "gone", Node: "cpu-1", Generation: 1, Request: "r"})
	require.ErrorContains(t, err, "creating pod cpu-1: there is no NodeSet gone in namespace slurm")
	assert.True(t, IsInvalid(err))
	assert.Empty(t, troubleOf(t, err))
	_, err = c.Create(t.Context(), powersave.CreatePod{NodeSet: "broken", Node: "b-1", Generation: 1, Request: "r"})
	require.ErrorContains(t, err, "NodeSet broken: spec.shape.gres")
	assert.True(t, IsInvalid(err))
	assert.Equal(t, powersave.TroubleConfig, troubleOf(t, err))
	c.nodeSets = nil
	_, err = c.Create(t.Context(), powersave.CreatePod{NodeSet: "broken", Node: "b-1", Generation: 1, Request: "r"})
	require.ErrorContains(t, err, "have not been read yet")
	assert.True(t, IsTransient(err))
	assert.Empty(t, kube.Actions())
}

func TestErrorClasses(t *testing.T) {
	rbac := apierrors.NewForbidden(podResource, "cpu-1", errors.New(`User "system:serviceaccount:slurm:bridge" cannot create resource "pods" in API group "" in the namespace "slurm"`))
	unread := apierrors.NewForbidden(podResource, "", errors.New(`User "system:serviceaccount:slurm:bridge" cannot create resource "pods" in API group "" in the namespace "slurm": `+
		`RBAC: [clusterrole.rbac.authorization.k8s.io "slurmtide-bridge" not found, clusterrole.rbac.authorization.k8s.io "system:discovery" not found]`))
	noRole := apierrors.NewForbidden(podResource, "", errors.New(`User "system:serviceaccount:slurm:bridge" cannot create resource "pods" in API group "" in the namespace "slurm": `+
		`RBAC: clusterrole.rbac.authorization.k8s.io "slurmtide-bridge" not found`))
	quota := apierrors.NewForbidden(podResource, "cpu-1", errors.New("exceeded quota: team, requested: pods=1, used: pods=50, limited: pods=50"))
	security := apierrors.NewForbidden(podResource, "cpu-1", errors.New(`violates PodSecurity "restricted:latest": privileged`))
	unknownQuota := apierrors.NewForbidden(podResource, "cpu-1", errors.New("status unknown for quota: team, resources: limits.cpu,pods"))
	noRequests := apierrors.NewForbidden(podResource, "cpu-1", errors.New("failed quota: team: must specify limits.cpu for: slurmd"))
	uncovered := apierrors.NewForbidden(podResource, "cpu-1", errors.New("insufficient quota to consume: requests.nvidia.com/gpu"))
	limitRange := apierrors.NewForbidden(podResource, "cpu-1", errors.New("[maximum cpu usage per Container is 2, but limit is 4, maximum memory usage per Pod is 4Gi, but limit is 8388608000]"))
	ratio := apierrors.NewForbidden(podResource, "cpu-1", errors.New("cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"))
	account := apierrors.NewForbidden(podResource, "cpu-1", errors.New(`error looking up service account slurm/burst: serviceaccount "burst" not found`))
	webhook := apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example.com": failed to call webhook: Post "https://policy.example.com:443/validate?timeout=10s": dial tcp 10.0.0.7:443: connect: connection refused`))
	terminating := apierrors.NewForbidden(podResource, "cpu-1", errors.New("unable to create new content in namespace slurm because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err        error
		class      ErrorClass
		permanent  bool
		trouble    powersave.Trouble
		want       string
		missing    []string
		retryAfter time.Duration
	}{
		"right":              {err: rbac, class: Forbidden, permanent: true, want: `the right "create pods" is missing in namespace slurm`, missing: []string{"create pods"}},
		"role is missing":    {err: noRole, class: Forbidden, permanent: true, missing: []string{"create pods"}},
		"roles are not read": {err: unread, class: Transient, want: "the API server has just started"},
		"credentials":        {err: apierrors.NewUnauthorized("token expired"), class: Forbidden, permanent: true, want: "does not accept the bridge's credentials"},
		"quota":              {err: quota, class: Quota, trouble: powersave.TroubleQuota, want: "raise the ResourceQuota"},
		"quota not counted":  {err: unknownQuota, class: Quota, trouble: powersave.TroubleQuota},
		"no requests":        {err: noRequests, class: Limit, permanent: true, trouble: powersave.TroubleQuota, want: "must specify limits.cpu for: slurmd: change the LimitRange or ResourceQuota of the namespace, or the resources in spec.template of the NodeSet"},
		"no quota at all":    {err: uncovered, class: Limit, permanent: true, trouble: powersave.TroubleQuota},
		"limit range":        {err: limitRange, class: Limit, permanent: true, trouble: powersave.TroubleQuota, want: "change the LimitRange"},
		"limit ratio":        {err: ratio, class: Limit, permanent: true, trouble: powersave.TroubleQuota},
		"service account":    {err: account, class: Invalid, permanent: true, trouble: powersave.TroubleConfig, want: "not found: create the service account"},
		"webhook down":       {err: webhook, class: Transient, want: "an admission webhook does not answer"},
		"admission":          {err: security, class: Invalid, permanent: true, trouble: powersave.TroubleConfig, want: "an admission policy refuses the pod"},
		"namespace going":    {err: terminating, class: Invalid, permanent: true, want: "the namespace is being deleted"},
		"no namespace":       {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "slurm"), class: Invalid, permanent: true, want: "namespace slurm exists"},
		"invalid":            {err: apierrors.NewInvalid(podKind, "cpu-1", nil), class: Invalid, permanent: true, trouble: powersave.TroubleConfig, want: "correct spec.template"},
		"bad request":        {err: apierrors.NewBadRequest("no"), class: Invalid, trouble: powersave.TroubleConfig, permanent: true},
		"too many":           {err: apierrors.NewTooManyRequests("slow down", 3), class: Transient, retryAfter: 3 * time.Second},
		"internal":           {err: apierrors.NewInternalError(errors.New("etcd")), class: Transient},
		"unavailable":        {err: apierrors.NewServiceUnavailable("starting"), class: Transient},
		"server timeout":     {err: apierrors.NewServerTimeout(podResource, "create", 2), class: Transient, retryAfter: 2 * time.Second},
		"gateway":            {err: apierrors.NewGenericServerResponse(http.StatusBadGateway, "create", podResource, "cpu-1", "", 0, true), class: Transient},
		"quota was raced":    {err: apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "team", errors.New("the object has been modified")), class: Transient},
		"refused":            {err: &netError{syscall.ECONNREFUSED}, class: Transient, want: "the API server cannot be reached"},
		"our own deadline":   {err: context.DeadlineExceeded, class: Transient, want: "the API server cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t)
			fail(kube, "create", tc.err)
			_, err := c.Create(t.Context(), powersave.CreatePod{NodeSet: "cpu", Node: "cpu-1", Generation: 1, Request: "r"})
			require.ErrorContains(t, err, "creating pod cpu-1: ")
			require.ErrorContains(t, err, tc.want)
			require.ErrorIs(t, err, tc.err)
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tc.class, e.Class)
			assert.Equal(t, tc.permanent, e.Permanent())
			assert.Equal(t, tc.trouble, e.Trouble())
			everywhere := map[string]bool{"right": true, "role is missing": true, "credentials": true, "namespace going": true, "no namespace": true}
			assert.Equal(t, everywhere[name], e.Everywhere())
			assert.Equal(t, tc.missing, e.Missing)
			assert.Equal(t, tc.retryAfter, e.RetryAfter)
			is := map[ErrorClass]bool{Transient: IsTransient(err), Conflict: IsConflict(err), Quota: IsQuota(err), Forbidden: IsForbidden(err), Invalid: IsInvalid(err)}
			for class, yes := range is {
				assert.Equal(t, class == tc.class, yes, class)
			}
		})
	}
}

func troubleOf(t *testing.T, err error) powersave.Trouble {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	return e.Trouble()
}

type netError struct{ error }

func (e *netError) Timeout() bool   { return false }
func (e *netError) Temporary() bool { return true }
func (e *netError) Unwrap() error   { return e.error }

func TestDelete(t *testing.T) {
	conflict := apierrors.NewConflict(podResource, "cpu-1", errors.New("Precondition failed: UID in precondition: old, UID in object meta: new"))
	for name, tc := range map[string]struct {
		uid      string
		present  types.UID // "" for no pod
		deleteAs error
		getAs    error
		gone     bool
		want     string
		class    ErrorClass
	}{
		"accepted":           {uid: "u1", present: "u1"},
		"no such pod":        {uid: "u1", gone: true},
		"name taken anew":    {uid: "u1", present: "u2", deleteAs: conflict, gone: true},
		"gone meanwhile":     {uid: "u1", deleteAs: conflict, gone: true},
		"written meanwhile":  {uid: "u1", present: "u1", deleteAs: conflict, want: "deleting pod cpu-1: ", class: Transient},
		"cannot look":        {uid: "u1", present: "u1", deleteAs: conflict, getAs: apierrors.NewInternalError(errors.New("x")), want: "reading pod cpu-1", class: Transient},
		"forbidden":          {uid: "u1", present: "u1", deleteAs: apierrors.NewForbidden(podResource, "cpu-1", errors.New(`User "x" cannot delete resource "pods" in API group ""`)), want: `the right "delete pods" is missing`, class: Forbidden},
		"too many requests":  {uid: "u1", present: "u1", deleteAs: apierrors.NewTooManyRequests("slow", 1), want: "deleting pod", class: Transient},
		"name without a UID": {present: "u1", want: "the UID is missing", class: Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			c, kube, _ := testClient(t)
			if tc.present != "" {
				require.NoError(t, kube.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "cpu-1", UID: tc.present}}))
			}
			if tc.deleteAs != nil {
				fail(kube, "delete", tc.deleteAs)
			}
			if tc.getAs != nil {
				fail(kube, "get", tc.getAs)
			}
			gone, err := c.Delete(t.Context(), "cpu-1", tc.uid)
			assert.Equal(t, tc.gone, gone)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				assert.True(t, hasClass(err, tc.class))
			} else {
				require.NoError(t, err)
			}
			for _, a := range kube.Actions() {
				if d, ok := a.(clienttesting.DeleteActionImpl); ok {
					require.NotNil(t, d.DeleteOptions.Preconditions)
					assert.EqualValues(t, tc.uid, *d.DeleteOptions.Preconditions.UID)
					assert.EqualValues(t, 10, *d.DeleteOptions.GracePeriodSeconds, "jobs are not waited for")
				}
			}
		})
	}
}

func TestCheckAccess(t *testing.T) {
	c, kube, _ := testClient(t)
	refused := map[string]bool{}
	asked := map[string]bool{}
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		at := review.Spec.ResourceAttributes
		right := at.Verb + " " + Right{Group: at.Group, Resource: at.Resource, Subresource: at.Subresource}.String()
		asked[right] = at.Namespace == "slurm"
		review.Status.Allowed = !refused[right]
		return true, review, nil
	})
	require.NoError(t, c.CheckAccess(t.Context()))
	assert.Equal(t, map[string]bool{
		"create pods": true, "delete pods": true, "get pods": true, "list pods": true, "watch pods": true, "patch pods": true,
		"create poddisruptionbudgets.policy": true, "get poddisruptionbudgets.policy": true, "patch poddisruptionbudgets.policy": true,
		"list nodesets.slurmtide.io": true, "watch nodesets.slurmtide.io": true, "patch nodesets.slurmtide.io/status": true,
		"create events.events.k8s.io": true, "patch events.events.k8s.io": true, "list events": true, "watch events": true,
		"create controllerrevisions.apps": true, "delete controllerrevisions.apps": true, "list controllerrevisions.apps": true, "patch controllerrevisions.apps": true,
		"create leases.coordination.k8s.io": true, "get leases.coordination.k8s.io": true, "update leases.coordination.k8s.io": true,
	}, asked)

	refused["delete pods"], refused["patch nodesets.slurmtide.io/status"] = true, true
	err := c.CheckAccess(t.Context())
	require.EqualError(t, err, "checking the bridge's rights: missing in namespace slurm: delete pods, patch nodesets.slurmtide.io/status: add them to the Role of the bridge's service account")
	assert.True(t, IsForbidden(err))
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, []string{"delete pods", "patch nodesets.slurmtide.io/status"}, e.Missing)

	kube.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, &netError{syscall.ECONNREFUSED}
	})
	err = c.CheckAccess(t.Context())
	require.ErrorContains(t, err, "the API server cannot be reached")
	assert.True(t, IsTransient(err))
}

func TestNew(t *testing.T) {
	cfg := &rest.Config{Host: "https://127.0.0.1:1", QPS: 5, Burst: 10}
	_, err := New(cfg, "", "tide", Options{})
	require.ErrorContains(t, err, "needs a namespace")
	_, err = New(cfg, "slurm", "", Options{})
	require.ErrorContains(t, err, "Slurm cluster's name")
	c, err := New(cfg, "slurm", "tide", Options{})
	require.NoError(t, err)
	assert.InDelta(t, DefaultQPS, c.kube.CoreV1().RESTClient().GetRateLimiter().QPS(), 0.1, "client-go's default of 5 must not survive")
	assert.InDelta(t, DefaultQPS, c.tide.SlurmtideV1alpha1().RESTClient().GetRateLimiter().QPS(), 0.1)
	assert.InDelta(t, 5, cfg.QPS, 0, "the caller's configuration stays as it is")
	c, err = New(cfg, "slurm", "tide", Options{QPS: 20, Burst: 30})
	require.NoError(t, err)
	assert.InDelta(t, 20, c.kube.CoreV1().RESTClient().GetRateLimiter().QPS(), 0.1)
}
