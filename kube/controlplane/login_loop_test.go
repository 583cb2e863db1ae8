package controlplane

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/slurmtide/slurmtide/internal/manifest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/sshd"
)

func TestHostKeysAreMadeOnce(t *testing.T) {
	kube := fake.NewClientset()
	l := &Loop{kube: kube, deployments: cache.NewStore(cache.MetaNamespaceKeyFunc), o: Options{Log: slog.New(slog.DiscardHandler)}}
	s := loginSet(nil)
	made, err := l.hostKeys(t.Context(), s)
	require.NoError(t, err)
	secret, err := kube.CoreV1().Secrets("slurm").Get(t.Context(), "tide-login-host-keys", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, made, secret.Data)
	assert.True(t, *secret.Immutable)
	assert.Equal(t, s.UID, metav1.GetControllerOf(secret).UID)
	again, err := l.hostKeys(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, made, again)

	_, err = l.hostKeys(t.Context(), loginSet(func(s *v1alpha1.LoginSet) { s.UID = "another" }))
	require.ErrorContains(t, err, "Secret tide-login-host-keys belongs to another object, LoginSet tide with UID uid-of-loginset: if that was this one's forerunner")

	// Pods run with them: they cannot be made anew behind the users' backs.
	require.NoError(t, l.deployments.Add(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "tide-login"}}))
	require.NoError(t, kube.CoreV1().Secrets("slurm").Delete(t.Context(), "tide-login-host-keys", metav1.DeleteOptions{}))
	_, err = l.hostKeys(t.Context(), s)
	require.ErrorContains(t, err, "Secret tide-login-host-keys, in which the host keys of this LoginSet were, is gone: create it again with the same keys")
}

func TestHostKeysOfOthers(t *testing.T) {
	secret := func(name string, files ...string) runtime.Object {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "slurm"}, Data: map[string][]byte{}}
		for _, file := range files {
			s.Data[file] = []byte("x")
		}
		return s
	}
	tests := map[string]struct {
		there   runtime.Object
		ref     string
		problem string
	}{
		"given":                {secret("mine", "ssh_host_rsa_key"), "mine", ""},
		"kept from before":     {secret("tide-login-host-keys", "ssh_host_rsa_key"), "", ""},
		"given, but not there": {secret("other"), "mine", "spec.hostKeysRef: there is no Secret mine: create it, with keys called as ssh_host_ed25519_key"},
		"given, without a key": {secret("mine", "ssh_host_rsa_key.pub", "id_rsa"), "mine", "Secret mine exists, but has no host key: put one in under ssh_host_ed25519_key, or delete the Secret"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset(test.there)
			l := &Loop{kube: kube, o: Options{Log: slog.New(slog.DiscardHandler)}}
			keys, err := l.hostKeys(t.Context(), loginSet(func(s *v1alpha1.LoginSet) {
				if test.ref != "" {
					s.Spec.HostKeysRef = &v1alpha1.ObjectRef{Name: test.ref}
				}
			}))
			if test.problem == "" {
				require.NoError(t, err)
				assert.Equal(t, []string{"ssh_host_rsa_key"}, sshd.PrivateHostKeys(keys))
			} else {
				require.EqualError(t, err, test.problem)
			}
			for _, action := range kube.Actions() {
				assert.Equal(t, "get", action.GetVerb())
			}
		})
	}
}

func TestLoginExample(t *testing.T) {
	users, found := map[string]string{}, false
	for _, document := range documents(t, "../../docs/examples/login.yaml") {
		switch {
		case strings.Contains(document, "\nkind: LoginSet\n"):
			var s v1alpha1.LoginSet
			require.NoError(t, manifest.Unmarshal([]byte(document), &s))
			_, err := LoginSetObjects(&s, controller(nil), nil, settings)
			require.NoError(t, err)
			found = true
		case strings.Contains(document, "name: users\n"):
			var m corev1.ConfigMap
			require.NoError(t, manifest.Unmarshal([]byte(document), &m))
			users = m.Data
		}
	}
	assert.True(t, found)
	require.NoError(t, sshd.CheckUsers(users))
}
