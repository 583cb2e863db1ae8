package pods

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

// testRooms has two NodeSets that ask for room, cpu and gpu, and one that does not, plain.
func testRooms(t *testing.T) (*Rooms, *dynamicfake.FakeDynamicClient, *kubefake.Clientset) {
	t.Helper()
	asking := func(name, class string) *v1alpha1.NodeSet {
		ns := newNodeSet(name, name+"-[0-9]")
		ns.UID = "uid-of-nodeset"
		ns.Spec.Offerings = []v1alpha1.Offering{{Name: "spot", NodeSelector: map[string]string{"pool": "spot"}}}
		ns.Spec.Boot = &v1alpha1.BootPolicy{TopologyKey: "zone", ProvisioningRequest: &v1alpha1.ProvisioningRequest{
			ClassName: class, Parameters: map[string]v1alpha1.ProvisioningParameter{"ValidUntilSeconds": "300"},
		}}
		return ns
	}
	c, kube, _ := testClient(t, asking("cpu", "atomic"), asking("gpu", "atomic"), asking("odd", "check"), newNodeSet("plain", "plain-1"))
	c.opts.Cluster = "my_tide"
	d := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{provisioningRequests: "ProvisioningRequestList"})
	return &Rooms{client: c, dynamic: d}, d, kube
}

var twoSets = powersave.RoomRequest{Job: 4711, Attempt: 3, Sets: []powersave.RoomSet{{NodeSet: "cpu", Offering: "spot", Pods: 7}, {NodeSet: "gpu", Pods: 1}}}

func templateNames(t *testing.T, kube *kubefake.Clientset) []string {
	t.Helper()
	list, err := kube.CoreV1().PodTemplates("slurm").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func TestRoomsAsk(t *testing.T) {
	r, _, kube := testRooms(t)
	name, err := r.Ask(t.Context(), twoSets)
	require.NoError(t, err)
	assert.Equal(t, "my-tide-job-4711-3", name)

	got, err := r.requests().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "autoscaling.x-k8s.io/v1", got.GetAPIVersion())
	assert.Equal(t, "ProvisioningRequest", got.GetKind())
	assert.Equal(t, map[string]string{"slurmtide.io/cluster": "my_tide", "slurmtide.io/job": "4711"}, got.GetLabels())
	assert.Equal(t, "NodeSet", got.GetOwnerReferences()[0].Kind)
	assert.Equal(t, map[string]any{
		"provisioningClassName": "atomic",
		"parameters":            map[string]any{"ValidUntilSeconds": "300"},
		"podSets": []any{
			map[string]any{"count": int64(7), "podTemplateRef": map[string]any{"name": "my-tide-job-4711-3-0"}},
			map[string]any{"count": int64(1), "podTemplateRef": map[string]any{"name": "my-tide-job-4711-3-1"}},
		},
	}, got.Object["spec"])
	assert.NotContains(t, got.Object, "status")

	template, err := kube.CoreV1().PodTemplates("slurm").Get(t.Context(), "my-tide-job-4711-3-0", metav1.GetOptions{})
	require.NoError(t, err)
	spec := template.Template.Spec
	assert.Equal(t, map[string]string{"pool": "spot"}, spec.NodeSelector)
	assert.Equal(t, "zone", spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.TopologyKey)
	assert.Equal(t, "4", spec.Containers[0].Resources.Requests.Cpu().String())
	assert.Equal(t, "4711", template.Template.Labels["slurmtide.io/job"])
	assert.Empty(t, spec.Hostname)
	assert.NotContains(t, template.Template.Labels, "slurmtide.io/node")

	again, err := r.Ask(t.Context(), twoSets)
	require.NoError(t, err, "the same attempt, asked for twice")
	assert.Equal(t, name, again)
	next := twoSets
	next.Attempt = 4
	other, err := r.Ask(t.Context(), next)
	require.NoError(t, err)
	assert.NotEqual(t, name, other)
}

func TestRoomsAskAfterAnAnswerWasLost(t *testing.T) {
	r, d, kube := testRooms(t)
	lost := true
	d.PrependReactor("create", "provisioningrequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if !lost {
			return false, nil, nil
		}
		lost = false
		require.NoError(t, d.Tracker().Create(provisioningRequests, a.(clienttesting.CreateAction).GetObject(), "slurm"))
		return true, nil, apierrors.NewTimeoutError("the answer was lost", 0)
	})
	_, err := r.Ask(t.Context(), twoSets)
	require.True(t, IsTransient(err), "%v", err)
	name, err := r.Ask(t.Context(), twoSets)
	require.NoError(t, err)
	assert.Equal(t, []string{name + "-0", name + "-1"}, templateNames(t, kube))
}

