package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

const goodJWKS = `{"keys": [{"kid": "a", "kty": "EC", "alg": "ES256"}, {"kid": "b", "kty": "RSA", "alg": "RS256", "use": "sig", "n": "AQAB", "e": "AQAB"}]}`

func TestCheckJWKS(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"good":          {goodJWKS, ""},
		"no JSON":       {"-----BEGIN PUBLIC KEY-----", "spec.jwksKeyRef: it is no JSON Web Key Set: invalid character"},
		"no set":        {`{"kid": "a"}`, `spec.jwksKeyRef: none of its keys is for Slurm: one at least has to have "kty": "RSA" and "alg": "RS256"`},
		"no kid":        {`{"keys": [{"kty": "EC"}]}`, "spec.jwksKeyRef: keys[0] has no kid, by which tokens name it: give it one"},
		"no modulus":    {`{"keys": [{"kid": "a", "kty": "RSA", "e": "AQAB"}]}`, "spec.jwksKeyRef: keys[0] (kid a) has no n, or no e: write both, as RFC 7518 has them for RSA"},
		"no alg":        {`{"keys": [{"kid": "a", "kty": "RSA", "e": "AQAB", "n": "AQAB"}]}`, "none of its keys is for Slurm"},
		"another alg":   {`{"keys": [{"kid": "a", "kty": "RSA", "alg": "RS512", "e": "AQAB", "n": "AQAB"}]}`, "none of its keys is for Slurm"},
		"no key at all": {`{"keys": []}`, "none of its keys is for Slurm"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := checkJWKS(test.text); test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

func TestJWKSInConfig(t *testing.T) {
	c := controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = "AuthAltParameters=userclaimfield=name\n" })
	files, err := Config(Cluster{Controller: c, JWKS: goodJWKS, Settings: settings})
	require.NoError(t, err)
	assert.JSONEq(t, goodJWKS, files["jwks.json"])
	assert.Contains(t, files["slurm.conf"], "\nAuthAltParameters=jwt_key=/etc/slurm/jwt_hs256.key,jwks=/etc/slurm/jwks.json,userclaimfield=name\n")
	_, err = Config(Cluster{Controller: c, JWKS: goodJWKS, Settings: settings, Files: map[string]string{"jwks.json": goodJWKS}})
	require.EqualError(t, err, "spec.jwksKeyRef: one of the ConfigMaps of spec.configFileRefs has jwks.json, too: remove one of them")
}

func TestJWKSIsRead(t *testing.T) {
	data := map[string]string{"good": goodJWKS, "bad": "{}", "empty": ""}
	l := &Loop{kube: kubefake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm", Name: "portal"}, Data: data})}
	text, err := l.jwks(t.Context(), "slurm", &v1alpha1.FileRef{Name: "portal", Key: "good"})
	require.NoError(t, err)
	assert.JSONEq(t, goodJWKS, text)
	text, err = l.jwks(t.Context(), "slurm", nil)
	require.NoError(t, err)
	assert.Empty(t, text)
	for want, ref := range map[Problem]v1alpha1.FileRef{
		{"ConfigFileMissing", "spec.jwksKeyRef: there is no ConfigMap none: create it, with the key set under good"}:                  {Name: "none", Key: "good"},
		{"ConfigFileMissing", "spec.jwksKeyRef: ConfigMap portal has no empty, or an empty one: put the JSON Web Key Set there"}:      {Name: "portal", Key: "empty"},
		{"InvalidConfig", `spec.jwksKeyRef: none of its keys is for Slurm: one at least has to have "kty": "RSA" and "alg": "RS256"`}: {Name: "portal", Key: "bad"},
	} {
		_, err := l.jwks(t.Context(), "slurm", &ref)
		require.Equal(t, &want, err)
	}
}
