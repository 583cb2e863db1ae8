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
	RestApis    []*v1alpha1.RestApi
	ConfigMaps  []*corev1.ConfigMap
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
	case kind.Kind == "RestApi" && ours:
		return addTo(&in.RestApis, text, namespace)
	case kind.Kind == "ConfigMap" && kind.APIVersion == "v1":
		return addTo(&in.ConfigMaps, text, namespace)
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

func about(c *v1alpha1.Controller, err error) error {
	return fmt.Errorf("%s %s: %w", "Controller", c.Name, err)
}

// config makes the files of a Controller.
func (in *Input) config(s controlplane.Settings) (map[string]string, error) {
	c := in.Controllers[0]
	switch {
	case c.Spec.JWKSKeyRef != nil:
		return nil, about(c, errors.New("spec.jwksKeyRef: Secrets are not looked at: leave it out here"))
	case c.Spec.AccountingRef != nil:
		return nil, about(c, errors.New("spec.accountingRef: only the controller makes what belongs to an Accounting: leave it out here"))
	}
	cluster := controlplane.Cluster{Controller: c, NodeSets: in.NodeSets, Settings: s}
	if err := cluster.ReadFiles(func(field string, refs []v1alpha1.ObjectRef) (map[string]string, error) {
		return in.files(c, field, refs)
	}); err != nil {
		return nil, about(c, err)
	}
	files, err := controlplane.Config(cluster)
	if err != nil {
		return nil, about(c, err)
	}
	return files, nil
}

func (in *Input) files(c *v1alpha1.Controller, field string, refs []v1alpha1.ObjectRef) (map[string]string, error) {
	all := map[string]string{}
	for _, ref := range refs {
		i := slices.IndexFunc(in.ConfigMaps, func(m *corev1.ConfigMap) bool { return m.Name == ref.Name && m.Namespace == c.Namespace })
		if i < 0 {
			return nil, fmt.Errorf("%s: the files have no ConfigMap %s of namespace %s: name the one that has it, too", field, ref.Name, c.Namespace)
		}
		maps.Copy(all, controlplane.FilesIn(in.ConfigMaps[i]))
	}
	return all, nil
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
		return "", about(in.Controllers[0], errors.New("spec.external: its slurm.conf is yours, and the files have no NodeSet to give it lines for"))
	default:
		return "", errors.New("the files have neither a NodeSet nor a Controller")
	}
	return controlplane.Lines(in.NodeSets)
}

// Kube are the objects of the Controller and its RestApis, and the names of the Secrets (name/key) that they want and that are not among them; without a
// Controller, those for a bridge beside a slurmctld of one's own.
func (in *Input) Kube(namespace string, s controlplane.Settings) (objects []controlplane.Object, secrets []string, err error) {
	if len(in.Controllers) == 0 {
		return controlplane.BridgeAccount(namespace), nil, nil
	}
	c := in.Controllers[0]
	var files map[string]string
	if c.Spec.External == nil {
		if files, err = in.config(s); err != nil {
			return nil, nil, err
		}
	}
	if objects, err = controlplane.ControllerObjects(c, files, s); err != nil {
		return nil, nil, about(c, err)
	}
	for _, r := range in.RestApis {
		if r.Spec.ControllerRef.Name != c.Name || r.Namespace != c.Namespace {
			continue
		}
		more, err := controlplane.RestApiObjects(r, c, nil, s)
		if err != nil {
			return nil, nil, fmt.Errorf("RestApi %s: %w", r.Name, err)
		}
		objects = append(objects, more...)
	}
	if c.Spec.External == nil {
		objects, secrets = append([]controlplane.Object{controlplane.BridgeRole(s)}, objects...), controlplane.Keys(c)
	}
	return objects, secrets, nil
}
