package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/internal/cli/clitest"
	pb "github.com/slurmtide/slurmtide/scaler/external/externalscaler"
	"github.com/slurmtide/slurmtide/test/leaks"
)

// restd answers as one of 26.05 does for a cluster of ten nodes that are powered down, and jobs for a node each.
type restd struct {
	jobs    int
	garbage atomic.Pointer[string] // answered in place of everything
	hangs   atomic.Bool
}

func (s *restd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.hangs.Load() {
		<-r.Context().Done()
		return
	}
	if text := s.garbage.Load(); text != nil {
		_, _ = io.WriteString(w, *text)
		return
	}
	list := ""
	switch path.Base(r.URL.Path) {
	case "partitions":
		list = `,"partitions":[{"name":"p","partition":{"state":["UP"]}}]`
	case "nodes":
		var nodes []string
		for i := range 10 {
			nodes = append(nodes, fmt.Sprintf(`{"name":"n%d","state":["IDLE","CLOUD","POWERED_DOWN"],"partitions":["p"],"cpus":4,"real_memory":1000}`, i))
		}
		list = `,"nodes":[` + strings.Join(nodes, ",") + "]"
	case "state":
		var jobs []string
		for i := range s.jobs {
			jobs = append(jobs, fmt.Sprintf(`{"job_id":"%d","state":["PENDING"]}`, i+1))
		}
		list = `,"jobs":[` + strings.Join(jobs, ",") + "]"
	case "jobs":
		var jobs []string
		for i := range s.jobs {
			jobs = append(jobs, fmt.Sprintf(`{"job_id":%d,"job_state":["PENDING"],"state_reason":"Resources","partition":"p","tres_req_str":"node=1","tasks":{"set":true,"number":1},"cpus":{"set":true,"number":4},"cpus_per_task":{"set":true,"number":4}}`, i+1))
		}
		list = `,"jobs":[` + strings.Join(jobs, ",") + `],"last_update":{"set":true,"number":1795248446}`
	}
	_, _ = io.WriteString(w, `{"meta":{"slurm":{"release":"26.05.5"}},"errors":[],"warnings":[]`+list+"}")
}

