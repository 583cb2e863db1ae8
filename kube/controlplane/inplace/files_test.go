package inplace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A volume in the middle of a change: ..data leads to the new files, and the links beside it are still the old ones.
func TestReadVolume(t *testing.T) {
	dir := t.TempDir()
	for version, files := range map[string]map[string]string{
		"..1": {"slurm.conf": "Include more.conf", "more.conf": "1", "gone.conf": "1"},
		"..2": {"slurm.conf": "Include new.conf", "more.conf": "2", "new.conf": "2"},
	} {
		require.NoError(t, writeFiles(filepath.Join(dir, version), files, 0o644, nil))
	}
	require.NoError(t, os.Symlink("..2", filepath.Join(dir, "..data")))
	for _, name := range []string{"slurm.conf", "more.conf", "gone.conf"} {
		require.NoError(t, os.Symlink("..data/"+name, filepath.Join(dir, name)))
	}
	files, err := readVolume(dir)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"slurm.conf": "Include new.conf", "more.conf": "2", "new.conf": "2"}, files)

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "..2")))
	_, err = readVolume(dir)
	require.ErrorIs(t, err, os.ErrNotExist)

	plain := t.TempDir()
	require.NoError(t, writeFiles(plain, map[string]string{"a": "b"}, 0o644, nil))
	files, err = readVolume(plain)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "b"}, files)
}
