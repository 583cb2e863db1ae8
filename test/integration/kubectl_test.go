//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// guide is where the user guide's manifests are.
const guide = "../../docs/examples/"

// kubectl runs the local cluster's, as a user would.
func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t.Context(), stdin, args...)
	require.NoError(t, err)
	return out
}

func tryKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	name := os.Getenv("LOCALCLUSTER")
	if name == "" {
		return "", fmt.Errorf("LOCALCLUSTER must name the local cluster; hack/integration.sh does")
	}
	cmd := exec.CommandContext(ctx, "../../hack/localcluster/localcluster.sh", append([]string{"--name", name, "kubectl"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// manifests are those of a file of the user guide that are of the given kinds, with the namespace changed from slurm to the test's.
func (c *cluster) manifests(file string, kinds ...string) string {
	c.t.Helper()
	text, err := os.ReadFile(guide + file)
	require.NoError(c.t, err)
	var kept []string
	for _, kind := range kinds {
		n := len(kept)
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			if strings.Contains(doc, "\nkind: "+kind+"\n") {
				kept = append(kept, doc)
			}
		}
		require.Greater(c.t, len(kept), n, "%s has no %s", file, kind)
	}
	all := strings.Join(kept, "\n---\n")
	require.Contains(c.t, all, "namespace: slurm}")
	return strings.ReplaceAll(all, "namespace: slurm}", "namespace: "+c.ns+"}")
}

// kubeconfigOf makes a kubeconfig of a service account, which has its rights and no others.
func (c *cluster) kubeconfigOf(account string) string {
	c.t.Helper()
	config, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	require.NoError(c.t, err)
	token, err := c.kube.CoreV1().ServiceAccounts(c.ns).CreateToken(c.ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	file := filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(*config, file))
	return file
}
