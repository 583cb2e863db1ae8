// Package render makes the text of slurm.conf and of Kubernetes objects for people who manage files themselves, from the files that have their objects. What it
// makes is what the controller would: kube/controlplane has both.
package render

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/internal/manifest"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/kube/pods"
)

// Input are the objects of files. Kinds that are of no use here are left out.
type Input struct {
	NodeSets    []*v1alpha1.NodeSet
	Controllers []*v1alpha1.Controller
	Accountings []*v1alpha1.Accounting
	RestApis    []*v1alpha1.RestApi
	LoginSets   []*v1alpha1.LoginSet
	Tokens      []*v1alpha1.Token
	ConfigMaps  []*corev1.ConfigMap
	Secrets     []*corev1.Secret

	all []*v1alpha1.Controller // also those of other clusters
}

// Empty says that there is no object of ours.
func (in *Input) Empty() bool {
	return len(in.NodeSets)+len(in.Controllers)+len(in.Accountings)+len(in.RestApis)+len(in.LoginSets)+len(in.Tokens) == 0
}

// Read adds the objects of a file in YAML or JSON, those of Lists too. An object without a namespace gets the one given.
func (in *Input) Read(name string, r io.Reader, namespace string) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = in.add(text, namespace)
		}
		if err != nil {
			return fmt.Errorf("%s, document %d: %w", name, n, err)
		}
	}
}

func (in *Input) add(text []byte, namespace string) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var kind struct {
		metav1.TypeMeta `json:",inline"`
		Items           []runtime.RawExtension `json:"items"`
	}
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return err
	}
	ours := kind.APIVersion == v1alpha1.SchemeGroupVersion.String()
	switch {
	case kind.Kind == "List" && kind.APIVersion == "v1":
		for _, item := range kind.Items {
			if err := in.add(item.Raw, namespace); err != nil {
				return err
			}
		}
		return nil
	case kind.Kind == "NodeSet" && ours:
		return addTo(&in.NodeSets, text, namespace)
	case kind.Kind == "Controller" && ours:
		return addTo(&in.Controllers, text, namespace)
	case kind.Kind == "Accounting" && ours:
		return addTo(&in.Accountings, text, namespace)
	case kind.Kind == "RestApi" && ours:
		return addTo(&in.RestApis, text, namespace)
	case kind.Kind == "LoginSet" && ours:
		return addTo(&in.LoginSets, text, namespace)
	case kind.Kind == "Token" && ours:
		return addTo(&in.Tokens, text, namespace)
	case kind.Kind == "ConfigMap" && kind.APIVersion == "v1":
		return addTo(&in.ConfigMaps, text, namespace)
	case kind.Kind == "Secret" && kind.APIVersion == "v1":
		return in.addSecret(text, namespace)
	}
	return nil
}

func addTo[T any, P interface {
	*T
	metav1.Object
}](list *[]P, text []byte, namespace string) error {
	o := P(new(T))
	if err := manifest.Unmarshal(text, o); err != nil {
		return err
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(namespace)
	}
	*list = append(*list, o)
	return nil
}

// Select leaves the objects of one cluster. Without a name there has to be a single one.
func (in *Input) Select(cluster string) error {
	names := map[string]bool{}
	for _, set := range in.NodeSets {
		names[set.Spec.ClusterRef.Name] = true
	}
	for _, c := range in.Controllers {
		names[controlplane.ClusterName(c)] = true
	}
	all := slices.Sorted(maps.Keys(names))
	switch {
	case cluster == "" && len(all) > 1:
		return fmt.Errorf("the files have objects of several clusters, %s: say which with --cluster", strings.Join(all, ", "))
	case cluster == "" && len(all) == 1:
		cluster = all[0]
	case cluster != "" && !names[cluster]:
		return fmt.Errorf("the files have no object of cluster %s: they have those of %s", cluster, strings.Join(append(all, "none")[:max(1, len(all))], ", "))
	}
	in.all = slices.Clone(in.Controllers)
	in.NodeSets = slices.DeleteFunc(in.NodeSets, func(s *v1alpha1.NodeSet) bool { return s.Spec.ClusterRef.Name != cluster })
	in.Controllers = slices.DeleteFunc(in.Controllers, func(c *v1alpha1.Controller) bool { return controlplane.ClusterName(c) != cluster })
	if len(in.Controllers) > 1 {
		return fmt.Errorf("the files have %d Controllers of cluster %s: leave one", len(in.Controllers), cluster)
	}
	for _, checked := range pods.Validate(in.NodeSets) {
		if checked.Problem != "" {
			return fmt.Errorf("NodeSet %s: %s", checked.Name, checked.Problem)
		}
	}
	return nil
}

// config makes the files of a Controller.
func (in *Input) config(s controlplane.Settings) (map[string]string, error) {
	c := in.Controllers[0]
	accounting, err := in.accounting(c)
	if err != nil {
		return nil, err
	}
	cluster := controlplane.Cluster{Controller: c, NodeSets: in.NodeSets, Accounting: accounting, Settings: s}
	if cluster.JWKS, err = in.jwks(c.Namespace, c.Spec.JWKSKeyRef); err != nil {
		return nil, about("Controller", c, err)
	}
	if err := cluster.ReadFiles(func(field string, refs []v1alpha1.ObjectRef) (map[string]string, error) {
		return in.files(c, field, refs)
	}); err != nil {
		return nil, about("Controller", c, err)
	}
	files, err := controlplane.Config(cluster)
	if err != nil {
		return nil, about("Controller", c, err)
	}
	return files, nil
}

// SlurmConf is the slurm.conf of the Controller; without one, or for a slurmctld outside of Kubernetes, the lines for somebody else's.
func (in *Input) SlurmConf(s controlplane.Settings) (string, error) {
	if len(in.Controllers) > 0 && in.Controllers[0].Spec.External == nil {
		files, err := in.config(s)
		return files["slurm.conf"], err
	}
	switch {
	case len(in.NodeSets) > 0:
	case len(in.Controllers) > 0:
		return "", about("Controller", in.Controllers[0], errors.New("spec.external: its slurm.conf is yours, and the files have no NodeSet to give it lines for"))
	default:
		return "", errors.New("the files have neither a NodeSet nor a Controller")
	}
	return controlplane.Lines(in.NodeSets)
}
