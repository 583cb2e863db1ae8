package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
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
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/internal/cli/clitest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
	"github.com/slurmtide/slurmtide/test/leaks"
)

// written is what clients were asked to write, Secrets apart.
func written(t *testing.T, actions []kubetesting.Action) string {
	t.Helper()
	var all strings.Builder
	for _, action := range actions {
		if action.GetResource().Resource == "secrets" {
			continue
		}
		var what any
		switch action := action.(type) {
		case kubetesting.PatchAction:
			what = string(action.GetPatch())
		case kubetesting.CreateAction: // an update, too
			what = action.GetObject()
		}
		if what != nil {
			text, err := json.Marshal(what)
			require.NoError(t, err)
			fmt.Fprintln(&all, action.GetVerb(), action.GetResource().Resource, action.GetSubresource(), string(text))
		}
	}
	return all.String()
}

// TestSecretsStayInSecrets carries out a whole cluster, with keys that are made and keys that are given, well and with a Kubernetes or users that get in the way. What is a
// secret stands in Secrets alone: in no line of the log, no Event, no condition, and no other object.
func TestSecretsStayInSecrets(t *testing.T) {
	given := leaks.Secrets{
		"slurm.key":     []byte("\x8f\x01 bytes that nobody can print \xf0\xff and more of them"),
		"jwt_hs256.key": []byte("the key that tokens are signed with, 32 bytes at least"),
		"host key":      []byte("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n-----END OPENSSH PRIVATE KEY-----\n"),
		"password":      []byte("hunter2-of-mariadb"),
		"odd password":  []byte("hunter3 \"of\" mariadb"),
	}
	const own = "tide-given"
	ref := func(key string) *v1alpha1.KeyRef { return &v1alpha1.KeyRef{Name: own, Key: key} }
	type objects struct {
		c *v1alpha1.Controller
		a *v1alpha1.Accounting
		l *v1alpha1.LoginSet
	}
	giveAll := func(o objects) {
		o.a.Spec.SlurmKeyRef, o.a.Spec.JWTKeyRef = ref("slurm.key"), ref("jwt_hs256.key")
		o.l.Spec.HostKeysRef = &v1alpha1.ObjectRef{Name: own}
	}
	refuse := func(resource string, err error) func(*fake.Clientset) {
		return func(kube *fake.Clientset) {
			kube.PrependReactor("*", resource, func(action kubetesting.Action) (bool, runtime.Object, error) {
				return action.GetVerb() == "create" || action.GetVerb() == "update", nil, err
			})
		}
	}
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, test := range map[string]struct {
		change func(objects)
		kube   func(*fake.Clientset)
		says   string // in log, Events or conditions
	}{
		"made":           {says: "made a key"},
		"given":          {change: giveAll, says: "the token in the Secret is good"},
		"two keys":       {change: func(o objects) { giveAll(o); o.c.Spec.SlurmKeyRef = ref("jwt_hs256.key") }, says: "it is another key than that of Accounting records"},
		"wrong entries":  {change: func(o objects) { giveAll(o); o.l.Spec.HostKeysRef.Name = "tide-words" }, says: "exists, but has no host key"},
		"odd password":   {change: func(o objects) { o.a.Spec.StorageConfig.PasswordKeyRef = *ref("odd password") }, says: "slurmdbd.conf has no way to write this password"},
		"bad extraConf":  {change: func(o objects) { giveAll(o); o.a.Spec.ExtraConf = "StoragePass=other" }, says: "it comes from spec.storageConfig.passwordKeyRef"},
		"no rights":      {kube: refuse("secrets", apierrors.NewForbidden(secrets, "tide-auth-slurm", errors.New("no rights"))), says: "no rights"},
		"Kubernetes ill": {kube: refuse("secrets", apierrors.NewInternalError(errors.New("etcd is away"))), says: "etcd is away"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := objects{c: controller(func(c *v1alpha1.Controller) { c.Spec.AccountingRef = &v1alpha1.ObjectRef{Name: "records"} }), a: accounting(nil), l: loginSet(nil)}
				o.a.Spec.StorageConfig.PasswordKeyRef = *ref("password")
				if test.change != nil {
					test.change(o)
				}
				about := metav1.ObjectMeta{Namespace: "slurm", Name: "tide", UID: "uid-of-tide"}
				tide := tidefake.NewSimpleClientset(o.c, o.a, o.l, sshSet(nil),
					&v1alpha1.RestApi{ObjectMeta: about, Spec: v1alpha1.RestApiSpec{ControllerRef: v1alpha1.ObjectRef{Name: "tide"}}},
					&v1alpha1.Token{ObjectMeta: about, Spec: v1alpha1.TokenSpec{ControllerRef: &v1alpha1.ObjectRef{Name: "tide"}, Username: "ann"}})
				data := map[string][]byte{"slurm.key": given["slurm.key"], "jwt_hs256.key": given["jwt_hs256.key"], "password": given["password"],
					"odd password": given["odd password"], "ssh_host_ed25519_key": given["host key"]}
				kube := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: own}, Data: data},
					&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "tide-words"}, Data: map[string][]byte{"password": given["password"]}})
				if test.kube != nil {
					test.kube(kube)
				}
				dynamic := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
				dynamic.PrependReactor("patch", "*", func(kubetesting.Action) (bool, runtime.Object, error) { return true, &unstructured.Unstructured{}, nil })
				log := &clitest.Log{}
				l := newLoop(kube, tide, dynamic, Options{Settings: settings, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- l.Run(ctx) }()
				time.Sleep(time.Hour) // of the bubble: tokens are made anew
				cancel()
				require.NoError(t, <-done)

				// Whatever was ever put into a Secret.
				all := leaks.Secrets{}
				for name, secret := range given {
					all[name] = secret
				}
				made := 0
				for _, action := range kube.Actions() {
					create, ok := action.(kubetesting.CreateAction)
					if !ok || action.GetResource().Resource != "secrets" {
						continue
					}
					s, ok := create.GetObject().(*corev1.Secret)
					require.True(t, ok)
					for key, text := range s.Data {
						if !strings.HasSuffix(key, ".pub") && key != "slurmdbd.conf" {
							made++
							all[fmt.Sprint(s.Name, " ", key, " ", made)] = text
						}
					}
				}
				assert.Positive(t, made)
				said := log.String() + written(t, kube.Actions()) + written(t, tide.Actions())
				assert.Contains(t, said, test.says)
				assert.Empty(t, all.In(said+written(t, dynamic.Actions())))
			})
		})
	}
}
