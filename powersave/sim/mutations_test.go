package sim_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the bugs of mutations/ are planted instead of has to stand in the engine: TestMutants, which plants them, takes long, and runs seldom.
func TestMutationsFollowTheEngine(t *testing.T) {
	var engine strings.Builder
	sources, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	for _, f := range sources {
		if !strings.HasSuffix(f, "_test.go") {
			source, err := os.ReadFile(f)
			require.NoError(t, err)
			engine.Write(source)
		}
	}
	mutations, err := filepath.Glob("mutations/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, mutations)
	for _, f := range mutations {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		_, changes, _ := strings.Cut(string(text), "\n-- ")
		for i, part := range strings.Split(changes, "\n-- ") {
			if _, old, _ := strings.Cut(part, "instead of\n"); i%2 == 0 {
				assert.Equal(t, 1, strings.Count(engine.String(), old), "%s: %s", f, old)
			}
		}
	}
}
