//go:build integration && controlplane

package integration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/test/unitfile"
)

// host is a machine beside the Kubernetes cluster: Slurm's image as its file system, and namespaces of its own. A veth joins its network to the cluster's, without
// address translation. All that runs on it, and its mounts, end with its first process.
type host struct {
	p       *plane
	ctx     context.Context
	root    string // where its file system is on this machine
	pid     int    // of its first process
	address string
	logs    string // directory
	running sync.WaitGroup
}

// hostName is what the host calls itself.
const hostName = "slurmhost"

// startHost makes one. c.run runs commands there from now on.
func startHost(p *plane) *host {
	t := p.t
	root, err := os.MkdirTemp("/var/tmp", p.ns+"-host-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	require.NoError(t, os.Chmod(root, 0o755))
	out, err := exec.CommandContext(p.ctx, "../../hack/images/build.sh", p.version).Output()
	require.NoError(t, err)
	lines := strings.Fields(string(out))
	const unpack = `tar -xOf "$1" "$(tar -tf "$1" | grep '\.tar$')" | tar -x -C "$2"`
	out, err = exec.CommandContext(p.ctx, "bash", "-euo", "pipefail", "-c", unpack, "bash", lines[len(lines)-1], root).CombinedOutput()
	require.NoError(t, err, "%s", out)

	ctx, cancel := context.WithCancel(p.ctx)
	third := strings.TrimPrefix(strings.ReplaceAll(p.version, ".", ""), "0")[:2] // 198.18.0.0/15 is for tests; these lie beside what hack/localcluster takes of it
	gateway := "198.19." + third + ".1"
	h := &host{p: p, ctx: ctx, root: root, address: "198.19." + third + ".2", logs: t.TempDir()}
	h.write("etc/hosts", "127.0.0.1 localhost\n"+h.address+" "+hostName+"\n")
	h.write("etc/resolv.conf", "") // there is no name server, and that is said at once

	// Its first process ends when its standard input does, also when this program is killed.
	const first = `set -e
mkdir -p "$1/proc" "$1/dev" # which images need not have
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
hostname "$2"
ip link set lo up
echo ready
exec chroot "$1" cat`
	cmd := exec.Command("sh", "-c", first, "sh", root, hostName) // it ends with its input
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		if t.Failed() {
			h.tell()
		}
		cancel()
		_ = input.Close()
		_ = cmd.Wait()
		h.running.Wait()
	})
	said, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err, "the host's first process ended")
	require.Equal(t, "ready\n", said)
	h.pid = cmd.Process.Pid

	link := "host" + third
	for _, args := range [][]string{
		{"ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(h.pid)},
		{"ip", "address", "add", gateway + "/30", "dev", link},
		{"ip", "link", "set", link, "up"},
	} {
		out, err := exec.CommandContext(p.ctx, "../../hack/localcluster/localcluster.sh", append([]string{"--name", os.Getenv("LOCALCLUSTER"), "ns"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	for _, args := range [][]string{
		{"ip", "address", "add", h.address + "/30", "dev", "eth0"}, {"ip", "link", "set", "eth0", "up"}, {"ip", "route", "add", "default", "via", gateway},
	} {
		out, err := exec.CommandContext(p.ctx, "nsenter", append([]string{"--target", strconv.Itoa(h.pid), "--net"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	p.run = func(stdin io.Reader, _ string, command ...string) (stdout, stderr string, err error) {
		return h.do(stdin, append([]string{"setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups"}, command...)...)
	}
	return h
}

// inside is a command of the host, as root.
func (h *host) inside(command ...string) *exec.Cmd {
	cmd := exec.CommandContext(h.ctx, "nsenter", append([]string{"--target", strconv.Itoa(h.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", "--"}, command...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

func (h *host) do(stdin io.Reader, command ...string) (stdout, stderr string, err error) {
	cmd := h.inside(command...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must runs a command there, as root.
func (h *host) must(command ...string) {
	h.p.t.Helper()
	out, stderr, err := h.do(nil, command...)
	require.NoError(h.p.t, err, "%v: %s%s", command, out, stderr)
}

// write makes a file of the host, and append adds to one.
func (h *host) write(path, text string) {
	h.p.t.Helper()
	require.NoError(h.p.t, os.WriteFile(filepath.Join(h.root, path), []byte(text), 0o644))
}

func (h *host) append(path, text string) {
	h.p.t.Helper()
	before, err := os.ReadFile(filepath.Join(h.root, path))
	require.NoError(h.p.t, err)
	h.write(path, string(before)+text)
}

// secret makes a file that is SlurmUser's alone.
func (h *host) secret(path, text string) {
	h.p.t.Helper()
	h.write(path, text)
	h.must("chown", "slurm:slurm", "/"+path)
	h.must("chmod", "0600", "/"+path)
}

// run starts a daemon, and again after pause whenever it ends.
func (h *host) run(name string, pause time.Duration, command func() *exec.Cmd) (kill func()) {
	h.p.t.Helper()
	log, err := os.Create(filepath.Join(h.logs, name))
	require.NoError(h.p.t, err)
	var mu sync.Mutex
	var cmd *exec.Cmd
	start := func() error {
		mu.Lock()
		defer mu.Unlock()
		cmd = command()
		cmd.Stdout, cmd.Stderr = log, log
		return cmd.Start()
	}
	require.NoError(h.p.t, start())
	h.running.Go(func() {
		defer log.Close()
		for {
			err := cmd.Wait()
			fmt.Fprintf(log, "--- %s ended: %v\n", name, err)
			select {
			case <-h.ctx.Done():
				return
			case <-time.After(pause):
			}
			if err := start(); err != nil {
				fmt.Fprintf(log, "--- %s: %v\n", name, err)
				return
			}
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		// nsenter has a child, which is in the host's namespace of processes.
		nsenter := strconv.Itoa(cmd.Process.Pid)
		children, err := os.ReadFile(filepath.Join("/proc", nsenter, "task", nsenter, "children"))
		require.NoError(h.p.t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
		require.NoError(h.p.t, err, "%s", children)
		require.NoError(h.p.t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

// enable starts a service of a unit the way systemd does, as far as this can be done without: its user, its environment, the file system that it may not write to,
// and that it is started again. It returns a way to kill it.
func (h *host) enable(name, text string) (kill func()) {
	h.p.t.Helper()
	u, err := unitfile.Parse(text)
	require.NoError(h.p.t, err)
	get := func(key string) string { return u.Get("Service", key) }
	yes := func(key string) bool { return get(key) == "yes" || get("DynamicUser") == "yes" }
	script := "set -e\n"
	for _, path := range u.Words("Service", "ReadWritePaths") {
		script += fmt.Sprintf("mount --bind %[1]s %[1]s\n", path)
	}
	if yes("PrivateTmp") {
		script += "mount -t tmpfs tmpfs /tmp\n"
	}
	if yes("ProtectSystem") || get("ProtectSystem") == "strict" {
		script += "mount -o remount,bind,ro /\n"
	}
	if mask := get("UMask"); mask != "" {
		script += "umask " + mask + "\n"
	}
	user := []string{"--reuid=" + get("User"), "--regid=" + get("Group"), "--init-groups"}
	if get("DynamicUser") == "yes" {
		user = []string{"--reuid=61184", "--regid=61184", "--clear-groups"} // the first that systemd would take, of whom no file knows
	}
	if yes("NoNewPrivileges") {
		user = append(user, "--no-new-privs")
	}
	if slices.Contains(u.All("Service", "CapabilityBoundingSet"), "") {
		user = append(user, "--bounding-set=-all", "--inh-caps=-all")
	}
	pause, err := strconv.Atoi(get("RestartSec"))
	require.NoError(h.p.t, err)
	require.Equal(h.p.t, "always", get("Restart"))
	command := slices.Concat([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script + `exec setpriv "$@"`, "sh"}, user, u.Words("Service", "ExecStart"))
	return h.run(name, time.Duration(pause)*time.Second, func() *exec.Cmd {
		cmd := h.inside(command...)
		cmd.Env = append(cmd.Env, u.All("Service", "Environment")...)
		return cmd
	})
}

// tell shows what its daemons have logged.
func (h *host) tell() {
	files, err := filepath.Glob(filepath.Join(h.logs, "*"))
	if err != nil {
		return
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		h.p.t.Logf("%s on the host:\n%s", filepath.Base(file), strings.Join(lines[max(0, len(lines)-80):], "\n"))
	}
}
