package slurmrest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// DefaultTokenLife is how long tokens made here live, unless told otherwise.
const DefaultTokenLife = time.Hour

// TokenSource gives tokens for auth/jwt. A zero expiry means that it is not known.
type TokenSource interface {
	Token(ctx context.Context) (token string, expires time.Time, err error)
}

// TokenError is a token that could not be had. It says what to do.
type TokenError struct {
	From string // "JWT key /etc/slurm/jwt_hs256.key", "scontrol token", …
	Err  error
	Hint string
}

func (e *TokenError) Error() string {
	s := fmt.Sprintf("getting a Slurm token from %s: %v", e.From, e.Err)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *TokenError) Unwrap() error { return e.Err }

// KeyFile mints HS256 tokens with the cluster's own key, the one slurmctld reads
// (AuthAltParameters=jwt_key=…, by default jwt_hs256.key in StateSaveLocation).
// The whole file is the key, as for slurmctld's auth/jwt plugin.
type KeyFile struct {
	Path string
	User string           // SlurmUser's name
	Life time.Duration    // DefaultTokenLife if 0
	Now  func() time.Time // time.Now if nil
}

// Token implements TokenSource. The file is read each time, so that a new key is picked up.
func (k KeyFile) Token(context.Context) (string, time.Time, error) {
	from := "JWT key " + k.Path
	key, err := os.ReadFile(k.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", time.Time{}, &TokenError{from, err, "give the path of the cluster's jwt_hs256.key, or create it as slurmctld's documentation of auth/jwt says"}
	case errors.Is(err, fs.ErrPermission):
		return "", time.Time{}, &TokenError{from, err, "run as SlurmUser or root, who may read it, or use scontrol or a token file instead"}
	case err != nil:
		return "", time.Time{}, &TokenError{from, err, ""}
	case len(key) == 0:
		return "", time.Time{}, &TokenError{from, errors.New("the file is empty"), "it needs at least 32 random bytes, the same as slurmctld has"}
	case k.User == "":
		return "", time.Time{}, &TokenError{from, errors.New("no user name given"), "name SlurmUser"}
	}
	now := time.Now
	if k.Now != nil {
		now = k.Now
	}
	life := k.Life
	if life <= 0 {
		life = DefaultTokenLife
	}
	iat := now()
	exp := iat.Add(life)
	// The claims scontrol token writes; "sun" is Slurm's name for the user.
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iat": iat.Unix(), "exp": exp.Unix(), "sun": k.User,
	}).SignedString(key)
	if err != nil {
		return "", time.Time{}, &TokenError{from, err, ""}
	}
	return token, exp, nil
}

// Scontrol gets tokens from "scontrol token", for hosts where the key is out of reach.
type Scontrol struct {
	Path string        // "scontrol" if empty
	User string        // the caller's own user if empty; another one needs SlurmUser or root
	Life time.Duration // DefaultTokenLife if 0
}

// Token implements TokenSource.
func (s Scontrol) Token(ctx context.Context) (string, time.Time, error) {
	path := s.Path
	if path == "" {
		path = "scontrol"
	}
	life := s.Life
	if life <= 0 {
		life = DefaultTokenLife
	}
	args := []string{"token", fmt.Sprintf("lifespan=%d", int(life.Seconds()))}
	if s.User != "" {
		args = append(args, "username="+s.User)
	}
	from := path + " " + strings.Join(args, " ")
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if msg := strings.TrimSpace(stderr.String()); msg != "" {
			err = fmt.Errorf("%w: %s", err, clip(msg, 300))
		}
		hint := "run it by hand as the same user to see why"
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			hint = "install the Slurm client tools or give scontrol's path"
		}
		return "", time.Time{}, &TokenError{from, err, hint}
	}
	token, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "SLURM_JWT=")
	if !ok || token == "" {
		return "", time.Time{}, &TokenError{from, errors.New("what it printed does not begin with SLURM_JWT="), "run it by hand as the same user to see what it prints"}
	}
	return token, expiry(token), nil
}

// Static is a token given once, for instance in the environment variable SLURM_JWT.
type Static string

// Token implements TokenSource.
func (s Static) Token(context.Context) (string, time.Time, error) {
	if s == "" {
		return "", time.Time{}, &TokenError{"SLURM_JWT", errors.New("it is empty"), "set it with: export $(scontrol token)"}
	}
	return string(s), expiry(string(s)), nil
}

// TokenFile reads the token from a file, which something else keeps fresh.
// A leading "SLURM_JWT=" is accepted.
type TokenFile string

// Token implements TokenSource.
func (f TokenFile) Token(context.Context) (string, time.Time, error) {
	from := "token file " + string(f)
	text, err := os.ReadFile(string(f))
	if err != nil {
		return "", time.Time{}, &TokenError{from, err, ""}
	}
	token := strings.TrimPrefix(strings.TrimSpace(string(text)), "SLURM_JWT=")
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", time.Time{}, &TokenError{from, errors.New("the file does not hold one token"), "write the output of scontrol token to it"}
	}
	return token, expiry(token), nil
}

// expiry reads the exp claim without checking the signature; zero if there is none.
func expiry(token string) time.Time {
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil || claims.ExpiresAt == nil {
		return time.Time{}
	}
	return claims.ExpiresAt.Time
}

// tokenCache keeps one token until four fifths of its life are over.
type tokenCache struct {
	source TokenSource
	now    func() time.Time

	mu      sync.Mutex
	token   string
	renewAt time.Time // zero: keep until refused
}

// get returns a token, a new one if the cached one is old or is the one just refused.
func (c *tokenCache) get(ctx context.Context, refused string) (string, error) {
	if c.source == nil {
		return "", nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.token != "" && c.token != refused && (c.renewAt.IsZero() || now.Before(c.renewAt)) {
		return c.token, nil
	}
	token, expires, err := c.source.Token(ctx)
	if err != nil {
		var te *TokenError
		if !errors.As(err, &te) {
			err = &TokenError{From: "its source", Err: err}
		}
		return "", err
	}
	c.token, c.renewAt = token, time.Time{}
	if !expires.IsZero() {
		c.renewAt = now.Add(expires.Sub(now) * 4 / 5)
	}
	return token, nil
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
