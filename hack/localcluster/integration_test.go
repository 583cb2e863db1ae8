//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	// within bounds everything that is waited for; far more than any of it takes.
	within   = 2 * time.Minute
	interval = 100 * time.Millisecond
)

// local is a cluster under test, driven through the wrapper script as users do.
type local struct {
	t    *testing.T
	name string
}

// in is the same cluster for a subtest.
func (l local) in(t *testing.T) local { return local{t, l.name} }

func (l local) try(args ...string) (string, error) {
	cmd := exec.Command("./localcluster.sh", append([]string{"--name", l.name}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), err
}

func (l local) run(args ...string) string {
	l.t.Helper()
	out, err := l.try(args...)
	require.NoError(l.t, err, "localcluster --name %s %s\n%s", l.name, strings.Join(args, " "), out)
	return out
}

func (l local) kubectl(args ...string) string {
	l.t.Helper()
	return l.run(append([]string{"kubectl"}, args...)...)
}

func (l local) get(resource, path string) string {
	l.t.Helper()
	return l.kubectl("get", resource, "-o", "jsonpath={"+path+"}")
}

// eventually waits until get says want.
func (l local) eventually(want, resource, path string) {
	l.t.Helper()
	require.EventuallyWithT(l.t, func(c *assert.CollectT) {
		out, err := l.try("kubectl", "get", resource, "-o", "jsonpath={"+path+"}")
		assert.NoError(c, err)
		assert.Equal(c, want, out)
	}, within, interval)
}

type statusJSON struct {
	Healthy bool
	Record  *record
	Health  health
}

func (l local) status() (s statusJSON, code int) {
	l.t.Helper()
	out, err := l.try("status", "-o", "json")
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(l.t, err, &exit)
		code = exit.ExitCode()
	}
	require.NoError(l.t, json.Unmarshal([]byte(out), &s))
	return s, code
}

func (l local) lookup(pod, network, name string) (addrs []string) {
	l.t.Helper()
	var result struct {
		Addrs    []string
		NotFound bool
		Error    string
		Millis   int
	}
	require.NoError(l.t, json.Unmarshal([]byte(l.kubectl("exec", pod, "--", "/probe", "lookup", network, name)), &result))
	assert.Less(l.t, result.Millis, 2000, "%s of %s: a name server must answer at once", network, name)
	if result.Error != "" {
		assert.True(l.t, result.NotFound, "%s of %s: %s", network, name, result.Error)
	}
	return result.Addrs
}

func TestLocalCluster(t *testing.T) {
	one, two := local{t, "smoke-one"}, local{t, "smoke-two"}
	for _, l := range []local{one, two} { // of an earlier run that was cut off
		l.run("down")
	}
	// A new machine lacks what both the clusters and the comparison need; packages stay.
	require.NoError(t, installPrograms(t.Context(), newProgress(os.Stderr)))
	before := footprint(t)
	t.Cleanup(func() {
		for _, l := range []local{one, two} {
			if t.Failed() {
				logs(t, l)
			}
			l.run("down")
		}
		assert.Equal(t, before, footprint(t), "down must leave nothing behind")
	})

	t.Log(one.run("up", "--gpus", "2"))
	_, code := one.status()
	require.Zero(t, code)
	_, code = two.status()
	require.Equal(t, exitDown, code)
	assert.Contains(t, one.run("up", "--gpus", "2"), "is up since")
	probe, archive := buildProbe(t)
	one.run("load-image", archive)
	one.kubectl("apply", "-f", "testdata/pods.yaml")
	two.run("up") // side by side from here on

	t.Run("pods run", func(t *testing.T) { testPods(one.in(t), probe) })
	t.Run("names resolve", func(t *testing.T) { testNames(one.in(t)) })
	t.Run("gpus", func(t *testing.T) { testGPUs(one.in(t)) })
	t.Run("side by side", func(t *testing.T) {
		a, _ := one.status()
		b, code := two.status()
		assert.Zero(t, code)
		assert.NotEqual(t, a.Record.Plan.Slot, b.Record.Plan.Slot)
		assert.Equal(t, two.name, two.in(t).get("nodes", ".items[*].metadata.name"))
		assert.Contains(t, one.run("list"), two.name)
	})
	t.Run("components that die come back", func(t *testing.T) { testRepair(one.in(t)) })
	t.Run("a component that is stopped", func(t *testing.T) { testStop(one.in(t)) })
	t.Run("a crash leaves no trouble", func(t *testing.T) { testCrash(two.in(t)) })
	t.Run("commands in the network", func(t *testing.T) { testNS(one.in(t)) })
}

