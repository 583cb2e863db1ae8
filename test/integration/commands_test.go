//go:build integration && controlplane && charts

package integration

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/test/docs/block"
)

// TestGuideCommands runs the blocks of runbooks and guide that are marked "run on a cluster", word for word, before a cluster that the charts make and that
// is called as the guide calls its own: namespaces slurm and slurmtide-system, release tide, NodeSet cpu, job 7. It brings about the troubles that
// they look at, so that there is something to see.
func TestGuideCommands(t *testing.T) {
	newestFirst(t, testGuideCommands)
}

// shown is what the output of commands has to have, by the page and a word of the command; of all others it is enough that there is some.
var shown = []struct{ page, command, want string }{
	{"SlurmAccountingBehind", "sacctmgr", `is UP`},
	{"SlurmNodesDown", "sinfo -R", `a fan is broken`},
	{"SlurmNodesDown", "sinfo -N", `cpu-2 +1 +\S+ +down`},
	{"SlurmNodesIdle", "status", `(?s)Slurm.*Kubernetes`},
	{"SlurmNotAnswering", "scontrol ping", `is UP`},
	{"SlurmNotAnswering", "get pods", `(?s)tide-controller-0.*tide-restapi`},
	{"SlurmtideBootsFail", "explain nodeset", `image: `},
	{"SlurmtideBootsFail", "describe", `BootsHealthy`},
	{"SlurmtideBootsFail", "events", `image: `},
	{"SlurmtideBreakerOpen", "sinfo -R", `slurmtide: closed: i`},
	{"SlurmtideBridgeBlind", "can-i", `^yes`},
	{"SlurmtideBridgeCertificateExpires", "openssl", `notAfter=`},
	{"SlurmtideBridgeDown", "--previous", `level=`},
	{"SlurmtideBridgeNotLeading", "status", `Lease`},
	{"SlurmtideBridgeNotLeading", "logs", `has the lease`},
	{"SlurmtideControllerFails", "logs", `exceeded quota`},
	{"SlurmtideControllerNotLeading", "get leases", `slurmtide-controller`},
	{"SlurmtideControllerNotLeading", "get tokens", `portal`},
	{"SlurmtideExporterBlind", "get --raw", `(?s)slurmtide_exporter_read_failures_total.*slurmtide_exporter_read_seconds`},
	{"SlurmtideExporterCertificateExpires", "openssl", `notAfter=`},
	{"SlurmtideHostMarked", "get nodes", `cpu-0.*GPU Xid 79`},
	{"SlurmtideHostMarked", "get events", `BadHardware`},
	{"SlurmtideJobsGivenBack", "scontrol show job", `AdminComment=slurmtide: image: `},
	{"SlurmtideJobsGivenBack", "explain job", `(?s)Why: +image: .*Next: `},
	{"SlurmtideNodesFailed", "scontrol show node", `NodeName=cpu-0`},
	{"SlurmtidePowerDownsStuck", "status", `cpu-0.* removing`},
	{"SlurmtidePowerDownsStuck", "get pods", `cpu-0 .*example\.com/held`},
	{"SlurmtideRequestsWait", "ls -l", `total`},
	{"SlurmtideScalerCertificateExpires", "openssl", `notAfter=`},
	{"SlurmtideSlurmNotRead", "sdiag", `(?s)Server thread count.*Remote Procedure Call statistics by user`},
	{"troubleshooting", "patch", `patched`},
	{"operate", "taint", `untainted`},
	{"nodesets", "describe", `CapacityAvailable`},
}

// inText are the commands that sentences and tables of a page name, those that only look.
var inText = regexp.MustCompile("`((?:kubectl -n slurm (?:describe|get|logs) [^-`][^`…]*|scontrol show [^`…_]+|slurmtide status(?: -o \\w+)?|slurmtide explain (?:job|node|nodeset) [^`…]+))`")

// quiet are commands that print nothing when all is well, or may.
var quiet = regexp.MustCompile(`^scontrol update |^kubectl -n slurm logs deploy/tide-restapi |-c slurmrestd --tail`)