func TestRoomsAskErrors(t *testing.T) {
	one := func(nodeSet string) powersave.RoomRequest {
		return powersave.RoomRequest{Job: 1, Attempt: 1, Sets: []powersave.RoomSet{{NodeSet: nodeSet, Pods: 1}}}
	}
	notFound := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404, Message: "the server could not find the requested resource"}}
	foreign := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": map[string]any{"name": "my-tide-job-1-1", "namespace": "slurm"},
	}}
	leaving := foreign.DeepCopy()
	leaving.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	for name, tc := range map[string]struct {
		request powersave.RoomRequest
		exists  *unstructured.Unstructured
		fails   error
		class   ErrorClass
		want    string
	}{
		"no job":                {request: powersave.RoomRequest{}, class: Invalid, want: "needs a job and its pods"},
		"too many kinds":        {request: powersave.RoomRequest{Job: 1, Sets: make([]powersave.RoomSet, 33)}, class: Invalid, want: "pods of 33 kinds"},
		"no NodeSet":            {request: one("gone"), class: Invalid, want: "there is no NodeSet gone"},
		"NodeSet asks for none": {request: one("plain"), class: Invalid, want: "NodeSet plain has no spec.boot.provisioningRequest"},
		"no offering": {request: powersave.RoomRequest{Job: 1, Sets: []powersave.RoomSet{{NodeSet: "cpu", Offering: "x", Pods: 1}}}, class: Invalid,
			want: `spec.offerings has no "x"`},
		"two classes": {request: powersave.RoomRequest{Job: 1, Sets: []powersave.RoomSet{{NodeSet: "cpu", Pods: 1}, {NodeSet: "odd", Pods: 1}}}, class: Invalid,
			want: "the NodeSets cpu and odd, whose spec.boot.provisioningRequest.className differ"},
		"no such API":   {request: one("cpu"), fails: notFound, class: Invalid, want: "install the CRD of the cluster autoscaler or remove spec.boot.provisioningRequest"},
		"no right":      {request: one("cpu"), fails: apierrors.NewForbidden(provisioningRequests.GroupResource(), "", errors.New(`User "x" cannot create resource "provisioningrequests"`)), class: Forbidden, want: `"create provisioningrequests.autoscaling.x-k8s.io" is missing`},
		"foreign":       {request: one("cpu"), exists: foreign, class: Conflict, want: "does not belong to Slurm cluster my_tide"},
		"being deleted": {request: one("cpu"), exists: leaving, class: Transient, want: "is going away"},
	} {
		t.Run(name, func(t *testing.T) {
			r, d, kube := testRooms(t)
			if tc.exists != nil {
				require.NoError(t, d.Tracker().Create(provisioningRequests, tc.exists, "slurm"))
			}
			if tc.fails != nil {
				d.PrependReactor("create", "provisioningrequests", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.fails })
			}
			_, err := r.Ask(t.Context(), tc.request)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "creating ProvisioningRequest my-tide-job-")
			assert.True(t, hasClass(err, tc.class), "%v", err)
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, name == "too many kinds" || name == "two classes", e.OfJob())
			assert.Equal(t, slices.Contains([]string{"no such API", "no right", "no NodeSet"}, name), e.Everywhere())
			if tc.exists == nil {
				assert.Empty(t, templateNames(t, kube), "nobody will drop them")
			}
		})
	}
}

