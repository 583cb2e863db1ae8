package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/certs"
	"github.com/slurmtide/slurmtide/internal/certs/certstest"
	"github.com/slurmtide/slurmtide/internal/cli/clitest"
)

// Metrics tell when the certificate in use ends, under the daemon's name.
func TestExpiry(t *testing.T) {
	dir, ca := t.TempDir(), certstest.New(t, "ca")
	write := func(d time.Duration) {
		cert, key := ca.Sign(d)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600))
	}
	write(time.Hour)
	registry := prometheus.NewPedanticRegistry()
	app := &urfave.App{Commands: []*urfave.Command{{
		Name: "exporter", Flags: []urfave.Flag{TLSCertFlag("listen"), TLSKeyFlag(), TLSClientCAFlag("clients")},
		Action: func(c *urfave.Context) error {
			_, err := TLS(c, slog.New(slog.DiscardHandler), registry)
			return err
		},
	}}}
	told := func(t require.TestingT) (seconds float64) {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			require.Equal(t, "slurmtide_exporter_certificate_expiry_timestamp_seconds", f.GetName())
			seconds = f.GetMetric()[0].GetGauge().GetValue()
		}
		return seconds
	}
	require.NoError(t, app.Run([]string{"slurmtide", "exporter"}))
	assert.Zero(t, told(t), "none is shown without a certificate")
	require.NoError(t, app.Run([]string{"slurmtide", "exporter", "--tls-cert", filepath.Join(dir, "tls.crt"), "--tls-key", filepath.Join(dir, "tls.key")}))
	assert.InDelta(t, time.Now().Add(time.Hour).Unix(), told(t), 60)
	write(48 * time.Hour)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.InDelta(c, time.Now().Add(48*time.Hour).Unix(), told(c), 60, "of the new one, though nobody connects")
	}, 10*time.Second, 100*time.Millisecond)
}

// With a CA for clients metrics are for those who show a certificate of it; probes of kubelet, which has none, are answered all the same. New files need no restart.
func TestMetricsTLS(t *testing.T) {
	ca, clients, other := certstest.New(t, "ca"), certstest.New(t, "clients"), certstest.New(t, "other")
	pair := func(a *certstest.Authority, d time.Duration) []tls.Certificate {
		p, err := tls.X509KeyPair(a.Sign(d))
		require.NoError(t, err)
		return []tls.Certificate{p}
	}
	for name, mutual := range map[string]bool{"server": false, "mutual": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name string, text []byte) string {
				file := filepath.Join(dir, name)
				require.NoError(t, os.WriteFile(file+".new", text, 0o600))
				require.NoError(t, os.Rename(file+".new", file))
				return file
			}
			serial := ca.Next
			cert, key := ca.Sign(time.Hour)
			files := certs.Files{Cert: write("tls.crt", cert), Key: write("tls.key", key)}
			if mutual {
				files.ClientCA = write("ca.crt", clients.PEM)
			}
			log := &clitest.Log{}
			loaded, err := certs.Load(files, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			require.NoError(t, err)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := l.Addr().String()
			require.NoError(t, l.Close())
			part, err := Metrics(address, loaded, NewRegistry(), map[string]http.Handler{"GET /livez": http.HandlerFunc(OK)})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- part(ctx) }()
			get := func(path string, client []tls.Certificate) (status int, text string, serial int64, err error) {
				pool := x509.NewCertPool()
				pool.AddCert(ca.Cert)
				transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
				if client != nil { // shown also to a server that will not like it
					transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client[0], nil }
				}
				defer transport.CloseIdleConnections()
				response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get("https://" + address + path)
				if err != nil {
					return 0, "", 0, err
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				return response.StatusCode, string(body), response.TLS.PeerCertificates[0].SerialNumber.Int64(), nil
			}
			status, text, shown, err := get("/livez", nil)
			require.NoError(t, err)
			assert.Equal(t, []any{200, "ok\n", serial}, []any{status, text, shown})
			status, text, _, err = get("/metrics", nil)
			require.NoError(t, err)
			if mutual {
				assert.Equal(t, 401, status)
				assert.Equal(t, "show a certificate of the CA in --tls-client-ca\n", text)
				for why, client := range map[string][]tls.Certificate{"unknown authority": pair(other, time.Hour), "certificate has expired": pair(clients, -time.Minute)} {
					_, _, _, err = get("/metrics", client)
					require.Error(t, err, why)
					assert.Eventually(t, func() bool { return strings.Contains(log.String(), why) }, 10*time.Second, 10*time.Millisecond, "%s: %s", why, log)
				}
				assert.Contains(t, log.String(), `level=DEBUG msg="http: TLS handshake error from 127.0.0.1:`)
				status, text, _, err = get("/metrics", pair(clients, time.Hour))
				require.NoError(t, err)
			}
			assert.Equal(t, 200, status)
			assert.Contains(t, text, "go_goroutines ")

			response, err := http.Get("http://" + address + "/metrics")
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			assert.Equal(t, 400, response.StatusCode, "nothing in the clear")

			next := ca.Next
			cert, key = ca.Sign(time.Hour)
			write("tls.key", key)
			write("tls.crt", cert)
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				_, _, shown, err := get("/livez", nil)
				require.NoError(c, err)
				assert.Equal(c, next, shown)
			}, 10*time.Second, 100*time.Millisecond)
			cancel()
			require.NoError(t, <-ended)
		})
	}
}
