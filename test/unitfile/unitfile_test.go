package unitfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	u, err := Parse("# of somebody\n[Unit]\nAfter=a.service b.service\nAfter = c.service\n\n[Service]\nExecStart=/bin/x run \\\n    # why\n    --one=1 \\\n    --two\nUser=slurm\nUser=\n")
	require.NoError(t, err)
	assert.Equal(t, Unit{
		{"Unit", "After", "a.service b.service"}, {"Unit", "After", "c.service"},
		{"Service", "ExecStart", "/bin/x run --one=1 --two"}, {"Service", "User", "slurm"}, {"Service", "User", ""},
	}, u)
	assert.Equal(t, []string{"a.service", "b.service", "c.service"}, u.Words("Unit", "After"))
	assert.Equal(t, []string{"slurm", ""}, u.All("Service", "User"))
	assert.Equal(t, "c.service", u.Get("Unit", "After"))
	assert.Empty(t, u.Get("Service", "Group"))
}

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, says string }{
		"no section":      {"User=slurm\n", "line 1: User stands in no section"},
		"no setting":      {"[Service]\nUser\n", `line 2: neither a section nor key=value: "User"`},
		"a quote":         {"[Service]\nExecStart=/bin/x 'a b'\n", "line 2: ExecStart has quotes"},
		"a specifier":     {"[Service]\nExecStart=/bin/x %n\n", "line 2: ExecStart has quotes"},
		"nowhere to go":   {"[Service]\nExecStart=/bin/x \\", "the last line goes on nowhere"},
		"a section alone": {"[Service\n", "line 1: neither a section"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(test.text)
			assert.ErrorContains(t, err, test.says)
		})
	}
}

// A unit that shares its user with slurmctld takes nothing from it when it ends.
func TestUnitsLeaveSharedMemory(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.service")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		u, err := Parse(string(text))
		require.NoError(t, err)
		if u.Get("Service", "DynamicUser") != "yes" {
			assert.Empty(t, u.Get("Service", "RemoveIPC"), file)
		}
	}
}
