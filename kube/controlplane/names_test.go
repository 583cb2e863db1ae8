package controlplane

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// Whatever objects are called, what is made for one is not called like what is made for another: Controller tide-accounting once wanted the ConfigMap of tide's
// Accounting.
func TestNamesDoNotMeet(t *testing.T) {
	const name = "x"
	records := accounting(func(a *v1alpha1.Accounting) { a.Name = name })
	c := controller(func(c *v1alpha1.Controller) {
		c.Name, c.Spec.Backups, c.Spec.AccountingRef = name, 3, &v1alpha1.ObjectRef{Name: name}
		c.Spec.Persistence.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	all, err := ControllerObjects(c, nil, settings)
	require.NoError(t, err)
	client, err := AccountingClient(c, records, settings)
	require.NoError(t, err)
	all = append(all, client, accountingSecret(records, "", ""))
	all = append(all, AccountingObjects(records, "")...)
	rest, err := RestApiObjects(&v1alpha1.RestApi{ObjectMeta: metav1.ObjectMeta{Name: name}}, c, records, settings)
	require.NoError(t, err)
	login, err := LoginSetObjects(&v1alpha1.LoginSet{ObjectMeta: metav1.ObjectMeta{Name: name}}, c, nil, settings)
	require.NoError(t, err)
	all = append(append(all, rest...), login...)
	for _, made := range []string{madeSlurmKey(name).Name, madeJWTKey(name).Name, hostKeysName(&v1alpha1.LoginSet{ObjectMeta: metav1.ObjectMeta{Name: name}})} {
		all = append(all, &corev1.Secret{TypeMeta: typeMeta("v1", "Secret"), ObjectMeta: metav1.ObjectMeta{Name: made}})
	}
	endings := map[string][]string{}
	for _, o := range all {
		kind := o.GetObjectKind().GroupVersionKind().Kind
		ending, ours := strings.CutPrefix(o.GetName(), name)
		require.True(t, ours, "%s %s", kind, o.GetName())
		for _, other := range endings[kind] {
			assert.False(t, strings.HasSuffix(other, ending) || strings.HasSuffix(ending, other), "two objects may both want %s %s%s and %s%s", kind, name, ending, name, other)
		}
		endings[kind] = append(endings[kind], ending)
	}
	assert.Len(t, endings["ConfigMap"], 4)
}
