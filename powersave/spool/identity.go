package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
)

// Identity returns a random name of this spool, made once: it tells the bridges of one cluster apart, and survives their
// restarts. Only the bridge that holds the spool (Listen) may ask.
func (s *Spool) Identity() (string, error) {
	text, err := os.ReadFile(s.identityFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the spool's identity: %w", err)
	}
	if name := strings.TrimSpace(string(text)); validIdentity(name) {
		return name, nil
	}
	name := fmt.Sprintf("%0*x", identityLength, rand.Uint64()>>(64-4*identityLength))
	if err := s.replaceFile(s.identityFile(), tempIdentity, name+"\n"); err != nil {
		return "", fmt.Errorf("writing the spool's identity: %w", err)
	}
	return name, nil
}

const identityLength = 10

// validIdentity says whether name is one that Identity has made: hexadecimal digits.
func validIdentity(name string) bool {
	return len(name) == identityLength && strings.Trim(name, "0123456789abcdef") == ""
}