// manual is the guide's cluster, and which of the blocks have been run before it.
type manual struct {
	*charts
	blocks []block.Block
	bin    string          // kubectl and Slurm's programs, as on a login host
	host   string          // what the guide calls HOST
	ran    map[string]bool // by String of the block
	seen   map[string]bool // of shown, by its place
}

func testGuideCommands(t *testing.T, version string) {
	blocks, err := block.All("../..")
	require.NoError(t, err)
	m := &manual{charts: &charts{plane: newPlaneIn(t, version, "slurm")}, blocks: blocks, bin: t.TempDir(), ran: map[string]bool{}, seen: map[string]bool{}}
	m.wrappers()
	m.install()
	m.try("a job is given back", m.givenBack)
	m.try("all is well", m.well)
	m.try("an object is refused", m.refused)
	m.try("bad hardware", m.badHardware)
	m.try("a pod does not go", m.stuck)
	m.try("by hand", func(*testing.T) { m.run("docs/install.md", "state=power_up") })

	marked := 0
	for _, b := range blocks {
		switch {
		case b.Mark == block.OnCluster:
			marked++
			assert.True(t, m.ran[b.String()], "%s was not run", b)
		case b.Shell() && strings.HasPrefix(b.Mark, "not run: "):
			t.Logf("%s: %s", b, b.Mark)
		case b.Shell():
			assert.Regexp(t, `^run( by Test\w+: .+)?$`, b.Mark, "%s is neither run nor says why not", b)
		}
	}
	assert.Greater(t, marked, 25)
	for i, s := range shown {
		assert.True(t, m.seen[fmt.Sprint(i)], "no command of %s has %q", s.page, s.command)
	}
	t.Logf("%d blocks run", len(m.ran))
}

