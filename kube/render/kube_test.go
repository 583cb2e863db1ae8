package render

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/kube/sshd"
)

// people are those who come to the cluster of examples/accounting.yaml and examples/login.yaml.
const people = `apiVersion: slurmtide.io/v1alpha1
kind: RestApi
metadata: {name: portal}
spec: {controllerRef: {name: tide}}
---
apiVersion: slurmtide.io/v1alpha1
kind: Token
metadata: {name: portal}
spec: {controllerRef: {name: tide}, username: portal, lifetime: 2h}
---
apiVersion: slurmtide.io/v1alpha1
kind: Token
metadata: {name: same-key}
spec: {jwtKeyRef: {name: tide-auth-jwths256, key: jwt_hs256.key}, username: b, secretRef: {name: s, key: k}}
---
apiVersion: slurmtide.io/v1alpha1
kind: Token
metadata: {name: other-key}
spec: {jwtKeyRef: {name: elsewhere, key: jwt}, username: c}
---
apiVersion: slurmtide.io/v1alpha1
kind: NodeSet
metadata: {name: cpu}
spec:
  clusterRef: {name: tide}
  nodeNames: cpu-[0-9]
  shape: {cpus: 4, realMemory: 8000}
  ssh: {enabled: true}
  template: {spec: {containers: [{name: slurmd, image: i}]}}
`

// allOf is a cluster with an Accounting, login pods and Tokens.
func allOf(t *testing.T, more ...string) *Input {
	return input(t, append([]string{examples + "accounting.yaml", examples + "login.yaml", people}, more...)...)
}

func TestPeople(t *testing.T) {
	in := allOf(t)
	objects, secrets, err := in.Kube("slurm", settings)
	require.NoError(t, err)
	text, err := controlplane.YAML(objects)
	require.NoError(t, err)
	golden.Compare(t, "testdata/people.yaml", text)
	var lines []string
	for _, s := range secrets {
		lines = append(lines, s.String())
	}
	golden.Compare(t, "testdata/people.secrets", strings.Join(lines, "\n")+"\n")
	conf, err := in.SlurmConf(settings)
	require.NoError(t, err)
	assert.Contains(t, conf, "\nAccountingStorageHost=tide-accounting.slurm.svc.cluster.local\n")
	// All Secrets that pods want are made, given in a file, or said to be missing, also when the keys are those of an Accounting with another name.
	in.Accountings[0].Name, in.Controllers[0].Spec.AccountingRef.Name = "records", "records"
	objects, secrets, err = in.Kube("slurm", settings)
	require.NoError(t, err)
	there := []string{"mariadb"}
	for _, o := range objects {
		if s, ok := o.(*corev1.Secret); ok {
			there = append(there, s.Name)
		}
	}
	for _, s := range secrets {
		there = append(there, s.Name)
	}
	text, err = controlplane.YAML(objects)
	require.NoError(t, err)
	wanted := map[string]bool{}
	for _, document := range documents(t, text) {
		secretsIn(document, wanted)
	}
	assert.Subset(t, there, slices.Collect(maps.Keys(wanted)))
	assert.Len(t, wanted, 4, "slurm.key, jwt_hs256.key, slurmdbd.conf, host keys of login pods")
}

// secretsIn are the names of Secrets in the volumes of an object.
func secretsIn(v any, names map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			if s, ok := child.(map[string]any); ok && key == "secret" {
				for _, field := range []string{"name", "secretName"} {
					if name, ok := s[field].(string); ok {
						names[name] = true
					}
				}
			}
			secretsIn(child, names)
		}
	case []any:
		for _, child := range v {
			secretsIn(child, names)
		}
	}
}

