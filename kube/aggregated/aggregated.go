// Package aggregated does for an API server behind kube-apiserver what every such server has to: it lets in only those for
// whom kube-apiserver vouches, and asks kube-apiserver what they may do.
package aggregated

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/groups"
	"github.com/slurmtide/slurmtide/scaler/metricsapi"
)

const (
	// Where kube-apiserver says how it vouches for users.
	configNamespace = "kube-system"
	configName      = "extension-apiserver-authentication"

	rereadAfter = time.Minute      // the CA may be rotated
	retryAfter  = 10 * time.Second // what is known is used meanwhile
	allowedFor  = 10 * time.Second // how long an answer counts, as in kube-apiserver's own authorizer
	deniedFor   = 5 * time.Second
	callWithin  = 10 * time.Second
	mostKept    = 1000
)

// Server is both metricsapi.Front and metricsapi.Authorizer.
type Server struct {
	kube  groups.Interface
	group string
	now   func() time.Time

	mu      sync.Mutex
	next    time.Time // when front is to be read again
	front   *front
	answers map[string]answer
}

// front is what the ConfigMap says.
type front struct {
	roots       *x509.CertPool
	names       []string // of the certificate; empty: any
	userHeaders []string
	groups      []string
}

type answer struct {
	allowed bool
	until   time.Time
}

// New makes a Server for an API group.
func New(kube groups.Interface, group string) *Server {
	return &Server{kube: kube, group: group, now: time.Now, answers: map[string]answer{}}
}

// Authenticate checks the client's certificate and reads the user from the headers. TLS must ask for a certificate, and need not
// verify it.
func (s *Server) Authenticate(r *http.Request) (metricsapi.User, error) {
	f, err := s.frontProxy(r.Context())
	if err != nil {
		return metricsapi.User{}, err
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return metricsapi.User{}, errors.New("no client certificate: this API is reached through kube-apiserver")
	}
	cert := r.TLS.PeerCertificates[0]
	options := x509.VerifyOptions{Roots: f.roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: s.now()}
	for _, c := range r.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := cert.Verify(options); err != nil {
		return metricsapi.User{}, fmt.Errorf("client certificate of %q: %w", cert.Subject.CommonName, err)
	}
	if len(f.names) > 0 && !slices.Contains(f.names, cert.Subject.CommonName) {
		return metricsapi.User{}, fmt.Errorf("client certificate of %q: only %s may vouch for users", cert.Subject.CommonName, strings.Join(f.names, ", "))
	}
	u := metricsapi.User{}
	for _, h := range f.userHeaders {
		if u.Name = r.Header.Get(h); u.Name != "" {
			break
		}
	}
	for _, h := range f.groups {
		u.Groups = append(u.Groups, r.Header.Values(h)...)
	}
	if u.Name == "" {
		return metricsapi.User{}, errors.New("the request names no user")
	}
	return u, nil
}

// frontProxy reads the ConfigMap, once in a while. Only the first to find that it is time waits for kube-apiserver; others use what is known.
func (s *Server) frontProxy(ctx context.Context) (*front, error) {
	s.mu.Lock()
	known := s.front
	if known != nil {
		if s.now().Before(s.next) {
			s.mu.Unlock()
			return known, nil
		}
		s.next = s.now().Add(retryAfter)
	}
	s.mu.Unlock()
	f, err := s.readFront(ctx)
	switch {
	case err == nil:
		s.mu.Lock()
		s.front, s.next = f, s.now().Add(rereadAfter)
		s.mu.Unlock()
		return f, nil
	case known != nil:
		return known, nil // kube-apiserver is away for a moment
	}
	return nil, fmt.Errorf("reading how kube-apiserver vouches for users (ConfigMap %s/%s): %w; bind the Role extension-apiserver-authentication-reader there", configNamespace, configName, err)
}

func (s *Server) readFront(ctx context.Context) (*front, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	config, err := s.kube.CoreV1().ConfigMaps(configNamespace).Get(ctx, configName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return parseFront(config.Data)
}

func parseFront(data map[string]string) (*front, error) {
	f := &front{roots: x509.NewCertPool()}
	if !f.roots.AppendCertsFromPEM([]byte(data["requestheader-client-ca-file"])) {
		return nil, errors.New("requestheader-client-ca-file has no certificate: kube-apiserver runs without its aggregation layer")
	}
	for key, list := range map[string]*[]string{
		"requestheader-allowed-names": &f.names, "requestheader-username-headers": &f.userHeaders, "requestheader-group-headers": &f.groups,
	} {
		if text := data[key]; text != "" {
			if err := json.Unmarshal([]byte(text), list); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	if len(f.userHeaders) == 0 {
		return nil, errors.New("requestheader-username-headers is empty")
	}
	return f, nil
}

// Allowed asks kube-apiserver whether the user may list the metric, which is what it calls a GET without a name. It is asked again after a few seconds.
func (s *Server) Allowed(ctx context.Context, u metricsapi.User, namespace, metric string) (bool, error) {
	if slices.Contains(u.Groups, "system:masters") {
		return true, nil
	}
	key := fmt.Sprintf("%q %q %q %q", u.Name, u.Groups, namespace, metric)
	s.mu.Lock()
	a, ok := s.answers[key]
	s.mu.Unlock()
	if ok && s.now().Before(a.until) {
		return a.allowed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	review, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, Groups: u.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: s.group, Version: metricsapi.Version, Resource: metric},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("asking kube-apiserver: %w; bind the ClusterRole system:auth-delegator", err)
	}
	a = answer{allowed: review.Status.Allowed, until: s.now().Add(deniedFor)}
	if a.allowed {
		a.until = s.now().Add(allowedFor)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answers) >= mostKept {
		clear(s.answers)
	}
	s.answers[key] = a
	return a.allowed, nil
}