// wrappers are programs by the names that commands of the guide have: kubectl is the local cluster's, the others run where they are in the pod of slurmctld.
func (m *manual) wrappers() {
	cluster, err := filepath.Abs("../../hack/localcluster/localcluster.sh")
	require.NoError(m.t, err)
	require.NotEmpty(m.t, os.Getenv("LOCALCLUSTER"), "it must name the local cluster; hack/integration.sh does")
	write := func(name, command string) {
		require.NoError(m.t, os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\nexec "+command+` "$@"`+"\n"), 0o755))
	}
	write("kubectl", cluster+" --name "+os.Getenv("LOCALCLUSTER")+" kubectl")
	for _, name := range []string{"sacctmgr", "scontrol", "sdiag", "sinfo", "squeue"} {
		write(name, m.bin+"/kubectl -n slurm exec tide-controller-0 -c slurmctld -- "+name)
	}
	write("slurmtide", m.bin+"/kubectl -n slurm exec tide-controller-0 -c bridge -- slurmtide")
}

// install has everything that the commands name: a cluster with accounting, the controller, scaler and exporter. The NodeSet's image is not there.
func (m *manual) install() {
	t := m.t
	const image = `    slurmd: {image: "slurmtide/none:such", resources: {requests: {cpu: 10m, memory: 20Mi}}}`
	values := `
image: {tag: "` + m.version + `"}
controller:
  hosts: {enabled: true}
  spec:
    persistence: {storageClassName: ""}
    extraConf: "FirstJobId=7\nSuspendTime=600\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\n"
accounting:
  enabled: true
  spec: {storageConfig: {host: mariadb, passwordKeyRef: {name: mariadb, key: password}}}
tokens:
  portal: {spec: {username: slurm}}
nodeSets:
  cpu:
    spec: {nodeNames: "cpu-[0-2]", shape: {cpus: 2, realMemory: 400}, partition: {config: Default=YES}}
` + image + "\n"
	m.values = filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(m.values, []byte(values), 0o600))
	runKubectl(t, "delete", "namespace", daemons, "--ignore-not-found")
	runKubectl(t, "create", "namespace", daemons)
	t.Cleanup(func() {
		if t.Failed() {
			out, err := askKubectl(context.WithoutCancel(t.Context()), "-n", m.ns, "get", "all,events")
			t.Logf("%v\n%s", err, out)
		}
		for _, release := range [][]string{{"scaler", m.ns}, {"tide", m.ns}, {"slurmtide", daemons}} {
			_, _ = tryHelm(context.WithoutCancel(t.Context()), "uninstall", release[0], "-n", release[1], "--ignore-not-found", "--wait")
		}
	})
	db := newMariaDB(m.plane)
	db.dir = "" // it need not outlive its pod
	db.start()
	m.createSecret("mariadb", map[string][]byte{"password": []byte(mariadbPassword)})
	helm(t, "install", "slurmtide-crds", "helm/slurmtide-crds", "-n", daemons, "--wait", "--take-ownership")
	t.Cleanup(func() { // its CRDs stay
		_, _ = tryHelm(context.WithoutCancel(t.Context()), "uninstall", "slurmtide-crds", "-n", daemons)
	})
	helm(t, "install", "slurmtide", "helm/slurmtide", "-n", daemons, "--set", "image.tag=dev")
	helm(t, "install", "tide", "helm/slurm", "-n", m.ns, "-f", m.values)
	m.within(4*time.Minute, time.Second, "sinfo to answer", func() (bool, string) {
		out, said, err := m.charts.run(nil, "slurmctld", "sinfo", "-h", "-o", "%P %D %t")
		return strings.Contains(out, "cpu* 3 idle~"), fmt.Sprint(out, said, err)
	})
	m.waitInForce()

	// Scaler and exporter, beside the cluster, as the chart's README has the scaler.
	cert, key, ca := selfSigned(t, "slurmtide-scaler.slurm", x509.ExtKeyUsageServerAuth)
	read := func(file string) []byte {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return text
	}
	for _, name := range []string{"slurmtide-scaler-tls", "slurmtide-exporter-tls", "tide-bridge-tls"} { // runbooks look at them
		m.createSecret(name, map[string][]byte{"tls.crt": read(cert), "tls.key": read(key), "ca.crt": ca})
	}
	const clusters = `
  enabled: true
  clusters:
  - {name: tide, %sslurmrestd: "http://tide-restapi.slurm:6820", jwtKey: {secretName: tide-auth-jwths256}}`
	more := filepath.Join(t.TempDir(), "scaler.yaml")
	require.NoError(t, os.WriteFile(more, []byte("controller: {enabled: false}\nscaler:"+fmt.Sprintf(clusters, "namespace: slurm, ")+"\n  tls: {secretName: slurmtide-scaler-tls}\nexporter:"+fmt.Sprintf(clusters, "")+"\n"), 0o600))
	helm(t, "install", "scaler", "helm/slurmtide", "-n", m.ns, "-f", more, "--set", "fullnameOverride=slurmtide,image.tag=dev", "--wait", "--timeout", "2m")
	m.host = runKubectl(t, "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")

	m.values = filepath.Join(t.TempDir(), "mended.yaml")
	require.NoError(t, os.WriteFile(m.values, []byte(strings.Replace(values, image, strings.Replace(image, `image: "slurmtide/none:such", `, "", 1), 1)), 0o600))
}

// givenBack has job 7 be given back, since its node's image is not there; when it is, the job runs.
func (m *manual) givenBack(t *testing.T) {
	require.Equal(t, "7", m.sbatch("sleep 1200", "--nodelist=cpu-0"))
	told := func() (bool, string) {
		comment, reason := m.jobField("7", "AdminComment"), m.slurm("sinfo", "-h", "-o", "%E")
		return strings.HasPrefix(comment, "slurmtide:") && strings.Contains(reason, "slurmtide: closed: image"), comment + "\n" + reason
	}
	m.eventually("job 7 to be given back, and its NodeSet to be closed", told)
	for _, alert := range []string{"SlurmtideBootsFail", "SlurmtideBreakerOpen", "SlurmtideJobsGivenBack"} {
		m.run("docs/runbooks/"+alert+".md", "")
	}
	m.run("docs/troubleshooting.md", "StartTime=now")
	helm(t, "upgrade", "tide", "helm/slurm", "-n", m.ns, "-f", m.values, "--force-conflicts")
	m.eventually("the NodeSet to be open again", func() (bool, string) {
		reason := m.slurm("sinfo", "-h", "-o", "%E")
		return !strings.Contains(reason, "slurmtide: closed"), reason
	})
	m.within(3*time.Minute, 2*time.Second, "job 7 to run", func() (bool, string) {
		state := m.jobField("7", "JobState")
		if state == "PENDING" { // it may have been given back once more meanwhile
			_, _, _ = m.charts.run(nil, "slurmctld", "scontrol", "update", "jobid=7", "StartTime=now")
		}
		return state == "RUNNING", state + " " + m.jobField("7", "Reason")
	})
}