// pki is a CA, and files of the certificates it signed.
type pki struct {
	pool *x509.CertPool
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPKI(t *testing.T) *pki {
	p := &pki{pool: x509.NewCertPool(), dir: t.TempDir()}
	p.cert, p.key = p.sign(t, "ca", nil)
	p.pool.AddCert(p.cert)
	return p
}

func (p *pki) sign(t *testing.T, name string, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer := p.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.file(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(p.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	return cert, key
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// The whole daemon but for Kubernetes: two clusters from a file, mutual TLS, metrics, what a slurmrestd may answer, and its end.
func TestDaemon(t *testing.T) {
	const token = "opaque-token-of-slurmrestd"
	t.Setenv("SLURM_JWT", token)
	one, two := &restd{jobs: 2}, &restd{jobs: 3}
	first, second := httptest.NewServer(one), httptest.NewServer(two)
	defer first.Close()
	defer second.Close()
	certs := newPKI(t)
	certs.sign(t, "server", certs.cert)
	certs.sign(t, "client", certs.cert)
	clusters := certs.file("clusters.yaml")
	require.NoError(t, os.WriteFile(clusters, fmt.Appendf(nil, "clusters:\n- {name: one, slurmrestd: %q}\n- {name: two, slurmrestd: %q}\n", first.URL, second.URL), 0o600))
	address, web := freeAddress(t), freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, code := &clitest.Log{}, make(chan int, 1)
	go func() {
		app := &urfave.App{Name: "slurmtide", Commands: []*urfave.Command{scalerCommand()}}
		code <- cli.Run(ctx, app, []string{
			"slurmtide", "scaler", "--clusters", clusters, "--listen", address, "--metrics-address", web, "--max-age", "2s", "--log-level", "debug",
			"--tls-cert", certs.file("server.crt"), "--tls-key", certs.file("server.key"), "--tls-client-ca", certs.file("ca.crt"),
		}, nil, log, log)
	}()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + web + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	require.Eventually(t, func() bool { code, _ := get("/readyz"); return code == http.StatusOK }, 10*time.Second, 20*time.Millisecond, "%s", log)

	pair, err := tls.LoadX509KeyPair(certs.file("client.crt"), certs.file("client.key"))
	require.NoError(t, err)
	dial := func(creds credentials.TransportCredentials) pb.ExternalScalerClient {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return pb.NewExternalScalerClient(conn)
	}
	client := dial(credentials.NewTLS(&tls.Config{RootCAs: certs.pool, Certificates: []tls.Certificate{pair}}))
	ref := func(cluster string) *pb.ScaledObjectRef {
		return &pb.ScaledObjectRef{Name: "so", Namespace: "slurm", ScalerMetadata: map[string]string{"cluster": cluster, "partition": "p", "cpus": "4", "memory": "1000", "maxNodes": "10"}}
	}
	value := func(cluster string) (int64, error) {
		got, err := client.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: ref(cluster)})
		if err != nil {
			return 0, err
		}
		return got.MetricValues[0].MetricValue, nil
	}
	// On a busy machine figures are at times too old.
	gives := func(cluster string, want int64) {
		t.Helper()
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			got, err := value(cluster)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}, 10*time.Second, 20*time.Millisecond, cluster)
	}
	gives("one", 2)
	gives("two", 3)
	for name, creds := range map[string]credentials.TransportCredentials{"no TLS": insecure.NewCredentials(), "no certificate": credentials.NewTLS(&tls.Config{RootCAs: certs.pool})} {
		_, err := dial(creds).IsActive(ctx, ref("one"))
		assert.Equal(t, codes.Unavailable, status.Code(err), name)
	}
	status200, text := get("/metrics")
	assert.Equal(t, http.StatusOK, status200)
	for _, line := range []string{
		`slurmtide_scaler_readable{cluster="one"} 1`, `slurmtide_scaler_nodes_needed{cluster="two",nodeset="partition=p cpus=4 memory=1000 maxNodes=10"} 3`,
		`slurmtide_scaler_certificate_expiry_timestamp_seconds `, `slurmtide_scaler_requests_total{code="OK",method="GetMetrics"} `, `slurmtide_scaler_read_seconds_count{cluster="two",what="jobs"} `, "go_goroutines ", "process_open_fds ",
	} {
		assert.Contains(t, text, line)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?m)^# TYPE (slurmtide_[a-z_]+) ").FindAllStringSubmatch(text, -1)
	assert.Greater(t, len(shown), 15)
	for _, m := range shown {
		assert.Contains(t, string(page), "\n| `"+m[1]+"` |", "docs/metrics.md lists what a daemon shows")
	}
	_, text = get("/explain/job/3")
	assert.Equal(t, "cluster two: job 3 counts: 1 node is to be powered up for it\n", text)

	// Whatever two's slurmrestd does, it is an error, says what, and is over by itself; one's figures are not touched.
	said := text
	for text, want := range map[string]string{
		`{"errors":[{"error":"Protocol authentication error","error_number":1007}]}`: "the token was refused",
		"hangs":                                  "slurmrestd has not answered for ",
		"<html>please log in</html>":             "invalid character '<'",
		"{}":                                     "is it slurmrestd's?",
		`{"jobs":[],"nodes":[],"partitions":[]}`: "there are no partitions in Slurm's answer",
		`{"errors":[{"error":"Unable to contact slurm controller (connect failure)","error_number":1800,"description":"no"}]}`: "Unable to contact slurm controller",
	} {
		if two.hangs.Store(text == "hangs"); text != "hangs" {
			two.garbage.Store(&text)
		}
		require.Eventually(t, func() bool {
			got, err := value("two")
			if err == nil {
				assert.EqualValues(t, 3, got, text)
				return false
			}
			assert.Equal(t, codes.Unavailable, status.Code(err))
			said += err.Error() + "\n"
			return strings.Contains(err.Error(), want)
		}, 20*time.Second, 50*time.Millisecond, "%s: %s", text, log)
		gives("one", 2)
		code, _ := get("/readyz")
		assert.Equal(t, http.StatusOK, code, "it answers, if only with an error")
		two.hangs.Store(false)
		two.garbage.Store(nil)
		second.CloseClientConnections() // what is asked again must not hang once more
		require.Eventually(t, func() bool { got, err := value("two"); return err == nil && got == 3 }, 30*time.Second, 50*time.Millisecond, "%s: %s", text, log)
	}

	stream, err := client.StreamIsActive(t.Context(), ref("one"))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	cancel()
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
	select {
	case c := <-code:
		assert.Zero(t, c, log)
	case <-time.After(10 * time.Second):
		require.Fail(t, "it does not end", log)
	}
	assert.Contains(t, log.String(), "scaler ends")
	key, err := os.ReadFile(certs.file("server.key"))
	require.NoError(t, err)
	assert.Empty(t, leaks.Secrets{"token": []byte(token), "server.key": key}.In(log.String()+said), "%s%s", log, said)
}
