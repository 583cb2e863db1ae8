package controlplane

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// What will not go away by itself stands in a condition, and is tried again all the same.
func TestProblem(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	}
	tests := map[string]struct {
		err  error
		want string
	}{
		"ours":          {&Problem{"KeyMissing", "m"}, "KeyMissing"},
		"invalid":       {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a", nil), "ApplyFailed"},
		"forbidden":     {apierrors.NewForbidden(maps, "a", errors.New("quota")), "ApplyFailed"},
		"too large":     {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), "ApplyFailed"},
		"bad request":   {apierrors.NewBadRequest("no"), "ApplyFailed"},
		"twice":         {status(500, `failed to create typed patch object (ns/a; apps/v1, Kind=StatefulSet): .spec.template.spec.containers[name="slurmctld"].env: duplicate entries for key [name="A"]`), "ApplyFailed"},
		"etcd":          {status(500, "etcdserver: leader changed"), ""},
		"conflict":      {apierrors.NewConflict(maps, "a", errors.New("no")), ""},
		"too many":      {apierrors.NewTooManyRequests("later", 1), ""},
		"away":          {apierrors.NewServiceUnavailable("later"), ""},
		"not reachable": {errors.New("connection refused"), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			seen, err := problem(fmt.Errorf("applying: %w", test.err))
			if test.want == "" {
				assert.Nil(t, seen)
				require.Error(t, err)
				return
			}
			require.NotNil(t, seen)
			assert.Equal(t, test.want, seen.Reason)
			if test.want == "ApplyFailed" {
				require.Error(t, err, "it is tried again")
				assert.Equal(t, err.Error(), seen.Message)
			}
		})
	}
	seen, err := problem(nil)
	assert.Nil(t, seen)
	require.NoError(t, err)
}

// An Event has the condition's words, as far as the API server takes them.
func TestTellChanges(t *testing.T) {
	for name, test := range map[string]struct{ message, want string }{
		"short":            {"no such plugin", "no such plugin"},
		"just right":       {strings.Repeat("a", maxNote), strings.Repeat("a", maxNote)},
		"long":             {strings.Repeat("a", maxNote+1), strings.Repeat("a", maxNote-3) + "..."},
		"inside of a rune": {strings.Repeat("é", maxNote), strings.Repeat("é", (maxNote-3)/2) + "..."},
		"and of another":   {"a" + strings.Repeat("é", maxNote), "a" + strings.Repeat("é", (maxNote-4)/2) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			told := events.NewFakeRecorder(1)
			l := &Loop{events: told}
			l.tellChanges("Controller", controller(nil), nil, []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionFalse, Reason: "Invalid", Message: test.message}})
			assert.Equal(t, "Warning AcceptedInvalid "+test.want, <-told.Events)
		})
	}
}

// A ConfigMap that kubectl makes of a file with a byte that is no UTF-8 has it in binaryData.
func TestFilesOfAnyBytes(t *testing.T) {
	const latin = "# f\xfcr alle\nMaxJobCount=5\n"
	l := loopWith(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "site"},
		Data: map[string]string{"a.conf": "a"}, BinaryData: map[string][]byte{"more.conf": []byte(latin), "b.conf": []byte("b")}})
	files, err := l.files(t.Context(), "slurm", "spec.configFileRefs", []v1alpha1.ObjectRef{{Name: "site"}})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a.conf": "a", "b.conf": "b", "more.conf": latin}, files)
	objects, err := ControllerObjects(controller(nil), files, settings)
	require.NoError(t, err)
	config, ok := objects[1].(*corev1.ConfigMap)
	require.True(t, ok)
	assert.Equal(t, map[string]string{"a.conf": "a", "b.conf": "b"}, config.Data)
	assert.Equal(t, map[string][]byte{"more.conf": []byte(latin)}, config.BinaryData)
}

// slurmdbd tells clusters apart by their names alone.
func TestNameTaken(t *testing.T) {
	one := func(namespace, name, clusterName, slurmdbd string) *v1alpha1.Controller {
		return &v1alpha1.Controller{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"slurmdbd": slurmdbd}},
			Spec:       v1alpha1.ControllerSpec{ClusterName: clusterName},
		}
	}
	outside := one("b", "tide", "", "dbd:6819")
	outside.Spec.External = &v1alpha1.ExternalController{Host: "head"}
	late := one("a", "tide", "", "dbd:6819")
	late.CreationTimestamp = metav1.Unix(2, 0)
	for name, test := range map[string]struct {
		c, other *v1alpha1.Controller
		want     string
	}{
		"itself":             {one("a", "tide", "", "dbd:6819"), one("a", "tide", "", "dbd:6819"), ""},
		"its namespace":      {one("a", "tide2", "tide", ""), one("a", "tide", "", ""), "Controller tide of this namespace has the cluster name tide already: delete this one, and make it anew with another spec.clusterName"},
		"another name":       {one("a", "tide2", "", ""), one("a", "tide", "", ""), ""},
		"a namespace beside": {one("b", "tide", "", ""), one("a", "tide", "", ""), ""},
		"one slurmdbd": {one("b", "tide", "", "dbd:6819"), one("a", "tide", "", "dbd:6819"), "Controller tide of namespace a has the cluster name tide, too, and the same slurmdbd (dbd:6819), which takes both for one: " +
			"delete one of them, and make it anew with another spec.clusterName, or give it another slurmdbd"},
		"of two, the first":       {one("a", "tide", "", "dbd:6819"), one("b", "tide", "", "dbd:6819"), ""},
		"by time":                 {one("b", "tide", "", "dbd:6819"), late, ""},
		"two slurmdbds":           {one("b", "tide", "", "dbd:6819"), one("a", "tide", "", "dbd:6820"), ""},
		"outside, of two objects": {outside, one("a", "tide", "", "dbd:6819"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			taken := nameTaken(test.c, []*v1alpha1.Controller{test.c, test.other}, func(c *v1alpha1.Controller) string { return c.Annotations["slurmdbd"] })
			if test.want == "" {
				assert.Nil(t, taken)
				return
			}
			require.NotNil(t, taken)
			assert.Equal(t, test.want, taken.Message)
		})
	}
}

func TestSameSlurmdbd(t *testing.T) {
	for host, want := range map[string]string{
		"":                        "records-accounting.slurm:6819",
		"dbd":                     "dbd.slurm:6819", // of this namespace, and of no other
		"dbd.other":               "dbd.other:6819",
		"dbd.other.svc":           "dbd.other:6819",
		"DBD.other.svc.tide.lan.": "dbd.other:6819",
		"dbd.example.com":         "dbd.example.com:6819",
		"192.0.2.1":               "192.0.2.1:6819",
		"2001:db8::1":             "[2001:db8::1]:6819",
	} {
		a := &v1alpha1.Accounting{ObjectMeta: metav1.ObjectMeta{Name: "records", Namespace: "slurm"}}
		if host != "" {
			a.Spec.External = &v1alpha1.ExternalAccounting{Host: host}
		}
		assert.Equal(t, want, sameSlurmdbd(a, Settings{ClusterDomain: "tide.lan"}), host)
	}
}
