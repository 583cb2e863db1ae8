package doctor

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
)

// The documentation has every rule, in the words of the rule itself.
func TestDocumentation(t *testing.T) {
	const path, head = "../docs/doctor.md", "## Rules\n"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, _, ok := strings.Cut(string(text), head)
	require.True(t, ok, "%s has no %q", path, head)
	var b strings.Builder
	b.WriteString(before + head + "\n<!-- Made from the rules: go test ./doctor -run TestDocumentation -update -->\n")
	for _, rule := range Rules() {
		looks := ""
		if rule.Wants != Files {
			looks = ", looks at " + rule.Wants.String()
		}
		fmt.Fprintf(&b, "\n### %s\n\n**%s**%s: %s.\n\nDo: %s.\n\nSource: %s.\n", rule.Name, rule.Severity, looks, rule.Why, rule.Remedy, rule.Source)
	}
	golden.Compare(t, path, b.String())
}
