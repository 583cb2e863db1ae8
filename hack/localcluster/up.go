package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	upTimeout     = 3 * time.Minute // from start to a node that is Ready
	repairTimeout = 2 * time.Minute // for components that died to be back; a kubelet that could not reach the apiserver takes up to a minute
	killTimeout   = 30 * time.Second
)

// up brings the cluster up, or finds it up. gpus < 0 leaves their number as it is.
func (c *cluster) up(ctx context.Context, gpus int) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if c.running() {
		return c.checkRunning(ctx, gpus)
	}
	if err := checkPrivileges(); err != nil {
		return err
	}
	if err := installPrograms(ctx, c.out); err != nil {
		return err
	}
	loadModules()
	if err := c.tools.build(ctx); err != nil {
		return err
	}
	if err := c.removeLeftovers(); err != nil {
		return err
	}
	if err := c.start(ctx, max(gpus, 0)); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted, cluster %s is ended again", c.name)
		}
		err = errors.Join(err, c.stop())
		return fmt.Errorf("%w; the logs are in %s", err, c.logs())
	}
	return nil
}

// checkRunning makes sure that a running cluster is healthy. Components that died, or were stopped,
// are started again by the init process; here we only wait for them.
func (c *cluster) checkRunning(ctx context.Context, gpus int) error {
	if err := c.startComponents(); err != nil {
		return err
	}
	file := c.sub("conf", "gpus")
	if gpus >= 0 {
		if err := writeFile(file, fmt.Appendln(nil, gpus), 0o644); err != nil {
			return err
		}
	} else { // their plugin may be about to register with a new kubelet
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if gpus, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	h := c.health(ctx)
	if !h.ok() || h.GPUs != gpus {
		c.out.say("cluster %s is up, waiting until it is healthy: %s", c.name, h.problem())
		var err error
		if h, err = c.settle(ctx, gpus, repairTimeout); err != nil {
			return fmt.Errorf("cluster %s is up but broken: %w; the logs are in %s; `down` and `up` make a new one", c.name, err, c.logs())
		}
	}
	c.out.say("cluster %s is up since %s: %s", c.name, c.rec.Started.Format(time.DateTime), c.describe(h))
	return nil
}

func (c *cluster) describe(h health) string {
	return fmt.Sprintf("node %s, %d GPUs, apiserver %s, kubeconfig %s", h.Node, h.GPUs, c.rec.Plan.Server(), c.kubeconfig())
}

func (c *cluster) start(ctx context.Context, gpus int) error {
	defer c.out.step("starting cluster %s", c.name)()
	if err := c.makeDirs(); err != nil {
		return err
	}
	programs, err := c.tools.find()
	if err != nil {
		return err
	}
	plan, err := claimSlot(c.name)
	if err != nil {
		return err
	}
	c.rec = &record{Plan: plan, Started: time.Now(), Programs: programs}
	if err := writeJSON(c.nodeFile(), c.rec); err != nil {
		return err
	}
	if err := c.writeFiles(plan, gpus); err != nil {
		return err
	}
	if err := makeCgroups(cgroupRoot, plan.CgroupParent()); err != nil {
		return err
	}
	if err := c.startInit(); err != nil {
		return err
	}
	h, err := c.settle(ctx, gpus, upTimeout)
	if err != nil {
		return err
	}
	c.out.say("cluster %s: %s", c.name, c.describe(h))
	return nil
}

// claimSlot makes the host's end of the veth pair, whose name is the slot's.
// Making it fails when another cluster, of any cache, has the slot.
func claimSlot(name string) (Plan, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return Plan{}, err
	}
	var last error
	for i := range slots {
		p := Plan{Name: name, Slot: (preferredSlot(name) + i) % slots}
		if overlaps(addrs, p) {
			continue
		}
		if last = command("ip", "link", "add", p.Link(), "type", "veth", "peer", "name", p.Link()+"p"); last == nil {
			return p, nil
		}
		if !strings.Contains(last.Error(), "exists") {
			break
		}
	}
	return Plan{}, fmt.Errorf("no free slot for a veth pair among %d: %w", slots, last)
}

func overlaps(addrs []net.Addr, p Plan) bool {
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.Contains(p.NodeAddr().AsSlice()) {
			return true
		}
	}
	return false
}

