package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const kubernetesVersion = "v1.36.3"

// tool is something built once and kept in the cache under its version.
type tool struct {
	name    string
	version string
	// A tool is either packages of the proxy, installed by name, ...
	install []string
	// ... or packages of the nested module in kube/, which pins their versions.
	local []string
	flags string   // for the linker
	links []string // further names of the first program
}

// tools is the table of everything that is built. A new one is a new line.
func tools() []tool {
	const containerd = "github.com/containerd/containerd/v2/cmd/"
	return []tool{
		{name: "containerd", version: "v2.4.2", install: []string{containerd + "containerd", containerd + "containerd-shim-runc-v2", containerd + "ctr"}},
		{
			name: "kubernetes", version: kubernetesVersion, local: []string{"./kubenode", "./coredns", "./gpuplugin"}, flags: versionFlags(kubernetesVersion),
			links: []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"},
		},
		{name: "pause", version: "1", local: []string{"./pause"}},
	}
}

func versionFlags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for key, value := range map[string]string{"gitVersion": version, "gitMajor": major, "gitMinor": minor} {
			flags = append(flags, fmt.Sprintf("-X %s.%s=%s", pkg, key, value))
		}
	}
	slices.Sort(flags)
	return strings.Join(flags, " ")
}

// toolbox finds tools in the cache and builds those that are missing.
type toolbox struct {
	cache  string
	source string // directory of this program's sources
	out    *progress
}

// dir is where a tool is kept, relative to the cache. Its name says what it was built from.
func (b toolbox) dir(t tool) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, t.version, t.install, t.local, t.flags, t.links, runtime.Version(), runtime.GOARCH)
	if len(t.local) > 0 {
		if err := b.hashSources(h, t); err != nil {
			return "", fmt.Errorf("reading the sources of %s below %s: %w", t.name, b.source, err)
		}
	}
	return filepath.Join("tools", fmt.Sprintf("%s-%s-%x", t.name, t.version, h.Sum(nil)[:5])), nil
}

func (b toolbox) hashSources(h io.Writer, t tool) error {
	patterns := []string{"kube/go.mod", "kube/go.sum"}
	for _, pkg := range t.local {
		patterns = append(patterns, filepath.Join("kube", pkg, "*.go"))
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(b.source, pattern))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("no file matches %s", pattern)
		}
		for _, f := range files { // Glob sorts
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%s %d\n%s", filepath.Base(f), len(text), text)
		}
	}
	return nil
}

// find returns the path of every program relative to the cache, and an error
// when a tool was never built.
func (b toolbox) find() (map[string]string, error) {
	programs := map[string]string{}
	for _, t := range tools() {
		dir, err := b.dir(t)
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(filepath.Join(b.cache, dir))
		if err != nil {
			return nil, fmt.Errorf("%s is not built: run `localcluster up` or `localcluster build`", t.name)
		}
		for _, e := range entries {
			programs[e.Name()] = filepath.Join(dir, e.Name())
		}
	}
	return programs, nil
}

// build builds every tool that is missing. Only one process does so at a time.
func (b toolbox) build(ctx context.Context) error {
	unlock, err := lockFile(ctx, filepath.Join(b.cache, "tools.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	for _, t := range tools() {
		dir, err := b.dir(t)
		if err != nil {
			return err
		}
		target := filepath.Join(b.cache, dir)
		if _, err := os.Stat(target); err == nil {
			continue
		}
		if _, err := exec.LookPath("go"); err != nil {
			return errors.New("the Go toolchain is missing: put `go` (1.26 or newer) on PATH")
		}
		done := b.out.step("building %s %s", t.name, t.version)
		if err := b.buildOne(ctx, t, target); err != nil {
			return fmt.Errorf("building %s %s: %w", t.name, t.version, err)
		}
		done()
	}
	return nil
}

// buildOne builds into a temporary directory and renames it, so that a tool is there whole or not at all.
func (b toolbox) buildOne(ctx context.Context, t tool, target string) error {
	tmp := target + ".partial"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-o", tmp + "/"}
	packages := t.local
	if len(t.install) > 0 {
		args, packages = []string{"install"}, nil
		for _, p := range t.install {
			packages = append(packages, p+"@"+t.version)
		}
	}
	args = append(args, "-trimpath", "-ldflags", strings.TrimSpace("-s -w "+t.flags))
	if err := b.goCommand(ctx, tmp, append(args, packages...)); err != nil {
		return err
	}
	first, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, link := range t.links {
		if err := os.Symlink(filepath.Base(t.local[0]), filepath.Join(tmp, link)); err != nil {
			return err
		}
	}
	if len(first) == 0 {
		return errors.New("the build left no program")
	}
	return os.Rename(tmp, target)
}

func (b toolbox) goCommand(ctx context.Context, bin string, args []string) error {
	logPath := filepath.Join(b.cache, "build.log")
	logFile, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(b.source, "kube")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+bin, "GOFLAGS=-buildvcs=false", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w; the last lines of %s:\n%s", args[0], err, logPath, tail(logPath, 15))
	}
	return nil
}

// tail returns the last n lines of a file, for error messages.
func tail(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// lockFile waits until no other process holds the lock.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := tryLock(path)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if f != nil {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another localcluster that holds %s: %w", path, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// tryLock returns no file when the lock is taken, or when its file was removed
// by the one that held it: a lock on that would keep nobody out.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		f.Close()
		return nil, nil
	case err != nil:
		f.Close()
		return nil, err
	}
	locked, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if named, err := os.Stat(path); err != nil || !os.SameFile(locked, named) {
		f.Close()
		return nil, nil //nolint:nilerr // the file was removed: try again
	}
	return f, nil
}
