//go:build integration && controlplane

package integration

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// signer is who gives out tokens that Slurm did not sign.
type signer struct {
	t   *testing.T
	key *rsa.PrivateKey
}

// signersKey names the keys of all signers.
const signersKey = "of the portal"

func newSigner(t *testing.T) signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return signer{t, key}
}

// publish makes a ConfigMap with the key set.
func (s signer) publish(p *plane) *v1alpha1.FileRef {
	text := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	set, err := json.Marshal(map[string]any{"keys": []any{
		map[string]string{"kid": "another", "kty": "EC", "alg": "ES256", "crv": "P-256", "x": "AQ", "y": "AQ"},
		map[string]string{"kid": signersKey, "kty": "RSA", "alg": "RS256", "use": "sig", "n": text(s.key.N), "e": text(big.NewInt(int64(s.key.E)))},
	}})
	require.NoError(s.t, err)
	p.createConfigMap("portal-keys", map[string]string{"keys.json": string(set)})
	return &v1alpha1.FileRef{Name: "portal-keys", Key: "keys.json"}
}

// token is one for a Slurm user.
func (s signer) token(user string) string {
	part := base64.RawURLEncoding.EncodeToString
	now := time.Now().Unix()
	text := part(fmt.Appendf(nil, `{"alg":"RS256","typ":"JWT","kid":%q}`, signersKey)) + "." + part(fmt.Appendf(nil, `{"iat":%d,"exp":%d,"sun":%q}`, now, now+600, user))
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.key, crypto.SHA256, sum[:])
	require.NoError(s.t, err)
	return text + "." + part(signature)
}
