//go:build integration && controlplane && charts

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/powersave"
)

// storyValues are those of chart slurm for a site with accounting, login pods and a portal. VERSION is Slurm's; SHAPES are records by which an older one takes jobs for nodes
// that are still to register (docs/dynamic.md).
const storyValues = `
image: {tag: "VERSION"}
controller:
  hosts: {enabled: true}
  spec:
    persistence: {existingClaim: state}
    extraConf: "SuspendTime=5\nSuspendTimeout=40\nResumeTimeout=180\nMessageTimeout=20\nSHAPES"
accounting:
  enabled: true
  spec: {storageConfig: {host: mariadb, passwordKeyRef: {name: mariadb, key: password}}}
restApi: {spec: {replicas: 2}}
tokens:
  portal: {spec: {username: slurm}}
loginSets:
  tide: {spec: {authorizedKeysRefs: [{name: keys}], usersRef: {name: users}}}
nodeSets:
  cpu:
    spec:
      nodeNames: "cpu-[0-2]"
      shape: {cpus: 2, realMemory: 400}
      partition: {config: Default=YES}
      updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
    slurmd: &small {resources: {requests: {cpu: 10m, memory: 20Mi}}}
  slow:
    spec:
      nodeNames: "slow-[0-1]"
      shape: {cpus: 2, realMemory: 400}
      partition: {}
      template: {spec: {initContainers: [{name: dawdle, image: "slurmtide/slurm:VERSION", imagePullPolicy: IfNotPresent, command: [sleep, "25"]}]}}
    slurmd: *small
  dyn:
    spec:
      mode: Dynamic
      nodeNames: "dyn-[0-1]"
      shape: {cpus: 2, realMemory: 400, features: [dyn]}
      partition: {}
      suspend: {idleTime: 5s}
    slurmd: *small
`

// TestControlPlaneStory is a site's first day: three charts, a user, a job, its record, a portal, changes, an accident, an update under load, and the end.
func TestControlPlaneStory(t *testing.T) {
	newestFirst(t, testStory)
}

func testStory(t *testing.T, version string) {
	c := newStory(t, version, "story-")
	helm(t, "version") // it is built before the clock runs
	began := time.Now()
	for _, chart := range []string{"slurmtide-crds", "slurmtide", "slurm"} {
		c.upgrade(chart, "helm/"+chart, "dev")
	}
	c.waitSinfo()
	took := time.Since(began)
	t.Logf("from helm install to sinfo: %v", took.Round(100*time.Millisecond))
	c.waitUp()
	c.part("a job by ssh, and its record", c.testUsersJob)
	c.part("a portal", func(t *testing.T) {
		refused, body := c.askNodes(c.issued("portal"))
		assert.Empty(t, refused)
		assert.Contains(t, body, `"cpu-0"`)
	})
	c.part("nodes that register themselves", c.testSelfRegistered)
	c.waitZero("cpu-[0-2]")
	c.part("another configuration under a job", c.testConfigUnderJob)
	c.part("slurmctld's pod is killed", c.testKilled)
	c.part("a rolling update under load", c.testRolls)
	c.part("another cluster beside it", c.testAnother)
	c.part("uninstall", c.testGone)
	assert.Less(t, took, installLimit) // last, for what it says of the machine
}

// newStory makes both namespaces, a database, a pod with an ssh client, and what the values name.
func newStory(t *testing.T, version, prefix string) *charts {
	c := &charts{plane: newPlane(t, version, prefix)}
	c.describeLogin()
	c.namespaces()
	c.uninstallAtEnd()
	c.writeValues(version)
	db := newMariaDB(c.plane)
	db.dir = "" // Pod Security wants no directories of the host
	db.start()
	c.createVolume("state")
	_, err := c.kube.CoreV1().PersistentVolumeClaims(c.ns).Create(c.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "state"}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.createSecret("mariadb", map[string][]byte{"password": []byte(mariadbPassword)})

	const client = "client"
	c.client = func(command ...string) (stdout, stderr string, err error) {
		return c.ExecPod(c.ctx, client, nil, client, command...)
	}
	_, err = c.kube.CoreV1().Pods(c.ns).Create(c.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: client}, Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: client, Image: "slurmtide/slurm:" + version, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "infinity"}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var key string
	c.eventually("the client's pod to make a key", func() (bool, string) {
		out, said, err := c.client("sh", "-c", "ssh-keygen -q -t ed25519 -N '' -C alice -f /tmp/alice </dev/null >&2; cat /tmp/alice.pub")
		key = out
		return err == nil, fmt.Sprint(said, err)
	})
	c.createConfigMap("keys", map[string]string{"alice": key})
	c.createConfigMap("users", map[string]string{"passwd": "alice:x:2001:2001:Alice:/home/alice:/bin/bash\n", "group": "alice:x:2001:\n"})
	return c
}

