//go:build integration && controlplane

package integration

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/internal/certs/certstest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// testTLS gives the bridge a certificate, first the name of a Secret that is not there yet.
func (p *plane) testTLS(t *testing.T) {
	set := func(tls *v1alpha1.ServerTLS) {
		p.eventually("the Controller to be written", func() (bool, string) {
			c := p.controller()
			c.Spec.Bridge.TLS = tls
			_, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Update(p.ctx, c, metav1.UpdateOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	set(&v1alpha1.ServerTLS{SecretName: "web", ClientCA: true})
	p.eventually("the bridge to say what it misses", func() (bool, string) {
		log, err := p.kube.CoreV1().Pods(p.ns).GetLogs("tide-controller-0", &corev1.PodLogOptions{Container: stack.ContainerBridge}).DoRaw(p.ctx)
		return strings.Contains(string(log), "/etc/slurmtide/tls/tls.crt: no such file"), fmt.Sprint(string(log), err)
	})
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	assert.Contains(t, p.waitCondition(v1alpha1.ConditionSidecarsReady, "Fails"), "/etc/slurmtide/tls/tls.crt: no such file")

	authority := certstest.New(t, "site")
	cert, key := authority.Sign(time.Hour)
	_, err := p.kube.CoreV1().Secrets(p.ns).Create(p.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key, "ca.crt": authority.PEM},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	address, err := p.ForwardPod(p.ctx, "tide-controller-0", 9441)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority.PEM))
	get := func(path string, mine ...tls.Certificate) (status int, text string, err error) {
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: mine, MinVersion: tls.VersionTLS12},
		}}
		response, err := client.Get("https://" + address + path)
		for try := 0; err != nil && try < 10; try++ { // a forwarded port ends with a connection that the pod refuses, and is made anew
			time.Sleep(300 * time.Millisecond)
			response, err = client.Get("https://" + address + path)
		}
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return response.StatusCode, string(body), err
	}
	// A Secret that was not there takes kubelet a minute or two, and the bridge is started less and less often.
	p.within(5*time.Minute, time.Second, "the bridge to answer by HTTPS", func() (bool, string) {
		status, _, err := get("/healthz")
		return status == http.StatusOK, fmt.Sprint(status, err)
	})
	status, _, err := get("/metrics")
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, status, "without a certificate")
	mine, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	status, text, err := get("/metrics", mine)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "slurmtide_bridge_")
	p.waitJob(p.sbatch("true"), "COMPLETED") // by the same bridge
	p.waitCondition(v1alpha1.ConditionSidecarsReady, "Run")
	set(nil)
	p.eventually("the pod without it", func() (bool, string) {
		pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, "tide-controller-0", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, v := range pod.Spec.Volumes {
			if v.Name == "bridge-tls" {
				return false, "the volume is there"
			}
		}
		return true, ""
	})
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	p.waitInForce()
}
