// Package certs is the servers' side of TLS: certificates in files that may be replaced at any time.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

// ReloadEvery is how often, at most, files are looked at. It is done when somebody connects.
const ReloadEvery = time.Second

// Files are PEM files. They may be replaced at any time; connections made after that use the new ones.
type Files struct {
	Cert, Key string
	// ClientCA, if not empty, wants clients to have a certificate that one of these signed.
	ClientCA string
}

// TLS is a server's side of TLS.
type TLS struct {
	files Files
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	looked time.Time
	text   string // what config was made of
	failed string // why the files in place cannot be used
	config *tls.Config
	ends   time.Time
}

// Load reads the files. A certificate that has expired already is shown all the same: whoever checks it says so, and the daemon's own work goes on.
func Load(files Files, log *slog.Logger) (*TLS, error) {
	t := &TLS{files: files, log: log, now: time.Now}
	if _, err := t.load(); err != nil {
		return nil, err
	}
	if why := t.Expired(); why != "" {
		log.Error("clients that check it refuse the certificate", "error", why)
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

// HTTP is for servers of HTTP. Who has no certificate is let in all the same, for kubelet has none to show: see Known.
func (t *TLS) HTTP() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			t.refresh()
			t.mu.Lock()
			defer t.mu.Unlock()
			config := t.config.Clone()
			config.NextProtos = []string{"h2", "http/1.1"}
			if config.ClientAuth == tls.RequireAndVerifyClientCert {
				config.ClientAuth = tls.VerifyClientCertIfGiven
			}
			return config, nil
		},
	}
}

// ErrorLog is for http.Server: handshakes that fail are told of at level debug, for anybody can have them fail.
func (t *TLS) ErrorLog() *log.Logger { return slog.NewLogLogger(t.log.Handler(), slog.LevelDebug) }

// Known lets only those ask handler who have shown a certificate, if Files.ClientCA is given. It is for servers that HTTP configured.
func (t *TLS) Known(handler http.Handler) http.Handler {
	if t.files.ClientCA == "" {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "show a certificate of the CA in --tls-client-ca", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// Expired says so of a certificate that is good no more; empty: it is good.
func (t *TLS) Expired() string {
	ends := t.Ends()
	if !t.now().After(ends) {
		return ""
	}
	return fmt.Sprintf("our certificate in %s expired at %s: renew it", t.files.Cert, ends.UTC().Format(time.RFC3339))
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
	due := t.now().Sub(t.looked) >= ReloadEvery
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
	if ends := pair.Leaf.NotAfter; t.config != nil && t.now().After(ends) { // what is in use may be better
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
