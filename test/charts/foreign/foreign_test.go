// Package foreign holds what the charts give of others' kinds against the rules of these others, as an API server that has them does. It is a module of
// its own, since Slurmtide needs nothing else of theirs.
package foreign

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	crd "github.com/prometheus-operator/prometheus-operator/example"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	apivalidation "k8s.io/kube-aggregator/pkg/apis/apiregistration/validation"
	"sigs.k8s.io/yaml"
)

const root = "../../../"

// check returns what an API server has against a document; it knows one kind.
type check func(document string) error

// checks are those of the kinds that charts_test.go leaves to this package, by name.
func checks(t *testing.T) map[string]check {
	t.Helper()
	all := map[string]check{"APIService": apiService(t)}
	var text bytes.Buffer
	require.NoError(t, crd.PrintAll(&text))
	for _, kind := range []string{"PodMonitor", "ServiceMonitor", "PrometheusRule"} {
		for _, document := range strings.Split(text.String(), "\n---\n") {
			if strings.Contains(document, "\n    kind: "+kind+"\n") { // before it is parsed: there are megabytes of others
				all[kind] = custom(t, document)
			}
		}
		require.Contains(t, all, kind, "the Prometheus operator has no CRD of it")
	}
	return all
}

// custom does what apiextensions-apiserver's handler of custom resources does with an object that is new, and strict.
func custom(t *testing.T, definition string) check {
	t.Helper()
	known := runtime.NewScheme()
	require.NoError(t, apiextensions.AddToScheme(known))
	require.NoError(t, apiextensionsv1.AddToScheme(known))
	object, _, err := serializer.NewCodecFactory(known).UniversalDecoder(apiextensions.SchemeGroupVersion).Decode([]byte(definition), nil, nil)
	require.NoError(t, err)
	of := object.(*apiextensions.CustomResourceDefinition)
	require.Len(t, of.Spec.Versions, 1)
	fits, err := apiextensions.GetSchemaForVersion(of, of.Spec.Versions[0].Name)
	require.NoError(t, err)
	structural, err := schema.NewStructural(fits.OpenAPIV3Schema)
	require.NoError(t, err)
	validator, _, err := validation.NewSchemaValidator(fits.OpenAPIV3Schema)
	require.NoError(t, err)
	version := of.Spec.Group + "/" + of.Spec.Versions[0].Name

	return func(document string) error {
		text, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			return err
		}
		fields := map[string]any{}
		if err := json.Unmarshal(text, &fields); err != nil { // whole numbers as such
			return err
		}
		if fields["apiVersion"] != version {
			return fmt.Errorf("apiVersion: %v, want %s", fields["apiVersion"], version)
		}
		meta, _, unknown, err := objectmeta.GetObjectMetaWithOptions(fields, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
		if err != nil {
			return err
		}
		unknown = append(unknown, pruning.PruneWithOptions(fields, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
		if len(unknown) > 0 {
			return fmt.Errorf("unknown fields: %q", unknown)
		}
		problems := metavalidation.ValidateObjectMeta(meta, true, metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
		problems = append(problems, validation.ValidateCustomResource(nil, fields, validator)...)
		problems = append(problems, listtype.ValidateListSetsAndMaps(nil, structural, fields)...)
		return problems.ToAggregate()
	}
}

// apiService does what kube-aggregator does with a new object.
func apiService(t *testing.T) check {
	t.Helper()
	known := runtime.NewScheme()
	install.Install(known)
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDecoder(apiregistration.SchemeGroupVersion)
	return func(document string) error {
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			return err
		}
		return apivalidation.ValidateAPIService(object.(*apiregistration.APIService)).ToAggregate()
	}
}

// documents are those of a file that are of a kind with a check, by kind.
func documents(t *testing.T, file string, of map[string]check) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	all := map[string][]string{}
	for _, document := range strings.Split("\n"+string(text), "\n---\n") {
		var about struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(document), &about), file)
		if of[about.Kind] != nil {
			all[about.Kind] = append(all[about.Kind], document)
		}
	}
	return all
}

