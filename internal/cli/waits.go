package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// patience is how long nobody wonders.
const patience = time.Second

// Waits gives what tells somebody who sits at w, a terminal, what is waited for: once it has taken a second, and not if it is over by then. Elsewhere nothing is said.
func Waits(w io.Writer) func(what string) (over func()) {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return func(string) func() { return func() {} }
	}
	return func(what string) func() { return waiting(w, what) }
}

func waiting(w io.Writer, what string) (over func()) {
	t := time.AfterFunc(patience, func() { fmt.Fprintf(w, "waiting for %s\n", what) })
	return func() { t.Stop() }
}
