package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shells tell how a shell is asked what may stand behind words; "$@" is the script and the words. bash is everywhere, the others are
// where SLURMTIDE_SHELLS names them (make shells).
var shells = map[string][]string{
	// fish is asked as at its prompt: it prints a usage behind a tab.
	"fish": {"fish", "--no-config", "-c", `source $argv[1]; complete -C (string join ' ' -- $argv[2..-1]) | string replace -r '\t.*' ''; true`},
	// zsh completes in its line editor only: what the function hands over is printed instead.
	"zsh": {"zsh", "-f", "-c", `compdef() { }; _describe() { print -l -- "${(@)${(@P)2}%%:*}"; }; _files() { print files; }; compset() { }
		source "$1"; shift; words=("$@") CURRENT=$#; _slurmtide; true`, "zsh"},
	"bash": {"bash", "-c", `source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); compopt() { echo "files: $*"; }; _slurmtide; printf '%s\n' "${COMPREPLY[@]}"`, "bash"},
}

// completed are words that people type, as the shell has them apart, and what is proposed for the last.
var completed = map[string]struct {
	words []string
	want  []string
}{
	"command":         {[]string{"sta"}, []string{"status"}},
	"subcommand":      {[]string{"hostlist", "co"}, []string{"compress", "count"}},
	"flag":            {[]string{"status", "--ou"}, []string{"--output"}},
	"value":           {[]string{"status", "-o", "j"}, []string{"json"}},
	"blank":           {[]string{"doctor", "--host", ""}, []string{"auto", "no", "yes"}},
	"bridge":          {[]string{"bridge", "--clu"}, []string{"--cluster"}},
	"value in a flag": {[]string{"status", "--output=j"}, []string{"--output=json"}},
	"nothing like it": {[]string{"xyz"}, nil},
}

func TestCompletionInShells(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".", "../slurmtide-bridge")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, shell := range strings.Fields(cmp.Or(os.Getenv("SLURMTIDE_SHELLS"), "bash")) {
		command := shells[shell]
		require.NotEmpty(t, command, "SLURMTIDE_SHELLS has %s", shell)
		path, err := exec.LookPath(command[0])
		require.NoError(t, err, "install %s", shell)
		script := filepath.Join(t.TempDir(), "_slurmtide")
		text, err := completions.ReadFile("completion/slurmtide." + shell)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(script, text, 0o644))
		for name, tt := range completed {
			t.Run(shell+"/"+name, func(t *testing.T) {
				words, want := tt.words, tt.want
				if flag, value, ok := strings.Cut(words[len(words)-1], "="); ok && shell == "bash" { // takes it apart, and wants the last part alone
					words, want = append(words[:len(words)-1:len(words)-1], flag, "=", value), []string{strings.TrimPrefix(want[0], flag+"=")}
				}
				cmd := exec.CommandContext(t.Context(), path, append(append(command[1:len(command):len(command)], script, "slurmtide"), words...)...)
				cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
				said, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", said)
				assert.Equal(t, strings.Join(want, "\n"), strings.TrimSpace(string(said)))
			})
		}
	}
}
