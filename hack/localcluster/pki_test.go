package main

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPKI(t *testing.T) {
	t.Parallel()
	dir, now := filepath.Join(t.TempDir(), "pki"), time.Now()
	p := Plan{Name: "pki", Slot: 3}
	require.NoError(t, writePKI(p, dir, now))

	pool := func(file string) *x509.CertPool {
		b, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(b))
		return pool
	}
	cluster, front := pool("ca.crt"), pool("front-proxy-ca.crt")
	serverNames := map[string][]string{
		"apiserver": {
			"kubernetes.default.svc.cluster.local", "kubernetes", "localhost", "pki",
			p.NodeAddr().String(), p.APIServiceAddr().String(), "127.0.0.1",
		},
		"kubelet-server": {"pki", p.NodeAddr().String()},
	}
	for name, l := range leaves(p) {
		t.Run(name, func(t *testing.T) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
			require.NoError(t, err, "certificate and key belong together")
			signer, other := cluster, front
			if name == "front-proxy-client" {
				signer, other = front, cluster
			}
			verify := func(roots *x509.CertPool, host string, use x509.ExtKeyUsage, at time.Time) error {
				_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{use}, CurrentTime: at})
				return err
			}
			require.NoError(t, verify(signer, "", x509.ExtKeyUsageClientAuth, now))
			require.Error(t, verify(other, "", x509.ExtKeyUsageClientAuth, now), "the other authority must not vouch for it")
			require.Error(t, verify(signer, "", x509.ExtKeyUsageClientAuth, now.Add(certLifetime+time.Minute)), "expired")
			for _, host := range serverNames[name] {
				require.NoError(t, verify(signer, host, x509.ExtKeyUsageServerAuth, now), host)
			}
			if len(serverNames[name]) == 0 {
				require.Error(t, verify(signer, "", x509.ExtKeyUsageServerAuth, now), "a client's certificate must not serve")
			} else {
				require.Error(t, verify(signer, "example.com", x509.ExtKeyUsageServerAuth, now))
			}
			assert.Equal(t, l.cn, pair.Leaf.Subject.CommonName)
			assert.Equal(t, l.org, pair.Leaf.Subject.Organization)
		})
	}

	key := decode(t, filepath.Join(dir, "service-account.key"), x509.ParsePKCS8PrivateKey).(*ecdsa.PrivateKey)
	assert.True(t, key.PublicKey.Equal(decode(t, filepath.Join(dir, "service-account.pub"), x509.ParsePKIXPublicKey)))

	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode(), f.Name())
	}
}

func decode(t *testing.T, path string, parse func([]byte) (any, error)) any {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	block, _ := pem.Decode(b)
	require.NotNil(t, block)
	v, err := parse(block.Bytes)
	require.NoError(t, err)
	return v
}
