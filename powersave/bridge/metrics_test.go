package bridge

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSlurmrestRequestsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	m.SlurmrestRequest("list nodes", "200", 20*time.Millisecond)
	m.SlurmrestRequest("list nodes", "200", 30*time.Millisecond)
	m.SlurmrestRequest("update nodes", "error", time.Second)

	families, err := registry.Gather()
	require.NoError(t, err)
	counts, times := map[string]float64{}, map[string]uint64{}
	for _, f := range families {
		for _, sample := range f.GetMetric() {
			labels := ""
			for _, l := range sample.GetLabel() {
				labels += l.GetName() + "=" + l.GetValue() + " "
			}
			switch f.GetName() {
			case "slurmtide_slurmrestd_requests_total":
				counts[labels] = sample.GetCounter().GetValue()
			case "slurmtide_slurmrestd_request_seconds":
				times[labels] = sample.GetHistogram().GetSampleCount()
			}
		}
	}
	assert.Equal(t, map[string]float64{"code=200 verb=list_nodes ": 2, "code=error verb=update_nodes ": 1}, counts)
	assert.Equal(t, map[string]uint64{"verb=list_nodes ": 2, "verb=update_nodes ": 1}, times)
}
