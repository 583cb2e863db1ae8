//go:build mutants

package sim_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutants plants each bug of mutations/ in the engine and runs the simulator on it, which has to find it. A mutation
// is a sentence and, as often as needed, what stands in the engine exactly once, and what is to stand there instead.
func TestMutants(t *testing.T) {
	files, err := filepath.Glob("mutations/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			parts := strings.Split(string(text), "\n-- ")
			sentence, parts := parts[0], parts[1:]
			require.NotEmpty(t, parts, "a mutation is written as the others are")
			require.Zero(t, len(parts)%2, "a mutation is written as the others are")
			dir := t.TempDir()
			replaced := map[string]string{}
			for i := 0; i < len(parts); i += 2 {
				_, old, _ := strings.Cut(parts[i], "instead of\n")
				_, new, _ := strings.Cut(parts[i+1], "this\n")
				replace(t, dir, replaced, old, strings.TrimSuffix(new, "\n"))
			}
			overlay, err := json.Marshal(map[string]any{"Replace": replaced})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))

			binary := filepath.Join(dir, "sim.test")
			out, err := exec.Command("go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-c", "-o", binary, ".").CombinedOutput()
			require.NoError(t, err, "building the mutant: %s", out)
			out, err = exec.Command(binary, "-test.run", "TestSchedules", "-schedules", "60000", "-brief").CombinedOutput()
			require.Error(t, err, "not found: %s", sentence)
			t.Logf("%s Found: %s", sentence, verdict(string(out)))
		})
	}
}

// replace writes a copy, in dir, of the source file that contains old.
func replace(t *testing.T, dir string, replaced map[string]string, old, new string) {
	t.Helper()
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	found := 0
	for _, f := range files {
		path, err := filepath.Abs(f)
		require.NoError(t, err)
		source, err := os.ReadFile(cmp.Or(replaced[path], path))
		require.NoError(t, err)
		n := strings.Count(string(source), old)
		if n == 0 || strings.HasSuffix(f, "_test.go") {
			continue
		}
		found += n
		replaced[path] = filepath.Join(dir, filepath.Base(f))
		require.NoError(t, os.WriteFile(replaced[path], []byte(strings.Replace(string(source), old, new, 1)), 0o600))
	}
	require.Equal(t, 1, found, "the text to be replaced has to stand in the engine exactly once: %s", old)
}

// verdict is the line that says what was broken.
func verdict(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "schedules, seeds") || strings.Contains(line, "panic:") {
			return strings.TrimSpace(line)
		}
	}
	return out
}