// writeValues has chart slurm take images of this Slurm from now on.
func (c *charts) writeValues(version string) {
	c.t.Helper()
	if c.values == "" {
		c.values = filepath.Join(c.t.TempDir(), "values.yaml")
	}
	shapes := ""
	if version == "24.11" {
		shapes = `NodeName=dyn-shape-[0-1] NodeAddr=127.0.0.1 CPUs=2 RealMemory=400 Feature=dyn State=DOWN Reason=shape\n`
	}
	require.NoError(c.t, os.WriteFile(c.values, []byte(strings.NewReplacer("VERSION", version, "SHAPES", shapes).Replace(storyValues)), 0o600))
}

// upgrade installs or upgrades one of the three charts that is in dir, with the daemons' image of a tag.
func (c *charts) upgrade(chart, dir, tag string, more ...string) {
	c.t.Helper()
	args := []string{"upgrade", "--install", chart, dir, "-n", daemons}
	switch chart {
	case "slurmtide-crds":
		args = append(args, "--wait", "--take-ownership")
	case "slurmtide":
		args = append(args, "--set", "image.tag="+tag)
	case "slurm":
		args = []string{"upgrade", "--install", "tide", dir, "-n", c.ns, "-f", c.values}
	}
	helm(c.t, append(args, more...)...)
}

func (c *charts) waitSinfo() {
	c.t.Helper()
	c.eventually("sinfo to answer", func() (bool, string) {
		out, said, err := c.run(nil, "slurmctld", "sinfo", "-h", "-o", "%P %D %t")
		return strings.Contains(out, "cpu* 3 idle~"), fmt.Sprint(out, said, err)
	})
}

// waitUp waits until everything answers.
func (c *charts) waitUp() {
	c.t.Helper()
	c.waitInForce()
	for _, kind := range []string{"controller", "accounting", "restapi", "loginset"} {
		runKubectl(c.t, "-n", c.ns, "wait", "--for=condition=Available", kind+"/tide", "--timeout=4m")
	}
}

// testUsersJob has alice come for the first time.
func (c *charts) testUsersJob(t *testing.T) {
	_, err := c.ssh("alice", "alice", "true", "-o", "StrictHostKeyChecking=accept-new")
	require.NoError(t, err)
	began := time.Now()
	id := c.alicesJob("srun hostname", "-N2 --ntasks-per-node=1")
	c.waitJob(id, "COMPLETED")
	t.Logf("alice's 2-node job from zero: %v", time.Since(began).Round(100*time.Millisecond))
	assert.Equal(t, "0", c.jobField(id, "Restarts"))
	c.within(3*time.Minute, time.Second, "sacct to show the job", func() (bool, string) {
		out, err := c.ssh("alice", "alice", "sacct -n -P -X -j "+id+" -o User,State,ExitCode,NNodes")
		return out == "alice|COMPLETED|0:0|2", fmt.Sprint(out, err)
	})
}

// alicesJob is the number of one that she submits.
func (c *charts) alicesJob(script, options string) string {
	c.t.Helper()
	id := submitted.FindString(c.alice("sbatch --parsable --chdir=/tmp --output=/dev/null " + options + " --wrap='" + script + "'"))
	require.NotEmpty(c.t, id)
	return id
}

// testSelfRegistered has a job wait until nodes have come of which slurm.conf knows nothing.
func (c *charts) testSelfRegistered(*testing.T) {
	id := c.alicesJob("srun hostname", "-p dyn -N2 --ntasks-per-node=1")
	c.waitJob(id, "COMPLETED")
	assert.Equal(c.t, "dyn-[0-1]", c.jobField(id, "NodeList"))
	c.eventually("their records and pods to go", func() (bool, string) {
		out := c.slurm("sinfo", "-h", "-N", "-p", "dyn", "-o", "%N")
		return !strings.Contains(out, "dyn-0") && !strings.Contains(out, "dyn-1") && len(c.slurmdPods()) == 0, fmt.Sprint(out, c.podUIDs())
	})
}

func (c *charts) testConfigUnderJob(t *testing.T) {
	before := c.restarts()
	id := c.sbatch("srun sleep 30", "-N2")
	c.waitJob(id, "RUNNING")
	c.upgrade("slurm", "helm/slurm", "", "--set-string", `controller.spec.extraConf=`+strings.Replace(c.controller().Spec.ExtraConf, "SuspendTime=5\n", "SuspendTime=7\n", 1))
	c.waitInForce()
	assert.Equal(t, "7 sec", c.setting("SuspendTime"))
	c.eventually("the login pod to have it", func() (bool, string) {
		out, err := c.ssh("alice", "alice", "scontrol show config | grep '^SuspendTime '; grep -c '^SuspendTime=7$' /run/slurm/conf/slurm.conf")
		return err == nil && strings.Contains(out, "7 sec\n1"), fmt.Sprint(out, err)
	})
	c.waitJob(id, "COMPLETED")
	assert.Equal(t, "0", c.jobField(id, "Restarts"))
	assert.Equal(t, before, c.restarts())
	c.waitZero("cpu-[0-2]")
}

