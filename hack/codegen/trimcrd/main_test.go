package main

import (
	"strings"
	"testing"
)

const crd = `
spec:
  versions:
  - schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              nodeNames: {description: ours, type: string}
              template:
                description: ours too
                properties:
                  spec:
                    description: theirs
                    properties:
                      description: {type: string, description: theirs}
                      containers: {type: array, items: {description: theirs, type: object}}
`

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(strings.NewReader(crd), &out); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for text, want := range map[string]int{"theirs": 0, "description: ours": 2, "maxItems: 16": 1, "description:\n": 1} {
		if n := strings.Count(got, text); n != want {
			t.Errorf("%q stands there %d times, want %d:\n%s", text, n, want, got)
		}
	}
}

func TestRunOptions(t *testing.T) {
	const crd = `
spec:
  versions:
  - schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              slurmctld:
                description: ours
                properties:
                  image: {description: ours, type: string}
                  env: {description: ours, items: {properties: {name: {description: theirs}}}}
              template:
                description: ours
                properties:
                  spec:
                    properties:
                      nodeSelector: {description: ours}
                      imagePullSecrets: {items: {description: theirs}}
                      affinity: {description: ours, properties: {nodeAffinity: {description: theirs}}}
`
	var out strings.Builder
	if err := run(strings.NewReader(crd), &out); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"theirs": 0, "description: ours": 6, "maxItems": 0} {
		if n := strings.Count(out.String(), text); n != want {
			t.Errorf("%q stands there %d times, want %d:\n%s", text, n, want, out.String())
		}
	}
}

func TestRunErrors(t *testing.T) {
	for name, in := range map[string]string{
		"no yaml":           "{",
		"no versions":       "spec: {}",
		"no containers":     strings.Replace(crd, "containers", "boxes", 1),
		"a template action": strings.Replace(crd, "ours,", `"{{ x }}",`, 1),
	} {
		if err := run(strings.NewReader(in), &strings.Builder{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
