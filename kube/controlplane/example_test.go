package controlplane

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/doctor"
	"github.com/slurmtide/slurmtide/doctor/live"
	"github.com/slurmtide/slurmtide/internal/manifest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// What the documentation tells people to apply gives what is needed, and no more.
func TestRightsExample(t *testing.T) {
	roles := map[string]rbacv1.ClusterRole{}
	for _, document := range documents(t, "../../docs/examples/controller.yaml") {
		if strings.Contains(document, "\nkind: ClusterRole\n") {
			var role rbacv1.ClusterRole
			require.NoError(t, manifest.Unmarshal([]byte(document), &role))
			roles[role.Name] = role
		}
	}
	bind := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"slurmtide-bridge"}, Verbs: []string{"bind"}}
	assert.Equal(t, append(pods.Rules(Rights()), bind), roles["slurmtide-controller"].Rules)
	assert.Equal(t, pods.Rules(HostRights()), roles["slurmtide-controller-hosts"].Rules)
	assert.Equal(t, pods.Rules(BridgeRights()), roles["slurmtide-bridge"].Rules)
}

func documents(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.Split(string(text), "\n---\n")
}

// The cluster of the example is one that Slurm takes, as far as slurmconf knows.
func TestClusterExample(t *testing.T) {
	var c v1alpha1.Controller
	var set v1alpha1.NodeSet
	for _, document := range documents(t, "../../docs/examples/cluster.yaml") {
		switch {
		case strings.Contains(document, "\nkind: Controller\n"):
			require.NoError(t, manifest.Unmarshal([]byte(document), &c))
		case strings.Contains(document, "\nkind: NodeSet\n"):
			require.NoError(t, manifest.Unmarshal([]byte(document), &set))
		}
	}
	c.Namespace = "slurm"
	files, err := Config(Cluster{Controller: &c, NodeSets: []*v1alpha1.NodeSet{&set}, Settings: settings})
	require.NoError(t, err)
	for _, version := range []string{"24.11", "26.05"} {
		check(t, files["slurm.conf"], version)
		assert.Empty(t, findings(t, files, version, &set))
	}
}

// So is that with an Accounting.
func TestAccountingExample(t *testing.T) {
	var c v1alpha1.Controller
	var a v1alpha1.Accounting
	for _, document := range documents(t, "../../docs/examples/accounting.yaml") {
		switch {
		case strings.Contains(document, "\nkind: Controller\n"):
			require.NoError(t, manifest.Unmarshal([]byte(document), &c))
		case strings.Contains(document, "\nkind: Accounting\n"):
			require.NoError(t, manifest.Unmarshal([]byte(document), &a))
		}
	}
	c.Namespace, a.Namespace = "slurm", "slurm"
	require.Equal(t, a.Name, c.Spec.AccountingRef.Name)
	files, err := Config(Cluster{Controller: &c, Accounting: &a, Settings: settings})
	require.NoError(t, err)
	for _, version := range []string{"24.11", "26.05"} {
		check(t, files["slurm.conf"], version)
		assert.Equal(t, []string{"no-nodes"}, findings(t, files, version))
	}
	_, err = DbdConfig(&a, "change-me")
	require.NoError(t, err)
}

// The Accounting with a database of mariadb-operator asks for what that makes.
func TestMariaDBExample(t *testing.T) {
	all := documents(t, "../../docs/examples/mariadb.yaml")
	require.Len(t, all, 3)
	var a v1alpha1.Accounting
	require.NoError(t, manifest.Unmarshal([]byte(all[2]), &a))
	var db struct {
		Metadata struct{ Name string }
		Spec     struct {
			Username, Database   string
			PasswordSecretKeyRef v1alpha1.KeyRef
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(all[0]), &db))
	var user struct {
		Metadata struct{ Name string }
		Spec     struct {
			Name                 string
			MariaDBRef           v1alpha1.ObjectRef
			PasswordSecretKeyRef v1alpha1.KeyRef
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(all[1]), &user))
	assert.Equal(t, []string{db.Metadata.Name + "-user", db.Metadata.Name, db.Spec.Username}, []string{user.Metadata.Name, user.Spec.MariaDBRef.Name, user.Spec.Name})
	assert.Equal(t, db.Spec.PasswordSecretKeyRef, user.Spec.PasswordSecretKeyRef)
	s := a.Spec.StorageConfig
	assert.Equal(t, []string{db.Metadata.Name, db.Spec.Username, db.Spec.Database}, []string{s.Host, s.Username, s.Database})
	assert.Equal(t, db.Spec.PasswordSecretKeyRef, s.PasswordKeyRef)
	_, err := DbdConfig(&a, "change-me")
	require.NoError(t, err)
}

// findings are the rules of slurmtide doctor that find something in a cluster's files, sorted.
func findings(t *testing.T, files map[string]string, version string, sets ...*v1alpha1.NodeSet) []string {
	t.Helper()
	v, err := slurmconf.ParseVersion(version)
	require.NoError(t, err)
	var rules []string
	facts := doctor.FromTexts(v, files)
	if len(sets) > 0 {
		facts.Kubernetes = &doctor.KubernetesFacts{Cluster: sets[0].Spec.ClusterRef.Name, NodeSets: live.NodeSets(sets)}
	}
	for _, f := range doctor.Check(facts) {
		rules = append(rules, f.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// check wants a slurm.conf without any problem, warnings included.
func check(t *testing.T, text, version string) {
	t.Helper()
	config, err := slurmconf.ReadConfig("slurm.conf", func(string) ([]byte, error) { return []byte(text), nil })
	require.NoError(t, err)
	v, err := slurmconf.ParseVersion(version)
	require.NoError(t, err)
	assert.Empty(t, config.Check(slurmconf.SlurmConf, v), version)
}
