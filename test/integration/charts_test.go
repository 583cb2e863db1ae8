//go:build integration && controlplane && charts

package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
)

const (
	daemons = "slurmtide-system"
	// installLimit is how long it may take from the first helm install to an answer of sinfo, with the images at hand.
	installLimit = 40 * time.Second
)

// TestCharts has Helm install, change and remove everything. The daemons run with the rights of the charts alone.
func TestCharts(t *testing.T) {
	newestFirst(t, testCharts)
}

// charts is a Slurm cluster of the chart slurm.
type charts struct {
	*plane
	values string
}

func testCharts(t *testing.T, version string) {
	c := &charts{plane: newPlane(t, version, "control-")}
	c.values = filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(c.values, []byte(`
image: {tag: "`+version+`"}
controller:
  hosts: {enabled: true}
  spec:
    persistence: {storageClassName: ""}
    extraConf: "SuspendTime=5\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\n"
nodeSets:
  cpu:
    spec: {nodeNames: "cpu-[0-2]", shape: {cpus: 2, realMemory: 400}, partition: {config: Default=YES}}
    slurmd: {resources: {requests: {cpu: 10m, memory: 20Mi}}}
`), 0o600))
	c.namespaces()
	c.uninstallAtEnd()
	sub := func(name string, test func(t *testing.T)) {
		ok := t.Run(name, func(t *testing.T) {
			c.t = t
			test(t)
		})
		c.t = t
		require.True(t, ok, "%s: the rest would only follow from it", name)
	}
	sub("install", c.testInstall)
	sub("a job from zero and back", func(t *testing.T) {
		id := c.sbatch("srun hostname", "-N2", "--ntasks-per-node=1")
		c.waitJob(id, "COMPLETED")
		assert.Equal(t, "0", c.jobField(id, "Restarts"))
		c.waitZero("cpu-[0-2]")
	})
	sub("a cordoned host", c.testCordon)
	sub("helm test", c.testHelmTest)
	sub("refused", c.testServerRefuses)
	sub("secrets in use", c.testSecrets)
	sub("upgrade and rollback", c.testUpgrade)
	sub("accounting, and not any more", c.testAccounting)
	sub("all namespaces", c.testAllNamespaces)
	sub("scaler", c.testScaler)
	sub("uninstall, and again", c.testUninstall)
}

// uninstallAtEnd takes away what may be left of the releases when the test ends, and tells what became of them if it failed.
func (c *charts) uninstallAtEnd() {
	t := c.t
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"-n", daemons, "get", "all"}, {"-n", daemons, "logs", "-l", "app.kubernetes.io/name=slurmtide", "--tail=80"}, {"-n", c.ns, "get", "all,events"}} {
				out, err := askKubectl(context.WithoutCancel(t.Context()), args...)
				t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
		for release, namespace := range map[string]string{"tide": c.ns, "scaler": c.ns, "slurmtide": daemons} {
			_, _ = tryHelm(context.WithoutCancel(t.Context()), "uninstall", release, "-n", namespace, "--ignore-not-found")
		}
	})
}

// namespaces gives both the Pod Security Standards that the READMEs name.
func (c *charts) namespaces() {
	runKubectl(c.t, "delete", "namespace", daemons, "--ignore-not-found")
	runKubectl(c.t, "create", "namespace", daemons)
	runKubectl(c.t, "label", "namespace", daemons, "pod-security.kubernetes.io/enforce=restricted")
	runKubectl(c.t, "label", "namespace", c.ns, "pod-security.kubernetes.io/enforce=baseline")
}

