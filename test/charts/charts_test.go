//go:build charts

// Package charts renders the charts of helm/ and looks at what comes out. No cluster is needed; TestCharts of test/integration has one.
package charts

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/kube/controlplane"
	"github.com/slurmtide/slurmtide/kube/pods"
)

const root = "../../"

var allCharts = []string{"slurmtide-crds", "slurmtide", "slurm"}

// helm runs helm in the repository.
func helm(args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command("hack/helm.sh", args...)
	cmd.Dir = root
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// render returns what the chart gives, with values in YAML.
func render(t *testing.T, chart, values string) (out, said string, err error) {
	t.Helper()
	if chart == "slurm" {
		return renderAs(t, chart, "tide", "slurm", values)
	}
	return renderAs(t, chart, "slurmtide", "slurmtide-system", values)
}

// renderAs does so for a release and a namespace.
func renderAs(t *testing.T, chart, release, namespace, values string) (out, said string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(values), 0o644))
	return helm("template", release, "helm/"+chart, "--namespace", namespace, "--values", file, "--kube-version", "1.36", "--api-versions", "slurmtide.io/v1alpha1")
}

// cases are the value sets in testdata, <chart>-<case>.values.yaml, and the examples of the charts' READMEs.
func cases(t *testing.T) map[string]string {
	all := map[string]string{}
	files, err := filepath.Glob("testdata/*.values.yaml")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(file), ".values.yaml")] = string(text)
	}
	for _, chart := range []string{"slurmtide", "slurm"} {
		text, err := os.ReadFile(root + "helm/" + chart + "/README.md")
		require.NoError(t, err)
		_, example, found := strings.Cut(string(text), "```yaml\n")
		require.True(t, found)
		example, _, _ = strings.Cut(example, "```\n")
		all[chart+"-readme"] = example
	}
	require.Len(t, all, 9)
	return all
}

func chartOf(name string) string {
	chart, _, _ := strings.Cut(name, "-")
	return chart
}

// What the charts give is written down, and made of objects that the API server knows field by field.
func TestTemplates(t *testing.T) {
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			out, said, err := render(t, chartOf(name), values)
			require.NoError(t, err, said)
			golden.Compare(t, "testdata/"+name+".golden.yaml", out)
			assert.NotEmpty(t, decode(t, out))
		})
	}
}

// foreign are kinds of which there are no types here. test/charts/foreign, a module of its own, holds them against the rules of those whose they are.
var foreign = []string{"PodMonitor", "ServiceMonitor", "PrometheusRule", "APIService"}

// decode reads the objects, and fails on fields that they do not have.
func decode(t *testing.T, text string) (objects []runtime.Object) {
	t.Helper()
	known := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(known))
	require.NoError(t, v1alpha1.AddToScheme(known))
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	for _, document := range strings.Split("\n"+text, "\n---\n") {
		var fields map[string]any
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &fields), document)
		kind, _ := fields["kind"].(string)
		if len(fields) == 0 || slices.Contains(foreign, kind) {
			continue
		}
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		require.NoError(t, err, document)
		objects = append(objects, object)
	}
	return objects
}

