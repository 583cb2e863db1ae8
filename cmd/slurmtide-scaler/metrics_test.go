package main

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/cli/clitest"
	"github.com/slurmtide/slurmtide/scaler/ask"
)

// With --metrics-tls metrics and what the queue asks for are for those who show a certificate; probes are for all.
func TestMetricsTLS(t *testing.T) {
	t.Setenv("SLURM_JWT", "token")
	slurmrestd := httptest.NewServer(&restd{jobs: 2})
	defer slurmrestd.Close()
	certs := newPKI(t)
	certs.sign(t, "server", certs.cert)
	certs.sign(t, "client", certs.cert)
	address, web := freeAddress(t), freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	log, code := &clitest.Log{}, make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, newApp(), []string{
			"slurmtide", "scaler", "--cluster", "tide", "--slurmrestd", slurmrestd.URL, "--listen", address, "--metrics-address", web, "--metrics-tls",
			"--tls-cert", certs.file("server.crt"), "--tls-key", certs.file("server.key"), "--tls-client-ca", certs.file("ca.crt"),
		}, nil, log, log)
	}()
	get := func(path string) (status int, text string) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certs.pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
		answer, err := (&http.Client{Transport: transport}).Get("https://" + web + path)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { status, _ := get("/readyz"); return status == http.StatusOK }, 20*time.Second, 20*time.Millisecond, "%s", log)
	for _, path := range []string{"/metrics", ask.DemandPath, ask.JobPath + "1"} {
		status, text := get(path)
		assert.Equal(t, http.StatusUnauthorized, status, path)
		assert.Equal(t, "show a certificate of the CA in --tls-client-ca\n", text, path)
	}
	status, _ := get("/livez")
	assert.Equal(t, http.StatusOK, status)
	known, err := ask.At("https://"+web, ask.TLS{CA: certs.file("ca.crt"), Cert: certs.file("client.crt"), Key: certs.file("client.key")})
	require.NoError(t, err)
	d, err := known.Demand(ctx, "")
	require.NoError(t, err)
	assert.Equal(t, "tide", d.Cluster)
	for path, want := range map[string]string{ask.JobPath + "1": "job 1 does not count", "/metrics": `slurmtide_scaler_readable{cluster="tide"} 1`} {
		text, err := known.Get(ctx, path, nil)
		require.NoError(t, err, path)
		assert.Contains(t, string(text), want)
	}
	inTheClear, err := ask.At("http://"+web, ask.TLS{})
	require.NoError(t, err)
	_, err = inTheClear.Demand(ctx, "")
	require.EqualError(t, err, "the scaler serves its metrics with TLS: --scaler wants https://")
	cancel()
	assert.Zero(t, <-code, "%s", log)
}
