// Package keda_test holds our ScaledObjects against KEDA's own types.
package keda_test

import (
	"os"
	"strings"
	"testing"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// KEDA knows every field of what slurmtide render scaledobject prints, and of the examples.
func TestScaledObjects(t *testing.T) {
	for _, file := range []string{
		"../../kube/render/testdata/scaledobject.yaml",
		"../../docs/examples/keda/scaledobject-poll.yaml", "../../docs/examples/keda/scaledobject-push.yaml", "../../docs/examples/keda/scaledobject-slinky.yaml",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var o kedav1alpha1.ScaledObject
		text, err = yaml.YAMLToJSONStrict(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		unknown, err := json.UnmarshalStrict(text, &o) // as the API server, which minds the case of names
		if err != nil || len(unknown) > 0 {
			t.Fatalf("%s: %v %v", file, err, unknown)
		}
		if !strings.HasPrefix(o.Spec.Triggers[0].Type, "external") || o.Spec.MaxReplicaCount == nil || o.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior.ScaleUp.Tolerance == nil {
			t.Errorf("%s: KEDA reads %+v", file, o.Spec)
		}
		if err := kedav1alpha1.CheckReplicaCountBoundsAreValid(&o); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