// Values that are wrong are refused before anything is installed, and the message says which and why.
func TestWrongValues(t *testing.T) {
	for name, test := range map[string]struct{ chart, values, want string }{
		"key":             {"slurmtide", "controler: {enabled: true}", "additional properties 'controler' not allowed"},
		"type":            {"slurmtide", "controller: {replicas: two}", "at '/controller/replicas': got string, want integer"},
		"digest":          {"slurmtide", "image: {digest: abc}", "at '/image/digest': 'abc' does not match pattern"},
		"scaler":          {"slurmtide", "scaler: {enabled: true}", "scaler.clusters is empty: name a cluster and its slurmrestd"},
		"slurmrestd":      {"slurmtide", "scaler: {enabled: true, clusters: [{name: tide}]}", "at '/scaler/clusters/0': missing property 'slurmrestd'"},
		"client ca":       {"slurmtide", "scaler: {enabled: true, clusters: [{name: a, slurmrestd: b}], tls: {clientCA: true}}", "scaler.tls.clientCA wants scaler.tls.secretName"},
		"exporter":        {"slurmtide", "exporter: {enabled: true}", "exporter.clusters is empty: name a cluster and its slurmrestd"},
		"two exporters":   {"slurmtide", "exporter: {enabled: true, replicas: 2, clusters: [{name: a, slurmrestd: b}]}", "exporter.replicas: one for each cluster is enough"},
		"two of a name":   {"slurmtide", "exporter: {enabled: true, clusters: [{name: a_b, slurmrestd: b}, {name: A-b, slurmrestd: b}]}", "exporter.clusters: the names a_b and A-b would have the same Deployment"},
		"a long one":      {"slurmtide", "{fullnameOverride: a12345678901234567890123456789012345678, exporter: {enabled: true, clusters: [{name: b1234567890123456789, slurmrestd: b}]}}", "which has more than 63 characters: set a shorter fullnameOverride"},
		"whose CA":        {"slurmtide", "controller: {tls: {clientCA: true}}", "controller.tls.clientCA wants controller.tls.secretName"},
		"no certificate":  {"slurmtide", "exporter: {enabled: true, clusters: [{name: a, slurmrestd: b}], tls: {clientCA: true}}", "exporter.tls.clientCA wants exporter.tls.secretName"},
		"cluster's name":  {"slurmtide", "exporter: {enabled: true, clusters: [{name: a/b, slurmrestd: b}]}", "at '/exporter/clusters/0/name': 'a/b' does not match pattern"},
		"metrics TLS":     {"slurmtide", "scaler: {enabled: true, clusters: [{name: a, slurmrestd: b}], externalMetrics: {enabled: true}}", "scaler.externalMetrics wants TLS"},
		"scaler metrics":  {"slurmtide", "scaler: {enabled: true, clusters: [{name: a, slurmrestd: b}], tls: {metrics: true}}", "scaler.tls.metrics wants scaler.tls.secretName"},
		"field of a CRD":  {"slurm", "controller: {spec: {extraconf: a}}", "at '/controller/spec': additional properties 'extraconf' not allowed"},
		"interval":        {"slurm", "metrics: {serviceMonitor: {enabled: true, interval: 30 s}}", "at '/metrics/serviceMonitor/interval': '30 s' does not match pattern"},
		"type in a CRD":   {"slurm", "restApi: {spec: {replicas: many}}", "at '/restApi/spec/replicas': got string, want integer"},
		"collector":       {"slurm", "controller: {spec: {bridge: {tracing: {endpoint: 'http://user:password@collector'}}}}", "at '/controller/spec/bridge/tracing/endpoint': 'http://user:password@collector' does not match pattern"},
		"no collector":    {"slurm", "controller: {spec: {bridge: {tracing: {}}}}", "at '/controller/spec/bridge/tracing': missing property 'endpoint'"},
		"no names":        {"slurm", "nodeSets: {cpu: {spec: {shape: {cpus: 1, realMemory: 100}}}}", "nodeSets.cpu.spec: name the nodes in nodeNames, or have one on each host with eachHost"},
		"login":           {"slurm", "loginSets: {a: {spec: {replica: 1}}}", "at '/loginSets/a/spec': additional properties 'replica' not allowed"},
		"user":            {"slurm", "tokens: {a: {spec: {}}}", "at '/tokens/a/spec': missing property 'username'"},
		"two containers":  {"slurm", "nodeSets: {cpu: {slurmd: {tty: true}, spec: {nodeNames: a, shape: {cpus: 1, realMemory: 100}, template: {spec: {containers: [{name: slurmd}]}}}}}", "nodeSets.cpu: slurmd is for the chart's own container"},
		"no database":     {"slurm", "accounting: {enabled: true}", "accounting.spec.storageConfig is missing: name a database"},
		"two Accountings": {"slurm", "{accounting: {enabled: true, spec: {storageConfig: {host: a, passwordKeyRef: {name: a, key: b}}}}, controller: {spec: {accountingRef: {name: b}}}}", "controller.spec.accountingRef and accounting.enabled"},
		"no password":     {"slurm", "accounting: {spec: {storageConfig: {host: a}}}", "at '/accounting/spec/storageConfig': missing property 'passwordKeyRef'"},
		"a long name":     {"slurm", "name: " + strings.Repeat("a", 41), "at '/name': 'aaaa"},
		"a name":          {"slurm", "name: 1tide", "at '/name': '1tide' does not match pattern"},
		"slurmdbd kept":   {"slurm", "{networkPolicy: {enabled: true}, accounting: {enabled: true, spec: {storageConfig: {host: a, passwordKeyRef: {name: a, key: b}}}}, controller: {spec: {external: {host: a}, slurmKeyRef: {name: a, key: b}, jwtKeyRef: {name: a, key: b}}}}", "slurmctld, which is elsewhere (controller.spec.external), would not reach slurmdbd: name its address"},
		"nodes kept":      {"slurm", "{networkPolicy: {enabled: true}, controller: {spec: {external: {host: a}, slurmKeyRef: {name: a, key: b}, jwtKeyRef: {name: a, key: b}}}, nodeSets: {a: {spec: {nodeNames: a, shape: {cpus: 1, realMemory: 100}}}}}", "slurmctld, which is elsewhere (controller.spec.external), would not reach the nodes: name its address"},
		"slurmctld kept":  {"slurm", "{networkPolicy: {enabled: true}, accounting: {enabled: true, spec: {external: {host: a}}}}", "slurmdbd, which is elsewhere (accounting.spec.external), could not tell slurmctld of changes: name its address"},
		"RPC port":        {"slurm", "{networkPolicy: {enabled: true}, metrics: {slurmctld: {enabled: true}}}", "networkPolicy.metricsFrom is empty, and metrics.slurmctld.enabled would open slurmctld's port to everybody"},
		"nothing in CRDs": {"slurmtide-crds", "a: 1", "additional properties 'a' not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, said, err := render(t, test.chart, test.values)
			require.Error(t, err)
			assert.Contains(t, said, test.want)
		})
	}
}

