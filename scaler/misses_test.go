package scaler

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A job that can never run is told once, and again when something else stands against it.
func TestMisses(t *testing.T) {
	all := func(details ...string) Misses {
		r := Report{Jobs: []JobDemand{{ID: 100, Why: WhyCapacity}, {ID: 101, Why: WhyHeld, Detail: "JobHeldUser"}}}
		for i, d := range details {
			if d != "" {
				r.Jobs = append(r.Jobs, JobDemand{ID: uint32(i), Why: WhyImpossible, Detail: d})
			}
		}
		return MissesOf(r)
	}
	var m Misses
	for _, step := range []struct {
		now  Misses
		told []any
	}{
		{all(), nil},
		{all("gpu", "cpu"), []any{uint32(0), uint32(1)}},
		{all("gpu", "cpu"), nil},
		{all("gpu", "memory"), []any{uint32(1)}},
		{all("", "memory"), nil},
		{all("gpu", "memory"), []any{uint32(0)}},
	} {
		var told []any
		m = m.Tell(step.now, func(_ string, args ...any) { told = append(told, args[1]) })
		assert.Equal(t, step.told, told)
		assert.Equal(t, step.now, m)
	}
}

// Of many at a time only some are told in full.
func TestManyMisses(t *testing.T) {
	var text strings.Builder
	all := Misses{}
	for id := range uint32(maxTold + 3) {
		all[id+1] = "needs gpu:h200:8, NodeSet gpu offers gpu:h100:8"
	}
	Misses(nil).Tell(all, slog.New(slog.NewTextHandler(&text, nil)).Warn)
	assert.Contains(t, text.String(), `job=1 miss="needs gpu:h200:8, NodeSet gpu offers gpu:h100:8"`)
	assert.Contains(t, text.String(), "jobs=3\n")
	assert.Equal(t, maxTold+1, strings.Count(text.String(), "\n"))
	assert.Equal(t, map[string]int{"needs gpu:h200:8, NodeSet gpu offers gpu:h100:8": maxTold + 3}, all.Count())
}

// What users ask for must not make ever more time series.
func TestMissesAreCounted(t *testing.T) {
	m := Misses{}
	for i := range uint32(100) {
		m[i] = fmt.Sprintf("needs %d CPUs", i)
	}
	m[1000] = "needs 7 CPUs"
	by := m.Count()
	assert.Len(t, by, maxCounted+1)
	assert.Equal(t, 2, by["needs 7 CPUs"])
	assert.Equal(t, 101-2-(maxCounted-1), by[OtherMisses])
}
