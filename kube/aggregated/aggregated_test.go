package aggregated

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/slurmtide/slurmtide/scaler/metricsapi"
)

type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{t, cert, key}
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

func (a *authority) sign(name string, usage x509.ExtKeyUsage, d time.Duration) *x509.Certificate {
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(d), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert
}

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configName, Namespace: configNamespace}, Data: data}
}

func TestAuthenticate(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	good := map[string]string{
		"requestheader-client-ca-file": ca.pem(), "requestheader-allowed-names": `["front-proxy-client"]`,
		"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`,
	}
	client := x509.ExtKeyUsageClientAuth
	for name, tc := range map[string]struct {
		config map[string]string
		cert   *x509.Certificate
		user   string
		want   string
	}{
		"vouched for":     {good, ca.sign("front-proxy-client", client, time.Hour), "hpa", ""},
		"no certificate":  {good, nil, "hpa", "no client certificate: this API is reached through kube-apiserver"},
		"of another CA":   {good, other.sign("front-proxy-client", client, time.Hour), "hpa", "unknown authority"},
		"expired":         {good, ca.sign("front-proxy-client", client, -time.Minute), "hpa", "has expired"},
		"a server's":      {good, ca.sign("front-proxy-client", x509.ExtKeyUsageServerAuth, time.Hour), "hpa", "incompatible key usage"},
		"of another name": {good, ca.sign("kubelet", client, time.Hour), "hpa", `client certificate of "kubelet": only front-proxy-client may vouch for users`},
		"without a user":  {good, ca.sign("front-proxy-client", client, time.Hour), "", "the request names no user"},
		"nothing is said": {nil, ca.sign("front-proxy-client", client, time.Hour), "hpa", "runs without its aggregation layer"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(fake.NewClientset(configMap(tc.config)), metricsapi.Group)
			r := httptest.NewRequest(http.MethodGet, "/apis", http.NoBody)
			r.Header.Set("X-Remote-User", tc.user)
			r.Header.Add("X-Remote-Group", "a")
			r.Header.Add("X-Remote-Group", "b")
			r.TLS = &tls.ConnectionState{}
			if tc.cert != nil {
				r.TLS.PeerCertificates = []*x509.Certificate{tc.cert}
			}
			u, err := s.Authenticate(r)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, metricsapi.User{Name: "hpa", Groups: []string{"a", "b"}}, u)
		})
	}
}

// The CA may be rotated, and kube-apiserver may be away for a moment.
func TestFrontChanges(t *testing.T) {
	ca, next := newAuthority(t), newAuthority(t)
	data := func(a *authority) map[string]string {
		return map[string]string{"requestheader-client-ca-file": a.pem(), "requestheader-username-headers": `["X-Remote-User"]`}
	}
	kube := fake.NewClientset(configMap(data(ca)))
	now := time.Now()
	s := New(kube, metricsapi.Group)
	s.now = func() time.Time { return now }
	request := func(a *authority) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/apis", http.NoBody)
		r.Header.Set("X-Remote-User", "hpa")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{a.sign("any", x509.ExtKeyUsageClientAuth, time.Hour)}}
		return r
	}
	ask := func(a *authority) error {
		_, err := s.Authenticate(request(a))
		return err
	}
	require.NoError(t, ask(ca))
	_, err := kube.CoreV1().ConfigMaps(configNamespace).Update(t.Context(), configMap(data(next)), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Error(t, ask(next), "it is not read each time")
	now = now.Add(rereadAfter)
	require.NoError(t, ask(next))
	require.Error(t, ask(ca))
	kube.PrependReactor("get", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	now = now.Add(rereadAfter)
	require.NoError(t, ask(next))
	before := len(kube.Actions())
	require.NoError(t, ask(next))
	assert.Len(t, kube.Actions(), before, "it is not asked again at once")

	// Nor do others wait for one that waits for kube-apiserver.
	asked, answered, waits := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	kube.PrependReactor("get", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) {
		close(asked)
		<-answered
		return true, nil, errors.New("away")
	})
	now = now.Add(retryAfter)
	r := request(next)
	go func() { _, err := s.Authenticate(r); waits <- err }()
	<-asked
	require.NoError(t, ask(next))
	close(answered)
	require.NoError(t, <-waits)

	kube.PrependReactor("get", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	_, err = New(kube, metricsapi.Group).Authenticate(httptest.NewRequest(http.MethodGet, "/apis", http.NoBody))
	require.ErrorContains(t, err, "away; bind the Role extension-apiserver-authentication-reader there")
}

func TestAllowed(t *testing.T) {
	kube := fake.NewClientset()
	asked := 0
	var fails error
	kube.PrependReactor("create", "subjectaccessreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		asked++
		review := a.(ktesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		assert.Equal(t, &authorizationv1.ResourceAttributes{Namespace: "slurm", Verb: "list", Group: "external.metrics.k8s.io", Version: "v1beta1", Resource: "slurm-nodes"}, review.Spec.ResourceAttributes)
		review.Status.Allowed = review.Spec.User == "hpa"
		return true, review, fails
	})
	now := time.Now()
	s := New(kube, metricsapi.Group)
	s.now = func() time.Time { return now }
	allowed := func(name string, groups ...string) bool {
		ok, err := s.Allowed(t.Context(), metricsapi.User{Name: name, Groups: groups}, "slurm", "slurm-nodes")
		require.NoError(t, err)
		return ok
	}
	assert.True(t, allowed("hpa"))
	assert.True(t, allowed("hpa"))
	assert.False(t, allowed("eve"))
	assert.Equal(t, 2, asked)
	assert.True(t, allowed("root", "system:masters"))
	assert.Equal(t, 2, asked)
	now = now.Add(allowedFor)
	assert.True(t, allowed("hpa"))
	assert.Equal(t, 3, asked)
	fails = errors.New("away")
	now = now.Add(allowedFor)
	_, err := s.Allowed(t.Context(), metricsapi.User{Name: "hpa"}, "slurm", "slurm-nodes")
	require.ErrorContains(t, err, "away; bind the ClusterRole system:auth-delegator")
}
