package manifest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnmarshal(t *testing.T) {
	type object struct {
		Spec struct {
			NodeNames string `json:"nodeNames"`
		} `json:"spec"`
	}
	for text, want := range map[string]string{
		"spec: {nodeNames: a}":               "",
		`{"spec": {"nodeNames": "a"}}`:       "",
		"spec: {nodenames: a}":               `unknown field "spec.nodenames"`,
		"Spec: {nodeNames: a}":               `unknown field "Spec"`,
		"spec: {nodeNames: a, nodes: b}":     `unknown field "spec.nodes"`,
		"spec: {nodeNames: a, nodeNames: b}": `key "nodeNames" already set in map`,
		"spec: {nodeNames: 1}":               "cannot unmarshal number",
		"spec: [":                            "yaml: ",
	} {
		var o object
		err := Unmarshal([]byte(text), &o)
		if want == "" {
			require.NoError(t, err, text)
			assert.Equal(t, "a", o.Spec.NodeNames, text)
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}
