package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
