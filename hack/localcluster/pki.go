package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certLifetime outlives any local cluster; nothing renews the certificates.
const certLifetime = 365 * 24 * time.Hour

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// leaf describes a certificate to be signed: who it speaks for, and for a
// server the names and addresses it is reached by.
type leaf struct {
	cn    string
	org   []string
	names []string
	ips   []net.IP
}

func (l leaf) server() bool { return len(l.names)+len(l.ips) > 0 }

func newAuthority(cn string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := template(cn, nil, now)
	tmpl.IsCA = true
	tmpl.BasicConstraintsValid = true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing authority %s: %w", cn, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}, nil
}

// issue signs l and returns certificate and key as PEM.
func (a *authority) issue(l leaf, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	tmpl := template(l.cn, l.org, now)
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if l.server() {
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		tmpl.DNSNames, tmpl.IPAddresses = l.names, l.ips
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing certificate %s: %w", l.cn, err)
	}
	keyPEM, err = encodeKey(key)
	return encode("CERTIFICATE", der), keyPEM, err
}

func template(cn string, org []string, now time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand never fails
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: cn, Organization: org},
		NotBefore:    now.Add(-time.Hour), // tolerates a clock set back
		NotAfter:     now.Add(certLifetime),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encode("PRIVATE KEY", der), nil
}

// leaves are the cluster's certificates by file name. Those whose name starts
// with "front-proxy" are signed by the second authority, which only says "this
// request was passed on by the apiserver".
func leaves(p Plan) map[string]leaf {
	node := p.NodeAddr().AsSlice()
	return map[string]leaf{
		"apiserver": {
			cn: "kube-apiserver",
			names: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local", p.Name},
			ips: []net.IP{node, p.APIServiceAddr().AsSlice(), net.IPv4(127, 0, 0, 1)},
		},
		"apiserver-kubelet-client": {cn: "kube-apiserver-kubelet-client", org: []string{"system:masters"}},
		"front-proxy-client":       {cn: "front-proxy-client"},
		"kubelet-server":           {cn: "system:node:" + p.Name, org: []string{"system:nodes"}, names: []string{p.Name, "localhost"}, ips: []net.IP{node, net.IPv4(127, 0, 0, 1)}},
		"admin":                    {cn: "admin", org: []string{"system:masters"}},
		"kubelet":                  {cn: "system:node:" + p.Name, org: []string{"system:nodes"}},
		"controller-manager":       {cn: "system:kube-controller-manager"},
		"scheduler":                {cn: "system:kube-scheduler"},
		"proxy":                    {cn: "system:kube-proxy"},
		"coredns":                  {cn: "system:coredns"},
	}
}

// kubeconfigs are the leaves a program presents through a kubeconfig file.
var kubeconfigs = []string{"admin", "kubelet", "controller-manager", "scheduler", "proxy", "coredns"}

// writePKI makes both authorities, every leaf, the service account key and the
// kubeconfig files below dir. The kubeconfig files carry their certificates
// inside, so that the admin's can be copied anywhere on the host.
func writePKI(p Plan, dir string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	files := map[string][]byte{}
	ca, err := newAuthority("slurmtide-"+p.Name, now)
	if err != nil {
		return err
	}
	front, err := newAuthority("slurmtide-"+p.Name+"-front-proxy", now)
	if err != nil {
		return err
	}
	files["ca.crt"], files["front-proxy-ca.crt"] = ca.pem, front.pem
	if files["ca.key"], err = encodeKey(ca.key); err != nil {
		return err
	}
	for name, l := range leaves(p) {
		signer := ca
		if name == "front-proxy-client" {
			signer = front
		}
		if files[name+".crt"], files[name+".key"], err = signer.issue(l, now); err != nil {
			return err
		}
	}
	for _, name := range kubeconfigs {
		files[name+".kubeconfig"] = renderKubeconfig(p, ca.pem, files[name+".crt"], files[name+".key"])
	}
	account, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if files["service-account.key"], err = encodeKey(account); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(account.Public())
	if err != nil {
		return err
	}
	files["service-account.pub"] = encode("PUBLIC KEY", public)
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
