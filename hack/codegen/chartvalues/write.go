package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// width of lines in values.yaml.
const width = 120

const heading = "\n## Values\n"

const tableHead = `
Made of ` + "`" + source + "`" + ` by ` + "`make generate`" + `. Fields that are not there are refused.

| value | default | |
|---|---|---|
`

// writeValues writes the defaults of a schema's properties, each below its description.
func writeValues(w *strings.Builder, schema *yaml.Node, path, indent string) error {
	for name, property := range pairs(get(schema, "properties")) {
		if indent == "" {
			w.WriteString("\n")
		}
		for _, line := range wrap(text(get(property, "description")), width-len(indent)-2) {
			fmt.Fprintf(w, "%s# %s\n", indent, line)
		}
		value := get(property, "default")
		switch {
		case value != nil:
			text, err := yaml.Marshal(map[string]*yaml.Node{name: value})
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				w.WriteString(indent + line)
			}
		case get(property, "properties") != nil:
			fmt.Fprintf(w, "%s%s:\n", indent, name)
			if err := writeValues(w, property, path+name+".", indent+"  "); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s%s has no default", path, name)
		}
	}
	return nil
}

// wrap breaks a text into lines.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// writeRows writes the table's rows. NAME stands for a name that the user chooses, [] for each item of a list.
func writeRows(w *strings.Builder, schema *yaml.Node, path string) {
	for name, property := range pairs(get(schema, "properties")) {
		at := path + name
		value := ""
		if d := get(property, "default"); d != nil {
			b := &strings.Builder{}
			_ = writeJSON(b, d, "") // it came from YAML, so it can be written
			value = "`" + b.String() + "`"
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", at, value, strings.ReplaceAll(strings.Join(strings.Fields(text(get(property, "description"))), " "), "|", `\|`))
		if get(property, "x-crd") != nil {
			continue
		}
		writeRows(w, property, at+".")
		if more := get(property, "additionalProperties"); more != nil {
			writeRows(w, more, at+".NAME.")
		}
		if items := get(property, "items"); items != nil {
			writeRows(w, items, at+"[].")
		}
	}
}

// writeJSON writes YAML as JSON, in its order. newline is "\n" and the indentation; empty for one line.
func writeJSON(w *strings.Builder, n *yaml.Node, newline string) error {
	inner, between := newline, ", "
	if newline != "" {
		inner, between = newline+"  ", ","
	}
	list := func(open, end string, parts int, part func(i int) error) error {
		if parts == 0 {
			w.WriteString(open + end)
			return nil
		}
		w.WriteString(open)
		for i := range parts {
			if i > 0 {
				w.WriteString(between)
			}
			w.WriteString(inner)
			if err := part(i); err != nil {
				return err
			}
		}
		w.WriteString(newline + end)
		return nil
	}
	switch n.Kind {
	case yaml.AliasNode:
		return writeJSON(w, n.Alias, newline)
	case yaml.MappingNode:
		return list("{", "}", len(n.Content)/2, func(i int) error {
			if err := writeScalar(w, n.Content[2*i].Value); err != nil {
				return err
			}
			w.WriteString(": ")
			return writeJSON(w, n.Content[2*i+1], inner)
		})
	case yaml.SequenceNode:
		return list("[", "]", len(n.Content), func(i int) error { return writeJSON(w, n.Content[i], inner) })
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return err
	}
	return writeScalar(w, value)
}

func writeScalar(w *strings.Builder, value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return err
	}
	w.WriteString(strings.TrimSuffix(b.String(), "\n"))
	return nil
}

// pairs are the keys and values of a mapping, in its order.
func pairs(n *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// get returns nil when there is no such key.
func get(n *yaml.Node, key string) *yaml.Node {
	for k, v := range pairs(n) {
		if k == key {
			return v
		}
	}
	return nil
}

func set(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, word(key), value)
}

// take removes a key and returns its value.
func take(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			value := n.Content[i+1]
			n.Content = slices.Delete(n.Content, i, i+2)
			return value
		}
	}
	return nil
}

func text(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}

func word(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// clone is a deep copy.
func clone(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = nil
	for _, child := range n.Content {
		c.Content = append(c.Content, clone(child))
	}
	return &c
}
