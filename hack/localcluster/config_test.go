package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every file that a configuration or a command line names below the state
// directory must be one that `up` writes or a directory that it makes.
func TestConfigNamesOnlyWhatExists(t *testing.T) {
	t.Parallel()
	p := Plan{Name: "conf", Slot: 5}
	dir := t.TempDir()
	c, err := openCluster(dir, ".", p.Name, newProgress(t.Output()))
	require.NoError(t, err)
	programs := map[string]string{}
	for _, tool := range tools() {
		for _, name := range append(append(append([]string{}, tool.install...), tool.local...), tool.links...) {
			programs[filepath.Base(name)] = "tools/" + filepath.Base(name)
		}
	}
	c.rec = &record{Plan: p, Started: time.Now(), Programs: programs}
	require.NoError(t, c.makeDirs())
	require.NoError(t, c.writeFiles(p, 4))

	text := new(strings.Builder)
	for name, content := range configFiles(p) {
		text.WriteString(content)
		assert.NotContains(t, content, "{{", name)
	}
	var plan initPlan
	require.NoError(t, readJSON(c.sub("init.json"), &plan))
	for _, comp := range plan.Components {
		assert.NotEqual(t, inCache, comp.Argv[0], "%s: its program is in no tool", comp.Name)
		text.WriteString(strings.Join(comp.Argv, "\n") + "\n")
	}
	paths := regexp.MustCompile(regexp.QuoteMeta(p.inState())+`/([\w./-]+)`).FindAllStringSubmatch(text.String(), -1)
	assert.Greater(t, len(paths), 30)
	for _, m := range paths {
		path := c.sub(m[1])
		if filepath.Dir(m[1]) == "logs" { // who writes it makes it
			path = filepath.Dir(path)
		}
		assert.FileExists(t, notDir(t, path))
	}
	var cni struct{ Plugins []struct{ Type string } }
	require.NoError(t, json.Unmarshal([]byte(configFiles(p)["cni/10-slurmtide.conflist"]), &cni))
	for _, plugin := range cni.Plugins {
		assert.Contains(t, hostPrograms, "/usr/lib/cni/"+plugin.Type, "the preflight check must look for the CNI plugin")
	}
	assert.Equal(t, "4\n", string(must(os.ReadFile(c.sub("conf", "gpus")))))
}

// notDir gives a directory's own name a file, so that FileExists serves for both.
func notDir(t *testing.T, path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "exists")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	return path
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	got := string(renderKubeconfig(Plan{Name: "k", Slot: 2}, []byte("ca"), []byte("cert"), []byte("key")))
	assert.Contains(t, got, "server: https://198.18.2.2:6443\n")
	assert.Contains(t, got, "certificate-authority-data: Y2E=\n")
	assert.Contains(t, got, "client-certificate-data: Y2VydA==\n")
	assert.Contains(t, got, "client-key-data: a2V5\n")
}
