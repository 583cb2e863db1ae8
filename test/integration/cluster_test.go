//go:build integration

// Package integration proves Slurmtide with the real daemons: slurmctld, slurmrestd and slurmd
// of each supported Slurm version, on a real Kubernetes. hack/integration.sh prepares the
// cluster and the images and runs it.
package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/generated/clientset/versioned"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// patience is how long anything may take before a test gives up.
const patience = 90 * time.Second

// forEachVersion runs the test against every Slurm version, or those in $SLURM_VERSIONS. Each
// has a stack of its own and mostly waits, so all go side by side, with other tests too.
func forEachVersion(t *testing.T, test func(t *testing.T, version string)) {
	t.Parallel()
	forEachVersionAlone(t, test)
}

// forEachVersionAlone is forEachVersion for a test that leaves the machine no time for others.
func forEachVersionAlone(t *testing.T, test func(t *testing.T, version string)) {
	forVersions(t, versions(), test)
}

// forScaling is forEachVersion for tests that make test-scale runs with every version. make test has time for the newest only.
func forScaling(t *testing.T, test func(t *testing.T, version string)) {
	t.Parallel()
	of := versions()
	if !everyVersion {
		of = of[len(of)-1:]
	}
	forVersions(t, of, test)
}

// forFaults is the same for make test-faults; make test takes the oldest version.
func forFaults(t *testing.T, test func(t *testing.T, version string)) {
	t.Parallel()
	of := versions()
	if !everyVersion {
		of = of[:1]
	}
	forVersions(t, of, test)
}

func versions() []string {
	if only := os.Getenv("SLURM_VERSIONS"); only != "" {
		return strings.Fields(only)
	}
	return stack.Versions()
}

func forVersions(t *testing.T, versions []string, test func(t *testing.T, version string)) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

// cluster is one stack with its NodeSets.
type cluster struct {
	*stack.Stack
	t    *testing.T
	ctx  context.Context
	kube kubernetes.Interface
	tide versioned.Interface
	ns   string
	// run runs a command in a container of the control plane's pod.
	run func(stdin io.Reader, container string, command ...string) (stdout, stderr string, err error)
}

// nodeSet says what a test wants; the zero values of the others make two CPUs, 400 MiB.
type nodeSet struct {
	name, nodes string
	image       string // default: the stack's
	gres        string
	cpus        int32
	gated       bool  // its pods stay unscheduled until ungate
	grace       int64 // of its pods, in seconds; default: the stack's; byDefault: the one that pods have whose template names none
	boot        v1alpha1.BootPolicy
	dynamic     bool // mode Dynamic, feature dyn, in partition dyn; idle nodes go after 10 s
}

const byDefault = -1

