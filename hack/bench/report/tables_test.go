package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	assert.Equal(t, `| figure | value | limit | unit |
|---|---|---|---|
| one | 1.23 | 5 | ms |
| two, **missed** | 7 | 5 |  |
| three | 18000 |  | s |
| four | 2178 | at least 2000 | a second |
`, markdown([]row{
		{Name: "one", Value: 1.234, Limit: 5, Unit: "ms", Met: true}, {Name: "two", Value: 7, Limit: 5}, {Name: "three", Value: 18000, Unit: "s", Met: true},
		{Name: "four", Value: 2178.4, Least: 2000, Unit: "a second", Met: true},
	}))
}

func TestTablesOfAPart(t *testing.T) {
	var c cluster
	assert.Empty(t, c.tables())
	require.NoError(t, json.Unmarshal([]byte(`{
		"latencies": [{"kind": "srun", "nodes": 2, "gate": false, "from_zero_s": {"runs": 2, "median": 26, "p95": 27, "p99": 27}, "up_s": {"median": 0.1}, "zero_s": {"median": 2},
			"from_zero_load": {"runs": 2, "requests": 20, "ms": 5, "main_scheduler": {"cycles": 4, "ms": 3, "longest_ms": 1}, "backfill": {"cycles": 2, "ms": 5, "longest_ms": 4}},
			"up_load": {"runs": 2, "requests": 8, "ms": 1}, "zero_load": {"runs": 2, "requests": 12, "ms": 2}}],
		"direct": [{"nodes": 2, "running_s": {"runs": 1, "median": 0.2}}],
		"storms": [{"kind": "array", "jobs": 1000, "nodes": 120, "from_zero_s": {"runs": 1, "median": 44, "p95": 44, "p99": 44}, "up_s": {"median": 21}, "zero_s": {"median": 20},
			"from_zero_load": {"runs": 1, "requests": 9000, "ms": 400}, "up_load": {"runs": 1}, "zero_load": {"runs": 1}},
			{"kind": "jobs", "jobs": 1000, "nodes": 120, "from_zero_load": {"runs": 1}, "up_load": {"runs": 1}, "zero_load": {"runs": 1}}]}`), &c))
	got := c.tables()
	assert.Contains(t, got, "\n| srun | 2 | no | 2 | 26 | 27 | 27 | 0.1 | 0.2 | 2 |\n")
	assert.Contains(t, got, "\n| an array of 1000 | 120 | yes | 1 | 44 | 44 | 44 | 21 | | 20 |\n| 1000 jobs | 120 |")
	assert.Contains(t, got, "\n| srun | 2 | no | 2 | 10 | 4 | 6 | 2.5 | 0.5 | 1 | 4 | 0 | 4 | 0 |\n| an array of 1000 | 120 | yes | 1 | 9000 |")
	assert.NotContains(t, got, "nodes, jobs")
}
