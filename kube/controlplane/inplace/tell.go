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
	"slices"
	"strings"
	"time"
)

// maxAnswer is the most that is read of an answer, in bytes: an object has 3 MiB at most.
const maxAnswer = 4 << 20

// ServiceAccountDir is where a pod has its token.
const ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// Pod is slurmctld's, on which reports are written. It takes the rights to get and to patch it.
type Pod struct {
	Namespace, Name string
	// Container is slurmctld's.
	Container string
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
	_, err = p.ask(ctx, http.MethodPatch, "?fieldManager=slurmtide-reconfigure", patch)
	return err
}

// Ended tells whether slurmctld has ended by itself since then, or one that began since then for want of memory, and its last words. It may run again. anew: it
// was told to end, so only one that began since then counts.
func (p Pod) Ended(ctx context.Context, since time.Time, anew bool) (words string, ended bool, err error) {
	text, err := p.ask(ctx, http.MethodGet, "", nil)
	if err != nil {
		return "", false, err
	}
	type state struct {
		Terminated *struct {
			ExitCode   int       `json:"exitCode"`
			Reason     string    `json:"reason"`
			StartedAt  time.Time `json:"startedAt"`
			FinishedAt time.Time `json:"finishedAt"`
			Message    string    `json:"message"`
		} `json:"terminated"`
	}
	var pod struct {
		Status struct {
			ContainerStatuses []struct {
				Name      string `json:"name"`
				State     state  `json:"state"`
				LastState state  `json:"lastState"`
			} `json:"containerStatuses"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &pod); err != nil {
		return "", false, fmt.Errorf("reading pod %s: %w", p.Name, err)
	}
	for _, c := range pod.Status.ContainerStatuses {
		for _, s := range []state{c.State, c.LastState} {
			switch t := s.Terminated; {
			case c.Name != p.Container || t == nil || t.FinishedAt.Before(since) || anew && t.StartedAt.Before(since):
			case t.Reason == oomKilled && !t.StartedAt.Before(since): // one that had run before may just have grown
				return "it needs more memory than its limit, and was killed (" + oomKilled + "): raise spec.slurmctld.resources.limits.memory", true, nil
			case byItself(t.ExitCode):
				return lastWords(t.Message, t.ExitCode), true, nil
			}
		}
	}
	return "", false, nil
}

// oomKilled is the kubelet's reason of a container that was killed for want of memory.
const oomKilled = "OOMKilled"

// byItself says that a daemon was not told to end, by SIGTERM or SIGKILL.
func byItself(exitCode int) bool { return exitCode != 0 && exitCode != 128+9 && exitCode != 128+15 }

// lastWords are the errors in the end of a log.
func lastWords(log string, exitCode int) string {
	var said []string
	for line := range strings.Lines(log) {
		if text, ok := complaint(strings.TrimSpace(line)); ok && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	if said == nil {
		return fmt.Sprintf("it ended with exit code %d", exitCode)
	}
	return shorten(said)
}

// ask makes a request for the pod.
func (p Pod) ask(ctx context.Context, method, query string, body []byte) ([]byte, error) {
	ca, err := os.ReadFile(filepath.Join(p.Dir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(p.Dir, "token")) // read anew: the kubelet replaces it
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("ca.crt has no certificate")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := fmt.Sprintf("https://%s/api/v1/namespaces/%s/pods/%s%s", net.JoinHostPort(p.Host, p.Port), p.Namespace, p.Name, query)
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("asking for pod %s: %w", p.Name, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s pod %s: the API server answers %s: %s", strings.ToLower(method), p.Name, response.Status, text[:min(len(text), 500)])
	}
	return text, nil
}