// deploy puts up a stack and NodeSets, and takes them down when the test ends.
func deploy(t *testing.T, name, version string, o stack.Options, sets ...nodeSet) *cluster {
	t.Helper()
	admit(t)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(t, err, "KUBECONFIG must name the test cluster")
	config.QPS, config.Burst = 100, 200
	if o.Namespace == "" {
		o.Namespace = name + "-" + strings.ReplaceAll(version, ".", "")
	}
	o.SlurmVersion, o.StateInMemory = version, true
	if o.SuspendTime == 0 {
		o.SuspendTime = 3
	}
	for _, s := range sets {
		if s.dynamic {
			continue
		}
		gres := ""
		if s.gres != "" {
			gres = " Gres=" + s.gres
		}
		o.NodeLines = append(o.NodeLines, fmt.Sprintf("NodeName=%s CPUs=%d RealMemory=400 State=CLOUD%s", s.nodes, max(s.cpus, 2), gres))
	}
	if o.PartitionLines == nil {
		o.PartitionLines = []string{"PartitionName=all Nodes=ALL Default=YES"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	s, err := stack.Open(config, o)
	require.NoError(t, err)
	require.NoError(t, s.Delete(ctx), "leftovers of an interrupted run")
	s, err = stack.Deploy(ctx, config, s.Options)
	require.NoError(t, err)
	c := &cluster{Stack: s, t: t, ctx: ctx, ns: o.Namespace}
	c.kube, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	c.run = func(stdin io.Reader, container string, command ...string) (stdout, stderr string, err error) {
		return c.ExecInput(ctx, stdin, container, command...)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if t.Failed() {
			t.Log(s.Describe(ctx))
		}
		assert.GreaterOrEqual(t, assertNoSecrets(ctx, t, c.kube, c.ns), 2, "the keys of auth/slurm and auth/jwt, unless the test has taken them away")
		require.NoError(t, s.Delete(ctx))
	})
	c.tide, err = versioned.NewForConfig(config)
	require.NoError(t, err)
	for _, set := range sets {
		c.createNodeSet(set)
	}
	require.NoError(t, s.WaitReady(ctx))
	return c
}

// build makes the NodeSet, as yet only in memory.
func (c *cluster) build(s nodeSet) *v1alpha1.NodeSet {
	template := stack.PodTemplate(c.Options)
	if s.image != "" {
		template.Spec.Containers[0].Image = s.image
	}
	// The test machine is small and the jobs only sleep: ask for less than the shape.
	template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("20Mi"),
	}
	if s.grace != 0 {
		template.Spec.TerminationGracePeriodSeconds = new(s.grace)
	}
	if s.grace == byDefault {
		template.Spec.TerminationGracePeriodSeconds = nil
	}
	if s.gated {
		template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "slurmtide.io/test"}}
	}
	ns := &v1alpha1.NodeSet{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: c.ns},
		Spec: v1alpha1.NodeSetSpec{
			ClusterRef: v1alpha1.ClusterRef{Name: c.Options.ClusterName},
			NodeNames:  s.nodes,
			Shape:      v1alpha1.Shape{CPUs: max(s.cpus, 2), RealMemory: 400, Gres: s.gres},
			Template:   template,
			Boot:       &s.boot,
		},
	}
	if s.dynamic {
		ns.Spec.Mode = v1alpha1.ModeDynamic
		ns.Spec.Shape.Features = []string{"dyn"}
		ns.Spec.Partitions = []string{"dyn"}
		ns.Spec.Suspend = &v1alpha1.SuspendPolicy{IdleTime: &metav1.Duration{Duration: 10 * time.Second}}
	}
	return ns
}

