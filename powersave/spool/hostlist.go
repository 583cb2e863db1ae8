package spool

import (
	"errors"
	"fmt"
)

// maxHostlist is the longest hostlist accepted: the kernel passes no longer argument (MAX_ARG_STRLEN).
const maxHostlist = 128 << 10

// errHostlist is what every error of checkHostlist is.
var errHostlist = errors.New("not a hostlist")

// checkHostlist finds what slurmctld never passes as a hostlist. It does not parse: the
// bridge does, and refuses single names there.
func checkHostlist(s string) error {
	if s == "" {
		return fmt.Errorf("%w: it is empty; slurmctld passes the nodes, like cpu-[0-3]", errHostlist)
	}
	if len(s) > maxHostlist {
		return fmt.Errorf("%w: it has %d bytes, more than the %d that fit into an argument", errHostlist, len(s), maxHostlist)
	}
	depth, named := 0, false
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			named = true
		case c == ',', c == '-', c == '_', c == '.', c == ':', c == '+', c == '@', c == '%':
			if i == 0 && c != '_' {
				return fmt.Errorf("%w: it begins with %q: %q; slurmctld passes the nodes, like cpu-[0-3]", errHostlist, c, shorten(s))
			}
		case c == '[' && depth == 0:
			depth = 1
		case c == ']' && depth == 1:
			depth = 0
		case c == '[' || c == ']':
			return fmt.Errorf("%w: unbalanced %q at byte %d: %q", errHostlist, c, i, shorten(s))
		default:
			return fmt.Errorf("%w: character %q at byte %d: %q", errHostlist, c, i, shorten(s))
		}
	}
	switch {
	case depth != 0:
		return fmt.Errorf("%w: it ends inside a bracket: %q", errHostlist, shorten(s))
	case !named:
		return fmt.Errorf("%w: it names no node: %q", errHostlist, shorten(s))
	}
	return nil
}

// shorten cuts s for a log line.
func shorten(s string) string {
	const limit = 200
	if len(s) > limit {
		return fmt.Sprintf("%s... (%d bytes)", s[:limit], len(s))
	}
	return s
}
