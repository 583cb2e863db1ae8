package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// hostPrograms are the programs of the host that the cluster needs, with the
// Debian package each comes from.
var hostPrograms = map[string]string{
	"/usr/lib/cni/bridge":     "containernetworking-plugins",
	"/usr/lib/cni/host-local": "containernetworking-plugins",
	"/usr/lib/cni/portmap":    "containernetworking-plugins",
	"ip":                      "iproute2",
	"iptables":                "iptables",
	"mount":                   "mount",
	"nsenter":                 "util-linux",
	"runc":                    "runc",
	"unshare":                 "util-linux",
}

// checkPrivileges names the first privilege that is missing.
func checkPrivileges() error {
	if os.Geteuid() != 0 {
		return errors.New("root is needed (namespaces, mounts, cgroups): run it as root")
	}
	// A try tells more than a list of capabilities: containers and sandboxes forbid in many ways.
	cmd := exec.Command("/proc/self/exe", "version")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("this machine does not let us create PID, mount, network and UTS namespaces (%w): root with CAP_SYS_ADMIN and CAP_NET_ADMIN is needed", err)
	}
	return checkCgroups(cgroupRoot)
}

// installPrograms installs the Debian packages whose programs are missing.
// Services that a package brings are not started.
func installPrograms(ctx context.Context, out *progress) error {
	missing := missingPackages(exec.LookPath)
	if len(missing) == 0 {
		return nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return fmt.Errorf("apt-get is missing, so these packages must be installed by hand: %s", strings.Join(missing, " "))
	}
	defer out.step("installing Debian packages: %s", strings.Join(missing, " "))()
	if err := aptInstall(ctx, apt, missing); err == nil {
		return nil
	}
	// The package lists may be missing or old.
	if err := aptRun(ctx, apt, "update"); err != nil {
		return fmt.Errorf("apt-get update: %w", err)
	}
	if err := aptInstall(ctx, apt, missing); err != nil {
		return fmt.Errorf("installing %s: %w", strings.Join(missing, " "), err)
	}
	return nil
}

func missingPackages(look func(string) (string, error)) []string {
	need := map[string]bool{}
	for program, pkg := range hostPrograms {
		if _, err := look(program); err != nil {
			need[pkg] = true
		}
	}
	return sortedKeys(need)
}

func aptInstall(ctx context.Context, apt string, packages []string) error {
	// policy-rc.d is how Debian is told not to start a service on installation.
	const policy = "/usr/sbin/policy-rc.d"
	if _, err := os.Stat(policy); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
			return err
		}
		defer os.Remove(policy)
	}
	return aptRun(ctx, apt, append([]string{"install", "-y", "-q", "--no-install-recommends"}, packages...)...)
}

func aptRun(ctx context.Context, apt string, args ...string) error {
	cmd := exec.CommandContext(ctx, apt, append([]string{"-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%w: %s", err, strings.Join(lines[max(0, len(lines)-3):], " | "))
	}
	return nil
}

// loadModules loads what a distribution kernel keeps in modules. Failures do
// not matter here: a kernel may have it built in, and what is really missing
// shows up as an error of the step that uses it.
func loadModules() {
	for _, module := range []string{"overlay", "veth", "bridge", "br_netfilter", "nf_conntrack", "iptable_nat", "nft_compat"} {
		if _, err := os.Stat(filepath.Join("/sys/module", module)); err != nil {
			exec.Command("modprobe", "-q", module).Run() //nolint:errcheck // see above
		}
	}
}
