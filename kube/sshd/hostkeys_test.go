package sshd

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHostKeys(t *testing.T) {
	keys, err := NewHostKeys("slurm/tide")
	require.NoError(t, err)
	assert.Equal(t, []string{"ssh_host_ecdsa_key", "ssh_host_ed25519_key"}, PrivateHostKeys(keys))

	block, rest := pem.Decode(keys["ssh_host_ecdsa_key"])
	assert.Empty(t, rest)
	private, err := x509.ParseECPrivateKey(block.Bytes)
	require.NoError(t, err)
	point, err := private.PublicKey.Bytes()
	require.NoError(t, err)
	words := strings.Fields(string(keys["ssh_host_ecdsa_key.pub"]))
	require.Len(t, words, 3)
	blob, err := base64.StdEncoding.DecodeString(words[1])
	require.NoError(t, err)
	assert.Equal(t, "ecdsa-sha2-nistp256", words[0])
	assert.Equal(t, "slurm/tide", words[2])
	assert.Equal(t, wire("ecdsa-sha2-nistp256", "nistp256", string(point)), blob)

	block, rest = pem.Decode(keys["ssh_host_ed25519_key"])
	assert.Empty(t, rest)
	assert.Equal(t, "OPENSSH PRIVATE KEY", block.Type)
	words = strings.Fields(string(keys["ssh_host_ed25519_key.pub"]))
	blob, err = base64.StdEncoding.DecodeString(words[1])
	require.NoError(t, err)
	assert.Contains(t, string(block.Bytes), string(blob), "the public key stands in the private one")

	other, err := NewHostKeys("slurm/tide")
	require.NoError(t, err)
	assert.NotEqual(t, keys["ssh_host_ed25519_key"], other["ssh_host_ed25519_key"])
	assert.NotEqual(t, Fingerprints(keys), Fingerprints(other))
}

func TestFingerprints(t *testing.T) {
	const line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f tide\n"
	got := Fingerprints(map[string][]byte{
		"ssh_host_ed25519_key.pub": []byte(line), "ssh_host_ed25519_key": []byte("x"), "ssh_host_rsa_key.pub": []byte("ssh-rsa !"), "other.pub": []byte(line), "ssh_host_dsa_key.pub": nil,
	})
	// By ssh-keygen -l.
	assert.Equal(t, []string{"ssh-ed25519 SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA"}, got)
	assert.Empty(t, PrivateHostKeys(map[string][]byte{"ssh_host_ed25519_key.pub": []byte("x"), "ssh_host_rsa_key": nil, "id_rsa": []byte("x"), "../ssh_host_rsa_key": []byte("x")}))
}