func testPods(l local, probe string) {
	l.eventually("Running", "pod/probe-0", ".status.phase")
	assert.Contains(l.t, l.kubectl("logs", "probe-0"), "probe: serving on probe-0")
	require.EventuallyWithT(l.t, func(c *assert.CollectT) {
		reason, err := l.try("kubectl", "get", "pod/no-image", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.reason}")
		assert.NoError(c, err)
		assert.Contains(c, []string{"ErrImagePull", "ImagePullBackOff"}, reason)
	}, 15*time.Second, interval, "an image that is not there must fail at once")
	assert.Equal(l.t, "probe: probe-0\n", throughPortForward(l.t, l, "pod/probe-0"))
	address := l.get("service/front", ".spec.clusterIP")
	require.EventuallyWithT(l.t, func(c *assert.CollectT) { // once kube-proxy has it
		out, err := l.try("ns", probe, "get", "http://"+address)
		assert.NoError(c, err)
		assert.Equal(c, "probe: probe-0\n", out)
	}, within, interval)
}

// throughPortForward fetches a page by way of kubectl port-forward.
func throughPortForward(t *testing.T, l local, target string) string {
	cmd := exec.Command("./localcluster.sh", "--name", l.name, "kubectl", "port-forward", target, ":8080")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Kill())
		cmd.Wait() //nolint:errcheck // killed
	}()
	var port int
	_, err = fmt.Fscanf(out, "Forwarding from 127.0.0.1:%d", &port)
	require.NoError(t, err)
	res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}

func testNames(l local) {
	pod := "probe-0"
	ip := l.get("pod/probe-0", ".status.podIP")
	for _, name := range []string{"probe-0.probes", "probes", "probe-0.probes.default.svc.cluster.local"} {
		require.EventuallyWithT(l.t, func(c *assert.CollectT) {
			assert.Equal(c, []string{ip}, l.lookup(pod, "ip4", name), name)
		}, within, interval)
		assert.Empty(l.t, l.lookup(pod, "ip6", name), name)
	}
	assert.Equal(l.t, []string{l.get("service/front", ".spec.clusterIP")}, l.lookup(pod, "ip4", "front"))
	for _, absent := range []string{"example.com", "nothing", "nothing.probes", "host.internal."} {
		assert.Empty(l.t, l.lookup(pod, "ip4", absent), absent)
		assert.Empty(l.t, l.lookup(pod, "ip6", absent), absent)
	}
}

func testGPUs(l local) {
	l.eventually("Running", "pod/gpu", ".status.phase")
	l.eventually("Unschedulable", "pod/too-many-gpus", `.status.conditions[?(@.type=="PodScheduled")].reason`)
	l.run("up", "--gpus", "11")
	l.eventually("Running", "pod/too-many-gpus", ".status.phase")
}

func testRepair(l local) {
	before, _ := l.status()
	started := l.get("pod/probe-0", ".status.containerStatuses[0].state.running.startedAt")
	killed := []string{"etcd", "kube-apiserver", "containerd", "kubelet", "coredns", "kube-proxy", "kube-scheduler", "kube-controller-manager"}
	for _, name := range killed {
		require.NoError(l.t, unix.Kill(before.Health.PIDs[name], unix.SIGKILL), name)
	}
	l.run("up")
	after, code := l.status()
	assert.Zero(l.t, code)
	for _, name := range killed {
		assert.NotEqual(l.t, before.Health.PIDs[name], after.Health.PIDs[name], name)
	}
	assert.EventuallyWithT(l.t, func(t *assert.CollectT) { // a new kubelet says 0 for a moment
		now, _ := l.status()
		assert.Equal(t, 11, now.Health.GPUs, "the plugin must register with the new kubelet")
	}, within, interval)
	assert.Equal(l.t, started, l.get("pod/probe-0", ".status.containerStatuses[0].state.running.startedAt"), "pods outlive all that")
	l.kubectl("delete", "pod", "gpu", "--wait=true", "--timeout=60s")
}

