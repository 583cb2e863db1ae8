package live

import (
	"context"
	"fmt"
	"log/slog"
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

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/internal/slurmrest"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const podList = `{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [
	{"metadata": {"name": "cpu-0", "uid": "u0"}, "status": {"podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]}},
	{"metadata": {"name": "cpu-1", "uid": "u1"}, "status": {"podIPs": [{"ip": "10.1.0.2"}]}},
	{"metadata": {"name": "cpu-2", "uid": "u2", "annotations": {"k8s.v1.cni.cncf.io/network-status": "[]"}}, "status": {"podIPs": [{"ip": "10.9.0.3"}]}}]}`

const nodeList = `
	{"name": "metal", "state": ["IDLE"], "address": "192.0.2.1"},
	{"name": "cpu-0", "state": ["ALLOCATED", "CLOUD"], "address": "192.0.2.9", "instance_id": "u0"},
	{"name": "cpu-1", "state": ["ALLOCATED", "CLOUD", "POWERING_UP"], "address": "cpu-1", "instance_id": "u1"},
	{"name": "cpu-2", "state": ["IDLE", "CLOUD"], "address": "10.1.0.3", "instance_id": "u2"}`

// slurmctld is slurmrestd before one whose clock is ahead.
func slurmctld(t *testing.T, ahead time.Duration) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest := `"pings": []`
		switch {
		case strings.Contains(r.URL.Path, "/nodes"):
			rest = `"nodes": [` + nodeList + `]`
		case strings.Contains(r.URL.Path, "/diag"):
			rest = fmt.Sprintf(`"statistics": {"req_time": {"set": true, "infinite": false, "number": %d}}`, time.Now().Add(ahead).Unix())
		}
		_, _ = w.Write([]byte(`{"meta": {"slurm": {"version": {"major": "24", "minor": "11", "micro": "7"}, "release": "24.11.7"}}, ` + rest + `, "errors": [], "warnings": []}`))
	}))
	t.Cleanup(server.Close)
	return server
}

// With cloud_dns the names of nodes that are up are looked up. An answer that is none is said, and is no name that is missing.
func TestNames(t *testing.T) {
	for what, c := range map[string]struct {
		err    error
		names  []doctor.ResolvedName
		unread []string
	}{
		"found":   {names: []doctor.ResolvedName{{Name: "cpu-0", Addresses: []string{"10.1.0.1"}}, {Name: "cpu-2", Addresses: []string{"10.1.0.1"}}}},
		"none":    {err: &net.DNSError{Err: "no such host", IsNotFound: true}, names: []doctor.ResolvedName{{Name: "cpu-0"}, {Name: "cpu-2"}}},
		"timeout": {err: &net.DNSError{Err: "timeout", IsTimeout: true}, unread: []string{"the name cpu-0: lookup : timeout", "the name cpu-2: lookup : timeout"}},
	} {
		t.Run(what, func(t *testing.T) {
			f := doctor.FromTexts(slurmconf.Version{Major: 24, Minor: 11}, map[string]string{"slurm.conf": "ClusterName=Tide\nSlurmctldHost=a\nSlurmctldParameters=Cloud_DNS\n"})
			require.NoError(t, Read(t.Context(), Config{
				Kubernetes: apiServer(t), Namespace: "slurm", Slurmrestd: &slurmrest.Config{Server: slurmctld(t, 0).URL, Token: slurmrest.Static("x"), Log: slog.New(slog.DiscardHandler)},
				Lookup: func(context.Context, string) ([]string, error) {
					if c.err != nil {
						return nil, c.err
					}
					return []string{"10.1.0.1"}, nil
				},
			}, &f))
			assert.Equal(t, c.names, f.Access.Running.Names)
			assert.Equal(t, c.unread, f.Unread)
			assert.InDelta(t, 0, f.Access.SlurmSkew, float64(2*time.Second))
		})
	}
}

func TestNameServers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "resolv.conf")
	require.NoError(t, os.WriteFile(name, []byte("# nameserver 1\nsearch a b\nnameserver 10.0.0.1\n\tnameserver fd00::1 # two\nnameserver\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n"), 0o600))
	assert.Equal(t, []string{"10.0.0.1:53", "[fd00::1]:53", "10.0.0.3:53"}, NameServers(name))
	assert.Empty(t, NameServers(name+".none"))
}

func listen(t *testing.T) net.PacketConn {
	t.Helper()
	socket, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

// refusing is a name server that refuses all that it is asked, and tells what that was.
func refusing(t *testing.T, asked chan<- string) net.PacketConn {
	t.Helper()
	socket := listen(t)
	go func() {
		query := make([]byte, 512)
		for {
			n, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			asked <- string(query[12 : 12+7])
			query[2], query[3] = query[2]|0x80, 5 // a response: REFUSED
			_, _ = socket.WriteTo(query[:n], from)
		}
	}()
	return socket
}

// One that refuses answers.
func TestAskServers(t *testing.T) {
	asked := make(chan string, 100)
	refuses, silent := refusing(t, asked), listen(t)
	got := askServers(t.Context(), []string{refuses.LocalAddr().String(), silent.LocalAddr().String()}, "cpu-0")
	assert.Equal(t, []doctor.NameServer{{Address: "127.0.0.1"}, {Address: "127.0.0.1", Silent: true}}, got)
	assert.Equal(t, "\x05cpu-0\x00", <-asked)
}

// A look-up that takes all its time, as behind a silent first server, leaves the other servers theirs. State is read in any case, as Slurm does.
func TestServersAfterSlowLookup(t *testing.T) {
	silent, refuses := listen(t), refusing(t, make(chan string, 100))
	f := doctor.FromTexts(slurmconf.Version{Major: 26, Minor: 5}, map[string]string{"slurm.conf": "ClusterName=Tide\nSlurmctldHost=a\nNodeName=cpu-[0-9] State=cloud\n"})
	require.NoError(t, Read(t.Context(), Config{
		Kubernetes: apiServer(t), Namespace: "slurm", NameServers: []string{silent.LocalAddr().String(), refuses.LocalAddr().String()},
		Lookup: func(ctx context.Context, _ string) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}, &f))
	assert.Equal(t, "cpu-0", f.Access.Name)
	assert.Equal(t, []doctor.NameServer{{Address: "127.0.0.1", Silent: true}, {Address: "127.0.0.1"}}, f.Access.NameServers)
}
