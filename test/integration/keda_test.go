//go:build integration && keda

package integration

import (
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// examples are the manifests that the user guide offers.
const examples = guide + "keda/"

// kedaNodes are the node names in the examples.
const kedaNodes = "cpu-[0-49]"

// deployKEDA puts up a stack with the names that the examples have, and the scaler.
func deployKEDA(t *testing.T, version string, o stack.Options, sets ...nodeSet) *cluster {
	t.Helper()
	o.Namespace, o.ClusterName, o.OpenSlurmrestd = "slurm", "tide", true
	c := deploy(t, "keda", version, o, sets...)
	kubectl(t, "", "apply", "-f", examples+"scaler.yaml")
	c.scaleScaler(1)
	return c
}

// forEachVersionInTurn is for tests that use one namespace.
func forEachVersionInTurn(t *testing.T, test func(t *testing.T, version string)) {
	for _, v := range versions() {
		t.Run(v, func(t *testing.T) { test(t, v) })
	}
}

// Real KEDA scales a NodeSet of a real Slurm, with the manifests of the user guide as they are.
func TestKEDAScales(t *testing.T) { forEachVersionInTurn(t, kedaScales) }

// The same where nodes register themselves. slurmctld cannot power up what it does not know: the job waits until the nodes are there.
func TestKEDADynamic(t *testing.T) {
	forEachVersionInTurn(t, func(t *testing.T, version string) {
		o := stack.Options{
			NodeLines:      []string{"NodeSet=dyn Feature=dyn"},
			PartitionLines: []string{"PartitionName=dyn Nodes=dyn Default=YES"},
			ExtraConf:      []string{"MaxNodeCount=64", "SuspendExcStates=DYNAMIC_NORM"},
		}
		if version == "24.11" { // refuses jobs for more nodes than it has records of, see docs/dynamic.md
			o.NodeLines = append(o.NodeLines, "NodeName=shape-[0-9] CPUs=2 RealMemory=400 Feature=dyn State=DOWN Reason=shape")
		}
		c := deployKEDA(t, version, o, nodeSet{name: "cpu", nodes: kedaNodes, dynamic: true})
		c.scaledObject("scaledobject-push.yaml")
		k := c.follow()
		id := c.sbatch("sleep 40", "-N10", "--exclusive")
		c.kedaFigure("Dynamic: sbatch to a 10-node job running", version, c.untilRunning(id, k.began), 25*time.Second)
		k.reaches(10)
		c.kedaFigure("Dynamic: sbatch to replicas 10", version, k.took(10), 25*time.Second)
		c.waitJob(id, "COMPLETED")
		k.reaches(0)
		c.waitNothing()
		assert.LessOrEqual(c.t, k.most(), int32(10), "KEDA and the bridge want the same nodes: %s", k)
	})
}

func kedaScales(t *testing.T, version string) {
	c := deployKEDA(t, version, stack.Options{Gate: true}, nodeSet{name: "cpu", nodes: kedaNodes})
	sub := func(name string, test func()) {
		t.Run(name, func(t *testing.T) {
			c.t = t
			test()
		})
		c.t = t
	}

	sub("mistakes in a trigger", func() {
		for name, tc := range map[string]struct{ from, to, want string }{
			"unknown key":      {"nodeSet: cpu", "nodeset: cpu", "trigger metadata: nodeset: there is no such key (did you mean nodeSet?)"},
			"impossible value": {`target: "1"`, `target: "0"`, "trigger metadata: target: 0 is not a number from 0.001 to 1000000000"},
			"unknown NodeSet":  {"nodeSet: cpu", "nodeSet: cup", `trigger metadata: nodeSet: there is no NodeSet "cup" (did you mean cpu?); there are cpu`},
		} {
			text, err := os.ReadFile(examples + "scaledobject-push.yaml")
			require.NoError(c.t, err)
			require.Contains(c.t, string(text), tc.from, name)
			kubectl(c.t, "", "-n", c.ns, "delete", "scaledobject", "cpu", "--ignore-not-found")
			kubectl(c.t, strings.Replace(string(text), tc.from, tc.to, 1), "apply", "-f", "-")
			c.eventually("the ScaledObject to say what is wrong: "+name, func() (bool, string) {
				out := kubectl(c.t, "", "-n", c.ns, "describe", "scaledobject", "cpu")
				return strings.Contains(out, tc.want), out
			})
			c.kedaCondition("Ready", "False")
		}
	})
	c.scaledObject("scaledobject-push.yaml")
	sub("push, one node", func() {
		k := c.follow()
		id := c.sbatch("sleep 5", "-N1")
		k.reaches(1)
		c.kedaFigure("push: sbatch to replicas 1", version, k.took(1), 10*time.Second)
		c.waitJob(id, "COMPLETED")
		k.reaches(0)
		c.waitZero(kedaNodes)
	})
	sub("push, a job of ten nodes", func() {
		k := c.follow()
		id := c.sbatch("sleep 40", "-N10", "--exclusive")
		c.kedaFigure("Cloud: sbatch to a 10-node job running", version, c.untilRunning(id, k.began), 6*time.Second)
		k.reaches(10)
		c.kedaFigure("push: sbatch to replicas 10", version, k.took(10), 25*time.Second)
		c.waitJob(id, "COMPLETED")
		k.reaches(0)
		c.waitZero(kedaNodes)
		assert.LessOrEqual(c.t, k.most(), int32(11), "Slurm and KEDA ask for the same nodes but for one, which KEDA may wake before slurmctld has chosen: %s", k)
	})
	sub("push, an array", func() {
		k := c.follow()
		id := c.sbatch("sleep 20", "--array=1-8%6", "-N1", "--exclusive")
		k.reaches(6)
		c.within(kedaPatience, time.Second, "the array to end", func() (bool, string) {
			out := c.slurm("squeue", "--noheader", "--array", "--states=all", "--format=%T", "--jobs", id)
			return strings.Count(out, "COMPLETED") == 8, out
		})
		k.reaches(0)
		assert.LessOrEqual(c.t, k.most(), int32(7), "%s", k)
		c.waitZero(kedaNodes)
	})

	c.scaledObject("scaledobject-poll.yaml")
	sub("poll", func() {
		k := c.follow()
		id := c.sbatch("sleep 30", "-N3", "--exclusive")
		k.reaches(1)
		c.kedaFigure("poll: sbatch to replicas 1", version, k.took(1), 10*time.Second)
		k.reaches(3)
		c.waitJob(id, "COMPLETED")
		k.reaches(0)
	})
	sub("no scaler", func() {
		k := c.follow()
		id := c.sbatch("sleep 300", "-N3", "--exclusive")
		k.powersUp(3)
		c.scaleScaler(0)
		c.kedaCondition("Ready", "False")
		k.stays(45 * time.Second)
		assert.Equal(c.t, "RUNNING", c.jobField(id, "JobState"))
		c.scaleScaler(1)
		c.kedaCondition("Ready", "True")
		k.stays(20 * time.Second)
		c.slurm("scancel", id)
		k.reaches(0)
	})
	c.scaledObject("scaledobject-push.yaml")
	sub("no slurmctld", func() {
		k := c.follow()
		id := c.sbatch("sleep 300", "-N3", "--exclusive")
		k.powersUp(3)
		require.NoError(c.t, c.Signal(c.ctx, "STOP", stack.ContainerSlurmctld))
		c.kedaCondition("Ready", "False")
		k.stays(45 * time.Second)
		require.NoError(c.t, c.Signal(c.ctx, "CONT", stack.ContainerSlurmctld))
		c.kedaCondition("Ready", "True")
		assert.Equal(c.t, "RUNNING", c.jobField(id, "JobState"))
		// With a fallback that is never fewer than there are. (KEDA 2.21 may take an error for no need when a ScaledObject is edited while polls fail.)
		kubectl(c.t, "", "-n", c.ns, "patch", "scaledobject", "cpu", "--type=merge", "-p",
			`{"spec":{"fallback":{"failureThreshold":2,"replicas":2,"behavior":"currentReplicasIfHigher"}}}`)
		k.stays(15 * time.Second)
		require.NoError(c.t, c.Signal(c.ctx, "STOP", stack.ContainerSlurmctld))
		c.kedaCondition("Fallback", "True")
		k.stays(30 * time.Second)
		require.NoError(c.t, c.Signal(c.ctx, "CONT", stack.ContainerSlurmctld))
		c.kedaCondition("Ready", "True")
		assert.Equal(c.t, "RUNNING", c.jobField(id, "JobState"))
		k.stays(20 * time.Second)
		c.slurm("scancel", id)
		k.reaches(0)
		c.waitZero(kedaNodes)
	})
	c.scaledObject("scaledobject-push.yaml") // without a fallback
	sub("mutual TLS", func() {               // the last: the scaler stays like that
		serverCert, serverKey, _ := selfSigned(c.t, "slurmtide-scaler.slurm", x509.ExtKeyUsageServerAuth)
		clientCert, clientKey, _ := selfSigned(c.t, "keda", x509.ExtKeyUsageClientAuth)
		for name, files := range map[string][3]string{"slurmtide-scaler-tls": {serverCert, serverKey, clientCert}, "slurmtide-scaler-client": {clientCert, clientKey, serverCert}} {
			kubectl(c.t, "", "-n", c.ns, "create", "secret", "generic", name, "--from-file=tls.crt="+files[0], "--from-file=tls.key="+files[1], "--from-file=ca.crt="+files[2])
		}
		kubectl(c.t, "", "-n", c.ns, "patch", "deployment", "slurmtide-scaler", "--patch-file", examples+"tls/deployment.patch.yaml")
		kubectl(c.t, "", "-n", c.ns, "rollout", "status", "deployment/slurmtide-scaler", fmt.Sprintf("--timeout=%v", patience))
		c.kedaCondition("Ready", "False") // KEDA knows of no TLS yet
		kubectl(c.t, "", "apply", "-f", examples+"tls/authentication.yaml")
		text, err := os.ReadFile(examples + "scaledobject-push.yaml")
		require.NoError(c.t, err)
		const trigger = "  - type: external-push\n"
		require.Contains(c.t, string(text), trigger)
		kubectl(c.t, strings.Replace(string(text), trigger, trigger+"    authenticationRef: {name: slurmtide-scaler}\n", 1), "apply", "-f", "-")
		c.kedaCondition("Ready", "True")
		k := c.follow()
		id := c.sbatch("sleep 5", "-N1")
		k.reaches(1)
		c.kedaFigure("push over mutual TLS: sbatch to replicas 1", version, k.took(1), 10*time.Second)
		c.waitJob(id, "COMPLETED")
		k.reaches(0)
	})
}

// scaledObject replaces the ScaledObject cpu by that of an example, and waits until KEDA has taken it.
func (c *cluster) scaledObject(file string) {
	c.t.Helper()
	kubectl(c.t, "", "-n", c.ns, "delete", "scaledobject", "cpu", "--ignore-not-found")
	kubectl(c.t, "", "apply", "-f", examples+file)
	c.kedaCondition("Ready", "True")
}

// kedaCondition waits for a condition of the ScaledObject cpu.
func (c *cluster) kedaCondition(condition, status string) {
	c.t.Helper()
	c.scaledObjectIs("cpu", condition, status)
}

func (c *cluster) scaledObjectIs(name, condition, status string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("ScaledObject %s to be %s=%s", name, condition, status), func() (bool, string) {
		out := kubectl(c.t, "", "-n", c.ns, "get", "scaledobject", name, "-o", `jsonpath={range .status.conditions[*]}{.type}={.status} {.message}{"\n"}{end}`)
		return strings.Contains(out, condition+"="+status), out
	})
}

// scaleScaler stops the scaler, or starts it again.
func (c *cluster) scaleScaler(replicas int) {
	c.t.Helper()
	kubectl(c.t, "", "-n", c.ns, "scale", "deployment", "slurmtide-scaler", fmt.Sprintf("--replicas=%d", replicas))
	c.eventually(fmt.Sprintf("%d scalers", replicas), func() (bool, string) {
		list, err := c.kube.CoreV1().Pods(c.ns).List(c.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=slurmtide-scaler"})
		require.NoError(c.t, err)
		ready := 0
		for _, p := range list.Items {
			for _, s := range p.Status.ContainerStatuses {
				if s.Ready {
					ready++
				}
			}
		}
		return ready == replicas && len(list.Items) == replicas, fmt.Sprintf("%d pods, %d ready", len(list.Items), ready)
	})
}

// untilRunning is the time from began until the job runs, its nodes included.
func (c *cluster) untilRunning(id string, began time.Time) time.Duration {
	c.t.Helper()
	c.within(patience, 100*time.Millisecond, "job "+id+" to run", func() (bool, string) {
		out := c.slurm("squeue", "--noheader", "--jobs", id, "--format=%T")
		return out == "RUNNING", out
	})
	return time.Since(began)
}
