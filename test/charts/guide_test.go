//go:build charts

package charts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/test/docs/block"
)

// Each helm install of the user guide gives objects: its flags and values are those of the charts. TestCharts of test/integration installs them.
func TestGuide(t *testing.T) {
	dir, examples := t.TempDir(), cases(t)
	for file, example := range map[string]string{"my-cluster.yaml": "slurm-readme", "scaler.yaml": "slurmtide-readme"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(examples[example]), 0o600))
	}
	all, err := block.All(root)
	require.NoError(t, err)
	n := 0
	for _, b := range all {
		if !b.Shell() {
			continue
		}
		for _, c := range b.Commands() {
			rest, found := strings.CutPrefix(c.Text, "helm install ")
			if !found {
				continue
			}
			n++
			args := strings.Fields(rest)
			for i, arg := range args {
				if _, err := os.Stat(filepath.Join(dir, arg)); err == nil {
					args[i] = filepath.Join(dir, arg)
				}
			}
			out, said, err := helm(append([]string{"template", "--kube-version", "1.36", "--api-versions", "slurmtide.io/v1alpha1"}, args...)...)
			require.NoError(t, err, "%s: %s: %s", b, c.Text, said)
			assert.Contains(t, out, "\nkind: ", "%s: %s", b, c.Text)
		}
	}
	assert.Greater(t, n, 6)
}
