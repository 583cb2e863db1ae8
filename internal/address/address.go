// Package address shows addresses without what may be a secret in them: users, passwords, and tokens in paths and queries.
package address

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Host is what may be shown of a URL: scheme://host:port.
func Host(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "…"
	}
	return u.Scheme + "://" + u.Host
}

var urls = regexp.MustCompile(`(?i)https?://[^\s"'<>]+`)

// Hide is a text, an error of a client most likely, with no more of each URL in it than Host shows.
func Hide(text string) string {
	return urls.ReplaceAllStringFunc(text, func(found string) string {
		u := strings.TrimRight(found, ":,;.)")
		return Host(u) + found[len(u):]
	})
}

// Quoted is what somebody typed for an address, in quotes, for the error that it is none. It may be anything, so all before an @ and after a question mark is left out.
func Quoted(typed string) string {
	if i := strings.LastIndexByte(typed, '@'); i >= 0 {
		typed = "…" + typed[i:]
	}
	if i := strings.IndexAny(typed, "?#"); i >= 0 {
		typed = typed[:i+1] + "…"
	}
	return strconv.Quote(typed)
}
