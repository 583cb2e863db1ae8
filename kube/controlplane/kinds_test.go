package controlplane

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	tidefake "github.com/slurmtide/slurmtide/kube/generated/clientset/versioned/fake"
)

func TestParseKinds(t *testing.T) {
	kinds, err := ParseKinds([]string{"Controller", "restapi"})
	require.NoError(t, err)
	assert.Equal(t, []string{"Controller", "RestApi"}, kinds)
	_, err = ParseKinds([]string{"Controller", "NodeSet"})
	require.EqualError(t, err, `unknown kind "NodeSet": use some of Controller, Accounting, RestApi, LoginSet, Token`)
}

// Objects of a kind that is switched off are not touched, not even their status.
func TestKinds(t *testing.T) {
	for name, test := range map[string]struct{ kinds, touched []string }{
		"all":  {nil, []string{"Accounting", "LoginSet", "RestApi", "Token"}},
		"some": {[]string{"Token", "LoginSet"}, []string{"LoginSet", "Token"}},
		"one":  {[]string{"Accounting"}, []string{"Accounting"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				about := metav1.ObjectMeta{Namespace: "slurm", Name: "tide", Generation: 1}
				missing, key := v1alpha1.ObjectRef{Name: "missing"}, &v1alpha1.KeyRef{Name: "missing", Key: "key"}
				tide := tidefake.NewSimpleClientset(
					&v1alpha1.Accounting{ObjectMeta: about, Spec: v1alpha1.AccountingSpec{SlurmKeyRef: key, JWTKeyRef: key}},
					&v1alpha1.RestApi{ObjectMeta: about, Spec: v1alpha1.RestApiSpec{ControllerRef: missing}},
					&v1alpha1.LoginSet{ObjectMeta: about, Spec: v1alpha1.LoginSetSpec{ControllerRef: missing}},
					&v1alpha1.Token{ObjectMeta: about, Spec: v1alpha1.TokenSpec{ControllerRef: &missing}},
				)
				l := newLoop(fake.NewClientset(), tide, dynamicfake.NewSimpleDynamicClient(scheme.Scheme), Options{Kinds: test.kinds, Workers: 1})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- l.Run(ctx) }()
				time.Sleep(3 * resyncEvery) // of the bubble
				touched := map[string]bool{}
				for _, action := range tide.Actions() {
					if action.GetSubresource() == "status" {
						touched[action.GetResource().Resource] = true
					}
				}
				var kinds []string
				for _, kind := range []struct{ name, resource string }{{"Accounting", "accountings"}, {"LoginSet", "loginsets"}, {"RestApi", "restapis"}, {"Token", "tokens"}} {
					if touched[kind.resource] {
						kinds = append(kinds, kind.name)
					}
				}
				assert.Equal(t, test.touched, kinds)
				cancel()
				require.NoError(t, <-done)
			})
		})
	}
}