// What slurmdbd reads is in the Secret, and changes its pod; the password tells nobody anything by the hash.
func TestSlurmdbdConf(t *testing.T) {
	const another = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: mariadb, namespace: slurm}\ndata: {password: %s}\n"
	hash := func(texts ...string) (hash, conf string) {
		objects, _, err := input(t, texts...).Kube("slurm", settings)
		require.NoError(t, err)
		text, err := controlplane.YAML(objects)
		require.NoError(t, err)
		for _, o := range objects {
			if s, ok := o.(*corev1.Secret); ok {
				conf = string(s.Data["slurmdbd.conf"])
			}
		}
		_, after, _ := strings.Cut(text, "slurmtide.io/config: ")
		hash, _, _ = strings.Cut(after, "\n")
		return hash, conf
	}
	example, err := os.ReadFile(examples + "accounting.yaml")
	require.NoError(t, err)
	text := string(example)
	_, without, ok := strings.Cut(text, "---\n")
	require.True(t, ok)
	first, conf := hash(text)
	assert.Len(t, first, 16)
	assert.Contains(t, conf, "\nStoragePass=change-me\n")
	password, conf := hash(without, fmt.Sprintf(another, "c2VjcmV0Cg==")) // with the line break that an editor leaves
	assert.Contains(t, conf, "\nStoragePass=secret\n")
	assert.Equal(t, first, password)
	changed, _ := hash(strings.Replace(text, "PurgeJobAfter=24months", "PurgeJobAfter=25months", 1))
	assert.NotEqual(t, first, changed)
	set := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: portal, namespace: slurm}\ndata: {set: '" +
		`{"keys": [{"kid": "b", "kty": "RSA", "alg": "RS256", "n": "AQAB", "e": "AQAB"}]}` + "'}\n"
	keys, conf := hash(strings.Replace(text, "  storageConfig:", "  jwksKeyRef: {name: portal, key: set}\n  storageConfig:", 1), set)
	assert.NotEqual(t, first, keys)
	assert.Contains(t, conf, "jwks=/etc/slurm/jwks.json")
	other, _ := hash(strings.Replace(text, "  storageConfig:", "  jwksKeyRef: {name: portal, key: set}\n  storageConfig:", 1), strings.Replace(set, `"b"`, `"c"`, 1))
	assert.NotEqual(t, keys, other)
}

// What is in a file need not be made.
func TestSecretsThatAreThere(t *testing.T) {
	const secrets = `---
apiVersion: v1
kind: Secret
metadata: {name: tide-auth-slurm, namespace: slurm}
stringData: {slurm.key: something}
---
apiVersion: v1
kind: Secret
metadata: {name: tide-auth-jwths256, namespace: slurm}
stringData: {other: something}
---
apiVersion: v1
kind: Secret
metadata: {name: own, namespace: slurm}
stringData: {ssh_host_ed25519_key: something}
`
	_, found, err := allOf(t, secrets).Kube("slurm", settings)
	require.NoError(t, err)
	assert.NotContains(t, named(found), "tide-auth-slurm/slurm.key")
	assert.Contains(t, named(found), "tide-auth-jwths256/jwt_hs256.key", "the Secret lacks the key")
	in := allOf(t, secrets)
	in.LoginSets[0].Spec.HostKeysRef = &v1alpha1.ObjectRef{Name: "own"}
	objects, found, err := in.Kube("slurm", settings)
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(named(found), " "), "login-host-keys")
	text, err := controlplane.YAML(objects)
	require.NoError(t, err)
	assert.Contains(t, text, "HostKey /etc/slurmtide/host-keys/ssh_host_ed25519_key\n")
	assert.NotContains(t, text, "ssh_host_ecdsa_key")
}