// A daemon's port is open to those alone who are named, however the values are. The bridge's metrics, its page and slurmrestd are for all if the values say so.
func TestPeers(t *testing.T) {
	const sets = "nodeSets: {cpu: {spec: {nodeNames: a, shape: {cpus: 1, realMemory: 100}}}}\n"
	for name, values := range map[string]string{
		"least":             "networkPolicy: {enabled: true}",
		"slurmctld's own":   "{networkPolicy: {enabled: true, metricsFrom: [{podSelector: {}}]}, metrics: {slurmctld: {enabled: true}}}",
		"slurmctld outside": "{networkPolicy: {enabled: true, slurmFrom: [{ipBlock: {cidr: 192.0.2.1/32}}]}, metrics: {slurmctld: {enabled: true}}, controller: {spec: {external: {host: a}, slurmKeyRef: {name: a, key: b}, jwtKeyRef: {name: a, key: b}}}}",
	} {
		t.Run(name, func(t *testing.T) {
			text := map[string]any{}
			require.NoError(t, yaml.Unmarshal([]byte(values), &text))
			require.NoError(t, yaml.Unmarshal([]byte(sets), &text))
			all, err := yaml.Marshal(text)
			require.NoError(t, err)
			out, said, err := render(t, "slurm", string(all))
			require.NoError(t, err, said)
			seen := 0
			for _, object := range decode(t, out) {
				policy, ok := object.(*networkingv1.NetworkPolicy)
				if !ok {
					continue
				}
				for _, rule := range policy.Spec.Ingress {
					seen++
					assert.True(t, len(rule.From) > 0 || len(rule.Ports) == 1 && rule.Ports[0].Port.IntValue() == 9441, "%s: %v", policy.Name, rule)
				}
			}
			assert.Positive(t, seen)
		})
	}
}

