package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriteImage(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	require.NoError(t, writeImage(&archive, "example.local/x:1", []string{"/x"}, []file{{"x", 0o755, []byte("program")}}))
	files := untar(t, archive.Bytes())

	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	require.NoError(t, json.Unmarshal(files["manifest.json"], &manifest))
	require.Len(t, manifest, 1)
	assert.Equal(t, []string{"example.local/x:1"}, manifest[0].RepoTags)
	var config imageConfig
	require.NoError(t, json.Unmarshal(files[manifest[0].Config], &config))
	assert.Equal(t, runtime.GOARCH, config.Architecture)
	assert.Equal(t, "linux", config.OS)
	assert.Equal(t, []string{"/x"}, config.Config.Entrypoint)
	require.Len(t, manifest[0].Layers, 1)
	assert.Equal(t, map[string][]byte{"x": []byte("program")}, untar(t, files[manifest[0].Layers[0]]))
}

func untar(t *testing.T, b []byte) map[string][]byte {
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		files[h.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
}

func TestImportedNames(t *testing.T) {
	t.Parallel()
	report := "unpacking docker.io/slurmtide/slurm:26.05 (sha256:0123)...done\n" +
		"time=\"2026\" level=warning msg=\"unpacking slowly\"\nunpacking slurmtide.local/pause:1 (sha256:ab)...done\n"
	assert.Equal(t, []string{"docker.io/slurmtide/slurm:26.05", "slurmtide.local/pause:1"}, importedNames(report))
	assert.Empty(t, importedNames(""))
}
