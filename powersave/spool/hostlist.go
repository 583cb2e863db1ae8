package spool

import (
	"errors"
	"fmt"
	"strings"
)

// maxHostlist is the longest hostlist accepted: the kernel passes no longer argument (MAX_ARG_STRLEN).
const maxHostlist = 128 << 10

// checkHostlist finds what slurmctld never passes as a hostlist. It does not parse: the
// bridge does, and refuses single names there.
func checkHostlist(s string) error {
	if s == "" {
		return errors.New("the hostlist is empty; slurmctld calls this program with the nodes it is about, like cpu-[0-3]")
	}
	if len(s) > maxHostlist {
		return fmt.Errorf("the hostlist has %d bytes, more than the %d that fit into an argument", len(s), maxHostlist)
	}
	depth, named := 0, false
	for i := range len(s) {
		c := s[i]
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			named = true
		case c == '[' && depth == 0:
			depth = 1
		case c == ']' && depth == 1:
			depth = 0
		case c == '[' || c == ']':
			return fmt.Errorf("unbalanced %q at byte %d of hostlist %q", c, i, shorten(s))
		case strings.IndexByte(",-_.:+@%/", c) >= 0 && (i > 0 || c == '_'):
		default:
			return fmt.Errorf("character %q at byte %d does not belong into a hostlist: %q", c, i, shorten(s))
		}
	}
	switch {
	case depth != 0:
		return fmt.Errorf("the hostlist ends inside a bracket: %q", shorten(s))
	case !named:
		return fmt.Errorf("the hostlist names no node: %q", shorten(s))
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