func (c *cluster) createNodeSet(s nodeSet) {
	c.t.Helper()
	_, err := c.tide.SlurmtideV1alpha1().NodeSets(c.ns).Create(c.ctx, c.build(s), metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// createByHand makes the pod that the bridge would make for the node, but one that is none of its business.
func (c *cluster) createByHand(node string) {
	c.t.Helper()
	pod, err := pods.Build(c.build(nodeSet{name: "by-hand", nodes: node}), node, 1, "by-hand",
		pods.PodOptions{ConfServer: c.ConfServer(), Service: stack.ServiceNodes})
	require.NoError(c.t, err)
	pod.Labels, pod.OwnerReferences = nil, nil
	_, err = c.kube.CoreV1().Pods(c.ns).Create(c.ctx, pod, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// ungate lets the pods of gated nodes be scheduled, as soon as they exist.
func (c *cluster) ungate(nodes string) {
	c.t.Helper()
	list, err := slurmconf.ParseHostlist(nodes)
	require.NoError(c.t, err)
	c.eventually("pods of "+nodes, func() (bool, string) {
		pods := c.slurmdPods()
		for node := range list.All() {
			p, ok := pods[node]
			if !ok {
				return false, node + " has none"
			}
			if len(p.Spec.SchedulingGates) == 0 {
				continue
			}
			_, err := c.kube.CoreV1().Pods(c.ns).Patch(c.ctx, node, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/spec/schedulingGates"}]`), metav1.PatchOptions{})
			require.NoError(c.t, err)
		}
		return true, ""
	})
}

// slurm runs a client program as SlurmUser and returns what it printed. scontrol is run again when slurmctld has not answered in time:
// Debian's looks a name five times up, with pauses, before it believes that there is none, and stands still meanwhile. It does so for
// nodes whose jobs it ends while no slurmd serves them.
func (c *cluster) slurm(command ...string) string {
	c.t.Helper()
	out, stderr, err := c.run(nil, stack.ContainerSlurmctld, command...)
	for tries := 1; err != nil && tries < 4 && command[0] == "scontrol" && strings.Contains(stderr+out, "Socket timed out on send/recv"); tries++ {
		out, stderr, err = c.run(nil, stack.ContainerSlurmctld, command...)
	}
	require.NoError(c.t, err, "%v: %s%s", command, stderr, out) // scontrol says on either what is wrong
	return strings.TrimSpace(out)
}

var submitted = regexp.MustCompile(`(\d+)`)

// sbatch submits a script given on standard input and returns the job's number. Job output goes
// to a directory of the node that ran it.
func (c *cluster) sbatch(script string, options ...string) string {
	c.t.Helper()
	args := append([]string{"sbatch", "--parsable", "--output=/tmp/slurm-%j.out"}, options...)
	out, stderr, err := c.run(strings.NewReader("#!/bin/bash\n"+script+"\n"), stack.ContainerSlurmctld, args...)
	require.NoError(c.t, err, stderr)
	id := submitted.FindString(out)
	require.NotEmpty(c.t, id, "sbatch printed %q", out)
	return id
}

// eventually waits until ok reports true; it fails with what ok said last.
func (c *cluster) eventually(what string, ok func() (bool, string)) {
	c.t.Helper()
	c.within(patience, 200*time.Millisecond, what, ok)
}

// within is eventually for what may take longer, or costs more to look at.
func (c *cluster) within(limit, pause time.Duration, what string, ok func() (bool, string)) {
	c.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		asked := time.Now()
		done, said := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(c.t, "waiting for "+what, "last seen: %s", said)
		}
		// Where asking is slow, those who wait must not keep the machine from what they wait for.
		time.Sleep(max(pause, 2*time.Since(asked)))
	}
}

// jobField returns a field of scontrol show job.
func (c *cluster) jobField(id, field string) string {
	c.t.Helper()
	for _, word := range strings.Fields(c.slurm("scontrol", "--oneliner", "show", "job", id)) {
		if key, value, _ := strings.Cut(word, "="); key == field {
			return value
		}
	}
	return ""
}

// waitJob waits until the job is in one of the states.
func (c *cluster) waitJob(id string, states ...string) {
	c.t.Helper()
	c.eventually("job "+id+" to be "+strings.Join(states, " or "), func() (bool, string) {
		state := c.jobField(id, "JobState")
		return slices.Contains(states, state), state + " " + c.jobField(id, "Reason")
	})
}

// nodeStates returns the state words of each node.
func (c *cluster) nodeStates(nodes string) map[string]powersave.NodeState {
	c.t.Helper()
	states := map[string]powersave.NodeState{}
	for _, line := range strings.Split(c.slurm("scontrol", "--oneliner", "show", "node", nodes), "\n") {
		var name string
		for _, word := range strings.Fields(line) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "NodeName":
				name = value
			case "State":
				states[name] = powersave.ParseNodeState(strings.Split(strings.TrimRight(value, "*~#%$@^!-"), "+"))
			}
		}
	}
	return states
}

// waitNodes waits until every node has all the words of has and none of hasNot.
func (c *cluster) waitNodes(nodes string, has, hasNot powersave.NodeState) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("nodes %s to be %s and not %s", nodes, has, hasNot), func() (bool, string) {
		states := c.nodeStates(nodes)
		for _, s := range states {
			if !s.Has(has) || s.Any(hasNot) {
				return false, fmt.Sprint(states)
			}
		}
		return len(states) > 0, fmt.Sprint(states)
	})
}

// slurmdPods returns the slurmd pods by node name.
func (c *cluster) slurmdPods() map[string]corev1.Pod {
	c.t.Helper()
	list, err := c.kube.CoreV1().Pods(c.ns).List(c.ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelNode})
	require.NoError(c.t, err)
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		pods[p.Name] = p
	}
	return pods
}

