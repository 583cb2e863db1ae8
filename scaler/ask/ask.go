// Package ask asks a scaler what it makes of Slurm's queue, where it serves its metrics, and says in which form it answers.
package ask

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/slurmtide/slurmtide/internal/address"
)

// Paths of what a scaler tells, beside /metrics.
const (
	JobPath    = "/explain/job/" // and the job's number
	DemandPath = "/demand"
)

// mostSaid is more than a scaler says of 10,000 NodeSets, or of one job in thousands of clusters.
const mostSaid = 4 << 20

// mostRefused is how many characters are shown of why it does not answer.
const mostRefused = 500

// Demand is what the queue of one cluster asks of its NodeSets.
type Demand struct {
	Cluster  string    `json:"cluster"`
	Read     time.Time `json:"read"` // when Slurm was last seen to be like this
	NodeSets []NodeSet `json:"nodeSets"`
	// Pending are those jobs, the classes that count first. An array's tasks that slurmctld has not looked at are one.
	Pending []Pending `json:"pending"`
	// Never are those that no NodeSet can ever run.
	Never []Never `json:"never"`
}

// Pending are jobs that count, or do not, for one reason.
type Pending struct {
	Why    string `json:"why"`  // the word of the metric slurmtide_scaler_pending_jobs
	Says   string `json:"says"` // for people, after the number
	Counts bool   `json:"counts"`
	Jobs   int    `json:"jobs"`
}

// Never are jobs that would run if it were not for one thing.
type Never struct {
	Miss string `json:"miss"` // "needs gpu:h200:8, NodeSet gpu offers gpu:h100:8"
	Jobs int    `json:"jobs"`
}

// NodeSet is what is asked of one.
type NodeSet struct {
	Name string `json:"name"`
	// Needed are nodes in use, and those for the pending jobs that count, of which PowerUp are powered down.
	Needed  int `json:"needed"`
	PowerUp int `json:"powerUp"`
	InUse   int `json:"inUse"`
	// FreeingSoon are nodes in use whose jobs end within a minute.
	FreeingSoon int   `json:"freeingSoon"`
	Jobs        int64 `json:"jobs"` // pending ones that count
}

// Scaler is where one serves its metrics.
type Scaler struct {
	base *url.URL
	tls  TLS
}

// At takes the URL of a scaler's --metrics-address. The error names what is wrong, for people who typed it.
func At(typed string, t TLS) (Scaler, error) {
	base, err := url.Parse(typed)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https":
		return Scaler{}, fmt.Errorf("%s: expected a URL such as http://localhost:9443", address.Quoted(typed))
	case base.Scheme == "http" && t != (TLS{}): // who gives a CA does not want it in the clear
		return Scaler{}, fmt.Errorf("%s: --scaler-ca, --scaler-cert and --scaler-key are for a scaler at https://", address.Quoted(typed))
	case (t.Cert == "") != (t.Key == ""):
		return Scaler{}, fmt.Errorf("%s: --scaler-cert and --scaler-key go together", address.Quoted(typed))
	}
	return Scaler{base, t}, nil
}

// Demand returns that of a cluster; with "" that of the only one that the scaler serves.
func (s Scaler) Demand(ctx context.Context, cluster string) (d Demand, err error) {
	text, err := s.Get(ctx, DemandPath, url.Values{"cluster": {cluster}})
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("reading the scaler's answer (is it of another version?): %w", err)
	}
	if d.Cluster == "" {
		return d, errors.New("reading the scaler's answer: it names no cluster; is that a scaler there? --scaler says where to ask")
	}
	return d, nil
}

// Get returns what stands at a path; what the scaler says against it is the error. Parameters without a value are left out.
func (s Scaler) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	at := s.base.JoinPath(path)
	for name := range query {
		if query.Get(name) == "" {
			query.Del(name)
		}
	}
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking the scaler: %w", err)
	}
	client, err := s.tls.client()
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	var refused *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused):
		return nil, fmt.Errorf("asking the scaler: %w; --scaler-ca names the CA of its certificate, which must be for the host in --scaler", err)
	case err != nil:
		return nil, fmt.Errorf("asking the scaler: %w; is it running there? --scaler says where to ask", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostSaid))
	if err != nil {
		return nil, fmt.Errorf("reading the scaler's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(s.refusal(answer, line(text)))
	}
	return text, nil
}

// refusal is what the scaler says against a question, and which flag is of help.
func (s Scaler) refusal(answer *http.Response, said string) string {
	switch {
	case answer.StatusCode == http.StatusUnauthorized && strings.Contains(said, "--tls-client-ca"):
		return "the scaler says: " + said + "; --scaler-cert and --scaler-key name it"
	case answer.StatusCode == http.StatusBadRequest && s.base.Scheme == "http" && strings.Contains(said, "HTTPS server"): // net/http's words
		return "the scaler serves its metrics with TLS: --scaler wants https://"
	}
	return cmp.Or(said, answer.Status)
}

// line is what may be shown of a text that others than a scaler, proxies say, may have written.
func line(text []byte) string {
	words := strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, string(text)))
	shown := []rune(strings.Join(words, " "))
	if len(shown) > mostRefused {
		return string(shown[:mostRefused]) + " …"
	}
	return string(shown)
}
