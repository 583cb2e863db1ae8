package inplace

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ServiceAccountDir is where a pod has its token.
const ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// Pod is a pod on which reports are written. It needs the right to patch it.
type Pod struct {
	Namespace, Name string
	// Host and Port are the API server's.
	Host, Port string
	// Dir has ca.crt and token.
	Dir string
}

// Tell writes a report on the pod.
func (p Pod) Tell(ctx context.Context, r Report) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{Annotation: string(text)}}})
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(p.Dir, "ca.crt"))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(p.Dir, "token")) // read anew: the kubelet replaces it
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return errors.New("ca.crt has no certificate")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := fmt.Sprintf("https://%s/api/v1/namespaces/%s/pods/%s?fieldManager=slurmtide-reconfigure", net.JoinHostPort(p.Host, p.Port), p.Namespace, p.Name)
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, bytes.NewReader(patch))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return fmt.Errorf("patching pod %s: the API server answers %s: %s", p.Name, response.Status, body)
	}
	return nil
}