// restartSlurmctld ends slurmctld the way an administrator does (TERM), or the machine (KILL), and waits until it serves again.
// Killed, it forgets what it has not saved yet, which it does every 5 s (controller.c): callers wait for that.
func (c *cluster) restartSlurmctld(signal string) {
	c.t.Helper()
	restarts := func() int32 {
		pod, err := c.kube.CoreV1().Pods(c.ns).Get(c.ctx, "slurmctld-0", metav1.GetOptions{})
		require.NoError(c.t, err)
		for _, s := range pod.Status.ContainerStatuses {
			if s.Name == stack.ContainerSlurmctld {
				return s.RestartCount
			}
		}
		return 0
	}
	before := restarts()
	require.NoError(c.t, c.Signal(c.ctx, signal, stack.ContainerSlurmctld))
	c.eventually("slurmctld to end", func() (bool, string) { return restarts() > before, "" })
	require.NoError(c.t, c.WaitReady(c.ctx))
}

// status asks the bridge, the way people do.
func (c *cluster) status() bridge.Status {
	c.t.Helper()
	st, err := c.tryStatus()
	require.NoError(c.t, err)
	return st
}

// tryStatus is status for when the bridge may just be starting again.
func (c *cluster) tryStatus() (st bridge.Status, err error) {
	out, stderr, err := c.run(nil, stack.ContainerBridge, "/usr/local/bin/slurmtide", "status", "--spool", "/var/spool/slurmtide", "-o", "json")
	if err != nil && out == "" { // it ends with 3 when the bridge cannot read Slurm or Kubernetes
		return st, fmt.Errorf("%w: %s", err, stderr)
	}
	return st, json.Unmarshal([]byte(out), &st)
}

// waitZero waits until nothing is left of the nodes: no pod, records powered down, nothing in hand.
func (c *cluster) waitZero(nodes string) {
	c.t.Helper()
	c.waitNodes(nodes, powersave.NodePoweredDown, powersave.NodePoweringDown|powersave.NodePoweringUp)
	list, err := slurmconf.ParseHostlist(nodes)
	require.NoError(c.t, err)
	c.eventually("the pods of "+nodes+" to go", func() (bool, string) {
		var left []string
		for name := range c.slurmdPods() {
			if list.Contains(name) {
				left = append(left, name)
			}
		}
		return len(left) == 0, fmt.Sprint(left)
	})
	c.eventually("the bridge to be done with "+nodes, func() (bool, string) {
		st, err := c.tryStatus()
		if err != nil {
			return false, err.Error()
		}
		for _, b := range slices.Concat(st.Engine.Boots, st.Engine.Offs) {
			if list.Contains(b.Node) {
				return false, fmt.Sprintf("%+v", b)
			}
		}
		return st.Spool.Depth == st.Engine.Requests, fmt.Sprintf("%d requests in the spool", st.Spool.Depth)
	})
}

// settled is what must hold after every fault: the jobs, if any, have run, and once; the nodes are back at zero and can be used
// again; no pod is left, no request, no gate.
func (c *cluster) settled(nodes string, jobs ...string) {
	c.t.Helper()
	for _, id := range jobs {
		c.waitJob(id, "COMPLETED")
		assert.Equal(c.t, "0", c.jobField(id, "Restarts"), "job %s", id)
	}
	c.waitZero(nodes)
	// Not NOT_RESPONDING: UNDRAIN sets it (node_mgr.c _require_node_reg), it stays while the node is off, and Slurm chooses it all the same.
	c.waitNodes(nodes, powersave.NodeIdle|powersave.NodePoweredDown, powersave.NodeDown|powersave.NodeDrain|powersave.NodeFail|powersave.NodeInvalidReg)
	c.waitGates(0)
	assert.Zero(c.t, c.gateProcesses())
	c.eventually("nothing to be left in the spool", func() (bool, string) {
		left := c.slurm("find", "/var/spool/slurmtide/requests", "/var/spool/slurmtide/bad", "-type", "f")
		return left == "", left
	})
}

// log is what a container of the control plane has logged since it started.
func (c *cluster) log(container string) string {
	c.t.Helper()
	log, err := c.kube.CoreV1().Pods(c.ns).GetLogs("slurmctld-0", &corev1.PodLogOptions{Container: container}).DoRaw(c.ctx)
	require.NoError(c.t, err)
	return string(log)
}
