//go:build integration && (faults || controlplane)

package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostPIDOf is a process of a pod's container, as the host sees it: its eldest, but for the init that slurmd runs under.
func (c *cluster) hostPIDOf(name, container string) int {
	c.t.Helper()
	pod, err := c.kube.CoreV1().Pods(c.ns).Get(c.ctx, name, metav1.GetOptions{})
	require.NoError(c.t, err)
	id := ""
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container {
			_, id, _ = strings.Cut(s.ContainerID, "://")
		}
	}
	require.NotEmpty(c.t, id, container)
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(c.t, err)
	eldest, start := 0, uint64(0)
	for _, f := range files {
		groups, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(groups, []byte(id)) {
			continue
		}
		if name, err := os.ReadFile(filepath.Join(filepath.Dir(f), "comm")); err != nil || string(name) == "tini\n" {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(f), "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // proc_pid_stat(5), from the third on
		began, err := strconv.ParseUint(fields[19], 10, 64)
		require.NoError(c.t, err)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		require.NoError(c.t, err)
		if eldest == 0 || began < start {
			eldest, start = pid, began
		}
	}
	require.NotZero(c.t, eldest, "no process in container %s (%s)", container, id)
	return eldest
}
