package scaler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The words of job_state_reason.c, one file for each release.
func TestEveryReason(t *testing.T) {
	files, err := filepath.Glob("testdata/reasons-*.txt")
	require.NoError(t, err)
	require.Len(t, files, 2)
	known := map[string]bool{"": true}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		words := strings.Fields(string(text))
		assert.Greater(t, len(words), 200, file)
		for _, word := range words {
			known[word] = true
			why, detail := reasonWhy(word)
			assert.NotEqual(t, WhyUnknown, why, "%s has %s", file, word)
			assert.Equal(t, word, detail)
			assert.False(t, why.Counts(), word) // it is reckoned first
			if strings.HasPrefix(word, "QOS") || strings.HasPrefix(word, "Assoc") || strings.Contains(word, "PerAccount") || strings.Contains(word, "PerUser") {
				assert.Equal(t, WhyLimit, why, word)
			}
		}
	}
	for word := range reasons {
		assert.True(t, known[word], "%q is no word of Slurm", word)
	}
}

func TestUnknownReason(t *testing.T) {
	j := cpuJob(7)
	j.Reason = "MoonInWrongPhase"
	r := Demand(testNow, cluster(10, j))
	assert.Equal(t, WhyUnknown, r.Jobs[0].Why)
	assert.Equal(t, `job 7: unknown: Slurm says "MoonInWrongPhase", which this version does not know`, r.Jobs[0].String())
	assert.Zero(t, r.New)
	assert.Zero(t, r.NodeSets[0].Nodes())
}
