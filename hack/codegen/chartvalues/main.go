// Command chartvalues makes values.yaml, values.schema.json and the table in README.md of a chart, so that a value is described once.
//
//	chartvalues CHART CRDS OUT
//
// reads CHART/values.in.yaml and CHART/README.md, and the CRDs in the directory CRDS, and writes the three files into OUT.
//
// values.in.yaml is JSON Schema (draft 7) in YAML. Every property has a description and, unless it has properties itself or is below
// additionalProperties or items, a default. An object with properties takes no others. Beyond JSON Schema there are
//
//	x-bases           at the top: sets of properties, by name
//	x-base: NAME      the properties of that set come behind its own
//	x-crd: PLURAL     the spec of that CRD; what Kubernetes itself describes, such as an affinity, is left to the API server
//	x-filled: [NAME]  of its required fields those that the chart fills in
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: chartvalues CHART CRDS OUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "chartvalues: %v\n", err)
		os.Exit(1)
	}
}

const source = "values.in.yaml"

func run(chart, crds, out string) error {
	root, err := read(filepath.Join(chart, source))
	if err != nil {
		return err
	}
	s := schemas{crds: crds, bases: take(root, "x-bases")}
	if err := s.complete(root, ""); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(chart, source), err)
	}
	values, rows := &strings.Builder{}, &strings.Builder{}
	fmt.Fprintf(values, "# Made of %s by make generate. README.md has a table of it.\n", source)
	if err := writeValues(values, root, "", ""); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(chart, source), err)
	}
	writeRows(rows, root, "")
	readme, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		return err
	}
	intro, _, found := strings.Cut(string(readme), heading)
	if !found {
		return fmt.Errorf("%s has no %q", filepath.Join(chart, "README.md"), strings.TrimSpace(heading))
	}
	// Helm gives this to charts that are part of another one.
	properties := get(root, "properties")
	properties.Content = append(properties.Content, word("global"), &yaml.Node{Kind: yaml.MappingNode})
	root.Content = append([]*yaml.Node{word("$schema"), word("http://json-schema.org/draft-07/schema#")}, root.Content...)
	schema := &strings.Builder{}
	if err := writeJSON(schema, root, "\n"); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"values.yaml": values.String(), "values.schema.json": schema.String() + "\n", "README.md": intro + heading + tableHead + rows.String(),
	} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// read reads the one document of a YAML file.
func read(path string) (*yaml.Node, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s is no mapping", path)
	}
	return document.Content[0], nil
}

// schemas completes the schemas of a chart.
type schemas struct {
	crds  string
	bases *yaml.Node
}

// complete carries out what is not JSON Schema, in a schema and those below it.
func (s schemas) complete(n *yaml.Node, path string) error {
	if n.Kind != yaml.MappingNode {
		return nil // additionalProperties: false
	}
	for key, value := range pairs(n) {
		if value.Tag == "!!null" { // {description: One, two}
			return fmt.Errorf("%s: %q has no value: put the text before it in quotes if it has a comma", path, key)
		}
	}
	if name := text(get(n, "x-crd")); name != "" {
		return s.crd(n, name)
	}
	if name := text(take(n, "x-base")); name != "" {
		base := get(s.bases, name)
		if base == nil {
			return fmt.Errorf("%s: there is no x-base %s", path, name)
		}
		properties := get(n, "properties")
		if properties == nil {
			properties = &yaml.Node{Kind: yaml.MappingNode}
			set(n, "properties", properties)
		}
		properties.Content = append(properties.Content, clone(base).Content...)
	}
	for name, property := range pairs(get(n, "properties")) {
		if text(get(property, "description")) == "" {
			return fmt.Errorf("%s.%s has no description", path, name)
		}
		if err := s.complete(property, path+"."+name); err != nil {
			return err
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below := get(n, key); below != nil {
			if err := s.complete(below, path+"[]"); err != nil {
				return err
			}
		}
	}
	closeObject(n)
	return nil
}

// closeObject keeps others than the named properties out.
func closeObject(n *yaml.Node) {
	if get(n, "properties") == nil {
		return
	}
	if get(n, "type") == nil {
		set(n, "type", word("object"))
	}
	if get(n, "additionalProperties") == nil {
		set(n, "additionalProperties", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "false"})
	}
}

// crd puts the schema of a CRD's spec into n. Description and default are n's own.
func (s schemas) crd(n *yaml.Node, plural string) error {
	path := filepath.Join(s.crds, plural+".yaml")
	crd, err := read(path)
	if err != nil {
		return err
	}
	versions := get(get(crd, "spec"), "versions")
	if versions == nil || len(versions.Content) != 1 {
		return fmt.Errorf("%s: expected one version", path)
	}
	spec := get(versions.Content[0], "schema")
	for _, key := range []string{"openAPIV3Schema", "properties", "spec"} {
		spec = get(spec, key)
	}
	if get(spec, "properties") == nil {
		return fmt.Errorf("%s: the spec has no properties", path)
	}
	trim(spec)
	filled := take(n, "x-filled")
	for key, value := range pairs(spec) {
		switch key {
		case "description":
			continue
		case "required":
			value.Content = slices.DeleteFunc(value.Content, func(field *yaml.Node) bool {
				return filled != nil && slices.ContainsFunc(filled.Content, func(f *yaml.Node) bool { return f.Value == field.Value })
			})
			if len(value.Content) == 0 {
				continue
			}
		}
		set(n, key, value)
	}
	return nil
}

// kubernetes are properties whose types Kubernetes describes. The API server checks them; here they would be thousands of lines.
var kubernetes = []string{"affinity", "env", "imagePullSecrets", "resources", "tolerations", "volumes", "volumeMounts"}

// trim turns a schema of a CRD into one for values.
func trim(n *yaml.Node) {
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			trim(item)
		}
		return
	case yaml.MappingNode:
	default:
		return
	}
	open := get(n, "x-kubernetes-preserve-unknown-fields") != nil
	var kept []*yaml.Node
	for key, value := range pairs(n) {
		if !strings.HasPrefix(key, "x-kubernetes-") && key != "default" {
			kept = append(kept, word(key), value)
		}
	}
	n.Content = kept
	for name, property := range pairs(get(n, "properties")) {
		if slices.Contains(kubernetes, name) || get(get(property, "properties"), "containers") != nil {
			leaveOpen(property)
		}
		trim(property)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below := get(n, key); below != nil {
			trim(below)
		}
	}
	if !open {
		closeObject(n)
	}
}

// leaveOpen leaves nothing of a schema but its type and description.
func leaveOpen(n *yaml.Node) {
	var kept []*yaml.Node
	for key, value := range pairs(n) {
		if key == "type" || key == "description" {
			kept = append(kept, word(key), value)
		}
	}
	n.Content = kept
}
