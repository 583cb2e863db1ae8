package spool

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIdentity(t *testing.T) {
	dir := newDir(t)
	identity := func(dir string) string {
		s, err := Open(dir)
		require.NoError(t, err)
		id, err := s.Identity()
		require.NoError(t, err)
		return id
	}
	first := identity(dir)
	assert.Regexp(t, `^[0-9a-f]{10}$`, first)
	assert.Equal(t, first, identity(dir), "a restart changes nothing")
	assert.NotEqual(t, first, identity(newDir(t)))

	file := filepath.Join(dir, "identity")
	for name, content := range map[string]string{"torn": first[:3], "empty": "", "strange": "a b"} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
			made := identity(dir)
			assert.NotEqual(t, content, made)
			assert.Equal(t, made, identity(dir))
		})
	}
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o700))
	s, err := Open(dir)
	require.NoError(t, err)
	_, err = s.Identity()
	require.ErrorContains(t, err, "reading the spool's identity")
}
