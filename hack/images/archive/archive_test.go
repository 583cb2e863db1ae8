package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func readTar(t *testing.T, data []byte) (headers map[string]*tar.Header, contents map[string][]byte) {
	t.Helper()
	headers, contents = map[string]*tar.Header{}, map[string][]byte{}
	for tr := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		require.NoError(t, err)
		b, err := io.ReadAll(tr)
		require.NoError(t, err)
		require.NotContains(t, headers, h.Name, "written twice")
		headers[h.Name], contents[h.Name] = h, b
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "base.tar")
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	require.NoError(t, addBytes(tw, "etc/os-release", []byte("x")))
	require.NoError(t, tw.Close())
	require.NoError(t, os.WriteFile(base, buf.Bytes(), 0o600))
	program := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(program, []byte("machine code"), 0o600))

	img := Image{
		Tag: "a/b:c", Arch: "arm64", User: "1:2", Entrypoint: []string{"/usr/bin/p", "run"}, Env: []string{"A=b"},
		// The same layer twice is legal and stored once.
		LayerTars: []string{base, base},
		Files:     []File{{Source: program, Target: "/usr/bin/q"}, {Source: program, Target: "/usr/bin/p"}},
	}
	var out, again bytes.Buffer
	require.NoError(t, Write(&out, img))
	require.NoError(t, Write(&again, img))
	assert.Equal(t, out.Bytes(), again.Bytes(), "same input, same bytes")

	_, files := readTar(t, out.Bytes())
	var manifest []manifestEntry
	require.NoError(t, json.Unmarshal(files["manifest.json"], &manifest))
	require.Len(t, manifest, 1)
	assert.Equal(t, []string{"a/b:c"}, manifest[0].RepoTags)
	require.Len(t, manifest[0].Layers, 3)

	var cfg imageConfig
	require.NoError(t, json.Unmarshal(files[manifest[0].Config], &cfg))
	assert.Equal(t, "arm64", cfg.Architecture)
	assert.Equal(t, "linux", cfg.OS)
	assert.Equal(t, containerConfig{User: "1:2", Entrypoint: img.Entrypoint, Env: img.Env}, cfg.Config)
	require.Len(t, cfg.RootFS.DiffIDs, 3)
	for i, name := range manifest[0].Layers {
		sum := sha256.Sum256(files[name])
		assert.Equal(t, "sha256:"+hex.EncodeToString(sum[:]), cfg.RootFS.DiffIDs[i], "an importer checks this")
	}

	headers, contents := readTar(t, files[manifest[0].Layers[2]])
	assert.Equal(t, byte(tar.TypeDir), headers["usr/"].Typeflag, "parents come along")
	assert.Equal(t, byte(tar.TypeDir), headers["usr/bin/"].Typeflag)
	assert.EqualValues(t, 0o755, headers["usr/bin/p"].Mode)
	assert.Equal(t, "machine code", string(contents["usr/bin/p"]))
	assert.Contains(t, contents, "usr/bin/q")
}

func TestWriteRefuses(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, nil, 0o600))
	for name, tc := range map[string]struct {
		img  Image
		want string
	}{
		"nothing inside":  {Image{Tag: "x"}, "no content"},
		"missing layer":   {Image{LayerTars: []string{"/nonexistent/layer.tar"}}, "/nonexistent/layer.tar"},
		"missing file":    {Image{Files: []File{{Source: "/nonexistent/p", Target: "/p"}}}, "/nonexistent/p"},
		"relative target": {Image{Files: []File{{Source: program, Target: "p"}}}, "absolute"},
		"root as target":  {Image{Files: []File{{Source: program, Target: "/"}}}, "absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ErrorContains(t, Write(io.Discard, tc.img), tc.want)
		})
	}
}

func TestRun(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	require.ErrorContains(t, run([]string{"-o", out}), "-tag")
	require.ErrorContains(t, run([]string{"-o", out, "-tag", "a:b", "-arch", "amd64", "-add", "nonsense"}), "source=/target")
	require.Error(t, run([]string{"-o", out, "-tag", "a:b", "-arch", "amd64", "-layer", "/nonexistent"}))
	assert.NoFileExists(t, out, "a failed run leaves nothing")
	assert.NoFileExists(t, out+".part")

	require.NoError(t, run([]string{"-o", out, "-tag", "a:b", "-arch", "amd64", "-add", "archive_test.go=/t", "-entrypoint", "/t"}))
	assert.FileExists(t, out)
	assert.NoFileExists(t, out+".part")
}
