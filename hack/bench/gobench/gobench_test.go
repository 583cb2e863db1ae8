package gobench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoBench(t *testing.T) {
	b := Results{}
	b.parse(`goos: linux
pkg: github.com/slurmtide/slurmtide/scaler
BenchmarkDemand/requests=50-2         	      26	  41306230 ns/op	        38.00 cpu-ms/op	 7000000 B/op	   11000 allocs/op
BenchmarkDemand/requests=20000-2      	       6	 193000000 ns/op	       190.5 cpu-ms/op	64000000 B/op	  900000 allocs/op
BenchmarkTenThousandNodes-2           	      10	  48000000 ns/op	        15.7 plan-ms/op	         3.2 us/step
BenchmarkTenThousandNodesOfferings    	      10	  49000000 ns/op	        17.2 plan-ms/op	         3.4 us/step
PASS
ok  	github.com/slurmtide/slurmtide/scaler	5.2s
`)
	for _, want := range []struct {
		name, unit string
		value      float64
	}{
		{"BenchmarkDemand/requests=50", "ns/op", 41306230},
		{"BenchmarkDemand/requests=20000", "B/op", 64e6},
		{"BenchmarkTenThousandNodes", "plan-ms/op", 15.7},
		{"BenchmarkTenThousandNodesOfferings", "us/step", 3.4},
	} {
		got, err := b.Mean(want.name, want.unit)
		require.NoError(t, err)
		assert.InDelta(t, want.value, got, 0, want)
	}
	b.parse("BenchmarkTenThousandNodes-2 10 1 ns/op 16.3 plan-ms/op\n")
	mean, err := b.Mean("BenchmarkTenThousandNodes", "plan-ms/op")
	require.NoError(t, err)
	assert.InDelta(t, 16, mean, 1e-9, "it ran twice")
	_, err = b.Mean("BenchmarkDemand/requests=500", "ns/op")
	assert.EqualError(t, err, "there is no ns/op of BenchmarkDemand/requests=500")
}
