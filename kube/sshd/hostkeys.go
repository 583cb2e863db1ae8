package sshd

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// hostKeyFile is a private host key of sshd, as sshd_config(5) calls them by default.
var hostKeyFile = regexp.MustCompile(`^ssh_host_[a-z0-9]+_key$`)

// HostKeyKinds are the kinds of keys that NewHostKeys makes, as ssh-keygen -t calls them.
func HostKeyKinds() []string { return []string{"ecdsa", "ed25519"} }

// HostKeyFile is the name of the private key of a kind.
func HostKeyFile(kind string) string { return "ssh_host_" + kind + "_key" }

// NewHostKeys makes host keys for sshd: private and public ones, by the names of their files. ECDSA is for clients that may not use Ed25519.
func NewHostKeys(comment string) (map[string][]byte, error) {
	edPublic, edPrivate, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a host key: %w", err)
	}
	ecPrivate, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a host key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(ecPrivate)
	if err != nil {
		return nil, fmt.Errorf("writing a host key: %w", err)
	}
	point, err := ecPrivate.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("writing a host key: %w", err)
	}
	return map[string][]byte{
		"ssh_host_ed25519_key":     opensshKey(edPublic, edPrivate, comment),
		"ssh_host_ed25519_key.pub": publicLine("ssh-ed25519", comment, wire("ssh-ed25519", string(edPublic))),
		"ssh_host_ecdsa_key":       pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		"ssh_host_ecdsa_key.pub":   publicLine("ecdsa-sha2-nistp256", comment, wire("ecdsa-sha2-nistp256", "nistp256", string(point))),
	}, nil
}

// opensshKey is a private key in OpenSSH's own format (PROTOCOL.key), not encrypted: the only one for Ed25519 that all of its versions read.
func opensshKey(public ed25519.PublicKey, private ed25519.PrivateKey, comment string) []byte {
	var check [4]byte
	_, _ = rand.Read(check[:]) // never fails
	secret := slices.Concat(check[:], check[:], wire("ssh-ed25519", string(public), string(private), comment))
	for i := byte(1); len(secret)%8 != 0; i++ { // the block size of no cipher
		secret = append(secret, i)
	}
	var b bytes.Buffer
	b.WriteString("openssh-key-v1\x00")
	b.Write(wire("none", "none", "")) // cipher, key derivation and its options
	_ = binary.Write(&b, binary.BigEndian, uint32(1))
	b.Write(wire(string(wire("ssh-ed25519", string(public))), string(secret)))
	return pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: b.Bytes()})
}

// wire writes strings as SSH does (RFC 4251, section 5).
func wire(all ...string) (b []byte) {
	for _, s := range all {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return b
}

func publicLine(kind, comment string, blob []byte) []byte {
	return []byte(kind + " " + base64.StdEncoding.EncodeToString(blob) + " " + comment + "\n")
}

// PrivateHostKeys are the names of the private host keys among files, in order.
func PrivateHostKeys(files map[string][]byte) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if hostKeyFile.MatchString(name) && len(files[name]) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// Fingerprints are those of the public keys among files, as ssh-keygen -l shows them. It is not nil also when there are none.
func Fingerprints(files map[string][]byte) []string {
	all := []string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		private, public := strings.CutSuffix(name, ".pub")
		words := strings.Fields(string(files[name]))
		if !public || !hostKeyFile.MatchString(private) || len(words) < 2 {
			continue
		}
		blob, err := base64.StdEncoding.DecodeString(words[1])
		if err != nil {
			continue
		}
		sum := sha256.Sum256(blob)
		all = append(all, words[0]+" SHA256:"+base64.RawStdEncoding.EncodeToString(sum[:]))
	}
	return all
}
