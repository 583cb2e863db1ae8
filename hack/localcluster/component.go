package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stoppedFile marks a component that the supervisor is to leave alone; up removes the marks.
func stoppedFile(name string) string { return name + ".stopped" }

// stopComponent kills one component and keeps it down until the next up. It returns when the process is gone.
func (c *cluster) stopComponent(ctx context.Context, name string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.mustRun(); err != nil {
		return err
	}
	var names []string
	for _, comp := range components(c.rec.Plan, func(string) string { return "" }) {
		names = append(names, comp.Name)
		if comp.Name != name {
			continue
		}
		if err := writeFile(c.sub("run", stoppedFile(name)), nil, 0o644); err != nil {
			return err
		}
		defer c.out.say("cluster %s: %s is stopped until the next up", c.name, name)
		return c.poll(ctx, func() bool {
			pid, runs := c.processes()[name]
			if runs {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may just have ended by itself
			}
			return !runs
		})
	}
	return fmt.Errorf("no component %q: there are %s", name, strings.Join(names, ", "))
}

// startComponents lets the supervisor start what was stopped.
func (c *cluster) startComponents() error {
	files, _ := filepath.Glob(c.sub("run", stoppedFile("*"))) // the pattern is well formed
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return nil
}

// processes are the components that run, and their process ids as the host sees them.
func (c *cluster) processes() map[string]int {
	outside := map[int]int{}
	for _, m := range members(c.rec.Init.PID) {
		outside[m.inside] = m.pid
	}
	running := map[string]int{}
	for name, inside := range componentPIDs(c.dirs) {
		if pid, ok := outside[inside]; ok && inside > 1 {
			running[name] = pid
		}
	}
	return running
}

// mayStart waits while the component is stopped.
func (s *supervisor) mayStart(name string) {
	for {
		if _, err := os.Stat(s.plan.inState("run", stoppedFile(name))); err != nil {
			return
		}
		time.Sleep(pollInterval)
	}
}