func testStop(l local) {
	_, err := l.try("stop", "kube-nothing")
	require.ErrorContains(l.t, err, "kube-scheduler", "it names those there are")
	before, _ := l.status()
	l.run("stop", "kube-scheduler")
	time.Sleep(2 * time.Second) // one that dies is back sooner
	s, code := l.status()
	assert.Equal(l.t, exitBroken, code)
	assert.Equal(l.t, []string{"kube-scheduler"}, s.Health.Missing)
	l.run("up")
	s, code = l.status()
	assert.Zero(l.t, code)
	assert.NotEqual(l.t, before.Health.PIDs["kube-scheduler"], s.Health.PIDs["kube-scheduler"])
}

func testCrash(l local) {
	s, _ := l.status()
	require.NoError(l.t, unix.Kill(s.Record.Init.PID, unix.SIGKILL))
	require.Eventually(l.t, func() bool {
		_, code := l.status()
		return code == exitDown
	}, within, interval)
	assert.Contains(l.t, l.run("up"), "removing what an earlier run left")
	_, code := l.status()
	assert.Zero(l.t, code)
}

func testNS(l local) {
	out := l.run("ns", "getent", "ahostsv4", "kubernetes.default.svc.cluster.local")
	s, _ := l.status()
	assert.Contains(l.t, out, s.Record.Plan.APIServiceAddr().String())
	host := must(os.ReadFile("/etc/resolv.conf"))
	assert.NotContains(l.t, string(host), s.Record.Plan.DNSAddr().String(), "the host's own file is untouched")
}

// buildProbe builds testdata/probe and an archive with its image.
func buildProbe(t *testing.T) (program, archive string) {
	program = filepath.Join(t.TempDir(), "probe")
	build := exec.Command("go", "build", "-o", program, "./testdata/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	data, err := os.ReadFile(program)
	require.NoError(t, err)
	var image bytes.Buffer
	require.NoError(t, writeImage(&image, "slurmtide.local/probe:1", []string{"/probe"}, []file{{"probe", 0o755, data}}))
	archive = program + ".tar"
	require.NoError(t, os.WriteFile(archive, image.Bytes(), 0o600))
	return program, archive
}

// footprint is all that the test's clusters could leave on the machine, and
// the settings of the machine that they could have changed.
func footprint(t *testing.T) map[string][]string {
	lines := func(mine func(string) bool, args ...string) (found []string) {
		out, err := exec.Command(args[0], args[1:]...).Output()
		require.NoError(t, err, args)
		for line := range strings.Lines(string(out)) {
			if mine(line) {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	}
	files := func(pattern string) []string {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		return found
	}
	var processes []string
	for _, f := range files("/proc/[0-9]*/cmdline") {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "smoke-") {
			processes = append(processes, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	var settings []string
	names := append(sortedKeys(hostTunables), "kernel/hostname", "net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet",
		"net/ipv4/ip_unprivileged_port_start", "net/netfilter/nf_conntrack_max", "net/netfilter/nf_conntrack_tcp_timeout_established")
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		settings = append(settings, name+" "+string(b))
	}
	others := func(line string) bool { return !strings.Contains(line, "slurmtide") } // other clusters come and go
	return map[string][]string{
		"mounts":     lines(func(line string) bool { return strings.Contains(line, "smoke-") }, "cat", "/proc/self/mountinfo"),
		"processes":  processes,
		"links":      lines(others, "ip", "-o", "link"),
		"routes":     lines(others, "ip", "route"),
		"namespaces": lines(others, "ip", "netns"),
		"firewall":   lines(func(line string) bool { return !strings.HasPrefix(line, "#") }, "iptables-save"),
		"settings":   settings,
		"files":      lines(others, "ls", "/etc", "/opt", "/run", "/usr/libexec", "/var/lib", "/var/log"),
		"cgroups":    append(files("/sys/fs/cgroup/slurmtide/*smoke-*"), files("/sys/fs/cgroup/*/slurmtide/*smoke-*")...),
		"state":      files(filepath.Join(must(cacheDir("")), "clusters", "smoke-*")),
	}
}

func logs(t *testing.T, l local) {
	files, _ := filepath.Glob(filepath.Join(must(cacheDir("")), "clusters", l.name, "logs", "*.log"))
	for _, f := range files {
		t.Logf("%s:\n%s", f, tail(f, 5))
	}
}
