package ask

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"
)

// TLS are PEM files for a scaler that serves its metrics with TLS. They are read whenever it is asked, so they may be replaced, or come late.
type TLS struct {
	CA        string // who signed the scaler's certificate; empty: whom the system knows
	Cert, Key string // what the scaler is shown; empty: nothing
}

// client is one for one question.
func (t TLS) client() (*http.Client, error) {
	if t == (TLS{}) {
		return http.DefaultClient, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the scaler's CA: %w; --scaler-ca names the file", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("reading the scaler's CA: %s has no certificate; --scaler-ca names the file", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("reading what the scaler is shown: %w; --scaler-cert and --scaler-key name the files", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 10 * time.Second, DisableKeepAlives: true,
	}}, nil
}