// Login pods of other clusters in the namespace have nothing to do here.
func TestLoginPeers(t *testing.T) {
	for name, test := range map[string]struct {
		sets string
		want []string // LoginSets
	}{
		"none": {"{}", nil},
		"two":  {"{web: {spec: {}}, login: {spec: {}}}", []string{"login", "web"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, said, err := render(t, "slurm", "{networkPolicy: {enabled: true}, accounting: {enabled: true, spec: {storageConfig: {host: a, passwordKeyRef: {name: a, key: b}}}}, loginSets: "+test.sets+"}")
			require.NoError(t, err, said)
			got := map[string][]string{}
			for _, object := range decode(t, out) {
				policy, ok := object.(*networkingv1.NetworkPolicy)
				if !ok {
					continue
				}
				for _, peer := range policy.Spec.Ingress[0].From {
					for _, e := range peer.PodSelector.MatchExpressions {
						assert.Equal(t, controlplane.LabelLoginSet, e.Key)
						assert.Equal(t, metav1.LabelSelectorOpIn, e.Operator)
						got[policy.Name] = e.Values
					}
				}
			}
			want := map[string][]string{}
			if test.want != nil {
				want = map[string][]string{"tide-controller": test.want, "tide-accounting": test.want, "tide-nodes": test.want}
			}
			assert.Equal(t, want, got)
		})
	}
}

// Every Secret that an object's spec names, and those that are made for it, are in the policies that keep them. TestCharts sees that the API server does so.
func TestSecretPolicies(t *testing.T) {
	out, said, err := render(t, "slurmtide", cases(t)["slurmtide-all"])
	require.NoError(t, err, said)
	policies := map[string]map[string]string{} // by kind: variables
	for _, object := range decode(t, out) {
		if policy, ok := object.(*admissionv1.ValidatingAdmissionPolicy); ok {
			variables := map[string]string{}
			for _, v := range policy.Spec.Variables {
				variables[v.Name] = strings.ReplaceAll(v.Expression, "?", "")
			}
			policies[policy.Spec.ParamKind.Kind] = variables
		}
	}
	for kind, test := range map[string]struct {
		spec any
		made []string
	}{
		"Controller": {v1alpha1.ControllerSpec{}, []string{"-auth-slurm", "-auth-jwths256"}},
		"Accounting": {v1alpha1.AccountingSpec{}, []string{"-auth-slurm", "-auth-jwths256"}},
		"RestApi":    {v1alpha1.RestApiSpec{}, nil},
		"LoginSet":   {v1alpha1.LoginSetSpec{}, []string{"-login-host-keys"}},
		"NodeSet":    {v1alpha1.NodeSetSpec{}, []string{strings.TrimPrefix(pods.HostKeysName(&v1alpha1.NodeSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}}), "a")}},
		"Token":      {v1alpha1.TokenSpec{}, nil},
	} {
		t.Run(kind, func(t *testing.T) {
			for _, path := range secretsOf("params.spec", reflect.TypeOf(test.spec)) {
				if path != "params.spec.secretRef.name" { // a Token's, which is made anew
					assert.Contains(t, policies[kind]["named"], path+".orValue('')")
				}
			}
			for _, end := range test.made {
				assert.Contains(t, policies[kind]["made"], "params.metadata.name + '"+end+"'")
			}
		})
	}
}

// secretsOf are the paths of fields that name a Secret.
func secretsOf(path string, of reflect.Type) (all []string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of == reflect.TypeFor[v1alpha1.KeyRef]() || of == reflect.TypeFor[v1alpha1.ObjectRef]() && strings.HasSuffix(path, ".hostKeysRef") {
		return []string{path + ".name"}
	}
	if strings.HasSuffix(path, ".secretName") {
		return []string{path}
	}
	if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[v1alpha1.KeyRef]().PkgPath() {
		return nil
	}
	for i := range of.NumField() {
		field, below := of.Field(i), path
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			below += "." + name
		}
		all = append(all, secretsOf(below, field.Type)...)
	}
	return all
}

// Names of releases may be longer than those of Controllers.
func TestLongRelease(t *testing.T) {
	_, said, err := helm("template", strings.Repeat("a", 41), "helm/slurm")
	require.Error(t, err)
	assert.Contains(t, said, "whose name must be at most 40 lower-case letters, digits and '-', a letter first: set name")
	out, said, err := helm("template", strings.Repeat("a", 53), "helm/slurm", "--set", "name=tide")
	require.NoError(t, err, said)
	assert.Contains(t, out, "\n  name: \"tide\"\n")
	_, said, err = helm("template", "1.tide", "helm/slurmtide")
	require.Error(t, err)
	assert.Contains(t, said, "no Service can be called after the release 1.tide: set fullnameOverride")
}

