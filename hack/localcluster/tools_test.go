package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestToolDirFollowsItsSources(t *testing.T) {
	t.Parallel()
	source := tree(t, map[string]string{"kube/go.mod": "module m", "kube/go.sum": "s", "kube/a/main.go": "package main", "kube/b/main.go": "package main"})
	box := toolbox{source: source}
	a := tool{name: "a", version: "v1", local: []string{"./a"}}
	dir := func(of tool) string {
		d, err := box.dir(of)
		require.NoError(t, err)
		return d
	}
	before := dir(a)
	assert.Regexp(t, `^tools/a-v1-[0-9a-f]{10}$`, before)
	assert.Equal(t, before, dir(a))

	require.NoError(t, os.WriteFile(filepath.Join(source, "kube/b/main.go"), []byte("package main // changed"), 0o644))
	assert.Equal(t, before, dir(a), "another program's source")
	newer := a
	newer.version = "v2"
	assert.NotEqual(t, before, dir(newer))
	require.NoError(t, os.WriteFile(filepath.Join(source, "kube/a/main.go"), []byte("package main // changed"), 0o644))
	assert.NotEqual(t, before, dir(a))

	_, err := toolbox{source: t.TempDir()}.dir(a)
	assert.ErrorContains(t, err, "no file matches kube/go.mod")
}

func TestFindWantsEveryTool(t *testing.T) {
	t.Parallel()
	_, err := toolbox{cache: t.TempDir(), source: "."}.find()
	assert.ErrorContains(t, err, "is not built: run `localcluster up`")
}

func TestVersionFlags(t *testing.T) {
	t.Parallel()
	got := versionFlags("v1.36.3")
	assert.Contains(t, got, "-X k8s.io/component-base/version.gitVersion=v1.36.3")
	assert.Contains(t, got, "-X k8s.io/client-go/pkg/version.gitMinor=36")
	assert.Equal(t, got, versionFlags("v1.36.3"), "the same text every time, as the build cache goes by it")
}

func TestMissingPackages(t *testing.T) {
	t.Parallel()
	look := func(absent ...string) func(string) (string, error) {
		return func(program string) (string, error) {
			for _, a := range absent {
				if a == program {
					return "", os.ErrNotExist
				}
			}
			return program, nil
		}
	}
	assert.Empty(t, missingPackages(look()))
	assert.Equal(t, []string{"containernetworking-plugins", "runc"}, missingPackages(look("runc", "/usr/lib/cni/portmap", "/usr/lib/cni/bridge")))
}

func TestLockFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "clusters", "x.lock")
	unlock, err := lockFile(t.Context(), path)
	require.NoError(t, err)
	second, err := tryLock(path)
	require.NoError(t, err)
	assert.Nil(t, second, "taken")

	require.NoError(t, os.Remove(path)) // as `down` does while it holds the lock
	unlock()
	third, err := tryLock(path)
	require.NoError(t, err)
	require.NotNil(t, third, "a new file, a new lock")
	third.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	held, err := lockFile(t.Context(), path)
	require.NoError(t, err)
	defer held()
	_, err = lockFile(ctx, path)
	assert.ErrorIs(t, err, context.Canceled)
}
