package controlplane

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/kube/sshd"
)

// Yours is a Secret that the loop would make, and that who manages files has to make: nothing secret is made up for a file.
type Yours struct {
	Namespace, Name string
	Keys            []string
	Command         string // a line of sh that makes it
	Note            string // what the loop would do besides; "" if nothing
}

func (y Yours) String() string {
	text := fmt.Sprintf("Secret %s of namespace %s, with %s, is yours to make: %s", y.Name, y.Namespace, strings.Join(y.Keys, ", "), y.Command)
	if y.Note != "" {
		text += " # " + y.Note
	}
	return text
}

func create(namespace, name string) string {
	return fmt.Sprintf("kubectl -n %s create secret generic %s", namespace, name)
}

// YourKeys are the keys that slurmctld, slurmdbd and what belongs to them trust each other by. accounting is nil if the Controller has none. Keys that the user
// names are among them: neither does the loop make them.
func YourKeys(c *v1alpha1.Controller, accounting *v1alpha1.Accounting) (all []Yours) {
	keys := controllerKeys(c, accounting)
	if accounting != nil {
		keys = append(keys, accountingKeys(accounting)...)
	}
	for _, k := range keys {
		one := Yours{Namespace: c.Namespace, Name: k.ref.Name, Keys: []string{k.ref.Key}}
		// Text, since slurmd pods may get it in a variable.
		one.Command = "head -c 96 /dev/urandom | base64 -w 0 | " + create(one.Namespace, one.Name) + " --from-file=" + k.ref.Key + "=/dev/stdin"
		if !slices.ContainsFunc(all, func(y Yours) bool { return y.Name == one.Name && y.Keys[0] == one.Keys[0] }) {
			all = append(all, one)
		}
	}
	return all
}

func yourHostKeys(namespace, name string) Yours {
	kinds := sshd.HostKeyKinds()
	one := Yours{Namespace: namespace, Name: name}
	for _, kind := range kinds {
		one.Keys = append(one.Keys, sshd.HostKeyFile(kind))
	}
	one.Command = fmt.Sprintf(`d=$(mktemp -d); for t in %s; do ssh-keygen -q -N '' -t $t -f "$d/%s"; done; %s --from-file="$d"; rm -r "$d"`,
		strings.Join(kinds, " "), sshd.HostKeyFile("${t}"), create(namespace, name))
	return one
}

// YourNodeHostKeys are the host keys of NodeSets whose nodes users come to by ssh.
func YourNodeHostKeys(sets []*v1alpha1.NodeSet) (all []Yours) {
	for _, set := range byName(sets) {
		if pods.SSHEnabled(&set.Spec) && set.Spec.SSH.HostKeysRef == nil {
			all = append(all, yourHostKeys(set.Namespace, pods.HostKeysName(set)))
		}
	}
	return all
}

// YourLoginHostKeys are the host keys of a LoginSet that names none, and what stands for them in LoginSetObjects, which looks at their names alone.
func YourLoginHostKeys(s *v1alpha1.LoginSet) (Yours, map[string][]byte) {
	y, names := yourHostKeys(s.Namespace, hostKeysName(s)), map[string][]byte{}
	for _, name := range y.Keys {
		names[name] = []byte("not made yet")
	}
	return y, names
}

// YourToken is the Secret of a Token. c is the Controller whose key signs it, or nil if it is another key.
func YourToken(t *v1alpha1.Token, c *v1alpha1.Controller) Yours {
	ref, where := tokenRef(t), ""
	y := Yours{Namespace: t.Namespace, Name: ref.Name, Keys: []string{ref.Key}, Note: fmt.Sprintf("it ends after %s, and nobody renews it", lifetime(t))}
	switch {
	case c != nil && c.Spec.External == nil:
		where = fmt.Sprintf("kubectl -n %s exec %s -c %s -- ", t.Namespace, PodName(c.Name), ContainerSlurmctld)
	case c == nil && t.Spec.JWTKeyRef != nil:
		y.Note = fmt.Sprintf("where slurmctld has %s of Secret %s; %s", t.Spec.JWTKeyRef.Key, t.Spec.JWTKeyRef.Name, y.Note)
	default:
		y.Note = "on slurmctld's host; " + y.Note
	}
	y.Command = fmt.Sprintf("%sscontrol token username=%s lifespan=%.0f | sed 's/^SLURM_JWT=//' | tr -d '\\n' | %s --from-file=%s=/dev/stdin",
		where, t.Spec.Username, lifetime(t).Seconds(), create(y.Namespace, y.Name), ref.Key)
	return y
}

// SignedBy says that the Controller's key of auth/jwt signs a Token. c has the keys of its Accounting.
func SignedBy(t *v1alpha1.Token, c *v1alpha1.Controller) bool {
	if t.Namespace != c.Namespace {
		return false
	}
	if ref := t.Spec.JWTKeyRef; ref != nil {
		return *ref == jwtKeyRef(c)
	}
	return t.Spec.ControllerRef != nil && t.Spec.ControllerRef.Name == c.Name
}