// slurmds have the key that slurmctld has, and slurmdbd.
func TestKeysOfNodes(t *testing.T) {
	const nodes, database = "nodeSets: {cpu: {spec: {nodeNames: a, shape: {cpus: 1, realMemory: 100}}}}\n", "storageConfig: {host: a, passwordKeyRef: {name: a, key: b}}"
	for name, test := range map[string]struct{ values, want, slurmdbd string }{
		"made":             {"", "tide-auth-slurm slurm.key", ""},
		"named":            {"controller: {spec: {slurmKeyRef: {name: a, key: b}}}", "a b", ""},
		"with accounting":  {"accounting: {enabled: true, spec: {" + database + "}}", "tide-auth-slurm slurm.key", "tide-auth-slurm slurm.key"},
		"named with it":    {"{accounting: {enabled: true, spec: {" + database + "}}, controller: {spec: {slurmKeyRef: {name: a, key: b}}}}", "a b", "a b"},
		"named by it":      {"accounting: {enabled: true, spec: {slurmKeyRef: {name: c, key: d}, " + database + "}}", "c d", "c d"},
		"another's":        {"controller: {spec: {accountingRef: {name: records}}}", "records-auth-slurm slurm.key", ""},
		"switched off yet": {"accounting: {spec: {slurmKeyRef: {name: c, key: d}}}", "tide-auth-slurm slurm.key", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := map[string]any{}
			require.NoError(t, yaml.Unmarshal([]byte(test.values), &text))
			require.NoError(t, yaml.Unmarshal([]byte(nodes), &text))
			values, err := yaml.Marshal(text)
			require.NoError(t, err)
			out, said, err := render(t, "slurm", string(values))
			require.NoError(t, err, said)
			slurmdbd := ""
			for _, object := range decode(t, out) {
				switch o := object.(type) {
				case *v1alpha1.NodeSet:
					ref := o.Spec.Template.Spec.Containers[0].Env[0].ValueFrom.SecretKeyRef
					assert.Equal(t, test.want, ref.Name+" "+ref.Key)
				case *v1alpha1.Accounting:
					slurmdbd = o.Spec.SlurmKeyRef.Name + " " + o.Spec.SlurmKeyRef.Key
				}
			}
			assert.Equal(t, test.slurmdbd, slurmdbd)
		})
	}
}

func TestLint(t *testing.T) {
	for _, chart := range allCharts {
		out, said, err := helm("lint", "--strict", "helm/"+chart)
		require.NoError(t, err, out+said)
	}
}

// The charts give what the code asks for, and not a verb more. TestCharts sees that it is enough.
func TestRights(t *testing.T) {
	for _, name := range []string{"slurmtide-all", "slurmtide-namespaces"} {
		t.Run(name, func(t *testing.T) {
			out, said, err := render(t, "slurmtide", cases(t)[name])
			require.NoError(t, err, said)
			got := map[string][]string{}
			for _, object := range decode(t, out) {
				switch role := object.(type) {
				case *rbacv1.ClusterRole:
					got["cluster "+role.Name] = lines(role.Rules)
				case *rbacv1.Role:
					got[role.Namespace+" "+role.Name] = lines(role.Rules)
				}
			}
			bind := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"slurmtide-bridge"}, Verbs: []string{"bind"}}
			want := map[string][]string{
				"cluster slurmtide-controller":   lines(append(pods.Rules(controlplane.Rights()), bind)),
				"cluster slurmtide-bridge":       lines(pods.Rules(controlplane.BridgeRights())),
				"cluster slurmtide-bridge-hosts": lines(pods.Rules(pods.ClusterRights())),
			}
			leases := []string{"slurmtide-system"}
			if name == "slurmtide-namespaces" {
				leases = []string{"one", "two"}
			}
			for _, namespace := range leases {
				want[namespace+" slurmtide-controller-lease"] = []string{"create leases.coordination.k8s.io", "get leases.coordination.k8s.io", "update leases.coordination.k8s.io"}
			}
			if name == "slurmtide-all" {
				want["cluster slurmtide-controller-hosts"] = lines(pods.Rules(controlplane.HostRights()))
				want["slurm slurmtide-scaler"] = []string{"list nodesets.slurmtide.io", "watch nodesets.slurmtide.io"}
			}
			assert.Equal(t, want, got)
		})
	}
}