// well runs all that need no trouble of their own, while job 7 runs on cpu-0, somebody has set cpu-2 DOWN, and the bridge has just been killed.
func (m *manual) well(t *testing.T) {
	m.slurm("scontrol", "update", "nodename=cpu-2", "state=down", "reason=a fan is broken")
	require.NoError(t, syscall.Kill(m.hostPIDOf("tide-controller-0", "bridge"), syscall.SIGKILL))
	m.eventually("the bridge to lead again", func() (bool, string) {
		log, err := askKubectl(m.ctx, "-n", m.ns, "logs", "tide-controller-0", "-c", "bridge")
		_, former := askKubectl(m.ctx, "-n", m.ns, "logs", "tide-controller-0", "-c", "bridge", "--previous", "--tail=1")
		return strings.Contains(log, "has the lease") && former == nil, fmt.Sprint(log, err, former)
	})
	later := []string{"install.md", "operate.md", "SlurmtideControllerFails", "SlurmtideHostMarked", "SlurmtidePowerDownsStuck"}
	for _, b := range m.blocks {
		is := func(page string) bool { return strings.Contains(b.Page, page) }
		if b.Mark == block.OnCluster && !m.ran[b.String()] && !is(later[0]) && !is(later[1]) && !is(later[2]) && !is(later[3]) && !is(later[4]) {
			m.try(b.String(), func(*testing.T) { m.block(b) })
		}
	}
	m.try("in sentences and tables", func(t *testing.T) {
		asked := map[string]bool{}
		for _, page := range []string{"docs/troubleshooting.md", "docs/operate.md", "docs/explain.md"} {
			text, err := os.ReadFile("../../" + page)
			require.NoError(t, err)
			for _, found := range inText.FindAllStringSubmatch(string(text), -1) {
				if command := found[1]; !asked[command] {
					asked[command] = true
					m.block(block.Block{Page: page, Lang: "console", Text: command})
				}
			}
		}
		assert.Greater(t, len(asked), 9, "%v", asked)
	})
	m.slurm("scontrol", "update", "nodename=cpu-2", "state=resume")
}

