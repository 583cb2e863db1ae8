package ask

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/certs"
	"github.com/slurmtide/slurmtide/internal/certs/certstest"
)

// Whoever asks by TLS gets an answer if the two know each other, and is told otherwise what to change. New files count with the next question.
func TestAskingByTLS(t *testing.T) {
	ca, clients, other := certstest.New(t, "ca"), certstest.New(t, "clients"), certstest.New(t, "other")
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, text []byte) { require.NoError(t, os.WriteFile(file(name), text, 0o600)) }
	pair := func(name string, by *certstest.Authority) {
		cert, key := by.Sign(time.Hour)
		write(name+".crt", cert)
		write(name+".key", key)
	}
	pair("server", ca)
	write("clients", clients.PEM)
	tls, err := certs.Load(certs.Files{Cert: file("server.crt"), Key: file("server.key"), ClientCA: file("clients")}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(tls.Known(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"cluster":"tide"}`)) })))
	server.TLS, server.Config.ErrorLog = tls.HTTP(), tls.ErrorLog()
	server.StartTLS()
	defer server.Close()

	s, err := At(server.URL, TLS{CA: file("ca"), Cert: file("client.crt"), Key: file("client.key")})
	require.NoError(t, err)
	refused := func(want string) {
		t.Helper()
		_, err := s.Demand(t.Context(), "")
		require.ErrorContains(t, err, want)
	}
	refused("reading the scaler's CA: open " + file("ca") + ": no such file or directory; --scaler-ca names the file")
	write("ca", []byte("-----BEGIN"))
	refused("reading the scaler's CA: " + file("ca") + " has no certificate; --scaler-ca names the file")
	write("ca", other.PEM)
	refused("reading what the scaler is shown: open " + file("client.crt") + ": no such file or directory; --scaler-cert and --scaler-key name the files")
	pair("client", other)
	refused("certificate signed by unknown authority; --scaler-ca names the CA of its certificate")
	write("ca", ca.PEM)
	refused("the scaler says: show a certificate of the CA in --tls-client-ca; --scaler-cert and --scaler-key name it")
	pair("client", clients)
	d, err := s.Demand(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, "tide", d.Cluster)

	s, err = At(server.URL, TLS{CA: file("ca")})
	require.NoError(t, err)
	refused("--scaler-cert and --scaler-key name it")
	s, err = At(server.URL, TLS{})
	require.NoError(t, err)
	refused("--scaler-ca names the CA of its certificate")
	s, err = At(strings.Replace(server.URL, "https", "http", 1), TLS{})
	require.NoError(t, err)
	refused("the scaler serves its metrics with TLS: --scaler wants https://")
}

func TestAtWithTLS(t *testing.T) {
	for want, wrong := range map[string]TLS{
		`"https://a": --scaler-cert and --scaler-key go together`:                              {CA: "ca", Cert: "cert"},
		`"http://a": --scaler-ca, --scaler-cert and --scaler-key are for a scaler at https://`: {CA: "ca"},
	} {
		_, err := At(strings.Split(want, `"`)[1], wrong)
		assert.EqualError(t, err, want)
	}
}
