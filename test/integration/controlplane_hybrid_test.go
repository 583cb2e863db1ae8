//go:build integration && controlplane

package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slurmtide/slurmtide/hack/stack"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// TestControlPlaneHybrid has slurmctld and slurmdbd on a host beside the cluster, as docs/hybrid.md tells it, and all else on Kubernetes.
func TestControlPlaneHybrid(t *testing.T) {
	withController(t)
	newestFirst(t, testHybrid)
}

// hybrid is a Slurm cluster whose slurmctld and slurmdbd are on a host.
type hybrid struct {
	*records
	host       *host
	killBridge func()
	home       corev1.Volume
}

func testHybrid(t *testing.T, version string) {
	p := newPlane(t, version, "hybrid-")
	p.describeLogin()
	db := newMariaDB(p)
	db.start()
	y := &hybrid{records: &records{plane: p, db: db}, host: startHost(p), home: p.hostDirectory("home")}
	y.installSlurm()
	y.installBridge()
	p.part("objects for a host", y.testObjects)
	p.part("a job from zero and back", y.testJob)
	p.part("the bridge is killed", y.testKilled)
	p.part("slurmrestd takes the token", p.testRestAPI)
	p.part("a user comes", y.testUser)
	p.part("slurmctld in Kubernetes, slurmdbd on the host", y.testDbdAlone)
}

// edited is a text of the user guide with the host's address and the test's namespace and version.
func (y *hybrid) edited(file string) string {
	y.t.Helper()
	text, err := os.ReadFile(guide + file)
	require.NoError(y.t, err)
	return strings.NewReplacer(
		"slurmctld.example.com", y.host.address, "slurmtide/slurm:26.05", "slurmtide/slurm:"+y.version,
		"namespace: slurm\n", "namespace: "+y.ns+"\n", "--namespace=slurm", "--namespace="+y.ns,
	).Replace(string(text))
}

// installSlurm starts slurmdbd and slurmctld on the host, whose nodes are to be on Kubernetes, and gives Kubernetes their keys.
func (y *hybrid) installSlurm() {
	t, h := y.t, y.host
	slurmKey, jwtKey := rand.Text()+rand.Text(), rand.Text()+rand.Text() // text, since the template of NodeSets hands it over in a variable
	h.secret("etc/slurm/slurm.key", slurmKey)
	h.secret("var/spool/slurmctld/jwt_hs256.key", jwtKey)
	y.createSecret("tide-auth-slurm", map[string][]byte{"slurm.key": []byte(slurmKey)})
	y.createSecret("tide-auth-jwths256", map[string][]byte{"jwt_hs256.key": []byte(jwtKey)})

	y.db.ask("CREATE USER 'host'@'%' IDENTIFIED BY 'simple'; GRANT ALL ON slurm_acct_db.* TO 'host'@'%'")
	const alike = "AuthAltParameters=jwt_key=/var/spool/slurmctld/jwt_hs256.key"
	h.secret("etc/slurm/slurmdbd.conf", strings.Join([]string{
		"DbdHost=" + hostName, "SlurmUser=slurm", "PidFile=/run/slurmdbd/slurmdbd.pid", "AuthType=auth/slurm", "AuthInfo=use_client_ids", "AuthAltTypes=auth/jwt", alike,
		"StorageType=accounting_storage/mysql", "StorageHost=" + y.podIP("mariadb"), "StorageUser=host", "StoragePass=simple", "LogTimeFormat=iso8601_ms,format_stderr", "",
	}, "\n"))
	files, err := stack.Render(stack.Options{
		Namespace: y.ns, ClusterName: "tide", SlurmVersion: y.version, Gate: true, SuspendTime: 5,
		NodeLines: []string{"NodeName=cpu-[0-2] CPUs=2 RealMemory=400 State=CLOUD"}, PartitionLines: []string{"PartitionName=cpu Nodes=ALL Default=YES"},
		ExtraConf: []string{
			fmt.Sprintf("SlurmctldHost=%s(%s)", hostName, h.address), alike, "AuthInfo=cred_expire=30,use_client_ids",
			"AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=" + h.address,
		},
	})
	require.NoError(t, err)
	for name, text := range files {
		h.write("etc/slurm/"+name, text)
	}
	require.NoError(t, os.CopyFS(h.root+"/usr/local/bin", os.DirFS("../../bin")))
	h.must("/usr/local/bin/slurmtide", "install-programs", "/opt/slurmtide")
	for _, daemon := range []string{"slurmdbd", "slurmctld"} { // as Debian's services do
		h.must("install", "-d", "-o", "slurm", "-g", "slurm", "/run/"+daemon)
		h.run(daemon, time.Second, func() *exec.Cmd {
			return h.inside("setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", daemon, "-D")
		})
	}
	y.eventually("slurmctld on the host to answer", func() (bool, string) {
		out, stderr, err := y.run(nil, "", "sinfo", "-h", "-o", "%P %D %t")
		return err == nil && strings.Contains(out, "cpu* 3 idle~"), out + stderr
	})
}

