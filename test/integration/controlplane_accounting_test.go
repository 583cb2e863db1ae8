//go:build integration && controlplane

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// records is a Slurm cluster with an Accounting and its MariaDB.
type records struct {
	*plane
	db     *mariadb
	portal signer
	jwks   *v1alpha1.FileRef
}

// testAccounting has slurmdbd with a real MariaDB keep the records of jobs, through all that may happen to either.
func testAccounting(t *testing.T, version string) {
	p := newPlane(t, version, "records-")
	r := &records{plane: p, db: newMariaDB(p), portal: newSigner(t)}
	r.jwks = r.portal.publish(p)
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{
				{"-n", p.ns, "logs", "tide-accounting-0", "--tail=60"}, {"-n", p.ns, "logs", "mariadb", "--tail=30"}, {"-n", p.ns, "get", "accountings", "-o", "yaml"},
			} {
				out, err := askKubectl(context.WithoutCancel(p.ctx), args...)
				t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	})
	p.part("validation", r.testValidation)
	p.part("from nothing to a record", r.testFirst)
	p.part("slurmrestd answers what slurmdbd knows", r.testRestAPI)
	p.part("the database goes", r.testOutage)
	p.part("a cluster that ran without", r.testLate)
	p.part("TLS", r.testTLS)
	p.part("at rest nothing is written", r.testRest)
	p.part("deleted", r.testDeleted)
}

func (r *records) accounting() *v1alpha1.Accounting {
	r.t.Helper()
	a, err := r.tide.SlurmtideV1alpha1().Accountings(r.ns).Get(r.ctx, "tide", metav1.GetOptions{})
	require.NoError(r.t, err)
	return a
}

func (r *records) createAccounting() {
	r.t.Helper()
	_, err := r.tide.SlurmtideV1alpha1().Accountings(r.ns).Create(r.ctx, &v1alpha1.Accounting{
		ObjectMeta: metav1.ObjectMeta{Name: "tide"},
		Spec: v1alpha1.AccountingSpec{
			Slurmdbd:      &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "slurmtide/slurm:" + r.version, ImagePullPolicy: corev1.PullIfNotPresent}},
			StorageConfig: &v1alpha1.StorageConfig{Host: "mariadb", PasswordKeyRef: v1alpha1.KeyRef{Name: "mariadb", Key: "password"}},
			JWKSKeyRef:    r.jwks,
			ExtraConf:     "PurgeJobAfter=12months\n",
		},
	}, metav1.CreateOptions{})
	require.NoError(r.t, err)
}

