package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/slurmtide/slurmtide/internal/cli"
)

// screen prints lines that stay and, on a terminal, a table below them that is redrawn in place. Elsewhere every change is a line.
type screen struct {
	mu    sync.Mutex
	w     io.Writer
	size  func() (width, height int) // nil: no terminal
	start time.Time
	drawn int // lines of the table on the terminal
	last  view
}

// newScreen draws on a terminal that understands it, unless people asked for plain text (https://no-color.org).
func newScreen(f *os.File, getenv func(string) string, start time.Time) *screen {
	s := &screen{w: f, start: start}
	if cli.Draws(f, getenv) {
		s.size = func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil || width <= 0 || height <= 0 {
				return 80, 24
			}
			return width, height
		}
	}
	return s
}

// say prints a line that stays, with the time.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.clear(), s.line(fmt.Sprintf(format, args...)), s.draw())
}

// show shows the view.
func (s *screen) show(v view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.last
	s.last = v
	if s.size != nil {
		s.write(s.clear(), s.draw())
		return
	}
	for _, l := range v.changes(before) {
		s.write(s.line("    " + l))
	}
}

// end takes the table away; text printed from now on is the caller's.
func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.clear())
	s.last = view{}
}

func (s *screen) line(text string) string {
	return fmt.Sprintf("[%5.1fs] %s\n", time.Since(s.start).Seconds(), text)
}

// draw returns the table's text.
func (s *screen) draw() string {
	if s.size == nil || s.last.Title == "" {
		return ""
	}
	width, height := s.size()
	// A line as wide as the terminal, or one on its last row, would make it scroll, and the table could not be found again.
	lines := append([]string{""}, s.last.table(width-1, height-3)...)
	s.drawn = len(lines)
	return strings.Join(lines, "\n") + "\n"
}

// clear returns what moves up to the table's first line and erases everything from there.
func (s *screen) clear() string {
	if s.drawn == 0 {
		return ""
	}
	up := fmt.Sprintf("\r\x1b[%dA\x1b[J", s.drawn) // \r: a Ctrl-C or a key leaves its echo behind the table
	s.drawn = 0
	return up
}

// write prints everything at once, or the terminal flickers.
func (s *screen) write(parts ...string) {
	fmt.Fprint(s.w, strings.Join(parts, ""))
}