// installBridge starts slurmrestd and the bridge as the services that the guide has, with the rights and the kubeconfig that it tells of.
func (y *hybrid) installBridge() {
	t, h := y.t, y.host
	const rights = "rbac.yaml"
	kubectl(t, y.edited(rights), "apply", "-f", "-")
	t.Cleanup(func() {
		_, err := tryKubectl(context.WithoutCancel(t.Context()), y.edited(rights), "delete", "--ignore-not-found", "-f", "-")
		assert.NoError(t, err)
	})
	config, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	require.NoError(t, err)
	y.eventually("the bridge's token", func() (bool, string) {
		secret, err := y.kube.CoreV1().Secrets(y.ns).Get(y.ctx, "slurmtide-bridge", metav1.GetOptions{})
		require.NoError(t, err)
		for name := range config.AuthInfos {
			config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: string(secret.Data["token"])}
		}
		return len(secret.Data["token"]) > 0, "none"
	})
	kubeconfig, err := clientcmd.Write(*config)
	require.NoError(t, err)
	h.must("install", "-d", "-o", "slurm", "-g", "slurm", "-m", "0700", "/etc/slurmtide")
	h.secret("etc/slurmtide/kubeconfig", string(kubeconfig))
	h.enable("slurmrestd", y.edited("slurmtide-slurmrestd.service"))
	y.killBridge = h.enable("bridge", y.edited("slurmtide-bridge.service"))
}

// testObjects makes the objects of the guide: nothing runs for the Controller and the Accounting, which say so.
func (y *hybrid) testObjects(t *testing.T) {
	kubectl(t, y.edited("hybrid.yaml"), "-n", y.ns, "apply", "-f", "-")
	y.waitCondition(v1alpha1.ConditionAccepted, "Valid")
	assert.Equal(t, "slurmctld runs elsewhere", y.waitCondition(v1alpha1.ConditionAvailable, "External"))
	assert.Equal(t, "slurmdbd runs elsewhere", y.waitAccounting(v1alpha1.ConditionAvailable, "External"))
	y.eventually("the RestApi to answer", func() (bool, string) {
		r, err := y.tide.SlurmtideV1alpha1().RestApis(y.ns).Get(y.ctx, "tide", metav1.GetOptions{})
		require.NoError(t, err)
		return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionAvailable), fmt.Sprintf("%+v", r.Status)
	})
	made := runKubectl(t, "-n", y.ns, "get", "statefulsets,deployments,pods", "-l", "app.kubernetes.io/managed-by=slurmtide", "-o", "name")
	assert.NotContains(t, made, "statefulset")
	assert.Contains(t, made, "deployment.apps/tide-restapi")
	y.resolve("tide-restapi")
}