// All that the charts give, as TestTemplates has it, and the example of an APIService.
func TestObjects(t *testing.T) {
	known := checks(t)
	files, err := filepath.Glob("../testdata/*.golden.yaml")
	require.NoError(t, err)
	seen := map[string]int{}
	for _, file := range append(files, root+"docs/examples/hpa/apiservice.yaml") {
		for kind, of := range documents(t, file, known) {
			for _, document := range of {
				seen[kind]++
				if err := known[kind](document); err != nil {
					t.Errorf("%s: %v in\n%s", file, err, document)
				}
			}
		}
	}
	for kind := range known {
		assert.Positive(t, seen[kind], "no case of test/charts has a %s", kind)
	}
}

// What is wrong is seen: each mistake is put into an object that has none.
func TestMistakes(t *testing.T) {
	known := checks(t)
	for name, test := range map[string]struct{ chart, kind, old, wrong, want string }{
		"field":               {"slurmtide", "PodMonitor", "podMetricsEndpoints:", "podMetricsEndpoint:", `unknown fields: ["spec.podMetricsEndpoint"]`},
		"case of a field":     {"slurmtide", "PodMonitor", "serverName:", "servername:", `unknown fields: ["spec.podMetricsEndpoints[0].tlsConfig.servername"]`},
		"duration":            {"slurmtide", "PodMonitor", "interval: 30s", "interval: 30 s", `spec.podMetricsEndpoints[0].interval in body should match '^(0|(([0-9]+)y)?`},
		"bare number":         {"slurmtide", "PodMonitor", "interval: 30s", "interval: 30", `spec.podMetricsEndpoints[0].interval in body must be of type string: "integer"`},
		"scheme":              {"slurmtide", "PodMonitor", "scheme: https", "scheme: tls", `spec.podMetricsEndpoints[0].scheme: Unsupported value: "tls"`},
		"field of metadata":   {"slurm", "ServiceMonitor", "  labels:", "  label:", `unknown fields: ["metadata.label"]`},
		"value of a label":    {"slurm", "ServiceMonitor", "team: hpc", "team: hpc team", "metadata.labels: Invalid value"},
		"ServiceMonitor's":    {"slurm", "ServiceMonitor", "  endpoints:", "  podMetricsEndpoints:", `unknown fields: ["spec.podMetricsEndpoints"]`},
		"version":             {"slurm", "ServiceMonitor", "coreos.com/v1", "coreos.com/v1beta1", "apiVersion: monitoring.coreos.com/v1beta1, want monitoring.coreos.com/v1"},
		"of a rule":           {"slurm", "PrometheusRule", "  for: ", "  after: ", `"spec.groups[0].rules[0].after"`},
		"duration of a rule":  {"slurm", "PrometheusRule", "  for: 2m", "  for: 2 minutes", "for in body should match '^(0|(([0-9]+)y)?"},
		"rule of nothing":     {"slurm", "PrometheusRule", "  groups:", "  groups:\n  - {name: other, rules: [{alert: a}]}", "spec.groups[0].rules[0].expr: Required value"},
		"group twice":         {"slurm", "PrometheusRule", "  groups:", "  groups:\n  - {name: slurmtide-bridge, rules: []}", `spec.groups[1]: Duplicate value: {"name":"slurmtide-bridge"}`},
		"field of APIService": {"slurmtide", "APIService", "groupPriorityMinimum:", "groupPriority:", `unknown field "spec.groupPriority"`},
		"name of APIService":  {"slurmtide", "APIService", "name: v1beta1.external", "name: v1.external", "must be `spec.version+\".\"+spec.group`"},
		"priority":            {"slurmtide", "APIService", "versionPriority: 100", "versionPriority: 1001", "spec.versionPriority: Invalid value: 1001"},
		"CA":                  {"slurmtide", "APIService", "caBundle: Q0E=", "caBundle: CA!", "illegal base64 data"},
	} {
		t.Run(name, func(t *testing.T) {
			right := documents(t, "../testdata/"+test.chart+"-all.golden.yaml", known)[test.kind]
			require.NotEmpty(t, right)
			i := 0
			for i < len(right)-1 && !strings.Contains(right[i], test.old) {
				i++
			}
			require.Contains(t, right[i], test.old)
			require.NoError(t, known[test.kind](right[i]))
			assert.ErrorContains(t, known[test.kind](strings.Replace(right[i], test.old, test.wrong, 1)), test.want)
		})
	}
}
