package render

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/kube/sshd"
)

// Kube are the objects of the Controller, its Accounting, RestApis and LoginSets, and the Secrets that they and its Tokens want, which the controller would make,
// and which are not among the files; without a Controller, the objects for a bridge beside a slurmctld of one's own.
func (in *Input) Kube(namespace string, s controlplane.Settings) (objects []controlplane.Object, secrets []controlplane.Yours, err error) {
	if err := in.orphans(); err != nil {
		return nil, nil, err
	}
	if len(in.Controllers) == 0 {
		return controlplane.BridgeAccount(namespace), in.tokens(nil), nil
	}
	c := in.Controllers[0]
	accounting, err := in.accounting(c)
	if err != nil {
		return nil, nil, err
	}
	full := c
	if accounting != nil {
		full = controlplane.WithKeysOf(c, accounting)
		if objects, err = in.accountingObjects(accounting); err != nil {
			return nil, nil, about("Accounting", accounting, err)
		}
	}
	var files map[string]string
	if c.Spec.External == nil {
		if files, err = in.config(s); err != nil {
			return nil, nil, err
		}
		objects = append([]controlplane.Object{controlplane.BridgeRole(s)}, objects...)
		secrets = append(controlplane.YourKeys(c, accounting), controlplane.YourNodeHostKeys(in.NodeSets)...)
	}
	more, err := controlplane.ControllerObjects(full, files, s)
	if err == nil && accounting != nil {
		var client controlplane.Object
		client, err = controlplane.AccountingClient(full, accounting, s)
		more = append(more, client)
	}
	if err != nil {
		return nil, nil, about("Controller", c, err)
	}
	objects = append(objects, more...)
	for _, r := range in.RestApis {
		if r.Spec.ControllerRef.Name != c.Name || r.Namespace != c.Namespace {
			continue
		}
		more, err := controlplane.RestApiObjects(r, full, accounting, s)
		if err != nil {
			return nil, nil, about("RestApi", r, err)
		}
		objects = append(objects, more...)
	}
	for _, l := range in.LoginSets {
		if l.Spec.ControllerRef.Name != c.Name || l.Namespace != c.Namespace {
			continue
		}
		more, keys, err := in.login(l, full, s)
		if err != nil {
			return nil, nil, about("LoginSet", l, err)
		}
		objects, secrets = append(objects, more...), append(secrets, keys...)
	}
	return objects, slices.DeleteFunc(append(secrets, in.tokens(full)...), in.has), nil
}

// orphans says which object refers to one that the files do not have, so that nothing is left out without a word.
func (in *Input) orphans() error {
	for _, r := range in.RestApis {
		if err := in.known("RestApi", r, r.Spec.ControllerRef.Name); err != nil {
			return err
		}
	}
	for _, l := range in.LoginSets {
		if err := in.known("LoginSet", l, l.Spec.ControllerRef.Name); err != nil {
			return err
		}
	}
	for _, t := range in.Tokens {
		if t.Spec.ControllerRef == nil {
			continue
		}
		if err := in.known("Token", t, t.Spec.ControllerRef.Name); err != nil {
			return err
		}
	}
	for _, a := range in.Accountings {
		if !slices.ContainsFunc(in.all, func(c *v1alpha1.Controller) bool {
			return c.Namespace == a.Namespace && c.Spec.AccountingRef != nil && c.Spec.AccountingRef.Name == a.Name
		}) {
			return about("Accounting", a, fmt.Errorf("the files have no Controller of namespace %s that names it in spec.accountingRef: name the file that has it, too", a.Namespace))
		}
	}
	return nil
}

func (in *Input) known(kind string, o metav1.Object, controller string) error {
	if slices.ContainsFunc(in.all, func(c *v1alpha1.Controller) bool { return c.Name == controller && c.Namespace == o.GetNamespace() }) {
		return nil
	}
	return about(kind, o, fmt.Errorf("spec.controllerRef: the files have no Controller %s of namespace %s: name the one that has it, too", controller, o.GetNamespace()))
}

func about(kind string, o metav1.Object, err error) error {
	return fmt.Errorf("%s %s: %w", kind, o.GetName(), err)
}

// accounting is that of a Controller, nil if it has none.
func (in *Input) accounting(c *v1alpha1.Controller) (*v1alpha1.Accounting, error) {
	if c.Spec.AccountingRef == nil {
		return nil, nil
	}
	if a := find(in.Accountings, c.Namespace, c.Spec.AccountingRef.Name); a != nil {
		return a, nil
	}
	return nil, about("Controller", c, absent("spec.accountingRef", "Accounting", c.Namespace, c.Spec.AccountingRef.Name))
}