// resolve lets the host know a Service by its name.
func (y *hybrid) resolve(name string) {
	y.t.Helper()
	s, err := y.kube.CoreV1().Services(y.ns).Get(y.ctx, name, metav1.GetOptions{})
	require.NoError(y.t, err)
	y.host.append("etc/hosts", s.Spec.ClusterIP+" "+name+"\n")
}

// testJob boots nodes on Kubernetes for a job of the host.
func (y *hybrid) testJob(t *testing.T) {
	y.createHomeSet("cpu", "cpu-[0-2]", y.home)
	began := time.Now()
	id := y.sbatch("srun hostname", "-N2", "--ntasks-per-node=1")
	y.waitJob(id, "COMPLETED")
	t.Logf("a 2-node job from zero: %v", time.Since(began).Round(100*time.Millisecond))
	assert.Equal(t, "0", y.jobField(id, "Restarts"))
	y.waitRecord(id, "COMPLETED|0:0")
	y.waitZero("cpu-[0-2]")
}

// testKilled kills the bridge: it is started again, and does what was asked for meanwhile.
func (y *hybrid) testKilled(t *testing.T) {
	starts := func() int {
		text, err := os.ReadFile(filepath.Join(y.host.logs, "bridge"))
		require.NoError(t, err)
		return strings.Count(string(text), `msg="bridge starts"`)
	}
	require.Equal(t, 1, starts())
	y.killBridge()
	id := y.sbatch("srun hostname", "-N2")
	y.waitJob(id, "COMPLETED")
	assert.Equal(t, "0", y.jobField(id, "Restarts"))
	assert.Equal(t, 2, starts())
	y.waitZero("cpu-[0-2]")
}

// testUser has somebody log in on Kubernetes, and use the slurmctld of the host.
func (y *hybrid) testUser(t *testing.T) {
	for _, who := range []string{"alice", "stranger"} {
		y.slurm("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", "/tmp/"+who)
	}
	y.createLoginSet(y.home)
	y.waitLogin("Answers", "1 of 1 let users in")
	y.resolve("tide-login")
	y.testLoginUser(t)
	y.testLoginJobs(t)
}

// testDbdAlone has a slurmctld that runs on Kubernetes keep its records with the slurmdbd of the host.
func (y *hybrid) testDbdAlone(t *testing.T) {
	inner := newPlane(t, y.version, "inner-")
	inner.Options.ClusterName = "inner"
	for _, name := range []string{"tide-auth-slurm", "tide-auth-jwths256"} {
		secret, err := y.kube.CoreV1().Secrets(y.ns).Get(y.ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		inner.createSecret(name, secret.Data)
	}
	kubectl(t, documentOf(t, y.edited("hybrid.yaml"), "Accounting"), "-n", inner.ns, "apply", "-f", "-")
	inner.createController("SuspendTime=5\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\n", func(c *v1alpha1.Controller) {
		c.Spec.ClusterName, c.Spec.AccountingRef = "inner", &v1alpha1.ObjectRef{Name: "tide"}
	})
	inner.createSet("cpu", "cpu-[0-2]")
	inner.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	inner.waitInForce()
	id := inner.sbatch("srun hostname", "-N2")
	inner.waitJob(id, "COMPLETED")
	(&records{plane: inner}).waitRecord(id, "COMPLETED|0:0")
	assert.Equal(t, "inner\ntide", y.slurm("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster"))
	assert.Equal(t, "inner|2", y.slurm("sacct", "-n", "-P", "-X", "-M", "inner", "-j", id, "-o", "Cluster,NNodes"), "the host knows it, too")
	inner.waitZero("cpu-[0-2]")
}

// documentOf is the document of a kind in a text of several.
func documentOf(t *testing.T, text, kind string) string {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		if strings.Contains(document, "\nkind: "+kind+"\n") {
			return document
		}
	}
	require.FailNow(t, "no "+kind)
	return ""
}
