package spelling

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearest(t *testing.T) {
	names := []string{"nodeSet", "partition", "cpus", "memory", "maxNodes"}
	for given, want := range map[string]string{
		"nodeset":   "nodeSet",
		"partion":   "partition",
		"max_nodes": "maxNodes",
		"cpu":       "cpus",
		"cp":        "",
		"something": "",
		"":          "",
	} {
		assert.Equal(t, want, Nearest(given, names), given)
	}
}
