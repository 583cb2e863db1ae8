package controlplane

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/slurmconf"
)

func accounting(change func(*v1alpha1.Accounting)) *v1alpha1.Accounting {
	a := &v1alpha1.Accounting{
		ObjectMeta: metav1.ObjectMeta{Name: "records", Namespace: "slurm", UID: "uid-of-records"},
		Spec: v1alpha1.AccountingSpec{
			Slurmdbd: &v1alpha1.DaemonOptions{ContainerOptions: v1alpha1.ContainerOptions{Image: "slurmtide/slurm:26.05"}},
			StorageConfig: &v1alpha1.StorageConfig{
				Host: "mariadb", Port: 3306, Database: "slurm_acct_db", Username: "slurm", PasswordKeyRef: v1alpha1.KeyRef{Name: "mariadb", Key: "password"},
			},
		},
	}
	if change != nil {
		change(a)
	}
	return a
}

func everythingSet(a *v1alpha1.Accounting) {
	a.Spec.SlurmKeyRef = &v1alpha1.KeyRef{Name: "keys", Key: "auth"}
	a.Spec.JWTKeyRef = &v1alpha1.KeyRef{Name: "keys", Key: "jwt"}
	a.Spec.JWKSKeyRef = &v1alpha1.FileRef{Name: "portal", Key: "keys.json"}
	a.Spec.Slurmdbd.Args = []string{"-v"}
	a.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "control"}
	a.Spec.Template.Spec.SecurityContext = &v1alpha1.PodSecurityOptions{RunAsUser: new(int64(401)), RunAsGroup: new(int64(401))}
	a.Spec.StorageConfig = &v1alpha1.StorageConfig{
		Host: "db.example.com", Port: 3307, Database: "acct", Username: "dbd", PasswordKeyRef: v1alpha1.KeyRef{Name: "db", Key: "pw"},
		TLS: &v1alpha1.StorageTLS{
			CA: v1alpha1.KeyRef{Name: "db-ca", Key: "ca.crt"}, Certificate: &v1alpha1.KeyRef{Name: "db-client", Key: "tls.crt"}, PrivateKey: &v1alpha1.KeyRef{Name: "db-client", Key: "tls.key"},
		},
	}
	a.Spec.ExtraConf = "# One year is enough.\nPurgeJobAfter=12months\nDebugLevel=debug\nStorageParameters=SSL_CIPHER=AES256-SHA\n"
}

// Whole files and objects, in testdata.
func TestAccountingFiles(t *testing.T) {
	tests := map[string]*v1alpha1.Accounting{"plain": accounting(nil), "full": accounting(everythingSet)}
	for name, a := range tests {
		t.Run(name, func(t *testing.T) {
			conf, err := DbdConfig(a, "se#cret")
			require.NoError(t, err)
			golden.Compare(t, "testdata/"+name+".slurmdbd.conf", conf)
			for _, v := range []slurmconf.Version{{Major: 24, Minor: 11}, {Major: 26, Minor: 5}} {
				config, err := slurmconf.ReadConfig("slurmdbd.conf", func(string) ([]byte, error) { return []byte(conf), nil })
				require.NoError(t, err)
				assert.Empty(t, config.Check(slurmconf.SlurmdbdConf, v), v)
				password, _ := config.Get("StoragePass")
				assert.Equal(t, "se#cret", password.Value)
			}
			jwks := ""
			if a.Spec.JWKSKeyRef != nil {
				jwks = "{}"
			}
			golden.Compare(t, "testdata/accounting-"+name+".yaml", manifests(t, append([]Object{accountingSecret(a, "…\n", jwks)}, AccountingObjects(a, "hash")...)))
		})
	}
	assert.Empty(t, AccountingObjects(accounting(func(a *v1alpha1.Accounting) {
		a.Spec = v1alpha1.AccountingSpec{External: &v1alpha1.ExternalAccounting{Host: "head"}}
	}), ""), "nothing is started for one that runs elsewhere")
}

