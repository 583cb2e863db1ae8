package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const (
	// jwksFile is what a JSON Web Key Set is called beside slurm.conf, or slurmdbd.conf.
	jwksFile  = "jwks.json"
	jwksField = "spec.jwksKeyRef"
)

// addJWKS has auth/jwt take tokens that keys of the set have signed.
func addJWKS(f *slurmconf.File) error {
	return f.AddWords("AuthAltParameters", "jwks="+etcDir+"/"+jwksFile)
}

// checkJWKS says what is wrong in a JSON Web Key Set. auth/jwt ends its daemon for a key without kid, and for an RSA key without e or n; keys of other kinds, and
// those that do not say RS256, it passes over without a word (auth_jwt.c, _build_jwks_keys and _verify_rs256_jwt).
func checkJWKS(text string) error {
	var set struct {
		Keys []struct{ Kid, Kty, Alg, N, E string }
	}
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		return fmt.Errorf("%s: it is no JSON Web Key Set: %w", jwksField, err)
	}
	usable := 0
	for i, key := range set.Keys {
		switch {
		case key.Kid == "":
			return fmt.Errorf("%s: keys[%d] has no kid, by which tokens name it: give it one", jwksField, i)
		case key.Alg != "" && !strings.EqualFold(key.Alg, "RS256"), key.Kty != "RSA":
			continue
		case key.N == "" || key.E == "":
			return fmt.Errorf("%s: keys[%d] (kid %s) has no n, or no e: write both, as RFC 7518 has them for RSA", jwksField, i, key.Kid)
		case key.Alg != "":
			usable++
		}
	}
	if usable == 0 {
		return fmt.Errorf(`%s: none of its keys is for Slurm: one at least has to have "kty": "RSA" and "alg": "RS256"`, jwksField)
	}
	return nil
}

// jwks reads a JSON Web Key Set, "" if ref is nil.
func (l *Loop) jwks(ctx context.Context, namespace string, ref *v1alpha1.FileRef) (string, error) {
	if ref == nil {
		return "", nil
	}
	m, err := l.kube.CoreV1().ConfigMaps(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", &Problem{"ConfigFileMissing", fmt.Sprintf("%s: there is no ConfigMap %s: create it, with the key set under %s", jwksField, ref.Name, ref.Key)}
	}
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %s: %w", ref.Name, err)
	}
	return JWKSIn(m, *ref)
}

// JWKSIn is the JSON Web Key Set in a ConfigMap. A *Problem says what is wrong with it.
func JWKSIn(m *corev1.ConfigMap, ref v1alpha1.FileRef) (string, error) {
	text := m.Data[ref.Key]
	if text == "" {
		return "", &Problem{"ConfigFileMissing", fmt.Sprintf("%s: ConfigMap %s has no %s, or an empty one: put the JSON Web Key Set there", jwksField, ref.Name, ref.Key)}
	}
	if err := checkJWKS(text); err != nil {
		return "", &Problem{"InvalidConfig", err.Error()}
	}
	return text, nil
}