func (c *cluster) makeDirs() error {
	for _, dir := range []string{"logs", "run", "etcd", "kubelet", "containerd", "pod-logs"} {
		if err := os.MkdirAll(c.sub(dir), 0o700); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) writeFiles(p Plan, gpus int) error {
	if err := writePKI(p, c.sub("pki"), time.Now()); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	admin, err := os.ReadFile(c.sub("pki", "admin.kubeconfig"))
	if err != nil {
		return err
	}
	files := configFiles(p)
	files["gpus"] = fmt.Sprintln(gpus)
	for name, text := range files {
		path := c.sub("conf", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	inside := func(program string) string { return filepath.Join(inCache, c.rec.Programs[program]) }
	if err := writeJSON(c.sub("init.json"), initPlan{
		Plan:       p,
		Components: components(p, inside),
		// containerd looks for its shim there.
		Path: filepath.Dir(inside("containerd")) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}); err != nil {
		return err
	}
	return writeFile(c.kubeconfig(), admin, 0o600)
}

// startInit starts the init process in new namespaces and gives it its end of
// the veth pair.
func (c *cluster) startInit() error {
	logFile, err := os.OpenFile(filepath.Join(c.logs(), "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "init", c.cache, c.sub("init.json"))
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces}
	err = cmd.Start()
	r.Close()
	if err != nil {
		return fmt.Errorf("starting the init process: %w", err)
	}
	go cmd.Wait() //nolint:errcheck // only so that it does not stay a zombie if it ends before we do
	if c.rec.Init, err = identify("/proc", cmd.Process.Pid); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	if err := writeJSON(c.nodeFile(), c.rec); err != nil {
		return err
	}
	p := c.rec.Plan
	for _, args := range [][]string{
		{"ip", "link", "set", p.Link() + "p", "netns", strconv.Itoa(c.rec.Init.PID), "name", "eth0"},
		{"ip", "link", "set", p.Link(), "addrgenmode", "none", "up"},
		{"ip", "address", "add", p.HostAddr().String() + "/24", "dev", p.Link()},
	} {
		if err := command(args...); err != nil {
			return fmt.Errorf("%w: %s", err, tail(logFile.Name(), 3))
		}
	}
	if _, err := w.WriteString("go\n"); err != nil {
		return fmt.Errorf("the init process ended: %s", tail(logFile.Name(), 3))
	}
	return nil
}

// apply waits for the apiserver and gives it the objects every cluster has.
func (c *cluster) apply(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	if err := c.poll(ctx, func() bool { return ready(ctx, client, c.rec.Plan.Server()+"/readyz") }); err != nil {
		return fmt.Errorf("the apiserver is not ready: %w: %s", err, tail(filepath.Join(c.logs(), "kube-apiserver.log"), 5))
	}
	cmd := c.kubectl(ctx, "apply", "--server-side", "--validate=false", "-f", c.sub("conf", "manifests.yaml"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("applying %s: %w: %s", c.sub("conf", "manifests.yaml"), err, out)
	}
	return nil
}

// poll waits until done, and gives up early when the cluster has died.
func (c *cluster) poll(ctx context.Context, done func() bool) error {
	for !done() {
		if !c.running() {
			return fmt.Errorf("the init process ended: %s", tail(filepath.Join(c.logs(), "init.log"), 5))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// settle gives the running processes what they need and waits until all is
// well. An `up` that was killed may have left any part of it undone.
func (c *cluster) settle(ctx context.Context, gpus int, timeout time.Duration) (health, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.importPause(ctx); err != nil {
		return health{}, err
	}
	c.out.say("cluster %s: containerd ready", c.name)
	if err := c.apply(ctx); err != nil {
		return health{}, err
	}
	c.out.say("cluster %s: apiserver ready", c.name)
	var h health
	err := c.poll(ctx, func() bool {
		if now := c.health(ctx); ctx.Err() == nil { // a health cut short tells nothing
			h = now
		}
		return h.ok() && h.GPUs == gpus
	})
	if err != nil {
		problem := h.problem()
		if h.ok() {
			problem = fmt.Sprintf("the node shows %d GPUs instead of %d", h.GPUs, gpus)
		}
		return h, fmt.Errorf("%s: %w", problem, err)
	}
	return h, nil
}
