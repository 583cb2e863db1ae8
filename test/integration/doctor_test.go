//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/hack/stack"
)

// slurmtide doctor live, before a real API server, slurmrestd and slurmctld: nothing it says of them is wrong while all is well, and it sees what is made wrong.
func TestDoctorLive(t *testing.T) {
	forScaling(t, func(t *testing.T, version string) {
		c := deploy(t, "doctor", version, stack.Options{Gate: true, SuspendTime: 600, NodeLines: []string{"NodeName=lone-0 CPUs=2 RealMemory=400 State=CLOUD"}},
			nodeSet{name: "cpu", nodes: "cpu-[0-1]"})
		d := c.newDoctor()
		c.waitJob(c.sbatch("true", "-w", "cpu-0"), "COMPLETED")

		d.t = t
		assert.Equal(t, []string{"cloud-without-nodeset: no NodeSet has lone-0"}, d.finds(0))

		t.Run("NodeSets", func(t *testing.T) {
			d.t = t
			kubectl(t, "", "-n", c.ns, "patch", "nodeset", "cpu", "--type=merge", "-p", `{"spec":{"nodeNames":"cpu-[0-1],away-0","shape":{"cpus":2,"realMemory":300}}}`)
			found := strings.Join(d.finds(1), "\n")
			for _, part := range []string{"nodeset-not-in-slurm: ", "away-0", "nodeset-shape: cpu-[0-1]: RealMemory is 400", "has 300"} {
				assert.Contains(t, found, part)
			}
			kubectl(t, "", "-n", c.ns, "patch", "nodeset", "cpu", "--type=merge", "-p", `{"spec":{"nodeNames":"cpu-[0-1],lone-0","shape":{"cpus":2,"realMemory":400}}}`)
			assert.Empty(t, d.finds(0))
		})
		t.Run("slurm.conf is not what slurmctld runs with", func(t *testing.T) {
			d.t = t
			d.edits("NodeName=lone-0 ", "NodeName=lone-[0-1] ")
			assert.Contains(t, d.finds(0), "not-reconfigured: slurmctld knows no lone-1")
			d.edits("NodeName=lone-[0-1] ", "NodeName=lone-0 ")
		})
		t.Run("rights", func(t *testing.T) {
			d.t, c.t = t, t
			kubectl(t, "", "-n", c.ns, "create", "serviceaccount", "nobody")
			was := d.kubeconfig
			d.kubeconfig = c.kubeconfigOf("nobody")
			assert.Contains(t, strings.Join(d.finds(1), "\n"), `kubernetes: the API server: nodesets.slurmtide.io is forbidden: User "system:serviceaccount:`+c.ns+`:nobody" cannot list`)
			kubectl(t, "", "-n", c.ns, "create", "role", "reads", "--verb=get,list,watch", "--resource=nodesets.slurmtide.io,pods")
			kubectl(t, "", "-n", c.ns, "create", "rolebinding", "reads", "--role=reads", "--serviceaccount="+c.ns+":nobody")
			c.eventually("what the bridge may not", func() (bool, string) {
				found := strings.Join(d.finds(1), "\n")
				return strings.Contains(found, "rights: ") && strings.Contains(found, "create pods") && strings.Contains(found, "host-rights: "), found
			})
			d.kubeconfig = was
		})
		t.Run("slurmrestd", func(t *testing.T) {
			d.t, c.t = t, t
			was := d.key
			d.key = filepath.Join(t.TempDir(), "other.key")
			require.NoError(t, os.WriteFile(d.key, bytes.Repeat([]byte("x"), 32), 0o600))
			assert.Contains(t, strings.Join(d.finds(1), "\n"), "slurmrestd: ")
			d.key = was
			c.slurmrestd("STOP")
			t.Cleanup(func() { c.slurmrestd("CONT") })
			found := strings.Join(d.finds(1), "\n")
			c.slurmrestd("CONT")
			assert.Contains(t, found, "slurmrestd: ")
			assert.Empty(t, d.finds(0))
		})
	})
}

// doctorRuns is what slurmtide doctor live is run with.
type doctorRuns struct {
	t                     *testing.T
	c                     *cluster
	dir                   string // a copy of /etc/slurm
	kubeconfig, rest, key string
}

func (c *cluster) newDoctor() *doctorRuns {
	c.t.Helper()
	address, err := c.Forward(c.ctx, 6820)
	require.NoError(c.t, err)
	key, err := c.JWTKey(c.ctx)
	require.NoError(c.t, err)
	d := &doctorRuns{t: c.t, c: c, dir: c.t.TempDir(), kubeconfig: os.Getenv("KUBECONFIG"), rest: "http://" + address}
	d.key = filepath.Join(d.dir, "jwt_hs256.key")
	require.NoError(c.t, os.WriteFile(d.key, key, 0o600))
	for name := range strings.FieldsSeq(c.slurm("sh", "-c", "cd /etc/slurm && ls *.conf")) {
		text, stderr, err := c.run(nil, stack.ContainerSlurmctld, "cat", "/etc/slurm/"+name)
		require.NoError(c.t, err, stderr)
		require.NoError(c.t, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o644))
	}
	return d
}

// edits changes the copy of slurm.conf.
func (d *doctorRuns) edits(old, now string) {
	d.t.Helper()
	file := filepath.Join(d.dir, "slurm.conf")
	text, err := os.ReadFile(file)
	require.NoError(d.t, err)
	require.Contains(d.t, string(text), old)
	require.NoError(d.t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, now)), 0o644))
}

// finds returns the findings about more than files, each as "rule: what was seen". The exit status has to be this one.
func (d *doctorRuns) finds(status int) (found []string) {
	d.t.Helper()
	cmd := exec.CommandContext(d.c.ctx, "../../bin/slurmtide", "doctor", "live", "--slurm-conf", filepath.Join(d.dir, "slurm.conf"), "--slurm-version", d.c.Options.SlurmVersion, "--host=no",
		"--namespace", d.c.ns, "--kubeconfig", d.kubeconfig, "--slurmrestd", d.rest, "--jwt-key", d.key, "-o", "json")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if status == 0 {
		require.NoError(d.t, err, "%s%s", out, stderr.String())
	}
	require.Equal(d.t, status, cmd.ProcessState.ExitCode(), "%v: %s%s", err, out, stderr.String())
	var report struct {
		Unread   []string
		Findings []struct{ Rule, Seen string }
	}
	require.NoError(d.t, json.Unmarshal(out, &report), "%s", out)
	for _, f := range report.Findings {
		if f.Rule == "name-server" { // of the machine that the tests run on
			continue
		}
		found = append(found, fmt.Sprintf("%s: %s", f.Rule, f.Seen))
	}
	d.t.Logf("%q, not looked at: %q", found, report.Unread)
	return found
}
