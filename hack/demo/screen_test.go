package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// terminal keeps what a terminal shows after text with the two sequences that screen uses.
func terminal(t *testing.T, text string, width int) []string {
	t.Helper()
	var shown []string
	line := ""
	for text != "" {
		if seq := regexp.MustCompile(`^\r?\x1b\[(\d*)([AJ])`).FindStringSubmatch(text); seq != nil {
			if seq[2] == "A" {
				require.True(t, strings.HasPrefix(seq[0], "\r"), "from the beginning of the line, whatever was typed")
				line = ""
				n, err := strconv.Atoi(seq[1])
				require.NoError(t, err)
				require.LessOrEqual(t, n, len(shown))
				shown = shown[:len(shown)-n] // [J follows always
				require.True(t, strings.HasPrefix(text[len(seq[0]):], "\x1b[J"))
			}
			text = text[len(seq[0]):]
			continue
		}
		if text[0] == '\n' {
			require.LessOrEqual(t, len(line), width)
			shown, line = append(shown, line), ""
		} else {
			line += text[:1]
		}
		text = text[1:]
	}
	require.Empty(t, line)
	return shown
}

func TestScreenOnTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &screen{w: &out, start: time.Now(), size: func() (int, int) { return 60, 30 }}
		f := midway()
		s.say("deploying")
		s.show(newView(f, time.Second, "one"))
		time.Sleep(2 * time.Second)
		out.WriteString("^C")
		s.say("ok  first")
		f.Slurm.Jobs = f.Slurm.Jobs[:2]
		s.show(newView(f, 2*time.Second, "two"))
		table := newView(f, 2*time.Second, "two").table(59, 27)
		assert.Equal(t, append([]string{"[  0.0s] deploying", "[  2.0s] ok  first", ""}, table...), terminal(t, out.String(), 59),
			"the lines that stay, and below them the newest table only")

		s.end()
		s.say("the end")
		assert.Equal(t, []string{"[  0.0s] deploying", "[  2.0s] ok  first", "[  2.0s] the end"}, terminal(t, out.String(), 59))
	})
}

func TestScreenElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &screen{w: &out, start: time.Now()}
		f := midway()
		f.Slurm.Jobs, f.Slurm.Nodes = f.Slurm.Jobs[:1], f.Slurm.Nodes[:1]
		s.show(newView(f, 0, "one"))
		time.Sleep(1500 * time.Millisecond)
		s.show(newView(f, time.Second, "one"))
		f.Slurm.Jobs[0].States = []string{"COMPLETED"}
		s.show(newView(f, time.Second, "two"))
		s.say("ok  first")
		s.end()
		assert.Equal(t, `[  0.0s]     job 1 two-nodes: RUNNING on cpu-[0-1]
[  0.0s]     slurm cpu-0: ALLOCATED
[  0.0s]     pod   cpu-0: Running
[  0.0s]     boot  cpu-0: registered
[  1.5s]     job 1 two-nodes: COMPLETED on cpu-[0-1]
[  1.5s] ok  first
`, out.String())
	})
}

func TestNewScreen(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "out")
	require.NoError(t, err)
	defer file.Close()
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer tty.Close()
	for name, tt := range map[string]struct {
		f    *os.File
		env  map[string]string
		want bool
	}{
		"terminal":      {tty, map[string]string{"TERM": "xterm"}, true},
		"NO_COLOR":      {tty, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
		"dumb terminal": {tty, map[string]string{"TERM": "dumb"}, false},
		"file":          {file, map[string]string{"TERM": "xterm"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScreen(tt.f, func(key string) string { return tt.env[key] }, noon)
			require.Equal(t, tt.want, s.size != nil)
			if tt.want {
				width, height := s.size()
				assert.Equal(t, []int{80, 24}, []int{width, height}, "a terminal that does not know its size")
			}
		})
	}
}