// The flags that the chart gives are there, the exporter listens where its Service leads, and it has no token for Kubernetes, which it does not ask.
func TestExporter(t *testing.T) {
	man, err := os.ReadFile(root + "man/slurmtide-exporter.8")
	require.NoError(t, err)
	page := strings.ReplaceAll(string(man), `\-`, "-")
	out, said, err := render(t, "slurmtide", cases(t)["slurmtide-all"])
	require.NoError(t, err, said)
	services, seen := map[string]*corev1.Service{}, 0
	for _, object := range decode(t, out) {
		switch object := object.(type) {
		case *corev1.Service:
			services[object.Name] = object
		case *appsv1.Deployment:
			pod := object.Spec.Template
			c := pod.Spec.Containers[0]
			if c.Name != "exporter" {
				continue
			}
			seen++
			for _, arg := range c.Args[1:] {
				flag, _, _ := strings.Cut(arg, "=")
				assert.Contains(t, page, `\fB`+flag+`\fR`, "there is no such flag")
			}
			assert.Contains(t, page, fmt.Sprintf("(default: :%d)", c.Ports[0].ContainerPort))
			assert.False(t, *pod.Spec.AutomountServiceAccountToken)
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
				assert.Equal(t, corev1.URISchemeHTTPS, probe.HTTPGet.Scheme)
			}
			service := services[object.Name]
			require.NotNil(t, service, object.Name)
			assert.Equal(t, c.Ports[0].ContainerPort, service.Spec.Ports[0].Port)
			for key, value := range service.Spec.Selector {
				assert.Equal(t, value, pod.Labels[key])
			}
			assert.Equal(t, service.Spec.Selector, object.Spec.Selector.MatchLabels)
		}
	}
	assert.Equal(t, 2, seen)
}

// lines are the verbs of rules, one by one.
func lines(rules []rbacv1.PolicyRule) (all []string) {
	for _, r := range rules {
		for _, verb := range r.Verbs {
			all = append(all, strings.TrimSpace(verb+" "+strings.Join(r.Resources, ",")+"."+strings.Join(r.APIGroups, ",")+" "+strings.Join(r.ResourceNames, ",")))
		}
	}
	slices.Sort(all)
	return all
}

// Whom the rights are given to: the daemon's own account, in the namespaces that it works in alone if there are such.
func TestBindings(t *testing.T) {
	bound := func(name string) (got []string) {
		out, said, err := render(t, "slurmtide", cases(t)[name])
		require.NoError(t, err, said)
		for _, object := range decode(t, out) {
			switch b := object.(type) {
			case *rbacv1.ClusterRoleBinding:
				got = append(got, "everywhere "+b.RoleRef.Name+" to "+b.Subjects[0].Namespace+"/"+b.Subjects[0].Name)
			case *rbacv1.RoleBinding:
				got = append(got, b.Namespace+" "+b.RoleRef.Name+" to "+b.Subjects[0].Namespace+"/"+b.Subjects[0].Name)
			}
		}
		slices.Sort(got)
		return got
	}
	const account = " to slurmtide-system/slurmtide-controller"
	assert.Equal(t, []string{"everywhere slurmtide-controller" + account, "slurmtide-system slurmtide-controller-lease" + account}, bound("slurmtide-default"))
	assert.Equal(t, []string{"one slurmtide-controller" + account, "one slurmtide-controller-lease" + account, "two slurmtide-controller" + account, "two slurmtide-controller-lease" + account}, bound("slurmtide-namespaces"))
	assert.Contains(t, bound("slurmtide-all"), "everywhere slurmtide-controller-hosts"+account)
}

// Pods of the charts meet the Pod Security Standard "restricted", and their root file system cannot be written to. Only slurmd runs as root, and
// it is not privileged unless the values say so.
func TestPodSecurity(t *testing.T) {
	seen := 0
	for name, values := range cases(t) {
		out, said, err := render(t, chartOf(name), values)
		require.NoError(t, err, said)
		for _, object := range decode(t, out) {
			var spec *corev1.PodSpec
			switch object := object.(type) {
			case *appsv1.Deployment:
				spec = &object.Spec.Template.Spec
			case *corev1.Pod:
				spec = &object.Spec
			case *v1alpha1.NodeSet:
				for _, c := range object.Spec.Template.Spec.Containers {
					assert.True(t, c.SecurityContext == nil || c.SecurityContext.Privileged == nil || object.Name == "privileged", "%s: %s", name, object.Name)
				}
				continue
			default:
				continue
			}
			seen++
			assert.True(t, *spec.SecurityContext.RunAsNonRoot, name)
			assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type, name)
			for _, c := range append(spec.InitContainers, spec.Containers...) {
				assert.Equal(t, &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				}, c.SecurityContext, "%s: %s", name, c.Name)
			}
		}
	}
	assert.Positive(t, seen)
}