func TestAccountingProblems(t *testing.T) {
	tests := map[string]struct{ extra, password, want string }{
		"no form":       {"nonsense\n", "p", `spec.extraConf:1:1: "nonsense" is no key=value`},
		"reserved":      {"PrivateData=jobs\nstoragehost=x\n", "p", "spec.extraConf:2:1: storagehost cannot be set here: it is spec.storageConfig.host; remove it"},
		"the log":       {"LogFile=/var/log/x\n", "p", "spec.extraConf:1:1: LogFile cannot be set here: what slurmdbd says of the database is read from its stderr"},
		"archives":      {"ArchiveJobs=yes\n", "p", "spec.extraConf:1:1: ArchiveJobs cannot be set here: archives would lie in the pod, and go with it; remove it"},
		"an Include":    {"Include more.conf\n", "p", "spec.extraConf:1:1: there are no files to include; write the lines here"},
		"no such key":   {"PurgeJobsAfter=1month\n", "p", `spec.extraConf:1:1: "PurgeJobsAfter" is no key of slurmdbd.conf in Slurm 26.05; is PurgeJobAfter meant?`},
		"a bad value":   {"TrackWCKey=perhaps\n", "p", "spec.extraConf:1:12: "},
		"a newer key":   {"DisableRollups=yes\n", "p", ""},
		"a password":    {"", `a "b`, "spec.storageConfig.passwordKeyRef: slurmdbd.conf has no way to write this password: take one without blanks and quotes"},
		"two lines":     {"", "a\nb", "spec.storageConfig.passwordKeyRef: slurmdbd.conf has no way to write this password"},
		"a hard one":    {"", `a"b\c#d=é`, ""},
		"an empty file": {" \n", "p", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := DbdConfig(accounting(func(a *v1alpha1.Accounting) { a.Spec.ExtraConf = test.extra }), test.password)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
			if test.password != "p" {
				assert.NotContains(t, err.Error(), test.password)
			}
		})
	}
}

// What a Controller's slurm.conf says because of its Accounting.
func TestConfigWithAccounting(t *testing.T) {
	plain, err := Config(Cluster{Controller: controller(nil), Settings: settings})
	require.NoError(t, err)
	files, err := Config(Cluster{Controller: controller(nil), Settings: settings, Accounting: accounting(nil)})
	require.NoError(t, err)
	var added []string
	before := strings.Split(plain["slurm.conf"], "\n")
	for line := range strings.SplitSeq(files["slurm.conf"], "\n") {
		if !slices.Contains(before, line) {
			added = append(added, line)
		}
	}
	assert.Equal(t, []string{
		"JobAcctGatherFrequency=10", "JobAcctGatherType=jobacct_gather/linux", "AccountingStorageType=accounting_storage/slurmdbd",
		"AccountingStorageHost=records-accounting.slurm.svc.cluster.local", "AccountingStoragePort=6819",
	}, added)
	for _, version := range []string{"24.11", "26.05"} {
		check(t, files["slurm.conf"], version)
	}
	external := accounting(func(a *v1alpha1.Accounting) {
		a.Spec = v1alpha1.AccountingSpec{External: &v1alpha1.ExternalAccounting{Host: "dbd.example.com", Port: 7000}}
	})
	files, err = Config(Cluster{Controller: controller(func(c *v1alpha1.Controller) {
		c.Spec.ExtraConf = "AccountingStorageTRES=gres/gpu\nAccountingStorageEnforce=limits\nJobAcctGatherType=jobacct_gather/none\nJobAcctGatherFrequency=60\n"
	}), Settings: settings, Accounting: external})
	require.NoError(t, err)
	for _, line := range []string{"AccountingStorageHost=dbd.example.com", "AccountingStoragePort=7000", "AccountingStorageTRES=gres/gpu", "JobAcctGatherType=jobacct_gather/none", "JobAcctGatherFrequency=60"} {
		assert.Contains(t, files["slurm.conf"], "\n"+line+"\n")
	}
	_, err = Config(Cluster{Controller: controller(func(c *v1alpha1.Controller) {
		c.Spec.ExtraConf = "AccountingStorageTRES=gres/gpu\nAccountingStorageHost=other\n"
	}), Settings: settings, Accounting: external})
	require.EqualError(t, err, "spec.extraConf:2:1: AccountingStorageHost cannot be set here: it is spec.accountingRef; remove it")
	_, err = Config(Cluster{Controller: controller(func(c *v1alpha1.Controller) { c.Spec.ExtraConf = "Include more.conf\n" }), Settings: settings, Accounting: external,
		Files: map[string]string{"more.conf": "# x\nAccountingStoragePort=1\n"}})
	require.EqualError(t, err, "more.conf:2:1: AccountingStoragePort cannot be set here: it is spec.accountingRef; remove it")
}

