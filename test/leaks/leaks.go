// Package leaks finds secrets in what people, and whoever collects logs, get to read.
package leaks

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// How many characters of a secret are too many: what is cut short, or stands in the middle of something else, gives it away, too.
const (
	window        = 12
	numbersWindow = 40 // of bytes written as numbers, some ten of them: all English texts have some in common
)

// Secrets are keys, tokens and passwords by name, byte for byte.
type Secrets map[string][]byte

// anySecret are those that show what they are: JSON Web Tokens, and private keys in PEM.
var anySecret = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}|-----BEGIN [A-Z ]*PRIVATE KEY`)

// In tells of each secret that stands in a text, whole or in part, as it is, quoted, in hex or in base64, and of each JSON Web Token and private key, known or not.
// It shows only where, and enough to find it.
func (s Secrets) In(text string) []string {
	parts, short := map[int]map[string]string{window: {}, numbersWindow: {}}, map[string]string{}
	for name, secret := range s {
		add := func(form string, window int) {
			for i := range len(form) - window + 1 {
				parts[window][form[i:i+window]] = name
			}
		}
		for _, form := range forms(secret) {
			if add(form, window); len(form) < window {
				short[form] = name
			}
		}
		numbers := strings.Trim(fmt.Sprintf("%d", secret), "[]") // as %v shows bytes
		add(numbers, numbersWindow)
		add(strings.ReplaceAll(numbers, " ", ","), numbersWindow)
	}
	var found []string
	for i, line := range strings.Split(strings.ReplaceAll(text, `\`, ""), "\n") {
		say := func(name string) {
			if said := fmt.Sprintf("line %d has %s", i+1, name); !slices.Contains(found, said) {
				found = append(found, said)
			}
		}
		for window, parts := range parts {
			for at := range len(line) - window + 1 {
				if name, ok := parts[line[at:at+window]]; ok {
					say(name)
				}
			}
		}
		for whole, name := range short {
			if strings.Contains(line, whole) {
				say(name)
			}
		}
		if is := anySecret.FindString(line); is != "" {
			say(is[:min(len(is), window)] + "…")
		}
	}
	return found
}

// forms are the ways to write a secret, each on one line.
func forms(secret []byte) []string {
	all := []string{hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret))}
	for offset := range min(3, len(secret)) { // where it begins in what was encoded
		rest := secret[offset:]
		rest = rest[:len(rest)/3*3]
		all = append(all, base64.StdEncoding.EncodeToString(rest), base64.URLEncoding.EncodeToString(rest))
	}
	for line := range strings.SplitSeq(string(secret), "\n") {
		quoted := strconv.Quote(line)
		all = append(all, line, quoted[1:len(quoted)-1])
	}
	for i, form := range all { // quotes may have been quoted again
		all[i] = strings.ReplaceAll(form, `\`, "")
	}
	return slices.DeleteFunc(all, func(form string) bool { return len(form) < 6 })
}