func (in *Input) accountingObjects(a *v1alpha1.Accounting) ([]controlplane.Object, error) {
	if a.Spec.External != nil {
		return nil, nil
	}
	const field = "spec.storageConfig.passwordKeyRef"
	if a.Spec.StorageConfig == nil {
		return nil, fmt.Errorf("spec.storageConfig is missing: say which database it is, or set spec.external for a slurmdbd elsewhere")
	}
	ref := a.Spec.StorageConfig.PasswordKeyRef
	secret := find(in.Secrets, a.Namespace, ref.Name)
	if secret == nil {
		return nil, fmt.Errorf("%w, or kubectl -n %s get secret %s -o yaml | slurmtide render kube … -", absent(field, "Secret", a.Namespace, ref.Name), a.Namespace, ref.Name)
	}
	if len(secret.Data[ref.Key]) == 0 {
		return nil, fmt.Errorf("%s: Secret %s has no %s, or an empty one", field, ref.Name, ref.Key)
	}
	jwks, err := in.jwks(a.Namespace, a.Spec.JWKSKeyRef)
	if err != nil {
		return nil, err
	}
	return controlplane.AccountingFiles(a, secret.Data[ref.Key], jwks)
}

// jwks is a JSON Web Key Set, "" if ref is nil.
func (in *Input) jwks(namespace string, ref *v1alpha1.FileRef) (string, error) {
	if ref == nil {
		return "", nil
	}
	m := find(in.ConfigMaps, namespace, ref.Name)
	if m == nil {
		return "", absent("spec.jwksKeyRef", "ConfigMap", namespace, ref.Name)
	}
	return controlplane.JWKSIn(m, *ref)
}

// login makes the objects of a LoginSet. Keys and users that it names need not be among the files: its pods mount them. Its own host keys have to be, for sshd_config has
// their names.
func (in *Input) login(s *v1alpha1.LoginSet, c *v1alpha1.Controller, settings controlplane.Settings) ([]controlplane.Object, []controlplane.Yours, error) {
	if ref := s.Spec.UsersRef; ref != nil {
		if m := find(in.ConfigMaps, s.Namespace, ref.Name); m != nil {
			if err := sshd.CheckUsers(controlplane.FilesIn(m)); err != nil {
				return nil, nil, fmt.Errorf("spec.usersRef: ConfigMap %s: %w", ref.Name, err)
			}
		}
	}
	if ref := s.Spec.HostKeysRef; ref != nil {
		secret := find(in.Secrets, s.Namespace, ref.Name)
		if secret == nil {
			return nil, nil, absent("spec.hostKeysRef", "Secret", s.Namespace, ref.Name)
		}
		if sshd.PrivateHostKeys(secret.Data) == nil {
			return nil, nil, fmt.Errorf("spec.hostKeysRef: Secret %s has no host key: put one in under %s", ref.Name, sshd.HostKeyFile("ed25519"))
		}
		objects, err := controlplane.LoginSetObjects(s, c, secret.Data, settings)
		return objects, nil, err
	}
	yours, keys := controlplane.YourLoginHostKeys(s)
	objects, err := controlplane.LoginSetObjects(s, c, keys, settings)
	return objects, []controlplane.Yours{yours}, err
}

// tokens are the Secrets of Tokens that the Controller's key signs, and of those with a key of nobody's. c is nil if there is no Controller.
func (in *Input) tokens(c *v1alpha1.Controller) (all []controlplane.Yours) {
	for _, t := range in.Tokens {
		switch {
		case c != nil && controlplane.SignedBy(t, c):
			all = append(all, controlplane.YourToken(t, c))
		case t.Spec.ControllerRef == nil && (c == nil || t.Namespace == c.Namespace):
			all = append(all, controlplane.YourToken(t, nil))
		}
	}
	return all
}

// has says that the files have a Secret with all its keys.
func (in *Input) has(y controlplane.Yours) bool {
	secret := find(in.Secrets, y.Namespace, y.Name)
	return secret != nil && !slices.ContainsFunc(y.Keys, func(key string) bool { return len(secret.Data[key]) == 0 })
}

func find[T any, P interface {
	*T
	metav1.Object
}](list []P, namespace, name string) P {
	for _, o := range list {
		if o.GetNamespace() == namespace && o.GetName() == name {
			return o
		}
	}
	return nil
}

func absent(field, kind, namespace, name string) error {
	return fmt.Errorf("%s: the files have no %s %s of namespace %s: name the one that has it, too", field, kind, name, namespace)
}

// addSecret is addTo for a Secret, with its text among its data, as the API server does it.
func (in *Input) addSecret(text []byte, namespace string) error {
	if err := addTo(&in.Secrets, text, namespace); err != nil {
		return err
	}
	secret := in.Secrets[len(in.Secrets)-1]
	for key, text := range secret.StringData {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = []byte(text)
	}
	return nil
}

func (in *Input) files(c *v1alpha1.Controller, field string, refs []v1alpha1.ObjectRef) (map[string]string, error) {
	all := map[string]string{}
	for _, ref := range refs {
		m := find(in.ConfigMaps, c.Namespace, ref.Name)
		if m == nil {
			return nil, absent(field, "ConfigMap", c.Namespace, ref.Name)
		}
		maps.Copy(all, controlplane.FilesIn(m))
	}
	return all, nil
}