// The bridge's slurmrestd knows of no database; that of a RestApi does.
func TestRestApiWithAccounting(t *testing.T) {
	c := controller(func(c *v1alpha1.Controller) { c.Spec.AccountingRef = &v1alpha1.ObjectRef{Name: "records"} })
	r := &v1alpha1.RestApi{ObjectMeta: metav1.ObjectMeta{Name: "tide", Namespace: "slurm"}, Spec: v1alpha1.RestApiSpec{ControllerRef: v1alpha1.ObjectRef{Name: "tide"}}}
	objects, err := RestApiObjects(r, c, accounting(nil), settings)
	require.NoError(t, err)
	text := manifests(t, objects)
	assert.Contains(t, text, "openapi/slurmctld,openapi/slurmdbd")
	assert.Contains(t, text, "name: tide-config-accounting")
	client, err := AccountingClient(c, accounting(nil), settings)
	require.NoError(t, err)
	assert.Contains(t, manifests(t, []Object{client}), "AccountingStorageHost=records-accounting.slurm.svc.cluster.local\n    AccountingStoragePort=6819\n")
	objects, err = ControllerObjects(WithKeysOf(c, accounting(nil)), nil, settings)
	require.NoError(t, err)
	text = manifests(t, objects)
	assert.NotContains(t, text, "slurmdbd")
	assert.Contains(t, text, "name: records-auth-slurm")
}

func TestControllerKeys(t *testing.T) {
	own := &v1alpha1.KeyRef{Name: "keys", Key: "k"}
	tests := map[string]struct {
		controller func(*v1alpha1.Controller)
		accounting *v1alpha1.Accounting
		want       string // of auth/slurm
		owner      string // of what is made
	}{
		"none":             {nil, nil, "tide-auth-slurm slurm.key", "Controller"},
		"named":            {func(c *v1alpha1.Controller) { c.Spec.SlurmKeyRef = own }, nil, "keys k", ""},
		"the Accounting's": {nil, accounting(nil), "records-auth-slurm slurm.key", "Accounting"},
		"what it names":    {nil, accounting(func(a *v1alpha1.Accounting) { a.Spec.SlurmKeyRef = own }), "keys k", ""},
		"it names what is made": {nil, accounting(func(a *v1alpha1.Accounting) {
			a.Spec.SlurmKeyRef = &v1alpha1.KeyRef{Name: "tide-auth-slurm", Key: SlurmKey}
		}), "tide-auth-slurm slurm.key", "Controller"},
		"of the same name": {nil, accounting(func(a *v1alpha1.Accounting) { a.Name = "tide" }), "tide-auth-slurm slurm.key", "Accounting"},
		"named beside its": {func(c *v1alpha1.Controller) { c.Spec.SlurmKeyRef = own }, accounting(nil), "keys k", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := controller(test.controller)
			k := controllerKeys(c, test.accounting)[0]
			assert.Equal(t, test.want, k.ref.Name+" "+k.ref.Key)
			assert.Equal(t, test.owner == "", k.given)
			if test.owner != "" {
				assert.Equal(t, test.owner, k.of.OwnerReferences[0].Kind)
				assert.Equal(t, k.ref.Name, k.of.Name)
			}
			if test.accounting != nil {
				assert.Equal(t, k.ref, slurmKeyRef(WithKeysOf(c, test.accounting)), "the pod has the key that is made")
			}
		})
	}
}

func dbdPod(ready bool, state corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "records-accounting-0"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: ContainerSlurmdbd, Ready: ready, State: state},
	}}}
}

