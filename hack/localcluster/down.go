package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// down removes the cluster and everything it made except the tools.
func (c *cluster) down(ctx context.Context) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(c.state); c.rec == nil && errors.Is(err, os.ErrNotExist) {
		c.out.say("cluster %s is down", c.name)
		return os.Remove(c.state + ".lock")
	}
	guests := c.guests()
	if err := c.stop(); err != nil {
		return err
	}
	if err := os.RemoveAll(c.state); err != nil {
		return fmt.Errorf("removing the state of cluster %s: %w", c.name, err)
	}
	if len(guests) > 0 {
		c.out.say("these processes were started in the cluster's network and have lost it: %s", strings.Join(guests, ", "))
	}
	c.out.say("cluster %s is gone", c.name)
	return os.Remove(c.state + ".lock")
}

// stop ends the cluster's processes and removes what it has in the kernel.
// The state directory stays, for the logs.
func (c *cluster) stop() error {
	if c.rec == nil {
		return nil
	}
	if err := c.rec.Init.kill(killTimeout); err != nil {
		return err
	}
	// The kernel removes the pair some time after the network namespace; be sure that it is gone now.
	if _, err := net.InterfaceByName(c.rec.Plan.Link()); err == nil {
		if err := command("ip", "link", "delete", c.rec.Plan.Link()); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
			return err
		}
	}
	return removeCgroups(cgroupRoot, c.rec.Plan.CgroupParent(), killTimeout)
}

// removeLeftovers clears away a cluster that died without `down`: a crash of
// its init process or of the machine.
func (c *cluster) removeLeftovers() error {
	if _, err := os.Stat(c.state); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	c.out.say("cluster %s: removing what an earlier run left", c.name)
	if err := c.stop(); err != nil {
		return err
	}
	c.rec = nil
	return os.RemoveAll(c.state)
}

// guests are processes of the host that someone started in the cluster's network.
func (c *cluster) guests() []string {
	if !c.running() {
		return nil
	}
	var list []string
	for _, m := range members(c.rec.Init.PID) {
		if m.inside == 0 && m.pid != os.Getpid() {
			list = append(list, fmt.Sprintf("%s (%d)", m.command, m.pid))
		}
	}
	return list
}