func (c *charts) testInstall(t *testing.T) {
	began := time.Now()
	helm(t, "install", "slurmtide-crds", "helm/slurmtide-crds", "-n", daemons, "--wait", "--take-ownership")
	crds := time.Since(began)
	// Before anything is installed the API server is asked what it would say.
	dry := []string{"tide", "helm/slurm", "-n", c.ns, "-f", c.values}
	helm(t, append([]string{"install", "--dry-run=server"}, dry...)...)
	kubectl(t, helm(t, append([]string{"template", "--no-hooks"}, dry...)...), "apply", "--dry-run=server", "-f", "-")
	// And so with everything that can be switched on, but what wants the Prometheus operator.
	for chart, less := range map[string]string{"slurm": "metrics.serviceMonitor.enabled=false,metrics.slurmctld.enabled=false", "slurmtide": "metrics.podMonitor.enabled=false,scaler.clusters[0].namespace=" + c.ns} {
		all := helm(t, "template", "--no-hooks", chart, "helm/"+chart, "-n", c.ns, "-f", "test/charts/testdata/"+chart+"-all.values.yaml", "--set", "metrics.prometheusRule.enabled=false,"+less)
		kubectl(t, all, "apply", "--dry-run=server", "-f", "-")
	}
	checks := time.Since(began)

	began = time.Now()
	helm(t, "install", "slurmtide", "helm/slurmtide", "-n", daemons, "--set", "image.tag=dev,secretPolicy.enabled=true", "--set", "controller.namespaces={"+c.ns+"}")
	notes := helm(t, append([]string{"install"}, dry...)...)
	assert.Contains(t, notes, "kubectl -n "+c.ns+" exec tide-controller-0 -c slurmctld -- sinfo")
	c.eventually("sinfo to answer", func() (bool, string) {
		out, said, err := c.run(nil, "slurmctld", "sinfo", "-h", "-o", "%P %D %t")
		return strings.Contains(out, "cpu* 3 idle~"), fmt.Sprint(out, said, err)
	})
	took := crds + time.Since(began)
	t.Logf("CRDs and dry runs %v, from the first install to sinfo, without dry runs, %v", checks.Round(100*time.Millisecond), took.Round(100*time.Millisecond))
	assert.Less(t, took, installLimit)
	c.waitInForce()
}

// testCordon sees that a bridge that slurmtide controller has started looks after hosts.
func (c *charts) testCordon(t *testing.T) {
	id := c.sbatch("sleep 600", "-N1")
	c.waitJob(id, "RUNNING")
	node := c.jobField(id, "BatchHost")
	host := c.slurmdPods()[node].Spec.NodeName
	c.cordon(host, true)
	c.waitNodes(node, powersave.NodeDrain, 0)
	assert.Contains(t, c.slurm("scontrol", "--oneliner", "show", "node", node), "Reason=slurmtide: host: "+host+" is cordoned")
	assert.Equal(t, "RUNNING", c.jobField(id, "JobState"))
	c.cordon(host, false)
	c.waitNodes(node, 0, powersave.NodeDrain)
	assert.Equal(t, "0", c.jobField(id, "Restarts"))
	c.slurm("scancel", id)
	c.waitZero("cpu-[0-2]")
}

func (c *charts) testHelmTest(t *testing.T) {
	c.eventually("the RestApi to answer", func() (bool, string) {
		r, err := c.tide.SlurmtideV1alpha1().RestApis(c.ns).Get(c.ctx, "tide", metav1.GetOptions{})
		require.NoError(t, err)
		return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionAvailable), fmt.Sprintf("%+v", r.Status)
	})
	out := helm(t, "test", "tide", "-n", c.ns, "--logs", "--timeout", "2m")
	assert.Contains(t, out, "is UP")
	assert.Contains(t, out, "cpu*")
	assert.Contains(t, out, "slurmrestd: HTTP/1.1 200")

	// It fails when slurmrestd is not there.
	helm(t, "upgrade", "tide", "helm/slurm", "-n", c.ns, "-f", c.values, "--set", "restApi.spec.replicas=0")
	runKubectl(t, "-n", c.ns, "wait", "--for=delete", "pod", "-l", "slurmtide.io/restapi=tide", "--timeout=90s")
	out, err := tryHelm(t.Context(), "test", "tide", "-n", c.ns, "--logs", "--timeout", "1m")
	require.Error(t, err, out)
	assert.Contains(t, out, "/dev/tcp/tide-restapi/6820")
	helm(t, "rollback", "tide", "1", "-n", c.ns)
	c.eventually("the test to pass again, which clears away what failed", func() (bool, string) {
		out, err := tryHelm(t.Context(), "test", "tide", "-n", c.ns, "--timeout", "1m")
		return err == nil, out
	})
}

