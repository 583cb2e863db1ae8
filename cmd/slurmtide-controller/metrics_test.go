package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/certs/certstest"
)

const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: k, context: {cluster: k, user: u}}]
users: [{name: u}]
current-context: k
`

// The controller's metrics are for those who show a certificate, if it has a CA for that; probes are for all, also while Kubernetes does not answer.
func TestMetricsTLS(t *testing.T) {
	dir, ca := t.TempDir(), certstest.New(t, "ca")
	write := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	cert, key := ca.Sign(time.Hour)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	app := newApp()
	app.Writer, app.ErrWriter = io.Discard, io.Discard
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- app.RunContext(ctx, []string{"slurmtide-controller", "controller", "--image=i", "--lease-namespace=system", "--kubeconfig=" + write("kubeconfig", []byte(nowhere)),
			"--metrics-address=" + address, "--tls-cert=" + write("tls.crt", cert), "--tls-key=" + write("tls.key", key), "--tls-client-ca=" + write("ca.crt", ca.PEM)})
	}()
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	get := func(path string, mine ...tls.Certificate) (status int, text string) {
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: mine, MinVersion: tls.VersionTLS12}}
		response, err := (&http.Client{Transport: transport}).Get("https://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { status, _ := get("/livez"); return status == http.StatusOK }, 20*time.Second, 10*time.Millisecond)
	status, _ := get("/metrics")
	assert.Equal(t, http.StatusUnauthorized, status)
	mine, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	status, text := get("/metrics", mine)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "slurmtide_controller_leading")
	assert.Contains(t, text, "\nslurmtide_controller_certificate_expiry_timestamp_seconds ", "as docs/metrics.md has it")
	cancel()
	require.NoError(t, <-ended)
}
