//go:build integration && controlplane && mariadb

package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// TestMariaDBOperator has the real mariadb-operator make the database of docs/examples/mariadb.yaml, and slurmdbd keep records in it.
func TestMariaDBOperator(t *testing.T) {
	withController(t)
	of := versions()
	p := newPlane(t, of[len(of)-1], "mariadb-")
	p.createVolume("storage-mariadb-0")
	o := &operated{&records{plane: p}}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			for _, args := range [][]string{
				{"-n", p.ns, "get", "mariadbs,databases.k8s.mariadb.com,users.k8s.mariadb.com,grants.k8s.mariadb.com,pvc,secrets"}, {"-n", p.ns, "logs", "mariadb-0", "--tail=60"},
				{"-n", p.ns, "logs", "tide-accounting-0", "--tail=60"}, {"-n", "mariadb-operator", "logs", "deploy/mariadb-operator", "--tail=60"},
			} {
				out, err := askKubectl(ctx, args...)
				t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
		// Before the namespace: what the operator has made for it can go as long as the database is there only.
		out, err := askKubectl(ctx, "-n", p.ns, "delete", "mariadb", "--all", "--timeout=2m")
		assert.NoError(t, err, out)
	})
	p.part("the example", o.testExample)
	p.part("a job's record", o.testRecord)
	p.part("many ask at once", o.testMany)
	p.part("the database's pod goes", o.testPodGoes)
}

// operated is a Slurm cluster whose database mariadb-operator has made.
type operated struct{ *records }

// testExample applies the example, with images that are at hand and a volume that is.
func (o *operated) testExample(t *testing.T) {
	text, err := os.ReadFile(guide + "mariadb.yaml")
	require.NoError(t, err)
	edited := string(text)
	for old, changed := range map[string]string{
		"kind: MariaDB\nmetadata:\n  name: mariadb\nspec:\n": "kind: MariaDB\nmetadata:\n  name: mariadb\nspec:\n  image: slurmtide/mariadb:entrypoint\n",
		"    size: 16Gi\n":        "    size: 4Gi\n",
		"slurmtide/slurm:26.05\n": "slurmtide/slurm:" + o.version + "\n",
	} {
		require.Equal(t, 1, strings.Count(edited, old), "%s", old)
		edited = strings.Replace(edited, old, changed, 1)
	}
	began := time.Now()
	out := kubectl(t, edited, "-n", o.ns, "apply", "-f", "-")
	assert.NotContains(t, out, "Warning", "all fields are known")
	runKubectl(t, "-n", o.ns, "wait", "--for=condition=Ready", "mariadb/mariadb", "--timeout=4m")
	t.Logf("the MariaDB is ready after %v", time.Since(began).Round(time.Second))
	o.waitAccounting(v1alpha1.ConditionAvailable, "Answers")
	t.Logf("slurmdbd answers after %v", time.Since(began).Round(time.Second))

	passwords := runKubectl(t, "-n", o.ns, "get", "secret", "mariadb", "mariadb-root", "-o", "jsonpath={.items[*].data.password}")
	assert.Regexp(t, `^\S{24} \S{24}$`, passwords, "the operator has made both, of 16 characters")
	assert.NotEmpty(t, o.ask("SELECT id FROM information_schema.processlist WHERE user = 'slurm' AND db = 'slurm_acct_db'"), "slurmdbd has come as its user")
	assert.Equal(t, "0\t1073741824\t900\t16777216",
		o.ask("SELECT @@innodb_snapshot_isolation, @@innodb_buffer_pool_size, @@innodb_lock_wait_timeout, @@max_allowed_packet"), "myCnf of the example")
}

func (o *operated) testRecord(t *testing.T) {
	o.createController("SuspendTime=5\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\n", func(c *v1alpha1.Controller) {
		c.Spec.AccountingRef = &v1alpha1.ObjectRef{Name: "tide"}
	})
	o.createSet("cpu", "cpu-[0-1]")
	o.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	o.waitInForce()
	id := o.sbatch("exit 3", "-N2", "--job-name=recorded")
	o.waitJob(id, "FAILED")
	o.waitRecord(id, "FAILED|3:0")
	assert.Equal(t, "recorded\t2", o.ask("SELECT job_name, nodes_alloc FROM slurm_acct_db.tide_job_table WHERE id_job = "+id))
}

// testMany has more ask for the record at once than the operator's own user may have connections.
func (o *operated) testMany(t *testing.T) {
	assert.Equal(t, "120", o.ask("SELECT max_user_connections FROM mysql.user WHERE user = 'slurm'"))
	const many = 50
	out := o.slurm("bash", "-c", fmt.Sprintf("for i in {1..%d}; do sacct -n -P -X -a -o State 2>&1 & done; wait", many))
	assert.Equal(t, strings.TrimSpace(strings.Repeat("FAILED\n", many)), out)
}

// testPodGoes has the operator's StatefulSet make the database's pod again.
func (o *operated) testPodGoes(t *testing.T) {
	before := o.ask("SELECT COUNT(*) FROM slurm_acct_db.tide_job_table")
	old := runKubectl(t, "-n", o.ns, "get", "pod", "mariadb-0", "-o", "jsonpath={.metadata.uid}")
	require.NoError(t, o.kube.CoreV1().Pods(o.ns).Delete(o.ctx, "mariadb-0", metav1.DeleteOptions{}))
	id := o.sbatch("exit 4")
	o.waitJob(id, "FAILED")
	o.waitRecord(id, "FAILED|4:0")
	assert.NotEqual(t, old, runKubectl(t, "-n", o.ns, "get", "pod", "mariadb-0", "-o", "jsonpath={.metadata.uid}"))
	assert.Equal(t, "1", before)
	assert.Equal(t, "2", o.ask("SELECT COUNT(*) FROM slurm_acct_db.tide_job_table"), "the old record is there, too")
}

// ask runs SQL in the database, as root.
func (o *operated) ask(sql string) string {
	o.t.Helper()
	out, stderr, err := o.ExecPod(o.ctx, "mariadb-0", nil, "mariadb", "bash", "-c", `MYSQL_PWD=$MARIADB_ROOT_PASSWORD mariadb --user=root --skip-column-names --batch -e "$1"`, "bash", sql)
	require.NoError(o.t, err, "%s: %s", sql, stderr)
	return strings.TrimSpace(out)
}
