package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuantile(t *testing.T) {
	for within, want := range map[string]string{"99": "50", "98": "+Inf"} {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(`# TYPE h histogram
h_bucket{kind="a",le="0.01"} 40
h_bucket{kind="a",le="0.05"} 50
h_bucket{kind="a",le="+Inf"} 50
h_sum{kind="a"} 1
h_count{kind="a"} 50
h_bucket{kind="b",le="0.01"} 1
h_bucket{kind="b",le="0.05"} ` + map[string]string{"99": "49", "98": "48"}[within] + `
h_bucket{kind="b",le="+Inf"} 50
h_sum{kind="b"} 1
h_count{kind="b"} 50
`))
		require.NoError(t, err)
		h := sum(families["h"].Metric)
		got, count := h.quantile(0.99)
		assert.Equal(t, want, fmt.Sprint(got), within)
		assert.EqualValues(t, 100, count)
		got, count = h.since(buckets{0.01: 0, 0.05: 0, math.Inf(1): h[math.Inf(1)] - h[0.05]}).quantile(0.99)
		assert.Equal(t, "50", fmt.Sprint(got), "those that took longer were before")
		assert.Equal(t, h[0.05], count)
	}
}
