package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroupHierarchies are the mounted hierarchies: one with cgroup v2, one for
// each controller with v1.
func cgroupHierarchies(root string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil && e.Type()&fs.ModeSymlink == 0 {
			list = append(list, dir)
		}
	}
	return list, nil
}

// checkCgroups says which controller Kubernetes would miss.
func checkCgroups(root string) error {
	list, err := cgroupHierarchies(root)
	if err != nil || len(list) == 0 {
		return fmt.Errorf("no cgroup hierarchy is mounted at %s: mount cgroup2 there", root)
	}
	have := map[string]bool{}
	if list[0] == root {
		b, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(string(b)) {
			have[name] = true
		}
	} else {
		for _, dir := range list {
			for name := range strings.SplitSeq(filepath.Base(dir), ",") {
				have[name] = true
			}
		}
	}
	for _, name := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !have[name] {
			return fmt.Errorf("the cgroup controller %q is missing below %s: enable it in the kernel or for this container", name, root)
		}
	}
	return nil
}

// makeCgroups makes the cgroup parent in every hierarchy.
func makeCgroups(root, parent string) error {
	list, err := cgroupHierarchies(root)
	if err != nil {
		return err
	}
	for _, dir := range list {
		if err := makeCgroup(dir, parent); err != nil {
			return fmt.Errorf("making cgroup %s: %w", filepath.Join(dir, parent), err)
		}
	}
	return nil
}

func makeCgroup(hierarchy, parent string) error {
	path := hierarchy
	for name := range strings.SplitSeq(strings.Trim(parent, "/"), "/") {
		// cgroup v2: children get only the controllers their parent hands down.
		if b, err := os.ReadFile(filepath.Join(path, "cgroup.controllers")); err == nil {
			for controller := range strings.FieldsSeq(string(b)) {
				// One that cannot be handed down is noticed by the kubelet, by name.
				os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+controller), 0) //nolint:errcheck // see above
			}
		}
		// cgroup v1: an empty cpuset takes no process.
		if f := filepath.Join(path, "cgroup.clone_children"); filepath.Base(hierarchy) == "cpuset" || strings.Contains(hierarchy, "cpuset") {
			os.WriteFile(f, []byte("1"), 0) //nolint:errcheck // the kubelet copies the values itself
		}
		path = filepath.Join(path, name)
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// removeCgroups removes the cgroup parent with everything below it from every
// hierarchy, and the directory above once it is empty. Processes must be gone;
// the kernel may need a moment to notice.
func removeCgroups(root, parent string, timeout time.Duration) error {
	list, err := cgroupHierarchies(root)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(timeout)
	for _, dir := range list {
		path := filepath.Join(dir, parent)
		for {
			err := removeTree(path)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("removing cgroup %s: %w", path, err)
			}
			time.Sleep(pollInterval)
		}
		os.Remove(filepath.Dir(path)) // fails while other clusters are there
	}
	return nil
}

// removeTree removes a cgroup and those below it: only the directories, for
// the files in them cannot be removed.
func removeTree(path string) error {
	var list []string
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			list = append(list, p)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(list) {
		if err := syscall.Rmdir(p); err != nil && !errors.Is(err, syscall.ENOENT) {
			return &os.PathError{Op: "rmdir", Path: p, Err: err}
		}
	}
	return nil
}
