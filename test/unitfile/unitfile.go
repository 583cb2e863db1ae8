// Package unitfile reads the systemd units that docs/examples has, for tests: those without systemd look into a unit, and do what it says.
package unitfile

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Setting is one line of a unit.
type Setting struct{ Section, Key, Value string }

// Unit is a unit file, in the order of its lines.
type Unit []Setting

// Read reads a unit from a file.
func Read(path string) (Unit, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	u, err := Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return u, nil
}

// Parse reads the text of a unit: systemd.syntax(7), without quotes and specifiers, which it refuses in commands.
func Parse(text string) (Unit, error) {
	var u Unit
	section, line := "", ""
	for i, one := range strings.Split(text, "\n") {
		if t := strings.TrimSpace(one); strings.HasPrefix(t, "#") || strings.HasPrefix(t, ";") {
			continue // also between lines that belong together
		}
		if before, goesOn := strings.CutSuffix(one, `\`); goesOn {
			line += before + " "
			continue
		}
		line += one
		key, value, isSetting := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.Join(strings.Fields(value), " ")
		whole := strings.TrimSpace(line)
		line = ""
		switch {
		case whole == "":
		case strings.HasPrefix(whole, "[") && strings.HasSuffix(whole, "]"):
			section = strings.Trim(whole, "[]")
		case !isSetting || key == "":
			return nil, fmt.Errorf("line %d: neither a section nor key=value: %q", i+1, whole)
		case section == "":
			return nil, fmt.Errorf("line %d: %s stands in no section", i+1, key)
		case strings.HasPrefix(key, "Exec") && strings.ContainsAny(value, `"'%$`):
			return nil, fmt.Errorf("line %d: %s has quotes, variables or specifiers, which this package does not know: %s", i+1, key, value)
		default:
			u = append(u, Setting{section, key, value})
		}
	}
	if line != "" {
		return nil, fmt.Errorf("the last line goes on nowhere: %q", line)
	}
	return u, nil
}

// All are the values of a key, in the order of the lines.
func (u Unit) All(section, key string) (values []string) {
	for _, s := range u {
		if s.Section == section && s.Key == key {
			values = append(values, s.Value)
		}
	}
	return values
}

// Get is the last value of a key; "" without any.
func (u Unit) Get(section, key string) string {
	all := u.All(section, key)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// Words are those of all values of a key.
func (u Unit) Words(section, key string) []string {
	return slices.Collect(strings.FieldsSeq(strings.Join(u.All(section, key), " ")))
}
