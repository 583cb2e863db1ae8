package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// namespaces are those the cluster has of its own.
const namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC

// identity names one process for good: process ids are given out again, but
// not with the same start time in the same boot.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, field 22 of proc_pid_stat(5)
	Boot  string `json:"boot"`  // /proc/sys/kernel/random/boot_id
}

func identify(proc string, pid int) (identity, error) {
	_, start, err := readStat(proc, pid)
	if err != nil {
		return identity{}, err
	}
	boot, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return identity{}, err
	}
	return identity{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, nil
}

// alive reports whether this very process runs; a zombie does not.
func (id identity) alive(proc string) bool {
	if id.PID <= 1 {
		return false
	}
	state, _, err := readStat(proc, id.PID)
	if err != nil || state == "Z" || state == "X" {
		return false
	}
	now, err := identify(proc, id.PID)
	return err == nil && now == id
}

// kill ends the process and waits until it is gone. As it is the first of its
// PID namespace, all others in there have ended before it counts as gone.
func (id identity) kill(timeout time.Duration) error {
	if !id.alive("/proc") {
		return nil
	}
	if err := syscall.Kill(id.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing process %d: %w", id.PID, err)
	}
	for deadline := time.Now().Add(timeout); id.alive("/proc"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d is still there %s after SIGKILL", id.PID, timeout)
		}
	}
	return nil
}

// readStat reads state and start time from proc_pid_stat(5). The program's
// name comes before them and may contain anything, so they are counted from
// the last parenthesis.
func readStat(proc string, pid int) (state string, start uint64, err error) {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", 0, err
	}
	_, rest, ok := cutLast(string(b), ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return "", 0, fmt.Errorf("process %d: cannot read its stat file: %q", pid, b)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0], start, err
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// namespaceOf identifies a namespace ("net", "pid") of a process.
func namespaceOf(pid int, kind string) string {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		return ""
	}
	return link
}

// member is a process found in one of the cluster's namespaces.
type member struct {
	pid     int // as the host sees it
	inside  int // in the cluster's PID namespace, 0 when it is not in there
	command string
}

// members lists the processes that share the PID or the network namespace of
// the cluster's init process.
func members(initPID int) []member {
	pidNS, netNS := namespaceOf(initPID, "pid"), namespaceOf(initPID, "net")
	dirs, err := os.ReadDir("/proc")
	if err != nil || pidNS == "" {
		return nil
	}
	var list []member
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		inPID, inNet := namespaceOf(pid, "pid") == pidNS, namespaceOf(pid, "net") == netNS
		if !inPID && !inNet {
			continue
		}
		m := member{pid: pid}
		if inPID {
			m.inside = innerPID(pid)
		}
		if b, err := os.ReadFile(filepath.Join("/proc", d.Name(), "comm")); err == nil {
			m.command = strings.TrimSpace(string(b))
		}
		list = append(list, m)
	}
	return list
}

// innerPID is the process id in the innermost PID namespace.
func innerPID(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(rest)
			inner, err := strconv.Atoi(fields[len(fields)-1])
			if err == nil {
				return inner
			}
		}
	}
	return 0
}

// inNetwork runs f in the network namespace of a process, where it may open
// sockets but not start goroutines that do. It uses up a thread, which the
// runtime throws away because it stays locked.
func inNetwork(pid int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			result <- err
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("entering the cluster's network: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}
