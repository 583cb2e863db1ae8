//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slurmtide/slurmtide/test/leaks"
)

// assertNoSecrets looks for the namespace's keys, tokens and passwords in the logs of its containers, in its Events, ConfigMaps and what pods say.
// What has ended, and was removed, it does not see. It gives the number of secrets that it has looked for.
func assertNoSecrets(ctx context.Context, t *testing.T, kube kubernetes.Interface, namespace string) int {
	t.Helper()
	read := func(what string, err error) {
		if err != nil { // no require: the caller has things to take down
			t.Errorf("looking for secrets in %s: reading %s: %v", namespace, what, err)
		}
	}
	all, err := kube.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
	if read("Secrets", err); err != nil {
		return 0
	}
	secrets := leaks.Secrets{}
	for _, s := range all.Items {
		for key, value := range s.Data {
			// Host keys have public halves, certificates are public, and slurmdbd.conf has a password that stands in another Secret.
			if key == "slurm.key" || key == "SLURM_JWT" || strings.HasSuffix(key, "_key") || strings.HasSuffix(key, ".key") || strings.Contains(key, "password") {
				secrets[s.Name+" "+key] = value
			}
		}
	}
	look := func(where, text string) {
		lines := strings.Split(text, "\n")
		for _, leak := range secrets.In(text) {
			line := 0
			_, _ = fmt.Sscanf(leak, "line %d", &line) // 0: the message has no line, which shows that its form has changed
			assert.Fail(t, leak+" of "+where, lines[max(line, 1)-1])
		}
	}
	pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if read("pods", err); err != nil {
		return 0
	}
	for _, pod := range pods.Items {
		look("pod "+pod.Name, pod.Status.String())
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			for _, previous := range []bool{false, true} {
				log, err := kube.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: c.Name, Previous: previous}).DoRaw(ctx)
				if err == nil { // otherwise it has not run, or has gone
					look(fmt.Sprintf("log of %s %s (previous: %v)", pod.Name, c.Name, previous), string(log))
				}
			}
		}
	}
	events, err := kube.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if read("Events", err); err != nil {
		return 0
	}
	for _, e := range events.Items {
		look("Event "+e.Name, e.Reason+" "+e.Note)
	}
	configs, err := kube.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if read("ConfigMaps", err); err != nil {
		return 0
	}
	for _, c := range configs.Items {
		if c.Name == "kube-root-ca.crt" { // public, and the names in it may read as the issuer's in a token
			continue
		}
		for name, text := range c.Data {
			look("ConfigMap "+c.Name+" "+name, text)
		}
	}
	return len(secrets)
}
