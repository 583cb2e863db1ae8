package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	connectTimeout = time.Second
	pollInterval   = 50 * time.Millisecond
	// A component that keeps dying is started again after restartDelay, doubled up to maxRestartDelay.
	restartDelay    = 200 * time.Millisecond
	maxRestartDelay = 5 * time.Second
	// A component that ran this long starts with the short delay again.
	settled = 10 * time.Second
)

// supervisor starts components and starts them again when they end.
//
// As the first process of a PID namespace it also inherits every orphan, so
// one loop reaps all children: os/exec's own Wait would race with it.
type supervisor struct {
	plan Plan
	mu   sync.Mutex
	done map[int]chan syscall.WaitStatus // by process id
}

func supervise(list []component, p Plan) error {
	s := &supervisor{plan: p, done: map[int]chan syscall.WaitStatus{}}
	for _, c := range list {
		go s.keep(c)
	}
	s.reap()
	return nil
}

// keep runs one component for ever.
func (s *supervisor) keep(c component) {
	delay := restartDelay
	for {
		for _, target := range c.After {
			for !answers(target) {
				time.Sleep(pollInterval)
			}
		}
		s.mayStart(c.Name)
		started := time.Now()
		status, err := s.run(c)
		if time.Since(started) > settled {
			delay = restartDelay
		}
		slog.Error("component ended", "component", c.Name, "status", describe(status), "error", err, "again_in", delay)
		time.Sleep(delay)
		delay = min(2*delay, maxRestartDelay)
	}
}

// run starts the component and returns when it has ended.
func (s *supervisor) run(c component) (syscall.WaitStatus, error) {
	logFile, err := os.OpenFile(s.plan.inState("logs", c.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer logFile.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()

	s.mu.Lock() // held until the child is known, so that reap cannot miss it
	pid, err := syscall.ForkExec(c.Argv[0], c.Argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}, c.Env...),
		Files: []uintptr{null.Fd(), logFile.Fd(), logFile.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	done := make(chan syscall.WaitStatus, 1)
	if err == nil {
		s.done[pid] = done
	}
	s.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", c.Argv[0], err)
	}
	slog.Info("component started", "component", c.Name, "pid", pid)
	pidFile := s.plan.inState("run", c.Name+".pid")
	if err := writeFile(pidFile, fmt.Appendln(nil, pid), 0o644); err != nil {
		slog.Error("writing pid file", "component", c.Name, "error", err)
	}
	status := <-done
	os.Remove(pidFile)
	return status, nil
}

// reap waits for children until there are none, which for an init process
// with components to keep is never.
func (s *supervisor) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil: // no child yet, or all of them are being restarted
			time.Sleep(pollInterval)
			continue
		}
		s.mu.Lock()
		if done, ok := s.done[pid]; ok {
			done <- status
			delete(s.done, pid)
		}
		s.mu.Unlock()
	}
}

func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return s.Signal().String()
	}
	return fmt.Sprintf("exit %d", s.ExitStatus())
}

// answers tests one condition of component.After.
func answers(target string) bool {
	kind, address, _ := strings.Cut(target, ":")
	if kind == "https" {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		return ready(ctx, anonymousClient, "https://"+address+"/readyz")
	}
	return canConnect(kind, address)
}

// anonymousClient asks only whether the apiserver is ready: nothing it reads
// is trusted, so the certificate need not be checked.
var anonymousClient = &http.Client{Transport: &http.Transport{
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	DisableKeepAlives: true,
}}

func ready(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// componentPIDs reads the pid files: process ids inside the cluster's PID namespace.
func componentPIDs(d dirs) map[string]int {
	pids := map[string]int{}
	files, _ := filepath.Glob(d.sub("run", "*.pid")) // the pattern is well formed
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(string(b), &pid); err == nil {
			pids[strings.TrimSuffix(filepath.Base(f), ".pid")] = pid
		}
	}
	return pids
}