// refused lets no further Deployment into the namespace, so that a RestApi cannot be carried out.
func (m *manual) refused(t *testing.T) {
	runKubectl(t, "-n", m.ns, "create", "quota", "full", "--hard=count/deployments.apps=1")
	m.eventually("the quota to count", func() (bool, string) {
		used := runKubectl(t, "-n", m.ns, "get", "quota", "full", "-o", "jsonpath={.status.used}")
		return used != "", used
	})
	_, err := m.tide.SlurmtideV1alpha1().RestApis(m.ns).Create(m.ctx, &v1alpha1.RestApi{
		ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: v1alpha1.RestApiSpec{ControllerRef: v1alpha1.ObjectRef{Name: "tide"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	m.eventually("the controller to fail", func() (bool, string) {
		log := runKubectl(t, "-n", daemons, "logs", "deploy/slurmtide-controller")
		return strings.Contains(log, "exceeded quota"), log
	})
	m.run("docs/runbooks/SlurmtideControllerFails.md", "")
	require.NoError(t, m.tide.SlurmtideV1alpha1().RestApis(m.ns).Delete(m.ctx, "more", metav1.DeleteOptions{}))
	runKubectl(t, "-n", m.ns, "delete", "quota", "full")
}

// badHardware drains a node as operate.md does, and takes off the taint that the bridge puts on its host.
func (m *manual) badHardware(t *testing.T) {
	const mark = "slurmtide.io/bad-hardware"
	clear := func() {
		_, _ = askKubectl(context.WithoutCancel(t.Context()), "taint", "nodes", m.host, mark+"-")
		_, _ = askKubectl(context.WithoutCancel(t.Context()), "annotate", "nodes", m.host, mark+"-")
	}
	clear() // of an interrupted run
	t.Cleanup(clear)
	m.run("docs/operate.md", "state=drain")
	m.eventually("the host's taint", func() (bool, string) {
		taints := runKubectl(t, "get", "node", m.host, "-o", "jsonpath={.spec.taints}")
		events, _ := askKubectl(m.ctx, "get", "events", "--field-selector", "reason=BadHardware", "-o", "name")
		return strings.Contains(taints, mark) && strings.Contains(events, "event"), taints + events
	})
	m.run("docs/runbooks/SlurmtideHostMarked.md", "")
	m.slurm("scontrol", "update", "nodename=cpu-0", "state=undrain") // or the host is marked again
	m.run("docs/operate.md", "taint nodes")
	taints := runKubectl(t, "get", "node", m.host, "-o", "jsonpath={.spec.taints}")
	assert.NotContains(t, taints, mark)
}

// stuck keeps the pod of a node from going by a finalizer.
func (m *manual) stuck(t *testing.T) {
	finalizers := func(value string) {
		_, err := m.kube.CoreV1().Pods(m.ns).Patch(m.ctx, "cpu-0", types.MergePatchType, []byte(`{"metadata":{"finalizers":`+value+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	finalizers(`["example.com/held"]`)
	freed := false
	defer func() {
		if !freed {
			finalizers("null") // or the namespace would never go
		}
	}()
	m.slurm("scancel", "7")
	m.waitJob("7", "CANCELLED")
	m.slurm("scontrol", "update", "nodename=cpu-0", "state=power_down")
	m.eventually("the pod to be on its way", func() (bool, string) {
		pod := m.slurmdPods()["cpu-0"]
		return pod.DeletionTimestamp != nil && len(m.status().Engine.Offs) == 1, fmt.Sprint(pod.DeletionTimestamp)
	})
	m.run("docs/runbooks/SlurmtidePowerDownsStuck.md", "")
	finalizers("null")
	freed = true
	m.waitZero("cpu-0")
}

// run runs the blocks of a page in which word stands.
func (m *manual) run(page, word string) {
	m.t.Helper()
	n := len(m.ran)
	for _, b := range m.blocks {
		if b.Page == page && b.Mark == block.OnCluster && strings.Contains(b.Text, word) {
			m.try(b.String(), func(*testing.T) { m.block(b) })
		}
	}
	require.Greater(m.t, len(m.ran), n, "%s has no block with %q to run", page, word)
}

// block runs the commands of a block, each by itself.
func (m *manual) block(b block.Block) {
	if b.Mark == block.OnCluster {
		m.ran[b.String()] = true
	}
	commands := b.Commands()
	require.NotEmpty(m.t, commands)
	for _, c := range commands {
		ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
		cmd := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n"+strings.ReplaceAll(c.Text, " HOST ", " "+m.host+" "))
		cmd.Env = append(os.Environ(), "PATH="+m.bin+":"+os.Getenv("PATH"))
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		err := cmd.Run()
		cancel()
		assert.NoError(m.t, err, "%s\n%s%s", c.Text, out.String(), said.String())
		if !quiet.MatchString(c.Text) {
			assert.NotEmpty(m.t, strings.TrimSpace(out.String()), "%s prints nothing: %s", c.Text, said.String())
		}
		for i, s := range shown {
			if strings.HasSuffix(b.Page, "/"+s.page+".md") && strings.Contains(c.Text, s.command) {
				m.seen[fmt.Sprint(i)] = true
				assert.Regexp(m.t, s.want, out.String(), c.Text)
			}
		}
	}
}
