//go:build integration && controlplane

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/generated/clientset/versioned"
)

const controllerManifest = "../../docs/examples/controller.yaml"

// plane is a Slurm cluster that `slurmtide controller` has made.
type plane struct {
	*cluster
	version string
	client  func(command ...string) (stdout, stderr string, err error) // runs a command there where users come from by ssh
}

// TestControlPlane has slurmtide controller, in a pod with the rights of docs/examples alone, make Slurm clusters of a few objects.
func TestControlPlane(t *testing.T) {
	withController(t)
	for _, version := range slices.Backward(versions()) {
		t.Run(version, func(t *testing.T) { testControlPlane(t, version) })
		t.Run("backups "+version, func(t *testing.T) { testBackups(t, version) })
		t.Run("accounting "+version, func(t *testing.T) { testAccounting(t, version) })
	}
}

// withController has slurmtide controller run, with the rights of docs/examples alone, until the test ends.
func withController(t *testing.T) {
	t.Helper()
	runKubectl(t, "apply", "--server-side", "--force-conflicts", "-f", controllerManifest)
	t.Cleanup(func() { runKubectl(t, "delete", "--timeout=2m", "-f", controllerManifest) })
}

// newestFirst runs a test with one version of Slurm after the other; versions begins with the oldest.
func newestFirst(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range slices.Backward(versions()) {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

func testControlPlane(t *testing.T, version string) {
	p := newPlane(t, version, "control-")
	p.createVolume(moreClaim)
	t.Run("validation", p.testValidation)
	p.t = t
	began := time.Now()
	p.createController("SuspendTime=5\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\n", func(c *v1alpha1.Controller) {
		c.Spec.Slurmctld.LivenessProbe = &v1alpha1.ProbeOptions{PeriodSeconds: 15, FailureThreshold: 20}
	})
	p.createSet("cpu", "cpu-[0-2]")
	_, err := p.tide.SlurmtideV1alpha1().RestApis(p.ns).Create(p.ctx, &v1alpha1.RestApi{
		ObjectMeta: metav1.ObjectMeta{Name: "tide"}, Spec: v1alpha1.RestApiSpec{
			ControllerRef: v1alpha1.ObjectRef{Name: "tide"}, Slurmrestd: &v1alpha1.DaemonOptions{LivenessProbe: &v1alpha1.ProbeOptions{PeriodSeconds: 1}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.createToken("portal", nil)
	p.createToken("short", &metav1.Duration{Duration: time.Minute})
	p.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	t.Logf("slurmctld answers after %v", time.Since(began).Round(100*time.Millisecond))
	p.waitInForce()
	p.eventually("sinfo to show the nodes", func() (bool, string) {
		out := p.slurm("sinfo", "-h", "-o", "%P %D %t")
		return strings.Contains(out, "cpu* 3 idle~"), out
	})

	// Debian's slurmctld stands still while it looks for a name that has no address.
	out, stderr, err := p.run(nil, stack.ContainerSlurmctld, "getent", "hosts", "cpu-0")
	require.NoError(t, err, "the name of a node that is off has no address: %s%s", out, stderr)
	p.try("a job from zero and back", func(t *testing.T) {
		began := time.Now()
		id := p.sbatch("srun hostname", "-N2", "--ntasks-per-node=1")
		p.waitJob(id, "COMPLETED")
		t.Logf("a 2-node job from zero: %v", time.Since(began).Round(100*time.Millisecond))
		assert.Equal(t, "0", p.jobField(id, "Restarts"))
		p.waitZero("cpu-[0-2]")
	})
	p.try("slurmrestd takes the token", p.testRestAPI)
	p.try("slurmrestd takes tokens of others", p.testJWKS)
	p.try("probes that are set", p.testProbes)
	short := p.issued("short")
	p.try("extraConf changes in place", p.testChange)
	p.try("files and scripts", p.testFiles)
	p.try("slurmctld's metrics", p.testMetrics)
	p.try("extraConf that slurmctld refuses", p.testRefused)
	p.try("extraConf that ends slurmctld", p.testEnds)
	p.try("a token is followed by another", func(t *testing.T) { p.testRefresh(t, short) })
	p.try("a larger volume", p.testVolume)
	p.try("a key is lost", p.testKeyLost)
	p.try("another daemon's namespace", p.testAnotherDaemon)
	p.try("another daemon takes over", p.testTakesOver)
	p.try("bad input", p.testBadInput)
	p.try("features and weight", func(t *testing.T) {
		before := p.restarts()
		set, err := p.tide.SlurmtideV1alpha1().NodeSets(p.ns).Get(p.ctx, "cpu", metav1.GetOptions{})
		require.NoError(t, err)
		set.Spec.Shape.Features, set.Spec.Shape.Weight = []string{"fast", "gen4"}, new(int32(7))
		_, err = p.tide.SlurmtideV1alpha1().NodeSets(p.ns).Update(p.ctx, set, metav1.UpdateOptions{})
		require.NoError(t, err)
		p.eventually("slurmctld to know them", func() (bool, string) {
			out := p.slurm("sinfo", "-h", "-o", "%P %f %w")
			return strings.Contains(out, "cpu* fast,gen4 7"), out
		})
		assert.Equal(t, before, p.restarts(), "without a restart")
		p.waitJob(p.sbatch("hostname", "--constraint=fast&gen4"), "COMPLETED")
	})
	p.try("another NodeSet", func(*testing.T) {
		p.createSet("more", "more-[0-1]", withClaim, withShm, p.withScripts, withGrace)
		p.eventually("its nodes", func() (bool, string) {
			out := p.slurm("sinfo", "-h", "-o", "%P %D %t")
			return strings.Contains(out, "more 2 idle~"), out
		})
		id := p.sbatch("echo here >/scratch/file", "-p", "more", "--nodelist=more-0")
		p.waitJob(id, "COMPLETED")
	})
	p.try("a volume stays with its node", func(*testing.T) {
		p.waitZero("more-[0-1]")
		p.waitJob(p.sbatch("test -e /scratch/file", "-p", "more", "--nodelist=more-0"), "COMPLETED")
	})
	p.try("a larger /dev/shm", func(*testing.T) { // it has 64 MiB without
		p.waitJob(p.sbatch(`[ "$(df -k --output=size,fstype /dev/shm | tail -n 1 | xargs)" = "98304 tmpfs" ]`, "-p", "more"), "COMPLETED")
	})
	p.try("scripts of the nodes", p.testScripts)
	p.try("a NodeSet goes under a job", p.testSetGoes)
	p.try("nodes follow hosts", p.testEachHost)
	p.try("TLS of the bridge", p.testTLS)
	p.try("at rest nothing is written", p.testRest)
	p.try("deleted and made again", p.testAgain)
	p.try("deleted", p.testDeleted)
}

// newPlane makes a namespace called prefix and the version.
func newPlane(t *testing.T, version, prefix string) *plane {
	return newPlaneIn(t, version, prefix+strings.ReplaceAll(version, ".", ""))
}

func newPlaneIn(t *testing.T, version, ns string) *plane {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(t, err, "KUBECONFIG must name the test cluster")
	config.QPS, config.Burst = 100, 200
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	c := &cluster{t: t, ctx: ctx, ns: ns}
	c.kube, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	c.tide, err = versioned.NewForConfig(config)
	require.NoError(t, err)
	// For its way to run commands in pods.
	c.Stack, err = stack.Open(config, stack.Options{Namespace: ns, ClusterName: "tide", SlurmVersion: version, NodeLines: []string{"-"}})
	require.NoError(t, err)
	c.run = func(stdin io.Reader, container string, command ...string) (stdout, stderr string, err error) {
		return c.ExecPod(ctx, "tide-controller-0", stdin, container, command...)
	}
	p := &plane{cluster: c, version: version}
	p.client = func(command ...string) (stdout, stderr string, err error) {
		return p.run(nil, stack.ContainerSlurmctld, command...)
	}
	p.deleteNamespace(ctx)
	_, err = c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.createVolume("statesave-tide-controller-0")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		if t.Failed() {
			asked := [][]string{
				{"-n", ns, "get", "accountings,controllers,restapis,tokens,nodesets,pods,events", "-o", "wide"},
				{"-n", "slurmtide-system", "get", "pods", "-o", "wide"}, {"-n", "slurmtide-system", "logs", "deploy/slurmtide-controller", "--tail=60"},
			}
			for _, pod := range []string{firstPod, backupPod} {
				for _, container := range []string{"config", "slurmctld", "reconfigure", "slurmrestd", "bridge"} {
					asked = append(asked, []string{"-n", ns, "logs", pod, "-c", container, "--tail=60"})
				}
			}
			for _, args := range asked {
				out, err := askKubectl(ctx, args...)
				t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
		assertNoSecrets(ctx, t, c.kube, ns)
		p.deleteNamespace(ctx)
	})
	return p
}

func (p *plane) deleteNamespace(ctx context.Context) {
	err := p.kube.CoreV1().Namespaces().Delete(ctx, p.ns, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		require.NoError(p.t, err)
	}
	for ; err == nil; time.Sleep(200 * time.Millisecond) {
		_, err = p.kube.CoreV1().Namespaces().Get(ctx, p.ns, metav1.GetOptions{})
	}
	require.True(p.t, apierrors.IsNotFound(err), "%v", err)
}

// createVolume makes a directory of this machine the volume for a claim.
func (p *plane) createVolume(claim string) {
	dir, err := os.MkdirTemp("/var/tmp", p.ns+"-")
	require.NoError(p.t, err)
	require.NoError(p.t, os.Chmod(dir, 0o777))
	name := claim + "-" + p.ns
	p.t.Cleanup(func() {
		_ = p.kube.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(p.ctx), name, metav1.DeleteOptions{})
		_ = os.RemoveAll(dir)
	})
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: p.ns, Name: claim},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		},
	}
	_ = p.kube.CoreV1().PersistentVolumes().Delete(p.ctx, name, metav1.DeleteOptions{}) // of an interrupted run
	p.eventually("the volume to be made", func() (bool, string) {
		_, err := p.kube.CoreV1().PersistentVolumes().Create(p.ctx, volume, metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

func (p *plane) createController(extra string, change ...func(*v1alpha1.Controller)) {
	p.t.Helper()
	c := &v1alpha1.Controller{
		ObjectMeta: metav1.ObjectMeta{Name: "tide"},
		Spec: v1alpha1.ControllerSpec{
			Slurmctld:   &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "slurmtide/slurm:" + p.version, ImagePullPolicy: corev1.PullIfNotPresent}},
			Bridge:      &v1alpha1.BridgeOptions{ContainerOptions: v1alpha1.ContainerOptions{ImagePullPolicy: corev1.PullIfNotPresent}},
			Persistence: v1alpha1.Persistence{StorageClassName: new("")},
			ExtraConf:   extra,
		},
	}
	for _, one := range change {
		one(c)
	}
	_, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Create(p.ctx, c, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

func (p *plane) controller() *v1alpha1.Controller {
	p.t.Helper()
	c, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Get(p.ctx, "tide", metav1.GetOptions{})
	require.NoError(p.t, err)
	return c
}

func (p *plane) setExtra(extra string) {
	p.t.Helper()
	c := p.controller()
	c.Spec.ExtraConf = extra
	_, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Update(p.ctx, c, metav1.UpdateOptions{})
	require.NoError(p.t, err)
}

// waitCondition waits until a condition of the newest generation has a reason, and returns its message.
func (p *plane) waitCondition(kind, reason string) (message string) {
	p.t.Helper()
	p.eventually(kind+" "+reason, func() (bool, string) {
		c := p.controller()
		one := meta.FindStatusCondition(c.Status.Conditions, kind)
		if one == nil {
			return false, "no such condition"
		}
		message = one.Message
		return one.Reason == reason && one.ObservedGeneration == c.Generation, fmt.Sprintf("%+v", c.Status.Conditions)
	})
	return message
}

func (p *plane) waitInForce() {
	p.t.Helper()
	p.waitCondition(v1alpha1.ConditionConfigInForce, "InForce")
}

func (p *plane) setting(key string) string {
	p.t.Helper()
	for line := range strings.Lines(p.slurm("scontrol", "show", "config")) {
		if k, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// try runs a subtest.
func (p *plane) try(name string, test func(t *testing.T)) {
	whole := p.t
	whole.Run(name, func(t *testing.T) {
		p.t = t
		test(t)
	})
	p.t = whole
}

// part is try for what the next subtests go on from.
func (p *plane) part(name string, test func(t *testing.T)) {
	p.try(name, test)
	if p.t.Failed() {
		p.t.FailNow()
	}
}

// restarts are those of the pod's containers, and the pod's UID.
func (p *plane) restarts() string {
	p.t.Helper()
	pod, err := p.kube.CoreV1().Pods(p.ns).Get(p.ctx, "tide-controller-0", metav1.GetOptions{})
	require.NoError(p.t, err)
	said := string(pod.UID)
	for _, s := range pod.Status.ContainerStatuses {
		said += fmt.Sprintf(" %s=%d", s.Name, s.RestartCount)
	}
	return said
}

// askNodes asks slurmrestd for the nodes with a token. refused is "", or the first line of what it says if that is no 200.
func (p *plane) askNodes(token string) (refused, body string) {
	p.t.Helper()
	const ask = `exec 3<>/dev/tcp/tide-restapi/6820
printf 'GET /slurm/v0.0.42/nodes/ HTTP/1.1\r\nHost: tide\r\nX-SLURM-USER-TOKEN: %s\r\nConnection: close\r\n\r\n' "$1" >&3
cat <&3`
	first, rest, _ := strings.Cut(p.slurm("timeout", "20", "bash", "-c", ask, "bash", token), "\r\n")
	if strings.Contains(first, " 200 ") {
		return "", rest
	}
	return "refused: " + first, rest
}

// issued is what the Secret of a Token has.
func (p *plane) issued(token string) string {
	p.t.Helper()
	secret, err := p.kube.CoreV1().Secrets(p.ns).Get(p.ctx, token, metav1.GetOptions{})
	require.NoError(p.t, err)
	return string(secret.Data["SLURM_JWT"])
}

func (p *plane) createToken(name string, lifetime *metav1.Duration) {
	p.t.Helper()
	_, err := p.tide.SlurmtideV1alpha1().Tokens(p.ns).Create(p.ctx, &v1alpha1.Token{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TokenSpec{ControllerRef: &v1alpha1.ObjectRef{Name: "tide"}, Username: "slurm", Lifetime: lifetime},
	}, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

func (p *plane) testRestAPI(t *testing.T) {
	p.eventually("the RestApi to answer", func() (bool, string) {
		r, err := p.tide.SlurmtideV1alpha1().RestApis(p.ns).Get(p.ctx, "tide", metav1.GetOptions{})
		require.NoError(t, err)
		return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionAvailable), fmt.Sprintf("%+v", r.Status)
	})
	refused, body := p.askNodes(p.issued("portal"))
	assert.Empty(t, refused)
	assert.Contains(t, body, `"cpu-0"`)
}

// testJWKS has tokens that others sign taken as soon as slurmctld knows their key.
func (p *plane) testJWKS(t *testing.T) {
	before, portal := p.restarts(), newSigner(t)
	ref := portal.publish(p)
	for name, token := range map[string]string{"nonsense": "nonsense", "not known yet": portal.token("slurm")} {
		refused, _ := p.askNodes(token)
		assert.NotEmpty(t, refused, name)
	}
	c := p.controller()
	c.Spec.JWKSKeyRef = ref
	_, err := p.tide.SlurmtideV1alpha1().Controllers(p.ns).Update(p.ctx, c, metav1.UpdateOptions{})
	require.NoError(t, err)
	p.waitInForce()
	refused, body := p.askNodes(portal.token("slurm"))
	assert.Empty(t, refused)
	assert.Contains(t, body, `"cpu-0"`)
	refused, _ = p.askNodes(newSigner(t).token("slurm"))
	assert.NotEmpty(t, refused, "another key")
	assert.Equal(t, before, p.restarts())
}

// testRefresh looks whether a token that does not live long was followed by another one.
func (p *plane) testRefresh(t *testing.T, first string) {
	p.eventually("another token", func() (bool, string) { return p.issued("short") != first, "" })
	refused, _ := p.askNodes(p.issued("short"))
	assert.Empty(t, refused)
	require.NoError(t, p.tide.SlurmtideV1alpha1().Tokens(p.ns).Delete(p.ctx, "short", metav1.DeleteOptions{})) // at rest nothing is to be written
}

// testFiles brings files and scripts that slurm.conf names in the same change, and some that it does not name.
func (p *plane) testFiles(t *testing.T) {
	// What is no UTF-8 is binary data for Kubernetes.
	_, err := p.kube.CoreV1().ConfigMaps(p.ns).Create(p.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "site"}, BinaryData: map[string][]byte{"more.conf": []byte("# f\xfcr alle\nMaxJobCount=4321\n")},
		Data: map[string]string{
			"plugstack.conf": "required spank_pbs.so\n", // of the package slurm-wlm-basic-plugins
			"mpi.conf":       "PMIxDebug=1\n",
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for name, files := range map[string]map[string]string{
		"on-nodes":         {"prolog.sh": "#!/bin/sh\ntouch /tmp/prolog-$SLURM_JOB_ID\n"},
		"on-control":       {"ctld.sh": "#!/bin/sh\ntouch /var/spool/slurmctld/prolog-$SLURM_JOB_ID\n"},
		"on-nodes-after":   {"epilog.sh": "#!/bin/sh\ntouch /tmp/epilog-$SLURM_JOB_ID\n"},
		"on-control-after": {"ctld-after.sh": "#!/bin/sh\ntouch /var/spool/slurmctld/epilog-$SLURM_JOB_ID\n"},
	} {
		_, err := p.kube.CoreV1().ConfigMaps(p.ns).Create(p.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: files}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	before := p.restarts()
	c := p.controller()
	c.Spec.ExtraConf += "Include more.conf\n"
	c.Spec.ConfigFileRefs = []v1alpha1.ObjectRef{{Name: "site"}}
	c.Spec.PrologScriptRefs = []v1alpha1.ObjectRef{{Name: "on-nodes"}}
	c.Spec.PrologSlurmctldScriptRefs = []v1alpha1.ObjectRef{{Name: "on-control"}}
	c.Spec.EpilogScriptRefs = []v1alpha1.ObjectRef{{Name: "on-nodes-after"}}
	c.Spec.EpilogSlurmctldScriptRefs = []v1alpha1.ObjectRef{{Name: "on-control-after"}}
	_, err = p.tide.SlurmtideV1alpha1().Controllers(p.ns).Update(p.ctx, c, metav1.UpdateOptions{})
	require.NoError(t, err)
	p.waitInForce()
	assert.Equal(t, "4321", p.setting("MaxJobCount"))
	// The SPANK plugin gives tasks variables as PBS has them.
	id := p.sbatch(`test -e /tmp/prolog-$SLURM_JOB_ID && grep PMIxDebug=1 /run/slurm/conf/mpi.conf && srun sh -c 'test "$PBS_JOBID" = $SLURM_JOB_ID'`, "--nodelist=cpu-0")
	// It gets the node when the first one's epilog has ended, before that can go.
	next := p.sbatch("test -e /tmp/epilog-"+id, "--nodelist=cpu-0", "--dependency=afterany:"+id)
	p.waitJob(id, "COMPLETED")
	p.slurm("test", "-e", "/var/spool/slurmctld/prolog-"+id)
	p.waitJob(next, "COMPLETED")
	p.eventually("the epilog beside slurmctld", func() (bool, string) {
		_, _, err := p.run(nil, "slurmctld", "test", "-e", "/var/spool/slurmctld/epilog-"+id)
		return err == nil, fmt.Sprint(err)
	})
	if p.version == "24.11" { // Debian's 26.05 comes without the plugin that has such settings
		assert.Equal(t, "1", p.setting("PMIxDebug"))
	}
	assert.Equal(t, before, p.restarts())
}

// resourceVersions are those of all objects of some kinds in the namespace, by kind.
func (p *plane) resourceVersions(t *testing.T, kinds ...string) map[string]string {
	all := map[string]string{}
	for _, kind := range kinds {
		all[kind] = runKubectl(t, "-n", p.ns, "get", kind, "-o", `jsonpath={range .items[*]}{.metadata.name}={.metadata.resourceVersion} {end}`)
	}
	return all
}

// testRest sees that more than one round of looking at everything changes no object.
func (p *plane) testRest(t *testing.T) {
	p.waitZero("cpu-[0-2]")
	p.within(2*time.Minute, time.Second, "what runs beside slurmctld to have been up for a minute", func() (bool, string) {
		one := meta.FindStatusCondition(p.controller().Status.Conditions, v1alpha1.ConditionSidecarsReady)
		return one != nil && one.Reason == "Run", fmt.Sprint(one)
	})
	daemon := runKubectl(t, "-n", "slurmtide-system", "get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
	seen := func() map[string]string {
		all := p.resourceVersions(t, "configmaps", "services", "serviceaccounts", "rolebindings", "secrets", "statefulsets", "deployments", "controllers", "restapis", "tokens")
		var writes []string
		metrics := runKubectl(t, "get", "--raw", "/api/v1/namespaces/slurmtide-system/pods/"+daemon+":9444/proxy/metrics")
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "slurmtide_controller_writes_total") && !strings.Contains(line, `"events"`) { // how often one was seen is written minutes later
				writes = append(writes, line)
			}
		}
		require.NotEmpty(t, writes)
		all["writes"] = strings.Join(writes, "")
		return all
	}
	before := seen()
	assert.Contains(t, before["statefulsets"], "tide-controller=")
	time.Sleep(80 * time.Second)
	assert.Equal(t, before, seen())
}

func (p *plane) testDeleted(t *testing.T) {
	require.NoError(t, p.tide.SlurmtideV1alpha1().Controllers(p.ns).Delete(p.ctx, "tide", metav1.DeleteOptions{}))
	p.eventually("all of it to go", func() (bool, string) {
		left := runKubectl(t, "-n", p.ns, "get", "statefulsets,services,configmaps,secrets,rolebindings,pods", "-l", "slurmtide.io/controller=tide", "-o", "name")
		return left == "", left
	})
	_, err := p.kube.CoreV1().PersistentVolumeClaims(p.ns).Get(p.ctx, "statesave-tide-controller-0", metav1.GetOptions{})
	require.NoError(t, err, "the state stays")
	r, err := p.tide.SlurmtideV1alpha1().RestApis(p.ns).Get(p.ctx, "tide", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "ControllerMissing", meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAccepted).Reason)
}

func runKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := askKubectl(context.WithoutCancel(t.Context()), args...)
	require.NoError(t, err, "%v: %s", args, out)
	return out
}

func askKubectl(ctx context.Context, args ...string) (string, error) {
	name := os.Getenv("LOCALCLUSTER")
	if name == "" {
		return "", errors.New("LOCALCLUSTER must name the local cluster; hack/integration.sh does")
	}
	out, err := exec.CommandContext(ctx, "../../hack/localcluster/localcluster.sh", append([]string{"--name", name, "kubectl"}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