func (r *records) change(change func(*v1alpha1.Accounting)) {
	r.t.Helper()
	r.eventually("a change", func() (bool, string) {
		a := r.accounting()
		change(a)
		_, err := r.tide.SlurmtideV1alpha1().Accountings(r.ns).Update(r.ctx, a, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// waitAccounting waits until a condition of the newest generation has a reason and a message with these words, and returns the message.
func (r *records) waitAccounting(kind, reason string, words ...string) (message string) {
	r.t.Helper()
	// Secrets are looked at once a minute, and a slurmdbd that waits does not hear that it shall end for half of one.
	r.within(4*time.Minute, time.Second, kind+" "+reason, func() (bool, string) {
		a := r.accounting()
		one := meta.FindStatusCondition(a.Status.Conditions, kind)
		if one == nil {
			return false, "no such condition"
		}
		message = one.Message
		for _, word := range words {
			if !strings.Contains(message, word) {
				return false, message
			}
		}
		return one.Reason == reason && one.ObservedGeneration == a.Generation, fmt.Sprintf("%+v", a.Status.Conditions)
	})
	return message
}

// waitRecord waits until sacct has a job's state and exit code.
func (r *records) waitRecord(id, want string) {
	r.t.Helper()
	r.within(3*time.Minute, time.Second, "sacct to show "+want, func() (bool, string) {
		out, stderr, err := r.run(nil, "slurmctld", "sacct", "-n", "-P", "-X", "-j", id, "-o", "State,ExitCode")
		return err == nil && strings.TrimSpace(out) == want, out + stderr
	})
}

func (r *records) testValidation(t *testing.T) {
	key := v1alpha1.KeyRef{Name: "a", Key: "b"}
	accountings := r.tide.SlurmtideV1alpha1().Accountings(r.ns)
	good := func() *v1alpha1.Accounting {
		return &v1alpha1.Accounting{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: v1alpha1.AccountingSpec{
			Slurmdbd: &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "none"}}, StorageConfig: &v1alpha1.StorageConfig{Host: "h", PasswordKeyRef: key},
		}}
	}
	for want, change := range map[string]func(*v1alpha1.Accounting){
		"spec.slurmdbd.image is missing":                                      func(a *v1alpha1.Accounting) { a.Spec.Slurmdbd = &v1alpha1.DaemonOptions{} },
		"metadata.name must be at most 40":                                    func(a *v1alpha1.Accounting) { a.Name = strings.Repeat("a", 41) },
		"give storageConfig for a slurmdbd that is started here, or external": func(a *v1alpha1.Accounting) { a.Spec.StorageConfig = nil },
		"spec.external needs slurmKeyRef": func(a *v1alpha1.Accounting) {
			a.Spec = v1alpha1.AccountingSpec{External: &v1alpha1.ExternalAccounting{Host: "h"}}
		},
		"give both of tls.certificate and tls.privateKey": func(a *v1alpha1.Accounting) {
			a.Spec.StorageConfig.TLS = &v1alpha1.StorageTLS{CA: key, Certificate: &key}
		},
		"spec.storageConfig.database": func(a *v1alpha1.Accounting) { a.Spec.StorageConfig.Database = "a;drop" },
		"spec.jwksKeyRef is for a slurmdbd that is started here": func(a *v1alpha1.Accounting) {
			a.Spec = v1alpha1.AccountingSpec{External: &v1alpha1.ExternalAccounting{Host: "h"}, SlurmKeyRef: &key, JWTKeyRef: &key, JWKSKeyRef: &v1alpha1.FileRef{Name: "a", Key: "b"}}
		},
	} {
		a := good()
		change(a)
		_, err := accountings.Create(r.ctx, a, metav1.CreateOptions{})
		require.ErrorContains(t, err, want)
	}
	a, err := accountings.Create(r.ctx, good(), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "slurm_acct_db slurm 3306", fmt.Sprint(a.Spec.StorageConfig.Database, " ", a.Spec.StorageConfig.Username, " ", a.Spec.StorageConfig.Port))
	refused(t, r.plane, accountings, map[string]func(*v1alpha1.Accounting){
		"spec.storageConfig.database cannot be changed": func(a *v1alpha1.Accounting) { a.Spec.StorageConfig.Database = "other" },
		"spec.slurmKeyRef cannot be added or removed":   func(a *v1alpha1.Accounting) { a.Spec.SlurmKeyRef = &key },
		"spec.external cannot be added or removed": func(a *v1alpha1.Accounting) {
			a.Spec = v1alpha1.AccountingSpec{External: &v1alpha1.ExternalAccounting{Host: "h"}, SlurmKeyRef: &key, JWTKeyRef: &key}
		},
	})
	require.NoError(t, accountings.Delete(r.ctx, "try", metav1.DeleteOptions{}))
	named, another := good(), &v1alpha1.KeyRef{Name: "a", Key: "c"}
	named.Spec.SlurmKeyRef, named.Spec.JWTKeyRef = &key, &key
	_, err = accountings.Create(r.ctx, named, metav1.CreateOptions{})
	require.NoError(t, err)
	refused(t, r.plane, accountings, map[string]func(*v1alpha1.Accounting){
		"spec.slurmKeyRef cannot be changed": func(a *v1alpha1.Accounting) { a.Spec.SlurmKeyRef = another },
		"spec.jwtKeyRef cannot be changed":   func(a *v1alpha1.Accounting) { a.Spec.JWTKeyRef = another },
	})
	require.NoError(t, accountings.Delete(r.ctx, "try", metav1.DeleteOptions{}))
}

// testFirst makes all objects at once, with the password missing, then a wrong one, and no database: each time the conditions say what is to be done, and in
// the end a job is recorded.
func (r *records) testFirst(t *testing.T) {
	r.createAccounting()
	r.createController("SuspendTime=5\nSuspendTimeout=40\nResumeTimeout=120\nMessageTimeout=20\nAccountingStorageTRES=gres/gpu\n", func(c *v1alpha1.Controller) {
		c.Spec.AccountingRef = &v1alpha1.ObjectRef{Name: "tide"}
	})
	r.createSet("cpu", "cpu-[0-2]")
	const missing = "spec.storageConfig.passwordKeyRef: there is no Secret mariadb: create it, with the key under password"
	assert.Equal(t, missing, r.waitAccounting(v1alpha1.ConditionAccepted, "KeyMissing"))
	message := r.waitCondition(v1alpha1.ConditionAvailable, "WaitsForAccounting")
	assert.Contains(t, message, "Accounting tide: "+missing)

	r.createSecret("mariadb", map[string][]byte{"password": []byte("wrong\n")})
	message = r.waitAccounting(v1alpha1.ConditionAvailable, "DatabaseFails", "mysql_real_connect failed: 2002")
	t.Log(message)
	assert.Contains(t, message, "see that MariaDB or MySQL runs, and that pods reach it at mariadb:3306")
	r.eventually("an Event", func() (bool, string) {
		said := runKubectl(t, "-n", r.ns, "get", "events.events.k8s.io", "-o", `jsonpath={range .items[?(@.regarding.kind=="Accounting")]}{.reason}: {.note}{"\n"}{end}`)
		return strings.Contains(said, "AvailableDatabaseFails: slurmdbd waits for its database: mysql_real_connect failed: 2002"), said
	})
	r.db.start()
	message = r.waitAccounting(v1alpha1.ConditionAvailable, "DatabaseFails", "mysql_real_connect failed: 1045")
	t.Log(message)
	assert.Contains(t, message, "give user slurm of the database the password")
	r.eventually("the Controller to say so, too", func() (bool, string) {
		message := r.waitCondition(v1alpha1.ConditionAvailable, "WaitsForAccounting")
		return strings.Contains(message, "failed: 1045"), message
	})

	secret, err := r.kube.CoreV1().Secrets(r.ns).Get(r.ctx, "mariadb", metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data["password"] = []byte(mariadbPassword + "\n")
	_, err = r.kube.CoreV1().Secrets(r.ns).Update(r.ctx, secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	began := time.Now()
	r.waitAccounting(v1alpha1.ConditionAvailable, "Answers")
	t.Logf("slurmdbd answers %v after the password was right", time.Since(began).Round(time.Second))
	r.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	r.waitInForce()
	assert.Equal(t, "tide", r.slurm("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster"), "slurmctld has registered")

	good, bad := r.sbatch("srun sleep 12", "-N2", "--job-name=good"), r.sbatch("exit 3", "--job-name=bad")
	r.waitJob(good, "COMPLETED")
	r.waitJob(bad, "FAILED")
	r.waitRecord(good, "COMPLETED|0:0")
	r.waitRecord(bad, "FAILED|3:0")
	out := r.slurm("sacct", "-n", "-P", "-X", "-j", good, "-o", "JobName,Cluster,NNodes,NodeList")
	assert.True(t, strings.HasPrefix(out, "good|tide|2|cpu-["), out)
	r.eventually("the job's steps", func() (bool, string) {
		out := r.slurm("sacct", "-n", "-P", "-j", good+".0", "-o", "State,MaxRSS")
		return strings.HasPrefix(out, "COMPLETED|") && !strings.HasSuffix(out, "|"), out // slurmd measures
	})
	assert.Equal(t, "3", r.db.ask("SELECT state FROM slurm_acct_db.tide_job_table WHERE id_job = "+good), "it is in the database, as JOB_COMPLETE")
	assert.Contains(t, r.setting("AccountingStorageTRES"), "gres/gpu")
}

// testRestAPI asks a slurmrestd for the records.
func (r *records) testRestAPI(t *testing.T) {
	_, err := r.tide.SlurmtideV1alpha1().RestApis(r.ns).Create(r.ctx, &v1alpha1.RestApi{
		ObjectMeta: metav1.ObjectMeta{Name: "tide"}, Spec: v1alpha1.RestApiSpec{ControllerRef: v1alpha1.ObjectRef{Name: "tide"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = r.tide.SlurmtideV1alpha1().Tokens(r.ns).Create(r.ctx, &v1alpha1.Token{
		ObjectMeta: metav1.ObjectMeta{Name: "portal"}, Spec: v1alpha1.TokenSpec{ControllerRef: &v1alpha1.ObjectRef{Name: "tide"}, Username: "slurm"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	const ask = `exec 3<>/dev/tcp/tide-restapi/6820
printf 'GET /slurmdb/v0.0.42/jobs/ HTTP/1.1\r\nHost: tide\r\nX-SLURM-USER-TOKEN: %s\r\nConnection: close\r\n\r\n' "$1" >&3
cat <&3`
	r.eventually("slurmrestd to know the jobs", func() (bool, string) {
		secret, err := r.kube.CoreV1().Secrets(r.ns).Get(r.ctx, "portal", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, token := range []string{string(secret.Data["SLURM_JWT"]), r.portal.token("slurm")} {
			out, stderr, err := r.run(nil, "slurmctld", "timeout", "20", "bash", "-c", ask, "bash", token)
			if err != nil {
				return false, stderr
			}
			if !strings.Contains(strings.SplitN(out, "\r\n", 2)[0], " 200 ") || !strings.Contains(out, `"name": "good"`) {
				return false, out[:min(len(out), 3000)]
			}
		}
		return true, ""
	})
	out := r.slurm("timeout", "20", "bash", "-c", ask, "bash", newSigner(t).token("slurm"))
	assert.NotContains(t, strings.SplitN(out, "\r\n", 2)[0], " 200 ", "another key")
}

// testOutage takes the database away, then slurmdbd, then slurmctld: jobs go on, and are recorded when all are back.
func (r *records) testOutage(t *testing.T) {
	r.db.stop()
	require.NoError(t, r.kube.CoreV1().Pods(r.ns).Delete(r.ctx, "tide-accounting-0", metav1.DeleteOptions{}))
	r.waitAccounting(v1alpha1.ConditionAvailable, "DatabaseFails")
	first := r.sbatch("srun sleep 1", "-N2")
	r.waitJob(first, "COMPLETED")
	_, stderr, err := r.run(nil, "slurmctld", "timeout", "30", "sacct", "-j", first)
	require.Error(t, err, "nobody can have the records now")
	t.Log(stderr)

	// slurmctld goes by its state files.
	time.Sleep(6 * time.Second) // it saves them
	before := r.restarts()
	require.NoError(t, r.kube.CoreV1().Pods(r.ns).Delete(r.ctx, "tide-controller-0", metav1.DeleteOptions{}))
	r.eventually("another pod", func() (bool, string) {
		pod, err := r.kube.CoreV1().Pods(r.ns).Get(r.ctx, "tide-controller-0", metav1.GetOptions{})
		return err == nil && !strings.HasPrefix(before, string(pod.UID)), fmt.Sprint(err)
	})
	began := time.Now()
	r.waitCondition(v1alpha1.ConditionAvailable, "Answers")
	t.Logf("slurmctld answers %v after its pod was made, without slurmdbd", time.Since(began).Round(time.Second))
	second := r.sbatch("exit 5")
	r.waitJob(second, "FAILED")

	// Its configuration may change meanwhile.
	before = r.restarts()
	c := r.controller()
	c.Spec.ExtraConf += "MaxJobCount=4321\n"
	_, err = r.tide.SlurmtideV1alpha1().Controllers(r.ns).Update(r.ctx, c, metav1.UpdateOptions{})
	require.NoError(t, err)
	r.waitInForce()
	assert.Equal(t, "4321", r.setting("MaxJobCount"))
	assert.Equal(t, before, r.restarts())
	third := r.sbatch("srun sleep 1")
	r.waitJob(third, "COMPLETED")

	r.db.start()
	began = time.Now()
	r.waitAccounting(v1alpha1.ConditionAvailable, "Answers")
	r.waitRecord(first, "COMPLETED|0:0")
	r.waitRecord(second, "FAILED|5:0")
	r.waitRecord(third, "COMPLETED|0:0")
	t.Logf("all records are there %v after the database", time.Since(began).Round(time.Second))

	// The database alone goes, and slurmdbd runs on.
	r.db.stop()
	last := r.sbatch("exit 7")
	r.waitJob(last, "FAILED")
	r.waitAccounting(v1alpha1.ConditionAvailable, "DatabaseFails")
	r.db.start()
	r.waitRecord(last, "FAILED|7:0")
	r.waitAccounting(v1alpha1.ConditionAvailable, "Answers")
}

// testLate gives a Controller that has run without an Accounting one, the same that another has.
func (r *records) testLate(t *testing.T) {
	controllers := r.tide.SlurmtideV1alpha1().Controllers(r.ns)
	create := func(name string, change func(*v1alpha1.Controller)) {
		c := &v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ControllerSpec{
			Slurmctld:   &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "slurmtide/slurm:" + r.version, ImagePullPolicy: corev1.PullIfNotPresent}},
			Bridge:      &v1alpha1.BridgeOptions{Enabled: new(false)},
			Persistence: v1alpha1.Persistence{Enabled: new(false)},
		}}
		change(c)
		_, err := controllers.Create(r.ctx, c, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	wait := func(name, kind, reason string) (message string) {
		r.eventually(name+" "+kind+" "+reason, func() (bool, string) {
			c, err := controllers.Get(r.ctx, name, metav1.GetOptions{})
			require.NoError(t, err)
			one := meta.FindStatusCondition(c.Status.Conditions, kind)
			if one != nil {
				message = one.Message
			}
			return one != nil && one.Reason == reason && one.ObservedGeneration == c.Generation, fmt.Sprintf("%+v", c.Status.Conditions)
		})
		return message
	}
	refer := func(name string) {
		r.eventually("a change", func() (bool, string) {
			c, err := controllers.Get(r.ctx, name, metav1.GetOptions{})
			require.NoError(t, err)
			c.Spec.AccountingRef = &v1alpha1.ObjectRef{Name: "tide"}
			_, err = controllers.Update(r.ctx, c, metav1.UpdateOptions{})
			return err == nil, fmt.Sprint(err)
		})
	}
	const own = "tide-accounting" // what is made for it is called almost as what is made for tide and its Accounting
	create(own, func(*v1alpha1.Controller) {})
	create("late", func(c *v1alpha1.Controller) {
		c.Spec.SlurmKeyRef = &v1alpha1.KeyRef{Name: "tide-auth-slurm", Key: "slurm.key"}
		c.Spec.JWTKeyRef = &v1alpha1.KeyRef{Name: "tide-auth-jwths256", Key: "jwt_hs256.key"}
	})
	wait(own, v1alpha1.ConditionConfigInForce, "InForce")
	refer(own)
	message := wait(own, v1alpha1.ConditionAccepted, "KeyDiffers")
	assert.Contains(t, message, "Accounting tide has another key than the one that was made for this Controller")
	require.NoError(t, controllers.Delete(r.ctx, own, metav1.DeleteOptions{}))

	wait("late", v1alpha1.ConditionConfigInForce, "InForce")
	pod := func() string {
		return runKubectl(t, "-n", r.ns, "get", "pod", "late-controller-0", "-o", "jsonpath={.metadata.uid} {.status.containerStatuses[*].restartCount}")
	}
	before := pod()
	ask := func(args ...string) string {
		out, stderr, err := r.ExecPod(r.ctx, "late-controller-0", nil, "slurmctld", args...)
		require.NoError(t, err, "%v: %s", args, stderr)
		return strings.TrimSpace(out)
	}
	assert.NotContains(t, ask("scontrol", "show", "config"), "accounting_storage/slurmdbd")
	refer("late")
	wait("late", v1alpha1.ConditionConfigInForce, "InForce")
	assert.Contains(t, ask("scontrol", "show", "config"), "accounting_storage/slurmdbd")
	assert.Equal(t, before, pod(), "it was told in place")
	assert.Equal(t, "late\ntide", ask("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster"))
	require.NoError(t, controllers.Delete(r.ctx, "late", metav1.DeleteOptions{}))
}

// testTLS has slurmdbd and MariaDB look at each other's certificates.
func (r *records) testTLS(t *testing.T) {
	r.db.ask("ALTER USER 'slurm'@'%' REQUIRE X509")
	tls := &v1alpha1.StorageTLS{CA: v1alpha1.KeyRef{Name: "slurmdbd-tls", Key: "no-ca.crt"}}
	r.change(func(a *v1alpha1.Accounting) { a.Spec.StorageConfig.TLS = tls })
	message := r.waitAccounting(v1alpha1.ConditionAvailable, "DatabaseFails", "failed: 2026")
	t.Log(message)
	assert.Contains(t, message, "see that the Secrets of spec.storageConfig.tls hold")
	tls.CA.Key = "ca.crt"
	r.change(func(a *v1alpha1.Accounting) { a.Spec.StorageConfig.TLS = tls })
	message = r.waitAccounting(v1alpha1.ConditionAvailable, "DatabaseFails", "failed: 1045") // it shows no certificate
	assert.Contains(t, message, "set spec.storageConfig.tls")
	tls.Certificate, tls.PrivateKey = &v1alpha1.KeyRef{Name: "slurmdbd-tls", Key: "tls.crt"}, &v1alpha1.KeyRef{Name: "slurmdbd-tls", Key: "tls.key"}
	r.change(func(a *v1alpha1.Accounting) { a.Spec.StorageConfig.TLS = tls })
	r.waitAccounting(v1alpha1.ConditionAvailable, "Answers")
	id := r.sbatch("true")
	r.waitJob(id, "COMPLETED")
	r.waitRecord(id, "COMPLETED|0:0")
}

func (r *records) testRest(t *testing.T) {
	r.waitZero("cpu-[0-2]")
	r.waitAccounting(v1alpha1.ConditionAvailable, "Answers")
	seen := func() map[string]string {
		return r.resourceVersions(t, "configmaps", "services", "secrets", "statefulsets", "deployments", "controllers", "accountings", "restapis", "tokens")
	}
	before := seen()
	assert.Contains(t, before["statefulsets"], "tide-accounting=")
	time.Sleep(80 * time.Second)
	assert.Equal(t, before, seen())
}

// testDeleted takes the Accounting away while a Controller needs its keys: they stay, nodes boot, and another Accounting of that name goes on with keys and
// records.
func (r *records) testDeleted(t *testing.T) {
	require.NoError(t, r.tide.SlurmtideV1alpha1().Accountings(r.ns).Delete(r.ctx, "tide", metav1.DeleteOptions{}))
	r.eventually("all but the keys to go", func() (bool, string) {
		left := runKubectl(t, "-n", r.ns, "get", "statefulsets,services,secrets,pods", "-l", "slurmtide.io/accounting=tide", "-o", "name")
		return left == "secret/tide-auth-jwths256\nsecret/tide-auth-slurm", left
	})
	r.waitCondition(v1alpha1.ConditionAccepted, "AccountingMissing")
	assert.NotEmpty(t, r.db.ask("SELECT COUNT(*) FROM slurm_acct_db.tide_job_table"), "the records stay")

	r.waitZero("cpu-[0-2]")
	id := r.sbatch("srun true", "-N2")
	r.waitJob(id, "COMPLETED")

	r.db.ask("ALTER USER 'slurm'@'%' REQUIRE NONE")
	r.createAccounting()
	r.waitAccounting(v1alpha1.ConditionAvailable, "Answers")
	r.waitCondition(v1alpha1.ConditionAccepted, "Valid")
	r.waitRecord(id, "COMPLETED|0:0")

	// Both go, and the keys with them.
	require.NoError(t, r.tide.SlurmtideV1alpha1().Accountings(r.ns).Delete(r.ctx, "tide", metav1.DeleteOptions{}))
	require.NoError(t, r.tide.SlurmtideV1alpha1().NodeSets(r.ns).Delete(r.ctx, "cpu", metav1.DeleteOptions{}))
	require.NoError(t, r.tide.SlurmtideV1alpha1().Controllers(r.ns).Delete(r.ctx, "tide", metav1.DeleteOptions{}))
	r.eventually("the keys to go", func() (bool, string) {
		left := runKubectl(t, "-n", r.ns, "get", "secrets", "-l", "app.kubernetes.io/managed-by=slurmtide", "-o", "name")
		return !strings.Contains(left, "secret/tide-auth-"), left
	})
}
