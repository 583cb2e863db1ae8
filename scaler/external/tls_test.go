package external

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/slurmtide/slurmtide/internal/certs"
	"github.com/slurmtide/slurmtide/internal/certs/certstest"
	"github.com/slurmtide/slurmtide/internal/cli/clitest"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
)

type tlsServer struct {
	t       *testing.T
	files   certs.Files
	address string
	log     *clitest.Log
}

func write(t *testing.T, file string, data []byte) {
	require.NoError(t, os.WriteFile(file+".new", data, 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

func newTLSServer(t *testing.T, server, clients *certstest.Authority) *tlsServer {
	dir := t.TempDir()
	s := &tlsServer{t: t, files: certs.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}, log: &clitest.Log{}}
	s.replace(server.Sign(time.Hour))
	if clients != nil {
		s.files.ClientCA = filepath.Join(dir, "ca.crt")
		write(t, s.files.ClientCA, clients.PEM)
	}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	loaded, err := certs.Load(s.files, log)
	require.NoError(t, err)
	s.address = serve(t, NewService(map[string]Source{"one": watcher(t, newSlurm(1))}), Options{TLS: loaded, Log: log})
	return s
}

func (s *tlsServer) replace(cert, key []byte) {
	write(s.t, s.files.Cert, cert)
	write(s.t, s.files.Key, key)
}

// call asks over a new connection and returns the serial number of the server's certificate.
func (s *tlsServer) call(roots *certstest.Authority, client ...tls.Certificate) (int64, error) {
	pool := x509.NewCertPool()
	pool.AddCert(roots.Cert)
	var serial int64
	config := &tls.Config{RootCAs: pool, VerifyConnection: func(c tls.ConnectionState) error {
		serial = c.PeerCertificates[0].SerialNumber.Int64()
		return nil
	}}
	if client != nil { // shown also to a server that will not like it
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client[0], nil }
	}
	conn := dial(s.t, s.address, credentials.NewTLS(config))
	defer conn.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	_, err := pb.NewExternalScalerClient(conn).IsActive(ctx, ref(meta{"nodeSet": "cpu"}))
	return serial, err
}

func TestTLSRotation(t *testing.T) {
	ca, other := certstest.New(t, "ca"), certstest.New(t, "other")
	s := newTLSServer(t, ca, nil)
	serial, err := s.call(ca)
	require.NoError(t, err)
	assert.Equal(t, int64(2), serial)
	_, err = s.call(other)
	require.ErrorContains(t, err, "certificate signed by unknown authority")

	s.replace(ca.Sign(time.Hour))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		serial, err := s.call(ca)
		require.NoError(c, err)
		assert.Equal(c, int64(3), serial)
	}, 10*time.Second, 100*time.Millisecond)

	// Half a file, a certificate without its key and one that expired leave what was.
	write(t, s.files.Cert, []byte("-----BEGIN"))
	time.Sleep(certs.ReloadEvery)
	serial, err = s.call(ca)
	require.NoError(t, err)
	assert.Equal(t, int64(3), serial)
	s.replace(ca.Sign(-time.Minute))
	time.Sleep(certs.ReloadEvery)
	serial, err = s.call(ca)
	require.NoError(t, err)
	assert.Equal(t, int64(3), serial)
	assert.Regexp(t, `the certificate in use is kept.*the certificate in \S*tls.crt expired at .*: renew it`, s.log.String())

	// A daemon that starts with it works on, and says so.
	var said strings.Builder
	anew, err := certs.Load(s.files, slog.New(slog.NewTextHandler(&said, nil)))
	require.NoError(t, err)
	assert.Contains(t, anew.Expired(), "expired at")
	assert.Regexp(t, `level=ERROR msg="clients that check it refuse the certificate" .* expired at .*: renew it`, said.String())
}

// One that is not valid yet is taken over when it is.
func TestTLSNotValidYet(t *testing.T) {
	ca := certstest.New(t, "ca")
	s := newTLSServer(t, ca, nil)
	next := ca.Next
	s.replace(ca.SignFrom(4*time.Second, time.Hour))
	_, err := certs.Load(s.files, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "is not valid before", "nobody could connect")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		serial, err := s.call(ca)
		require.NoError(t, err)
		assert.Equal(c, next, serial)
	}, 15*time.Second, 100*time.Millisecond)
	assert.Regexp(t, `the certificate in use is kept.*the certificate in \S*tls.crt is not valid before \S+: give one that is good now, or set the clock right`, s.log.String())
}

// A certificate that nobody renews is named on both sides.
func TestTLSExpires(t *testing.T) {
	ca := certstest.New(t, "ca")
	s := newTLSServer(t, ca, nil)
	s.replace(ca.Sign(3 * time.Second))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		serial, err := s.call(ca)
		require.NoError(c, err)
		assert.Equal(c, int64(3), serial)
	}, 2*time.Second, 100*time.Millisecond)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := s.call(ca)
		assert.ErrorContains(c, err, "certificate has expired")
		assert.Regexp(c, `TLS handshake failed.*our certificate in \S*tls.crt expired at \S+: renew it`, s.log.String())
	}, 10*time.Second, 200*time.Millisecond)
	s.replace(ca.Sign(time.Hour))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := s.call(ca)
		require.NoError(c, err)
	}, 5*time.Second, 100*time.Millisecond)
}

// Many connect while files are replaced: each sees one pair or the other.
func TestTLSRotationUnderLoad(t *testing.T) {
	ca := certstest.New(t, "ca")
	s := newTLSServer(t, ca, ca)
	client, err := tls.X509KeyPair(ca.Sign(time.Hour))
	require.NoError(t, err)
	stop := make(chan struct{})
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := s.call(ca, client)
				assert.NoError(t, err)
			}
		})
	}
	var last int64
	for range 3 {
		last = ca.Next
		cert, key := ca.Sign(time.Hour)
		write(t, s.files.Cert, cert)
		time.Sleep(certs.ReloadEvery + 100*time.Millisecond) // the key is still the old one's
		write(t, s.files.Key, key)
		time.Sleep(certs.ReloadEvery + 100*time.Millisecond)
	}
	close(stop)
	calls.Wait()
	serial, err := s.call(ca, client)
	require.NoError(t, err)
	assert.Equal(t, last, serial)
}

func TestMutualTLS(t *testing.T) {
	ca, clients, next := certstest.New(t, "ca"), certstest.New(t, "clients"), certstest.New(t, "next")
	s := newTLSServer(t, ca, clients)
	pair := func(a *certstest.Authority, d time.Duration) tls.Certificate {
		p, err := tls.X509KeyPair(a.Sign(d))
		require.NoError(t, err)
		return p
	}
	_, err := s.call(ca, pair(clients, time.Hour))
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		client []tls.Certificate
		log    string
	}{
		"none":             {nil, "client didn't provide a certificate"},
		"of somebody else": {[]tls.Certificate{pair(next, time.Hour)}, "unknown authority"},
		"an expired one":   {[]tls.Certificate{pair(clients, -time.Minute)}, "certificate has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.call(ca, tc.client...)
			assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
			assert.Eventually(t, func() bool { return bytes.Contains([]byte(s.log.String()), []byte(tc.log)) }, 5*time.Second, 20*time.Millisecond, s.log)
		})
	}
	write(t, s.files.ClientCA, next.PEM)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := s.call(ca, pair(next, time.Hour))
		require.NoError(c, err)
		_, err = s.call(ca, pair(clients, time.Hour))
		require.Error(c, err)
	}, 10*time.Second, 100*time.Millisecond)
}
