// Package golden compares what a test got with a file beside it. `go test ./that/package -update` writes the file anew.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A flag of the test binary has to be there before the binary reads its flags.
var update = flag.Bool("update", false, "write the golden files anew")

// Compare fails t if the file's text is not got.
func Compare(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "go test -update writes it")
	assert.Equal(t, string(want), got, "%s; read the difference, and if it is meant, go test -update writes it", path)
}
