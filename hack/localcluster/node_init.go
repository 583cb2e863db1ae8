package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// initPlan is what `up` leaves for the init process to carry out.
type initPlan struct {
	Plan       Plan        `json:"plan"`
	Components []component `json:"components"`
	Path       string      `json:"path"` // $PATH of the components
}

// runInit is the first process of the cluster's own PID, mount, network and
// UTS namespaces. The kernel ends every process of the cluster with it and
// takes mounts and links away, so that nothing can be left behind.
//
// It prepares the namespaces, waits on start until the host has put the veth
// in, and then keeps the components running.
func runInit(cache, planFile string, start *os.File) error {
	var plan initPlan
	if err := readJSON(planFile, &plan); err != nil {
		return err
	}
	if err := mountNode(cache, plan.Plan); err != nil {
		return fmt.Errorf("preparing mounts: %w", err)
	}
	if err := syscall.Sethostname([]byte(plan.Plan.Name)); err != nil {
		return fmt.Errorf("setting host name: %w", err)
	}
	if line, err := bufio.NewReader(start).ReadString('\n'); err != nil {
		return fmt.Errorf("waiting for the network (%q): %w", line, err)
	}
	start.Close()
	if err := setUpNetwork(plan.Plan); err != nil {
		return fmt.Errorf("setting up the network: %w", err)
	}
	if err := os.Setenv("PATH", plan.Path); err != nil {
		return err
	}
	return supervise(plan.Components, plan.Plan)
}

// hostTunables are kernel settings which the kubelet insists on and which
// belong to the whole machine. It is shown files with the values it wants.
var hostTunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mountNode gives the cluster its own view of the places where Kubernetes
// programs keep state: /run, /var/lib and /var/log. The rest is the host's.
func mountNode(cache string, p Plan) error {
	// Host mounts made later appear here too; ours never appear on the host.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("making / a slave mount: %w", err)
	}
	// Volumes with Bidirectional propagation need shared mounts.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("making / a shared mount: %w", err)
	}
	// Held open, because the cache may lie below what is hidden next.
	dir, err := os.Open(cache)
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, target := range []string{"/run", "/var/lib", "/var/log"} {
		if err := mount("tmpfs", target, "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
	}
	if err := bind(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), inCache); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := mountState(p); err != nil {
		return err
	}
	for name, value := range hostTunables {
		shown := filepath.Join("/run/localcluster/tunables", name)
		if err := os.MkdirAll(filepath.Dir(shown), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(shown, []byte(value+"\n"), 0o444); err != nil {
			return err
		}
		if err := syscall.Mount(shown, filepath.Join("/proc/sys", name), "", syscall.MS_BIND, ""); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("covering /proc/sys/%s: %w", name, err)
		}
	}
	return nil
}

// mountState gives containerd and the kubelet their directories. What containerd
// writes and syncs again and again for every pod is kept in memory: it does not
// outlive the cluster, and waiting for the disk several times per pod takes
// longer than the rest of its start once anything else keeps the disk busy.
func mountState(p Plan) error {
	for state, target := range map[string]string{
		"kubelet":    "/var/lib/kubelet",
		"containerd": "/var/lib/containerd",
		"pod-logs":   "/var/log/pods",
	} {
		if err := bind(p.inState(state), target); err != nil {
			return err
		}
	}
	const containerd = "/var/lib/containerd/"
	for _, dir := range []string{"io.containerd.metadata.v1.bolt", "io.containerd.mount-manager.v1.bolt", "io.containerd.grpc.v1.cri"} {
		if err := os.MkdirAll(containerd+dir, 0o700); err != nil {
			return err
		}
		if err := mount("tmpfs", containerd+dir, "tmpfs", 0, "mode=700"); err != nil {
			return err
		}
	}
	// The snapshotter keeps its small database among the layers.
	const snapshotter = containerd + "io.containerd.snapshotter.v1.overlayfs"
	if err := os.MkdirAll(snapshotter, 0o700); err != nil {
		return err
	}
	return os.Symlink(containerd+"io.containerd.metadata.v1.bolt/snapshots.db", snapshotter+"/metadata.db")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", kind, target, err)
	}
	return nil
}

func bind(source, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", source, target, err)
	}
	return nil
}

// setUpNetwork brings up the node's interfaces. There is no default route: the
// cluster ends at the veth, and anything beyond fails at once as unreachable.
func setUpNetwork(p Plan) error {
	for _, args := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "address", "add", p.DNSAddr().String() + "/32", "dev", "lo"},
		{"ip", "address", "add", p.NodeAddr().String() + "/24", "dev", "eth0"},
		{"ip", "link", "set", "eth0", "up"},
		// Connections of the node itself to a service need a route before kube-proxy's rules redirect
		// them. One to the node itself, so that an address without a service refuses at once.
		{"ip", "route", "add", "local", p.ServiceCIDR().String(), "dev", "lo", "src", p.NodeAddr().String()},
		// Pods reach services of the host at its end of the veth; the host has no route back to pod addresses.
		{"iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-s", p.PodCIDR().String(), "-o", "eth0", "-j", "MASQUERADE"},
	} {
		if err := command(args...); err != nil {
			return err
		}
	}
	// All of these belong to the network namespace of the process that writes them.
	for name, value := range map[string]string{
		"ipv4/ip_forward":                 "1",
		"bridge/bridge-nf-call-iptables":  "1",
		"ipv4/conf/all/route_localnet":    "1",
		"ipv4/ip_unprivileged_port_start": "0",
		"ipv4/neigh/default/gc_thresh3":   "8192",
	} {
		err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("setting net/%s: %w", name, err)
		}
	}
	return nil
}

// command runs a program and puts what it printed into the error.
func command(args ...string) error {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// canConnect reports whether something listens at address.
func canConnect(network, address string) bool {
	c, err := net.DialTimeout(network, address, connectTimeout)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