func TestRoomsList(t *testing.T) {
	r, d, _ := testRooms(t)
	condition := func(kind string, status metav1.ConditionStatus, reason string) any {
		return map[string]any{"type": kind, "status": string(status), "reason": reason, "message": kind + " because " + reason, "lastTransitionTime": "2026-05-01T00:00:00Z"}
	}
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	accepted, provisioned := condition("Accepted", yes, "A"), condition("Provisioned", yes, "P")
	want := map[string]powersave.Room{}
	for name, tc := range map[string]struct {
		conditions []any
		state      powersave.RoomState
		message    string
		refused    bool
	}{
		"new":                 {nil, powersave.RoomPending, "", false},
		"not accepted":        {[]any{condition("Accepted", no, "A")}, powersave.RoomPending, "", false},
		"accepted":            {[]any{accepted}, powersave.RoomAccepted, "Accepted because A", false},
		"no room yet":         {[]any{accepted, condition("Provisioned", no, "CapacityIsNotFound")}, powersave.RoomAccepted, "Provisioned because CapacityIsNotFound", true},
		"room for a part":     {[]any{accepted, condition("Provisioned", yes, "PartialCapacityIsFound")}, powersave.RoomAccepted, "Provisioned because PartialCapacityIsFound", true},
		"provisioned":         {[]any{accepted, provisioned, condition("Failed", no, "F")}, powersave.RoomProvisioned, "Provisioned because P", false},
		"failed":              {[]any{accepted, condition("Provisioned", no, "P"), condition("Failed", yes, "F")}, powersave.RoomFailed, "Failed because F", false},
		"expired":             {[]any{accepted, provisioned, condition("BookingExpired", yes, "B")}, powersave.RoomExpired, "BookingExpired because B", false},
		"revoked":             {[]any{accepted, provisioned, condition("BookingExpired", yes, "B"), condition("CapacityRevoked", yes, "C")}, powersave.RoomRevoked, "CapacityRevoked because C", false},
		"revoked and refused": {[]any{condition("CapacityRevoked", yes, "C"), condition("Failed", yes, "F")}, powersave.RoomRevoked, "CapacityRevoked because C", false},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
			"metadata": map[string]any{
				"name": name, "namespace": "slurm", "creationTimestamp": "2026-05-01T00:00:00Z",
				"labels": map[string]any{"slurmtide.io/cluster": "my_tide", "slurmtide.io/job": "4294967294"}, "annotations": map[string]any{"slurmtide.io/generation": "9"},
			},
			"spec":   map[string]any{"provisioningClassName": "atomic", "podSets": []any{}},
			"status": map[string]any{"conditions": tc.conditions},
		}}
		require.NoError(t, d.Tracker().Create(provisioningRequests, obj, "slurm"))
		want[name] = powersave.Room{Name: name, Job: 4294967294, Attempt: 9, State: tc.state, Refused: tc.refused, Message: tc.message, Created: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
	}
	foreign := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": map[string]any{"name": "foreign", "namespace": "slurm"},
	}}
	require.NoError(t, d.Tracker().Create(provisioningRequests, foreign, "slurm"))

	missing := error(&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404, Message: "the server could not find the requested resource"}})
	d.PrependReactor("list", "provisioningrequests", func(clienttesting.Action) (bool, runtime.Object, error) { return missing != nil, nil, missing })
	_, err := r.List(t.Context())
	require.ErrorContains(t, err, "install the CRD of the cluster autoscaler")
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Everywhere(), "no change of a NodeSet brings it, and it may come")
	missing = nil
	rooms, err := r.List(t.Context())
	require.NoError(t, err)
	got := map[string]powersave.Room{}
	for _, room := range rooms {
		room.Created = room.Created.UTC()
		got[room.Name] = room
	}
	assert.Equal(t, want, got)
}

func TestRoomsDrop(t *testing.T) {
	r, d, kube := testRooms(t)
	name, err := r.Ask(t.Context(), twoSets)
	require.NoError(t, err)
	require.NoError(t, kube.Tracker().Create(corev1.SchemeGroupVersion.WithResource("podtemplates"), &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: "slurm"}}, "slurm"))

	fail := true
	d.PrependReactor("delete", "provisioningrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fail, nil, apierrors.NewTimeoutError("no answer", 0)
	})
	require.Error(t, r.Drop(t.Context(), name))
	fail = false
	require.NoError(t, r.Drop(t.Context(), name), "what was cut short is repeated")
	assert.Equal(t, []string{"theirs"}, templateNames(t, kube))
	rooms, err := r.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, rooms)
	require.NoError(t, r.Drop(t.Context(), name))

	foreign := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": map[string]any{"name": "foreign", "namespace": "slurm"},
	}}
	require.NoError(t, d.Tracker().Create(provisioningRequests, foreign, "slurm"))
	require.ErrorContains(t, r.Drop(t.Context(), "foreign"), "does not belong to Slurm cluster my_tide")
}
