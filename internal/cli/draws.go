package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Draws tells whether w is a terminal that understands colours and a moving cursor, and nobody asked for plain text (https://no-color.org).
func Draws(w io.Writer, getenv func(string) string) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}
