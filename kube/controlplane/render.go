package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// lineSections are those of our slurm.conf that any slurm.conf needs whose nodes are pods, by the beginning of their headings.
var lineSections = []string{"Nodes fetch all this", "Power saving"}

// Lines are for a slurm.conf that somebody else manages: those of power saving, and those of NodeSets.
func Lines(sets []*v1alpha1.NodeSet) (string, error) {
	const heading = "# --- "
	text := ""
	for _, section := range strings.SplitAfter(string(slurmConf), "\n\n") {
		for _, wanted := range lineSections {
			if strings.HasPrefix(section, heading+wanted) {
				text += section
			}
		}
	}
	f, err := slurmconf.ParseFile("slurm.conf", []byte(strings.TrimSuffix(text, "\n")))
	if err != nil {
		return "", fmt.Errorf("reading our own slurm.conf: %w", err)
	}
	if err := addNodeSets(f, byName(sets), outgoing{}); err != nil {
		return "", err
	}
	return f.String(), nil
}

// ReadFiles sets Files and Scripts. read gives the files in the ConfigMaps that a field of the Controller names.
func (c *Cluster) ReadFiles(read func(field string, refs []v1alpha1.ObjectRef) (map[string]string, error)) (err error) {
	if c.Files, err = read("spec.configFileRefs", c.Controller.Spec.ConfigFileRefs); err != nil {
		return err
	}
	c.Scripts = map[string]map[string]string{}
	for _, kind := range scriptFields {
		if c.Scripts[kind.field], err = read(kind.field, kind.refs(&c.Controller.Spec)); err != nil {
			return err
		}
	}
	return nil
}

// FilesIn are the files in a ConfigMap. A comment that is not UTF-8 is enough for kubectl to put a file into its binary data.
func FilesIn(m *corev1.ConfigMap) map[string]string {
	files := map[string]string{}
	for name, text := range m.Data {
		files[name] = text
	}
	for name, data := range m.BinaryData {
		files[name] = string(data)
	}
	return files
}

// BridgeRole is the ClusterRole that says what bridges may do in a namespace.
func BridgeRole(s Settings) Object {
	return &rbacv1.ClusterRole{TypeMeta: typeMeta("rbac.authorization.k8s.io/v1", "ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: s.BridgeRole}, Rules: pods.Rules(BridgeRights())}
}

// BridgeAccount are the objects that a bridge needs which no Controller has made: an account, its rights, and, for a bridge outside of Kubernetes, its token.
func BridgeAccount(namespace string) []Object {
	const name, hosts = "slurmtide-bridge", "slurmtide-bridge-hosts"
	in := metav1.ObjectMeta{Name: name, Namespace: namespace}
	rbac := func(kind string) metav1.TypeMeta { return typeMeta("rbac.authorization.k8s.io/v1", kind) }
	account := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}}
	token := &corev1.Secret{TypeMeta: typeMeta("v1", "Secret"), ObjectMeta: in, Type: corev1.SecretTypeServiceAccountToken}
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: name}
	return []Object{
		&corev1.ServiceAccount{TypeMeta: typeMeta("v1", "ServiceAccount"), ObjectMeta: in},
		&rbacv1.Role{TypeMeta: rbac("Role"), ObjectMeta: in, Rules: pods.Rules(BridgeRights())},
		&rbacv1.RoleBinding{TypeMeta: rbac("RoleBinding"), ObjectMeta: in, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: account},
		&rbacv1.ClusterRole{TypeMeta: rbac("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: hosts}, Rules: pods.Rules(pods.ClusterRights())},
		&rbacv1.ClusterRoleBinding{
			TypeMeta: rbac("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: hosts},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: hosts}, Subjects: account,
		},
		token,
	}
}

// AccountingFiles are the objects of an Accounting with the Secret that has slurmdbd.conf, for which the password is needed, and jwks, the key set of spec.jwksKeyRef or "".
// The loop replaces slurmdbd's pod when its keys or the password change, too; here only slurmdbd.conf and the key set tell, since there is no key that the hash
// of a password could be made with.
func AccountingFiles(a *v1alpha1.Accounting, password []byte, jwks string) ([]Object, error) {
	conf, err := DbdConfig(a, passwordIn(password))
	if err != nil {
		return nil, err
	}
	public, err := DbdConfig(a, "-")
	if err != nil {
		return nil, err
	}
	return append([]Object{accountingSecret(a, conf, jwks)}, AccountingObjects(a, dbdHash(nil, []byte(public), []byte(jwks)))...), nil
}

// YAML are objects as files have them: without owners, which only a live object can be.
func YAML(objects []Object) (string, error) {
	var all []string
	for _, o := range objects {
		m, err := bare(o)
		if err != nil {
			return "", err
		}
		text, err := yaml.Marshal(m)
		if err != nil {
			return "", fmt.Errorf("writing %s: %w", o.GetName(), err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "---\n"), nil
}

// JSON are objects as a List.
func JSON(objects []Object) (string, error) {
	list := map[string]any{"apiVersion": "v1", "kind": "List"}
	var items []any
	for _, o := range objects {
		m, err := bare(o)
		if err != nil {
			return "", err
		}
		items = append(items, m)
	}
	list["items"] = items
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(list)
	return b.String(), err
}

func bare(o Object) (map[string]any, error) {
	m, err := asJSON(o)
	if meta, ok := m["metadata"].(map[string]any); ok {
		delete(meta, "ownerReferences")
	}
	return m, err
}