// testRolls changes the template of the nodes under an array that is larger than they are.
func (c *charts) testRolls(t *testing.T) {
	id := c.sbatch("sleep 8", "--array=1-24", "--exclusive", "--requeue", "-N1")
	c.waitNodes("cpu-[0-2]", powersave.NodeAllocated, powersave.NodePoweringUp|powersave.NodePoweredDown)
	uids := c.podUIDs()
	began := time.Now()
	c.upgrade("slurm", "helm/slurm", "", "--set", "nodeSets.cpu.spec.template.metadata.annotations.test=two")
	running := true
	c.rolls(1, func() bool {
		running = c.slurm("squeue", "--noheader", "--array", "--jobs="+id, "--format=%t") != ""
		return c.allUpdated(3) || !running
	})
	assert.True(t, running, "the update ends while jobs wait")
	t.Logf("three busy nodes after %v", time.Since(began).Round(time.Second))
	for name, uid := range uids {
		assert.NotEqual(t, uid, c.podUIDs()[name], name)
	}
	c.allCompleted(id, 24)
	c.waitUpdated(metav1.ConditionTrue, "UpToDate")
	c.waitZero("cpu-[0-2]")
}

// allCompleted waits until all tasks of an array are done, none of them twice.
func (c *charts) allCompleted(id string, tasks int) {
	c.t.Helper()
	c.within(4*time.Minute, time.Second, "the tasks to be done", func() (bool, string) {
		left := c.slurm("squeue", "--noheader", "--array", "--jobs="+id, "--format=%i %t %r")
		return left == "", left
	})
	all := strings.Split(c.slurm("scontrol", "--oneliner", "show", "job", id), "\n")
	assert.Len(c.t, all, tasks)
	for _, task := range all {
		assert.Contains(c.t, task, "JobState=COMPLETED")
		assert.Contains(c.t, task, " Restarts=0 ")
	}
}

// testAnother has another release make a cluster in the same namespace. Neither learns of the other.
func (c *charts) testAnother(t *testing.T) {
	before := c.restarts()
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(`
image: {tag: "`+c.version+`"}
controller: {spec: {persistence: {enabled: false}, extraConf: "SuspendTime=5\nResumeTimeout=120\n"}}
nodeSets:
  wave:
    spec: {nodeNames: "wave-[0-1]", shape: {cpus: 2, realMemory: 400}, partition: {config: Default=YES}}
    slurmd: {resources: {requests: {cpu: 10m, memory: 20Mi}}}
`), 0o600))
	helm(t, "install", "wave", "helm/slurm", "-n", c.ns, "-f", values)
	wave := func(command ...string) (string, error) {
		out, said, err := c.ExecPod(c.ctx, "wave-controller-0", nil, stack.ContainerSlurmctld, command...)
		return strings.TrimSpace(out + said), err
	}
	c.eventually("its sinfo to answer", func() (bool, string) {
		out, err := wave("sinfo", "-h", "-o", "%P %D %t")
		return out == "wave* 2 idle~", fmt.Sprint(out, err)
	})
	here := c.sbatch("srun hostname", "-N2", "--ntasks-per-node=1")
	id, err := wave("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "-N2", "--wrap=srun hostname")
	require.NoError(t, err, id)
	c.eventually("its job to end", func() (bool, string) {
		out, err := wave("scontrol", "--oneliner", "show", "job", id)
		return err == nil && strings.Contains(out, "JobState=COMPLETED") && strings.Contains(out, " Restarts=0 ") && strings.Contains(out, " NodeList=wave-[0-1] "), out
	})
	c.waitJob(here, "COMPLETED")
	helm(t, "uninstall", "wave", "-n", c.ns, "--wait")
	c.eventually("it to go", func() (bool, string) {
		left := runKubectl(t, "-n", c.ns, "get", "controllers,nodesets,restapis,statefulsets,secrets,configmaps,pods", "-l", "slurmtide.io/controller=wave", "-o", "name")
		return left == "", left
	})
	assert.Equal(t, before, c.restarts())
	c.waitZero("cpu-[0-2]")
}

// testGone uninstalls the charts. What stays is what was there before, and slurmctld's state.
func (c *charts) testGone(t *testing.T) {
	helm(t, "uninstall", "tide", "-n", c.ns, "--wait")
	kept := []string{
		"configmap/keys", "configmap/kube-root-ca.crt", "configmap/users", "persistentvolumeclaim/state", "pod/client", "pod/mariadb",
		"secret/mariadb", "secret/mariadb-tls", "secret/slurmdbd-tls", "service/mariadb", "serviceaccount/default",
	}
	c.eventually("all else to go", func() (bool, string) {
		left := slices.DeleteFunc(c.left(t, c.ns), func(name string) bool { return strings.HasPrefix(name, "endpointslice.") })
		left = append(left, strings.Fields(runKubectl(t, "get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/instance=tide", "-o", "name"))...)
		return slices.Equal(kept, left), strings.Join(left, " ")
	})
	helm(t, "uninstall", "slurmtide", "-n", daemons, "--wait")
	c.eventually("the daemons to go", func() (bool, string) {
		left := c.leftOfDaemons(t)
		return len(left) == 0, strings.Join(left, " ")
	})
}
