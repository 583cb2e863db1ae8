// Package manifest reads Kubernetes objects from files as strictly as an API server.
package manifest

import (
	"errors"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Unmarshal reads one object in YAML or JSON. As for an API server, names of fields are told apart by their case, which yaml.UnmarshalStrict does not do; a field
// that the object does not have, or has twice, is an error, and so is a number where text is wanted.
func Unmarshal(text []byte, object any) error {
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	unknown, err := json.UnmarshalStrict(text, object)
	return errors.Join(append([]error{err}, unknown...)...)
}