// testServerRefuses sees that what only the API server knows to be wrong changes nothing.
func (c *charts) testServerRefuses(t *testing.T) {
	for value, want := range map[string]string{
		"nodeSets.cpu.spec.suspend.idleTime=10s":                      "spec.suspend needs mode Dynamic",
		"controller.spec.clusterName=other":                           "spec.clusterName cannot be added or removed",
		"nodeSets.cpu.spec.template.spec.nodeSelectr.a=b":             "nodeSelectr",
		"nodeSets.cpu.slurmd.livenessProb.httpGet.port=1":             "livenessProb",
		"controller.spec.template.spec.affinity.nodeAffinities.a=yes": "nodeAffinities",
	} {
		out, err := tryHelm(t.Context(), "upgrade", "tide", "helm/slurm", "-n", c.ns, "-f", c.values, "--set", value)
		require.Error(t, err, "%s: %s", value, out)
		assert.Contains(t, out, want, value)
	}
	out, err := tryHelm(t.Context(), "rollback", "tide", "1", "-n", c.ns)
	require.NoError(t, err, out)
	c.waitInForce()
}

// testSecrets sees that Secrets that objects use stay, and that all others can be deleted. That those in use go with what uses them, "uninstall, and again" shows.
func (c *charts) testSecrets(t *testing.T) {
	secrets, tide := c.kube.CoreV1().Secrets(c.ns), c.tide.SlurmtideV1alpha1()
	for _, name := range []string{"db", "jwt", "free", "headers", "scaler", "host", "sssd", "kept-auth-slurm", "gone-auth-slurm", "kept-ssh-host-keys", "shut-ssh-host-keys"} {
		c.createSecret(name, map[string][]byte{"key": []byte("0123456789abcdef")})
	}
	key := func(name string) *v1alpha1.KeyRef { return &v1alpha1.KeyRef{Name: name, Key: "key"} }
	_, err := tide.Accountings(c.ns).Create(c.ctx, &v1alpha1.Accounting{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.AccountingSpec{
		Slurmdbd: &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "none"}}, StorageConfig: &v1alpha1.StorageConfig{Host: "nowhere", PasswordKeyRef: *key("db")},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = tide.Tokens(c.ns).Create(c.ctx, &v1alpha1.Token{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.TokenSpec{JWTKeyRef: key("jwt"), Username: "nobody"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	// Neither is carried out: the one has no Accounting, and the others no Controller.
	_, err = tide.Controllers(c.ns).Create(c.ctx, &v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Name: "traced"}, Spec: v1alpha1.ControllerSpec{
		Slurmctld: &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "none"}}, AccountingRef: &v1alpha1.ObjectRef{Name: "nowhere"},
		Bridge: &v1alpha1.BridgeOptions{
			Tracing: &v1alpha1.BridgeTracing{Endpoint: "http://nowhere:4318", HeadersRef: key("headers")},
			Page:    &v1alpha1.BridgePage{Scaler: "https://nowhere:9443", ScalerTLS: &v1alpha1.ClientTLS{SecretName: "scaler"}},
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	sets := map[string]*v1alpha1.NodeSetSSH{"kept": {Enabled: true}, "named": {SSHOptions: v1alpha1.SSHOptions{HostKeysRef: &v1alpha1.ObjectRef{Name: "host"}}}, "shut": {}}
	for name, ssh := range sets {
		set := &v1alpha1.NodeSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeSetSpec{
			ClusterRef: v1alpha1.ClusterRef{Name: "nowhere"}, NodeNames: name + "-0", Shape: v1alpha1.Shape{CPUs: 1, RealMemory: 100}, SSH: ssh,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "slurmd", Image: "none"}}}},
		}}
		if name == "kept" {
			set.Spec.SssdConfRef = key("sssd")
		}
		_, err = tide.NodeSets(c.ns).Create(c.ctx, set, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	refused := func(name string) (bool, string) {
		err := secrets.Delete(c.ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "Secret "+name+" is in use by "), fmt.Sprint(err)
	}
	for _, name := range []string{"tide-auth-slurm", "tide-auth-jwths256", "db", "jwt", "headers", "scaler", "host", "sssd", "kept-auth-slurm", "kept-ssh-host-keys"} {
		c.eventually("Secret "+name+" to be kept", func() (bool, string) { return refused(name) }) // the API server hears of policies and objects a moment later
	}
	require.ErrorContains(t, secrets.DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=tide-auth-slurm"}), "Controller tide")
	for _, name := range []string{"free", "gone-auth-slurm", "shut-ssh-host-keys"} {
		require.NoError(t, secrets.Delete(c.ctx, name, metav1.DeleteOptions{}), name)
	}
	c.eventually("the token", func() (bool, string) {
		err := secrets.Delete(c.ctx, "kept", metav1.DeleteOptions{}) // another one is made
		return err == nil, fmt.Sprint(err)
	})
	require.NoError(t, tide.Accountings(c.ns).Delete(c.ctx, "kept", metav1.DeleteOptions{}))
	require.NoError(t, tide.Tokens(c.ns).Delete(c.ctx, "kept", metav1.DeleteOptions{}))
	require.NoError(t, tide.Controllers(c.ns).Delete(c.ctx, "traced", metav1.DeleteOptions{}))
	for name := range sets {
		require.NoError(t, tide.NodeSets(c.ns).Delete(c.ctx, name, metav1.DeleteOptions{}))
	}
	for _, name := range []string{"db", "jwt", "headers", "scaler", "host", "sssd", "kept-auth-slurm", "kept-ssh-host-keys"} {
		c.eventually("Secret "+name+" to go", func() (bool, string) {
			err := secrets.Delete(c.ctx, name, metav1.DeleteOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	c.eventually("what was made for them to go", func() (bool, string) {
		left := runKubectl(t, "-n", c.ns, "get", "statefulsets,secrets,pods", "-l", "slurmtide.io/accounting=kept", "-o", "name")
		return left == "", left
	})
}

func (c *charts) testUpgrade(t *testing.T) {
	before := c.restarts()
	helm(t, "upgrade", "tide", "helm/slurm", "-n", c.ns, "-f", c.values, "--set-string", `controller.spec.extraConf=SuspendTime=7`,
		"--set", "nodeSets.more.spec.nodeNames=more-0,nodeSets.more.spec.shape.cpus=2,nodeSets.more.spec.shape.realMemory=400", "--set", "tokens.portal.spec.username=slurm")
	c.eventually("the new configuration", func() (bool, string) {
		out := c.slurm("sinfo", "-h", "-o", "%P %D %t")
		return c.setting("SuspendTime") == "7 sec" && strings.Contains(out, "more 1 idle~"), out
	})
	c.eventually("the token", func() (bool, string) {
		_, err := c.kube.CoreV1().Secrets(c.ns).Get(c.ctx, "portal", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	c.waitInForce()
	helm(t, "rollback", "tide", "1", "-n", c.ns)
	c.eventually("the old configuration", func() (bool, string) {
		out := c.slurm("sinfo", "-h", "-o", "%P %D %t")
		return c.setting("SuspendTime") == "5 sec" && !strings.Contains(out, "more"), out
	})
	_, err := c.tide.SlurmtideV1alpha1().Tokens(c.ns).Get(c.ctx, "portal", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	assert.Equal(t, before, c.restarts())
}

// testAccounting switches accounting on while the cluster runs, and off again by a rollback: its nodes have their key all the time.
func (c *charts) testAccounting(t *testing.T) {
	db := newMariaDB(c.plane)
	db.dir = "" // Pod Security wants no directories of the host
	db.start()
	c.createSecret("mariadb", map[string][]byte{"password": []byte(mariadbPassword)})
	before := c.restarts()
	helm(t, "upgrade", "tide", "helm/slurm", "-n", c.ns, "-f", c.values,
		"--set", "accounting.enabled=true,accounting.spec.storageConfig.host=mariadb,accounting.spec.storageConfig.passwordKeyRef.name=mariadb,accounting.spec.storageConfig.passwordKeyRef.key=password")
	c.within(4*time.Minute, time.Second, "slurmdbd to answer", func() (bool, string) {
		a, err := c.tide.SlurmtideV1alpha1().Accountings(c.ns).Get(c.ctx, "tide", metav1.GetOptions{})
		require.NoError(t, err)
		return meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionAvailable), fmt.Sprintf("%+v", a.Status)
	})
	c.eventually("slurmctld to use it", func() (bool, string) {
		kind := c.setting("AccountingStorageType")
		return kind == "accounting_storage/slurmdbd", kind
	})
	c.waitInForce()
	c.waitZero("cpu-[0-2]")
	id := c.sbatch("exit 3", "-N2")
	c.waitJob(id, "FAILED")
	(&records{plane: c.plane}).waitRecord(id, "FAILED|3:0")
	c.eventually("the test to see slurmdbd", func() (bool, string) {
		out, err := tryHelm(t.Context(), "test", "tide", "-n", c.ns, "--logs", "--timeout", "2m")
		return err == nil && strings.Contains(out, "\ntide\n"), out
	})

	helm(t, "rollback", "tide", "-n", c.ns)
	c.eventually("slurmctld to do without", func() (bool, string) {
		kind := c.setting("AccountingStorageType")
		return kind != "accounting_storage/slurmdbd", kind
	})
	c.waitInForce()
	c.eventually("slurmdbd to go", func() (bool, string) {
		left := runKubectl(t, "-n", c.ns, "get", "accountings,statefulsets,secrets,pods", "-l", "slurmtide.io/accounting=tide", "-o", "name")
		return left == "", left
	})
	assert.Equal(t, before, c.restarts())
	c.waitZero("cpu-[0-2]")
	id = c.sbatch("true", "-N2")
	c.waitJob(id, "COMPLETED")
	db.remove()
	runKubectl(t, "-n", c.ns, "delete", "secret", "mariadb")
}

// testAllNamespaces changes the daemon's rights from those in one namespace to those in all.
func (c *charts) testAllNamespaces(t *testing.T) {
	may := func(verb, resource, namespace string) string {
		out, _ := askKubectl(t.Context(), "auth", "can-i", verb, resource, "-n", namespace, "--as", "system:serviceaccount:"+daemons+":slurmtide-controller")
		return out[strings.LastIndex(out, "\n")+1:] // below warnings
	}
	assert.Equal(t, "yes", may("update", "secrets", c.ns))
	assert.Equal(t, "no", may("list", "secrets", c.ns))
	assert.Equal(t, "no", may("update", "secrets", "default"))
	assert.Equal(t, "no", may("list", "nodes", c.ns))
	helm(t, "upgrade", "slurmtide", "helm/slurmtide", "-n", daemons, "--set", "image.tag=dev,secretPolicy.enabled=true", "--wait")
	assert.Equal(t, "yes", may("update", "secrets", "default"))
	assert.Equal(t, "no", may("list", "secrets", "default"))
	c.setExtra(c.controller().Spec.ExtraConf + "MaxJobCount=4321\n")
	c.waitInForce()
	assert.Equal(t, "4321", c.setting("MaxJobCount"))
	log := runKubectl(t, "-n", daemons, "logs", "-l", "app.kubernetes.io/component=controller", "--tail=-1")
	assert.Contains(t, log, "leading")
	assert.NotContains(t, log, "forbidden")
	// Helm takes back what was changed behind it.
	helm(t, "upgrade", "tide", "helm/slurm", "-n", c.ns, "-f", c.values, "--force-conflicts")
	c.eventually("the chart's extraConf", func() (bool, string) {
		extra := c.controller().Spec.ExtraConf
		return !strings.Contains(extra, "MaxJobCount"), extra
	})
	c.waitInForce()
}

// testScaler installs the README's example: it is ready when it has read the queue, with the key of the Controller and rights of its own.
func (c *charts) testScaler(t *testing.T) {
	text, err := os.ReadFile("../../helm/slurmtide/README.md")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```\n")
	values := filepath.Join(t.TempDir(), "scaler.yaml")
	example = strings.NewReplacer("namespace: slurm\n", "namespace: "+c.ns+"\n", "tide-restapi.slurm:", "tide-restapi."+c.ns+":").Replace(example)
	require.NoError(t, os.WriteFile(values, []byte(example), 0o600))
	helm(t, "install", "scaler", "helm/slurmtide", "-n", c.ns, "-f", values, "--set", "fullnameOverride=slurmtide,image.tag=dev", "--wait", "--timeout", "90s")
	helm(t, "uninstall", "scaler", "-n", c.ns, "--wait")
}

// testUninstall leaves what the READMEs say, and a release of the same name goes on with slurmctld's state.
func (c *charts) testUninstall(t *testing.T) {
	held := c.sbatch("true", "--hold")
	time.Sleep(6 * time.Second) // slurmctld saves it
	helm(t, "uninstall", "tide", "-n", c.ns, "--wait")
	kept := []string{"configmap/kube-root-ca.crt", "persistentvolumeclaim/statesave-tide-controller-0", "serviceaccount/default"}
	c.eventually("all else to go", func() (bool, string) {
		left := c.left(t, c.ns)
		return slices.Equal(kept, left), strings.Join(left, " ")
	})

	helm(t, "install", "tide", "helm/slurm", "-n", c.ns, "-f", c.values)
	c.eventually("the job that was held", func() (bool, string) {
		out, said, err := c.run(nil, "slurmctld", "squeue", "-h", "-o", "%i %t %r")
		return strings.Contains(out, held+" PD JobHeldUser"), fmt.Sprint(out, said, err)
	})
	id := c.sbatch("srun hostname", "-N2", "--ntasks-per-node=1")
	c.waitJob(id, "COMPLETED")
	helm(t, "uninstall", "tide", "-n", c.ns, "--wait")

	helm(t, "uninstall", "slurmtide", "-n", daemons, "--wait")
	c.eventually("the daemons to go", func() (bool, string) {
		left := c.leftOfDaemons(t)
		return len(left) == 0, strings.Join(left, " ")
	})
	helm(t, "uninstall", "slurmtide-crds", "-n", daemons)
	out := runKubectl(t, "get", "crds", "-o", "name")
	for _, kind := range []string{"controllers", "nodesets", "restapis", "tokens"} {
		assert.Contains(t, out, kind+".slurmtide.io", "objects would go with it")
	}
}

// leftOfDaemons is what is left of release slurmtide.
func (c *charts) leftOfDaemons(t *testing.T) []string {
	t.Helper()
	left := c.left(t, daemons)
	for _, kind := range []string{"clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		left = append(left, strings.Fields(runKubectl(t, "get", kind, "-l", "app.kubernetes.io/instance=slurmtide", "-o", "name"))...)
	}
	return slices.DeleteFunc(left, func(name string) bool {
		return name == "configmap/kube-root-ca.crt" || name == "serviceaccount/default" || strings.HasPrefix(name, "secret/sh.helm.release.v1.slurmtide-crds.")
	})
}

// left are all objects of a namespace but Events and Leases, which nobody holds any more.
func (c *charts) left(t *testing.T, namespace string) (names []string) {
	t.Helper()
	kinds := slices.DeleteFunc(strings.Fields(runKubectl(t, "api-resources", "--verbs=list", "--namespaced", "-o", "name")), func(kind string) bool {
		return strings.HasPrefix(kind, "events") || strings.HasPrefix(kind, "leases.") || kind == "endpoints" // kubectl warns of those, EndpointSlices say the same
	})
	names = strings.Fields(runKubectl(t, "-n", namespace, "get", strings.Join(kinds, ","), "-o", "name", "--ignore-not-found"))
	slices.Sort(names)
	return names
}

// helm runs Helm in the repository and returns what it prints.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryHelm(t.Context(), args...)
	require.NoError(t, err, "helm %s: %s", strings.Join(args, " "), out)
	return out
}

func tryHelm(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "hack/helm.sh", args...)
	cmd.Dir = "../.."
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		return out.String() + said.String(), err
	}
	return out.String(), nil
}
