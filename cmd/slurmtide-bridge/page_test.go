package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nowhere is a kubeconfig that leads to no Kubernetes.
const nowhere = `apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: k, context: {cluster: k, user: u}}]
users: [{name: u}]
current-context: k
`

// TestPageAddress: the bridge serves its page where it is told to, also when it can read nothing, says so there, and ends although somebody looks.
func TestPageAddress(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SLURM_JWT", "no token")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(nowhere), 0o600))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())

	app := newApp()
	app.Writer, app.ErrWriter = io.Discard, io.Discard
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- app.RunContext(ctx, []string{"slurmtide-bridge", "bridge", "--cluster=tide", "--namespace=slurm", "--spool=" + filepath.Join(dir, "spool"), "--kubeconfig=" + kubeconfig,
			"--slurmrestd=http://127.0.0.1:1", "--metrics-address=", "--page-address=" + address})
	}()
	var events *http.Response
	require.Eventually(t, func() bool {
		events, err = http.Get("http://" + address + "/events")
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	defer events.Body.Close()
	for lines := bufio.NewReader(events.Body); ; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, `data: {"cluster":"tide"`) && strings.Contains(line, "Slurm ") && strings.Contains(line, "Kubernetes ") {
			break
		}
	}
	page, err := http.Get("http://" + address)
	require.NoError(t, err)
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	require.NoError(t, err)
	assert.Contains(t, string(text), "<!DOCTYPE html>")

	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the bridge does not end while somebody looks at its page")
	}
}