// The scaler's certificate is for its metrics, and so for probes and Prometheus, only if the values say so.
func TestScalerMetricsTLS(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		out, said, err := render(t, "slurmtide", fmt.Sprintf("{controller: {enabled: false}, metrics: {podMonitor: {enabled: true}},"+
			" scaler: {enabled: true, clusters: [{name: a, slurmrestd: b}], tls: {secretName: c, metrics: %v, podMonitor: {serverName: d}}}}", wanted))
		require.NoError(t, err, said)
		assert.Contains(t, out, "- --tls-cert=/tls/tls.crt\n")
		times := 0
		if wanted {
			times = 1
		}
		assert.Equal(t, times, strings.Count(out, "- --metrics-tls\n"))
		assert.Equal(t, 2*times, strings.Count(out, "scheme: HTTPS\n"))
		assert.Equal(t, times, strings.Count(out, "scheme: https\n"))
		assert.Equal(t, times, strings.Count(out, "serverName: d\n"))
	}
}

// PrometheusRules are the files of alerts, which test/monitoring looks after, with matchers for the release put before those of each metric.
func TestAlerts(t *testing.T) {
	type group struct {
		Name  string
		Rules []map[string]any
	}
	for _, test := range []struct{ chart, of, file, matchers string }{
		{"slurm", "slurmtide-bridge", "bridge", `namespace="slurm",service="tide-1-controller"`},
		{"slurmtide", "slurmtide-exporter", "exporter", `namespace="slurmtide-system"`},
		{"slurmtide", "slurmtide-controller", "controller", `namespace="slurmtide-system"`},
		{"slurmtide", "slurmtide-scaler", "scaler", `namespace="slurmtide-system"`},
	} {
		t.Run(test.file, func(t *testing.T) {
			text, err := os.ReadFile(root + "helm/" + test.chart + "/alerts/" + test.file + ".yaml")
			require.NoError(t, err)
			var want struct{ Groups []group }
			require.NoError(t, yaml.Unmarshal(text, &want))
			require.Len(t, want.Groups, 1)
			out, said, err := render(t, test.chart, cases(t)[test.chart+"-all"])
			require.NoError(t, err, said)
			var got []group
			for _, document := range strings.Split("\n"+out, "\n---\n") {
				var object struct {
					Kind string
					Spec struct{ Groups []group }
				}
				require.NoError(t, yaml.Unmarshal([]byte(document), &object))
				if object.Kind == "PrometheusRule" {
					got = append(got, object.Spec.Groups...)
				}
			}
			i := slices.IndexFunc(got, func(g group) bool { return g.Name == test.of })
			require.GreaterOrEqual(t, i, 0, "%v", got)
			for _, r := range got[i].Rules {
				expr := r["expr"].(string)
				assert.Equal(t, strings.Count(expr, "{"), strings.Count(expr, "{"+test.matchers), expr)
				r["expr"] = strings.ReplaceAll(strings.ReplaceAll(expr, test.matchers+",", ""), test.matchers, "")
			}
			assert.Equal(t, want.Groups[0], got[i])
		})
	}
}

// The charts are of one release.
func TestVersions(t *testing.T) {
	seen := map[string]bool{}
	for _, chart := range allCharts {
		text, err := os.ReadFile(root + "helm/" + chart + "/Chart.yaml")
		require.NoError(t, err)
		var about struct{ Version, AppVersion, KubeVersion string }
		require.NoError(t, yaml.Unmarshal(text, &about))
		assert.Equal(t, about.Version, about.AppVersion, chart)
		seen[about.Version+" "+about.KubeVersion] = true
	}
	assert.Len(t, seen, 1)
}
