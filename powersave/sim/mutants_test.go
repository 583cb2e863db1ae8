//go:build mutants

package sim_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
			sentence, binary := plant(t, f)
			out, err := exec.Command(binary, "-test.run", "TestSchedules", "-schedules", "200000", "-brief").CombinedOutput()
			require.Error(t, err, "not found: %s", sentence)
			require.Regexp(t, `in \d+ schedules, seeds \[`, string(out), "it ends in another way than by a broken promise")
			t.Logf("%s Found: %s", sentence, verdict(string(out)))
		})
	}
}

// TestStory sees what people get to read of a bug: the smallest schedule that shows it, and all that happens in it.
func TestStory(t *testing.T) {
	_, binary := plant(t, "mutations/half_gang.txt")
	out, err := exec.Command(binary, "-test.run", "TestSchedules", "-schedules", "300").CombinedOutput()
	require.Error(t, err)
	told := regexp.MustCompile(`(?s)half a gang idles in \d+ schedules, seeds \[(\d+).*Seed (\d+), shrunk to (.*?)bridge starts(.*)`).FindStringSubmatch(string(out))
	require.NotNil(t, told, "%s", out)
	assert.Equal(t, told[1], told[2])
	assert.Regexp(t, `^seed 0x\w+, room for \d pods,.*\n +0\.000  job of \d nodes.*\n`, told[3])
	assert.Len(t, regexp.MustCompile(`(?m)^ +\d+\.\d{3}  `).FindAllString(told[3], -1), 2, "one job is enough, and the start of the bridge: %s", told[3])
	assert.Regexp(t, `(?s)  \* job of .* -> CreatePod .* -> TellJob .* -> UpdateNodes power_down_force .* -> HoldJob .*: half a gang idles`, told[4])
}

// plant builds the simulator with the engine and the bug of a file of mutations/, and gives the file's sentence, too.
func plant(t *testing.T, file string) (sentence, binary string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	sentence, rest, _ := strings.Cut(string(text), "\n-- ")
	parts := strings.Split(rest, "\n-- ")
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

	binary = filepath.Join(dir, "sim.test")
	out, err := exec.Command("go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-c", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "building the mutant: %s", out)
	return sentence, binary
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
