package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/test/docs/block"
)

// TestRun runs the blocks with the mark "run" as a reader would, those of a page one after the other: in a copy of the repository after make build, beside
// a slurm.conf. Paths of the system lead below a directory, and the user slurm is whoever runs the test.
func TestRun(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", bin+"/")
	for _, program := range []string{"slurmtide", "slurmtide-bridge", "slurmtide-controller", "resume", "suspend", "resume-fail", "start-gate"} {
		build.Args = append(build.Args, "./cmd/"+program)
	}
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	ofPage := map[string]*sandbox{}
	for _, b := range blocks(t) {
		if b.Mark != "run" {
			continue
		}
		if ofPage[b.Page] == nil {
			ofPage[b.Page] = newSandbox(t, bin)
		}
		t.Run(b.String(), func(t *testing.T) { ofPage[b.Page].run(t, b) })
	}
	assert.Greater(t, len(ofPage), 3)
}

// sandbox is a directory for the commands of a page.
type sandbox struct{ dir string }

func newSandbox(t *testing.T, bin string) *sandbox {
	t.Helper()
	s := &sandbox{t.TempDir()}
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	for _, dir := range []string{"docs", "helm", "hack", "man"} {
		require.NoError(t, os.Symlink(filepath.Join(repository, dir), filepath.Join(s.dir, dir)))
	}
	require.NoError(t, os.Symlink(bin, filepath.Join(s.dir, "bin")))
	for _, dir := range []string{"etc/slurm", "etc/systemd/system", "etc/bash_completion.d", "etc/fish/completions", "usr/local/bin", "usr/local/share/zsh/site-functions", "var/spool/slurmctld", "opt"} {
		require.NoError(t, os.MkdirAll(filepath.Join(s.dir, dir), 0o755))
	}
	conf, err := os.ReadFile("testdata/slurm.conf")
	require.NoError(t, err)
	for _, file := range []string{"etc/slurm/slurm.conf", "slurm.conf"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, file), conf, 0o644))
	}
	return s
}

var (
	ofSystem = regexp.MustCompile(`(^|[\s=>"'])/(etc|usr/local|var|opt)/`)
	ofSlurm  = regexp.MustCompile(`-o slurm -g slurm\b`)
)

// run runs a block, and holds what its commands print against what it shows; there … stands for anything.
func (s *sandbox) run(t *testing.T, b block.Block) {
	t.Helper()
	const end = "--- end of a command ---"
	script := "set -euo pipefail\n"
	for _, c := range b.Commands() {
		text := ofSlurm.ReplaceAllString(c.Text, fmt.Sprintf("-o %d -g %d", os.Getuid(), os.Getgid()))
		script += ofSystem.ReplaceAllString(text, "${1}"+s.dir+"/$2/") + "\necho " + strconv.Quote(end) + "\n"
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+s.dir+"/bin:"+os.Getenv("PATH"), "HOME="+s.dir, "SLURM_CONF="+s.dir+"/etc/slurm/slurm.conf", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)
	printed := strings.Split(string(out), end+"\n")
	for i, c := range b.Commands() {
		if c.Output != "" {
			want := strings.ReplaceAll(regexp.QuoteMeta(c.Output), "…", ".*")
			assert.Regexp(t, "(?s)^"+want+"$", strings.ReplaceAll(printed[i], s.dir, ""), c.Text)
		}
	}
}
