package external

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// reloadEvery is how often, at most, files are looked at. It is done when somebody connects.
const reloadEvery = time.Second

// TLSFiles are PEM files. They may be replaced at any time; connections made after that use the new ones.
type TLSFiles struct {
	Cert, Key string
	// ClientCA, if not empty, wants clients to have a certificate that one of these signed.
	ClientCA string
}

// TLS is a server's side of TLS.
type TLS struct {
	files TLSFiles
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	looked time.Time
	text   string // what config was made of
	failed string // why the files in place cannot be used
	config *tls.Config
	ends   time.Time
}

// LoadTLS reads the files.
func LoadTLS(files TLSFiles, log *slog.Logger) (*TLS, error) {
	t := &TLS{files: files, log: log, now: time.Now}
	if _, err := t.load(); err != nil {
		return nil, err
	}
	return t, nil
}

// Ends is when the certificate expires.
func (t *TLS) Ends() time.Time {
	t.refresh()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ends
}

// Config is for servers of HTTP/2.
func (t *TLS) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			t.refresh()
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.config, nil
		},
	}
}

// Certificate is for tls.Config.GetCertificate of other servers.
func (t *TLS) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	t.refresh()
	t.mu.Lock()
	defer t.mu.Unlock()
	return &t.config.Certificates[0], nil
}

// refresh takes over new files. Those that cannot be used, because they are half written perhaps, leave what was.
func (t *TLS) refresh() {
	t.mu.Lock()
	due := t.now().Sub(t.looked) >= reloadEvery
	t.mu.Unlock()
	if !due {
		return
	}
	changed, err := t.load()
	text := ""
	if err != nil {
		text = err.Error()
	}
	t.mu.Lock()
	fresh, ends := text != t.failed, t.ends
	t.failed = text
	t.mu.Unlock()
	switch { // without the lock: a log that hangs must not keep clients out
	case err != nil && fresh:
		t.log.Error("the certificate in use is kept", "error", err)
	case changed:
		t.log.Info("certificate reloaded", "file", t.files.Cert, "expires", ends)
	}
}

// load reads the files, and says whether they are others than before.
func (t *TLS) load() (changed bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked = t.now()
	var texts [3][]byte
	for i, file := range []string{t.files.Cert, t.files.Key, t.files.ClientCA} {
		if file == "" {
			continue
		}
		if texts[i], err = os.ReadFile(file); err != nil {
			return false, fmt.Errorf("reading TLS files: %w", err)
		}
	}
	all := fmt.Sprintf("%q", texts)
	if t.config != nil && all == t.text {
		return false, nil
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return false, fmt.Errorf("reading the certificate in %s and the key in %s: %w", t.files.Cert, t.files.Key, err)
	}
	if ends := pair.Leaf.NotAfter; t.now().After(ends) {
		return false, fmt.Errorf("the certificate in %s expired at %s: renew it", t.files.Cert, ends.UTC().Format(time.RFC3339))
	}
	if begins := pair.Leaf.NotBefore; t.now().Before(begins) {
		return false, fmt.Errorf("the certificate in %s is not valid before %s: give one that is good now, or set the clock right", t.files.Cert, begins.UTC().Format(time.RFC3339))
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}}
	if t.files.ClientCA != "" {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(texts[2]) {
			return false, fmt.Errorf("reading the clients' CA: %s has no certificate", t.files.ClientCA)
		}
	}
	t.text, t.config, t.ends = all, config, pair.Leaf.NotAfter
	return true, nil
}

// handshakes tells of handshakes that fail: whoever connects often hides why.
type handshakes struct {
	credentials.TransportCredentials
	tls *TLS
}

func (h handshakes) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := h.TransportCredentials.ServerHandshake(conn)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) { // TCP probes hang up
		attrs := []any{"client", conn.RemoteAddr().String(), "error", err}
		if ends := h.tls.Ends(); h.tls.now().After(ends) {
			attrs = append(attrs, "reason", fmt.Sprintf("our certificate in %s expired at %s: renew it", h.tls.files.Cert, ends.UTC().Format(time.RFC3339)))
		}
		h.tls.log.Log(context.Background(), slog.LevelWarn, "TLS handshake failed", attrs...)
	}
	return c, info, err
}

func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.tls}
}
