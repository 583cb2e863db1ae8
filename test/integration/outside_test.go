//go:build integration && faults

package integration

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// outside makes commands reach the control plane's pod past Kubernetes, which is about to be away: from the host, in the
// namespaces of its processes, as SlurmUser.
func (c *cluster) outside() (inside func()) {
	c.t.Helper()
	pids := map[string]int{}
	for _, container := range []string{stack.ContainerSlurmctld, stack.ContainerBridge} {
		pids[container] = c.hostPID(container)
	}
	before := c.run
	c.run = func(stdin io.Reader, container string, command ...string) (stdout, stderr string, err error) {
		args := []string{"--target", strconv.Itoa(pids[container]), "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", "--setgid", "64030", "--setuid", "64030", "--"}
		cmd := exec.CommandContext(c.ctx, "nsenter", append(args, command...)...)
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		var out, errs bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
		err = cmd.Run()
		return out.String(), errs.String(), err
	}
	return func() { c.run = before }
}

// hostPID is hostPIDOf the control plane's pod.
func (c *cluster) hostPID(container string) int {
	c.t.Helper()
	return c.hostPIDOf("slurmctld-0", container)
}

// firewall changes the rules in the network namespace of the control plane's pod.
func (c *cluster) firewall(rule ...string) {
	c.t.Helper()
	args := append([]string{"--target", strconv.Itoa(c.hostPID(stack.ContainerSlurmctld)), "--net", "iptables", "-w"}, rule...)
	out, err := exec.CommandContext(c.ctx, "nsenter", args...).CombinedOutput()
	require.NoError(c.t, err, "%v: %s", rule, out)
}

// cutNetwork drops everything between slurmctld's pod and slurmd pods until the returned function is called. Kubernetes, DNS
// and the pod's own daemons are no pods, or do not leave the pod.
func (c *cluster) cutNetwork() (mend func()) {
	c.t.Helper()
	network := c.podIP("slurmctld-0") + "/16" // the cluster's range of pod addresses
	c.firewall("-A", "INPUT", "!", "-i", "lo", "-s", network, "-j", "DROP")
	c.firewall("-A", "OUTPUT", "!", "-o", "lo", "-d", network, "-j", "DROP")
	return c.openFirewall
}

func (c *cluster) openFirewall() {
	c.t.Helper()
	c.firewall("-F", "INPUT")
	c.firewall("-F", "OUTPUT")
}

// freeze stops a daemon of the control plane's pod, so that it accepts connections and answers nothing, until the returned
// function is called.
func (c *cluster) freeze(container string) (thaw func()) {
	c.t.Helper()
	pid := c.hostPID(container)
	require.NoError(c.t, syscall.Kill(pid, syscall.SIGSTOP))
	c.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it runs already, unless the test failed
	return func() {
		c.t.Helper()
		require.NoError(c.t, syscall.Kill(pid, syscall.SIGCONT))
	}
}

// localcluster runs a command of hack/localcluster for the cluster under test.
func (c *cluster) localcluster(args ...string) {
	c.t.Helper()
	name := os.Getenv("LOCALCLUSTER")
	require.NotEmpty(c.t, name, "LOCALCLUSTER must name the local cluster; hack/integration.sh does")
	cmd := exec.CommandContext(c.ctx, "../../hack/localcluster/localcluster.sh", append([]string{"--name", name}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%v: %s", args, out)
	c.t.Logf("localcluster %s: %s", strings.Join(args, " "), strings.TrimSpace(string(out)))
}