func TestKubeProblems(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"no password": {func(in *Input) { in.Secrets = nil }, "Accounting tide: spec.storageConfig.passwordKeyRef: the files have no Secret mariadb of namespace slurm: " +
			"name the one that has it, too, or kubectl -n slurm get secret mariadb -o yaml | slurmtide render kube … -"},
		"an empty password": {func(in *Input) { in.Secrets[0].Data = nil }, "Accounting tide: spec.storageConfig.passwordKeyRef: Secret mariadb has no password, or an empty one"},
		"no Accounting":     {func(in *Input) { in.Accountings = nil }, "Controller tide: spec.accountingRef: the files have no Accounting tide of namespace slurm"},
		"nobody's":          {func(in *Input) { in.Accountings[0].Name = "other" }, "Accounting other: the files have no Controller of namespace slurm that names it in spec.accountingRef"},
		"no database":       {func(in *Input) { in.Accountings[0].Spec.StorageConfig = nil }, "Accounting tide: spec.storageConfig is missing"},
		"LoginSet alone":    {func(in *Input) { in.LoginSets[0].Spec.ControllerRef.Name = "tdie" }, "LoginSet tide: spec.controllerRef: the files have no Controller tdie of namespace slurm"},
		"RestApi alone":     {func(in *Input) { in.RestApis[0].Namespace = "other" }, "RestApi portal: spec.controllerRef: the files have no Controller tide of namespace other"},
		"Token alone":       {func(in *Input) { in.Tokens[0].Spec.ControllerRef.Name = "tdie" }, "Token portal: spec.controllerRef: the files have no Controller tdie"},
		"no users":          {func(in *Input) { in.ConfigMaps[0].Data["passwd"] = "alice\n" }, "LoginSet tide: spec.usersRef: ConfigMap users: "},
		"no host keys":      {func(in *Input) { in.LoginSets[0].Spec.HostKeysRef = &v1alpha1.ObjectRef{Name: "own"} }, "LoginSet tide: spec.hostKeysRef: the files have no Secret own of namespace slurm"},
		"no image":          {func(in *Input) { in.Controllers[0].Spec.Slurmctld = nil }, "Controller tide"},
	} {
		t.Run(name, func(t *testing.T) {
			in := allOf(t)
			test.change(in)
			_, _, err := in.Kube("slurm", settings)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// The lines that make Secrets make what pods can use.
func TestCommands(t *testing.T) {
	bin, out := t.TempDir(), t.TempDir()
	script := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o755))
	}
	script("ssh-keygen", `echo "private $5" >"$7"; echo public >"$7.pub"`)
	script("scontrol", `echo "SLURM_JWT=$*"`)
	script("kubectl", `case "$3" in exec) shift 7; exec "$@";; esac
for last; do :; done
last=${last#--from-file=}
case "$last" in *=*) cat "${last#*=}" >"`+out+`/$6.${last%%=*}";; *) cp "$last"/* "`+out+`";; esac
`)
	_, secrets, err := allOf(t).Kube("slurm", settings)
	require.NoError(t, err)
	require.Len(t, secrets, 7)
	for _, s := range secrets {
		c := exec.CommandContext(t.Context(), "sh", "-c", s.Command)
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		text, err := c.CombinedOutput()
		require.NoError(t, err, string(text))
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		return text
	}
	assert.Regexp(t, "^[A-Za-z0-9+/]{128}$", string(read("tide-auth-slurm.slurm.key")))
	assert.NotEqual(t, read("tide-auth-slurm.slurm.key"), read("tide-auth-jwths256.jwt_hs256.key"))
	assert.Equal(t, "token username=portal lifespan=7200", string(read("portal.SLURM_JWT")))
	assert.Equal(t, "token username=b lifespan=3600", string(read("s.k")))
	files := map[string][]byte{}
	for _, kind := range sshd.HostKeyKinds() {
		files[sshd.HostKeyFile(kind)] = read(sshd.HostKeyFile(kind))
		assert.Equal(t, "private "+kind+"\n", string(files[sshd.HostKeyFile(kind)]))
	}
	made, err := sshd.NewHostKeys("x")
	require.NoError(t, err)
	assert.Equal(t, sshd.PrivateHostKeys(made), sshd.PrivateHostKeys(files), "as the controller makes them")
}
