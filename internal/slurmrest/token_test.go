package slurmrest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var testNow = time.Unix(1795235098, 0)

func TestKeyFile(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcde\n") // the newline belongs to the key, as for slurmctld
	path := filepath.Join(t.TempDir(), "jwt_hs256.key")
	require.NoError(t, os.WriteFile(path, key, 0o600))

	now := time.Now().Truncate(time.Second)
	token, expires, err := KeyFile{Path: path, User: "slurm", Life: 5 * time.Minute, Now: func() time.Time { return now }}.Token(t.Context())
	require.NoError(t, err)
	assert.Equal(t, now.Add(5*time.Minute), expires)

	claims := jwt.MapClaims{}
	_, err = jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return key, nil }, jwt.WithValidMethods([]string{"HS256"}))
	require.NoError(t, err)
	assert.Equal(t, jwt.MapClaims{"iat": float64(now.Unix()), "exp": float64(now.Unix() + 300), "sun": "slurm"}, claims)
	assert.Equal(t, expires.Unix(), expiry(token).Unix())
}

func TestKeyFileErrors(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.key")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	good := filepath.Join(dir, "good.key")
	require.NoError(t, os.WriteFile(good, []byte("key"), 0o600))
	for name, tc := range map[string]struct {
		source TokenSource
		says   []string
	}{
		"no key":                    {KeyFile{Path: filepath.Join(dir, "absent.key"), User: "slurm"}, []string{"absent.key", "no such file", "jwt_hs256.key"}},
		"empty key":                 {KeyFile{Path: empty, User: "slurm"}, []string{empty, "empty"}},
		"directory":                 {KeyFile{Path: dir, User: "slurm"}, []string{dir}},
		"no user":                   {KeyFile{Path: good}, []string{"name SlurmUser"}},
		"no scontrol":               {Scontrol{Path: filepath.Join(dir, "scontrol")}, []string{"scontrol token lifespan=3600", "no such file", "scontrol's path"}},
		"scontrol not in the PATH":  {Scontrol{Path: "no-such-scontrol"}, []string{"not found", "install the Slurm client tools"}},
		"scontrol fails":            {Scontrol{Path: script(t, `echo "error: no slurmctld" >&2; exit 3`)}, []string{"exit status 3", "error: no slurmctld"}},
		"scontrol prints no token":  {Scontrol{Path: script(t, `echo a-token-perhaps`)}, []string{"what it printed does not begin with SLURM_JWT=; run it by hand"}},
		"SLURM_JWT is empty":        {Static(""), []string{"export $(scontrol token)"}},
		"token file missing":        {TokenFile(filepath.Join(dir, "token")), []string{"token file", "no such file"}},
		"token file with two lines": {TokenFile(file(t, "a\nb\n")), []string{"does not hold one token"}},
		"token file empty":          {TokenFile(file(t, "\n")), []string{"does not hold one token"}},
	} {
		t.Run(name, func(t *testing.T) {
			token, _, err := tc.source.Token(t.Context())
			require.Error(t, err)
			assert.Empty(t, token)
			assert.True(t, IsAuth(err))
			for _, want := range tc.says {
				require.ErrorContains(t, err, want)
			}
			assert.NotContains(t, err.Error(), "a-token")
		})
	}
}

// Root may read any file, so the refusal of another user's key is tested with the error alone.
func TestKeyFilePermissionHint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jwt_hs256.key")
	require.NoError(t, os.WriteFile(path, []byte("key"), 0o000))
	_, _, err := KeyFile{Path: path, User: "slurm"}.Token(t.Context())
	if os.Geteuid() == 0 {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, "permission denied")
	require.ErrorContains(t, err, "run as SlurmUser or root")
}

func TestTokensFromElsewhere(t *testing.T) {
	key := file(t, "secret")
	made, expires, err := KeyFile{Path: key, User: "slurm", Now: func() time.Time { return testNow }}.Token(t.Context())
	require.NoError(t, err)
	args := filepath.Join(t.TempDir(), "args")
	for name, tc := range map[string]struct {
		source  TokenSource
		want    string
		expires time.Time
	}{
		"environment":             {Static(made), made, expires},
		"opaque":                  {Static("abc"), "abc", time.Time{}},
		"file":                    {TokenFile(file(t, made+"\n")), made, expires},
		"file, scontrol's output": {TokenFile(file(t, "SLURM_JWT="+made+"\n")), made, expires},
		"scontrol":                {Scontrol{Path: script(t, `echo "$@" >`+args+`; echo SLURM_JWT=`+made), User: "slurm", Life: time.Minute}, made, expires},
	} {
		t.Run(name, func(t *testing.T) {
			token, exp, err := tc.source.Token(t.Context())
			require.NoError(t, err)
			assert.Equal(t, tc.want, token)
			assert.True(t, tc.expires.Equal(exp), "%v, not %v", exp, tc.expires)
		})
	}
	text, err := os.ReadFile(args)
	require.NoError(t, err)
	assert.Equal(t, "token lifespan=60 username=slurm\n", string(text))
}

func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "scontrol")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return path
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
