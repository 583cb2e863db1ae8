package controlplane

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/pods"
	"github.com/slurmtide/slurmtide/kube/sshd"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// sshEpilogFile is the name of sshEpilog on the nodes.
const sshEpilogFile = "slurmtide-ssh-epilog.sh"

//go:embed ssh-epilog.sh
var sshEpilog string

// addSSH writes what nodes with ssh need in slurm.conf: a step of each job on each of its nodes, by which pam_slurm_adopt knows who has one, and an Epilog that ends what
// users leave behind.
func addSSH(f *slurmconf.File, sets []*v1alpha1.NodeSet, files map[string]string) error {
	if !slices.ContainsFunc(sets, func(set *v1alpha1.NodeSet) bool { return pods.SSHEnabled(&set.Spec) }) {
		return nil
	}
	if _, theirs := files[sshEpilogFile]; theirs {
		return fmt.Errorf("spec.configFileRefs: one of the ConfigMaps has %s, which is made by Slurmtide for NodeSets with spec.ssh: give it another name", sshEpilogFile)
	}
	files[sshEpilogFile] = sshEpilog
	return f.Add("\n# --- Users come to nodes by ssh ---\nPrologFlags=Contain\nEpilog=" + sshEpilogFile)
}

// nodeHostKeys makes host keys for nodes, unless they are there, or somebody's own. They go with the NodeSet. Keys that are lost are made anew: nobody else would do it, and
// nodes would boot no more. A Secret that is of no use keeps the nodes of its NodeSet from booting and nothing else; the first such is told.
func (l *Loop) nodeHostKeys(ctx context.Context, sets []*v1alpha1.NodeSet) (*Problem, error) {
	var first *Problem
	for _, set := range sets {
		if !pods.SSHEnabled(&set.Spec) || set.Spec.SSH.HostKeysRef != nil {
			continue
		}
		name := pods.HostKeysName(set)
		secret, err := l.secret(ctx, set.Namespace, name)
		switch {
		case apierrors.IsNotFound(err):
			err = l.makeNodeHostKeys(ctx, set, name)
		case err != nil:
			err = fmt.Errorf("reading Secret %s: %w", name, err)
		default:
			err = usableHostKeys(secret, set.UID, false)
		}
		if p, ok := errors.AsType[*Problem](err); ok {
			first = cmp.Or(first, &Problem{p.Reason, "NodeSet " + set.Name + ": " + p.Message})
		} else if err != nil {
			return nil, err
		}
	}
	return first, nil
}

func (l *Loop) makeNodeHostKeys(ctx context.Context, set *v1alpha1.NodeSet, name string) error {
	keys, err := sshd.NewHostKeys(set.Namespace + "/" + set.Name)
	if err != nil {
		return err
	}
	return l.createHostKeys(ctx, &corev1.Secret{ObjectMeta: owned(set.Namespace, name, map[string]string{LabelManagedBy: ManagedBy}, ownerOf(set, "NodeSet")), Data: keys})
}

// createHostKeys writes a Secret with host keys that were just made.
func (l *Loop) createHostKeys(ctx context.Context, secret *corev1.Secret) error {
	secret.Immutable = new(true)
	l.o.Metrics.wrote("secrets")
	_, err := l.kube.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil { // somebody may have been faster: theirs are taken next time
		return fmt.Errorf("making Secret %s: %w", secret.Name, err)
	}
	l.o.Log.Info("made host keys", "namespace", secret.Namespace, "secret", secret.Name)
	return nil
}
