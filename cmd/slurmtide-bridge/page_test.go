package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/certs/certstest"
)

// nowhere is a kubeconfig that leads to no Kubernetes.
const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: k, context: {cluster: k, user: u}}]
users: [{name: u}]
current-context: k
`

// TestPageAddress: the bridge serves its page where it is told to, also when it can read nothing, says so there, and ends although somebody looks.
func TestPageAddress(t *testing.T) {
	t.Run("in the clear", func(t *testing.T) { testPageAddress(t, "http", http.DefaultClient, nil, "") })
	// The page is for those whom metrics are for. It asks a scaler that wants a certificate, too.
	t.Run("TLS", func(t *testing.T) {
		dir, ca, clients := t.TempDir(), certstest.New(t, "ca"), certstest.New(t, "clients")
		write := func(name string, text []byte) string {
			file := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(file, text, 0o600))
			return file
		}
		cert, key := ca.Sign(time.Hour)
		pool := x509.NewCertPool()
		pool.AddCert(ca.Cert)
		stranger := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
		known := stranger.Clone()
		pair, err := tls.X509KeyPair(clients.Sign(time.Hour))
		require.NoError(t, err)
		known.TLSClientConfig.Certificates = []tls.Certificate{pair}
		defer stranger.CloseIdleConnections()
		defer known.CloseIdleConnections()
		scaler := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"cluster":"tide","nodeSets":[{"name":"of-the-scaler"}]}`)
		}))
		server, err := tls.X509KeyPair(cert, key)
		require.NoError(t, err)
		scaler.TLS = &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		scaler.TLS.ClientCAs.AddCert(clients.Cert)
		scaler.StartTLS()
		defer scaler.Close()
		shown, shownKey := clients.Sign(time.Hour)
		testPageAddress(t, "https", &http.Client{Transport: known}, &http.Client{Transport: stranger}, `"name":"of-the-scaler"`,
			"--tls-cert="+write("tls.crt", cert), "--tls-key="+write("tls.key", key), "--tls-client-ca="+write("ca.crt", clients.PEM),
			"--scaler="+scaler.URL, "--scaler-ca="+write("scaler.crt", ca.PEM), "--scaler-cert="+write("client.crt", shown), "--scaler-key="+write("client.key", shownKey))
	})
}

// testPageAddress has known look at a page, which is not for strangers, if there are any, until it shows the demand.
func testPageAddress(t *testing.T, scheme string, known, stranger *http.Client, demand string, flags ...string) {
	dir := t.TempDir()
	t.Setenv("SLURM_JWT", "no token")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(nowhere), 0o600))
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		return l.Addr().String()
	}
	address, metrics := free(), free()

	app := newApp()
	app.Writer, app.ErrWriter = io.Discard, io.Discard
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- app.RunContext(ctx, append([]string{"slurmtide-bridge", "bridge", "--cluster=tide", "--namespace=slurm", "--spool=" + filepath.Join(dir, "spool"), "--kubeconfig=" + kubeconfig,
			"--slurmrestd=http://127.0.0.1:1", "--metrics-address=" + metrics, "--page-address=" + address}, flags...))
	}()
	var events *http.Response
	var err error
	require.Eventually(t, func() bool {
		events, err = known.Get(scheme + "://" + address + "/events")
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	defer events.Body.Close()
	for lines := bufio.NewReader(events.Body); ; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, `data: {"cluster":"tide"`) && strings.Contains(line, "Slurm ") && strings.Contains(line, "Kubernetes ") && strings.Contains(line, demand) {
			break
		}
	}
	look := func(client *http.Client, url string) (int, string) {
		answer, err := client.Get(scheme + "://" + url)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	for url, want := range map[string]string{address: "<!DOCTYPE html>", metrics + "/metrics": "go_goroutines ", metrics + "/healthz": "ok"} {
		status, text := look(known, url)
		assert.Equal(t, http.StatusOK, status, url)
		assert.Contains(t, text, want)
	}
	_, text := look(known, metrics+"/metrics")
	assert.Equal(t, stranger != nil, strings.Contains(text, "\nslurmtide_bridge_certificate_expiry_timestamp_seconds "), "with a certificate alone, as docs/metrics.md has it")
	if stranger != nil {
		for url, want := range map[string]int{address: 401, address + "/events": 401, metrics + "/metrics": 401, metrics + "/healthz": 200} {
			status, text := look(stranger, url)
			assert.Equal(t, want, status, url)
			assert.NotContains(t, text, "tide", url)
		}
	}

	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the bridge does not end while somebody looks at its page")
	}
}