func TestAccountingStatus(t *testing.T) {
	up := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	const at = "slurmdbd: [2026-11-21T22:00:00.123] "
	const again = at + "error: The database must be up when starting the MYSQL plugin.  Trying again in 5 seconds.\n"
	tests := map[string]struct {
		seen                SeenAccounting
		accepted, available string
	}{
		"refused":  {SeenAccounting{Problem: &Problem{"KeyMissing", "no password"}}, "False KeyMissing: no password", "False NoPod: there is no pod of slurmdbd yet"},
		"starting": {SeenAccounting{Pod: dbdPod(false, up)}, "", "False Starting: slurmdbd in pod records-accounting-0 does not answer yet"},
		"answers":  {SeenAccounting{Pod: dbdPod(true, up), Log: at + "info: x\n" + at + "error: mysql_query failed: 1062 Duplicate entry\n"}, "", "True Answers: slurmdbd answers"},
		"no database": {SeenAccounting{Pod: dbdPod(false, up), Log: at + "error: mysql_real_connect failed: 2002 Can't connect to server on 'mariadb' (111)\n" + again}, "",
			"False DatabaseFails: slurmdbd waits for its database: mysql_real_connect failed: 2002 Can't connect to server on 'mariadb' (111); see that MariaDB or MySQL runs, and that pods reach it at mariadb:3306 (spec.storageConfig)"},
		"no password": {SeenAccounting{Pod: dbdPod(false, up), Log: at + "error: mysql_real_connect failed: 1045 Access denied for user 'slurm'@'10.0.0.1' (using password: YES)\n" + again}, "",
			"False DatabaseFails: slurmdbd waits for its database: mysql_real_connect failed: 1045 Access denied for user 'slurm'@'10.0.0.1' (using password: YES); give user slurm of the database the password that spec.storageConfig.passwordKeyRef names, or the other way round; if it wants TLS, or a certificate, of this user, set spec.storageConfig.tls"},
		"lost later": {SeenAccounting{Pod: dbdPod(true, up), Log: at + "error: mysql_query failed: 2006 Server has gone away\n" + at + "error: mysql_real_connect failed: 2002 no\n"}, "",
			"False DatabaseFails: slurmdbd waits for its database: mysql_real_connect failed: 2002 no; see that MariaDB or MySQL runs, and that pods reach it at mariadb:3306 (spec.storageConfig)"},
		"ended": {SeenAccounting{Pod: dbdPod(false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: at + "fatal: slurmdbd.conf owned by 1 not SlurmUser(2)"}})}, "",
			"False Fails: container slurmdbd of pod records-accounting-0 has ended (exit code 1): fatal: slurmdbd.conf owned by 1 not SlurmUser(2)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := accounting(nil)
			a.Generation = 3
			s := AccountingStatus(a, test.seen)
			assert.EqualValues(t, 3, s.ObservedGeneration)
			if test.accepted == "" {
				test.accepted = "True Valid: the Accounting can be used"
			}
			for kind, want := range map[string]string{v1alpha1.ConditionAccepted: test.accepted, v1alpha1.ConditionAvailable: test.available} {
				one := meta.FindStatusCondition(s.Conditions, kind)
				require.NotNil(t, one, kind)
				assert.Equal(t, want, string(one.Status)+" "+one.Reason+": "+one.Message)
				assert.EqualValues(t, 3, one.ObservedGeneration)
			}
			a.Status = s
			assert.Equal(t, s, AccountingStatus(a, test.seen), "nothing to write when nothing has changed")
			if one := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable); one.Status == metav1.ConditionFalse && test.seen.Problem == nil {
				assert.Equal(t, "Accounting records: "+one.Message, lacksSlurmdbd(a))
			}
		})
	}
	elsewhere := accounting(func(a *v1alpha1.Accounting) {
		a.Spec = v1alpha1.AccountingSpec{External: &v1alpha1.ExternalAccounting{Host: "h"}}
	})
	elsewhere.Status = AccountingStatus(elsewhere, SeenAccounting{})
	assert.Equal(t, "External", meta.FindStatusCondition(elsewhere.Status.Conditions, v1alpha1.ConditionAvailable).Reason)
	assert.Empty(t, lacksSlurmdbd(elsewhere))
	assert.Empty(t, lacksSlurmdbd(nil))
}

// A slurmctld that has never run waits for slurmdbd, and says so.
func TestControllerWaitsForAccounting(t *testing.T) {
	c := controller(nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "tide-controller-0"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: ContainerSlurmctld, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}}}
	one := meta.FindStatusCondition(ControllerStatus(c, SeenController{Pods: []*corev1.Pod{pod}, Lacks: "Accounting records: no database"}).Conditions, v1alpha1.ConditionAvailable)
	assert.Equal(t, "WaitsForAccounting", one.Reason)
	assert.Equal(t, "slurmctld in pod tide-controller-0 does not answer yet; the first time it needs slurmdbd for that: Accounting records: no database", one.Message)
	pod.Status.ContainerStatuses[0].Ready = true
	one = meta.FindStatusCondition(ControllerStatus(c, SeenController{Pods: []*corev1.Pod{pod}, Lacks: "x"}).Conditions, v1alpha1.ConditionAvailable)
	assert.Equal(t, "Answers", one.Reason, "with state it works without")
}

// Who sees the hash cannot tell the password from it without the key.
func TestDbdHash(t *testing.T) {
	a, b := []byte("a"), []byte("b")
	assert.Equal(t, dbdHash([]byte("a"), a, b), dbdHash(a, a, b))
	assert.NotEqual(t, dbdHash(a, a, b), dbdHash(a, b, a))
	assert.NotEqual(t, dbdHash(a, a, b), dbdHash(b, a, b))
}
