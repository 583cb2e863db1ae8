package bridge

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
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

func TestReadsAreShown(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	gauges := func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		values := map[string]float64{}
		for _, f := range families {
			for _, sample := range f.GetMetric() {
				switch {
				case f.GetName() == "slurmtide_slurm_complete_read_timestamp_seconds":
					values["at"] = sample.GetGauge().GetValue()
				case f.GetName() == "slurmtide_readable":
					values[sample.GetLabel()[0].GetValue()] = sample.GetGauge().GetValue()
				}
			}
		}
		return values
	}
	assert.Equal(t, map[string]float64{"slurm": 0, "kubernetes": 0, "at": 0}, gauges(), "from the start")
	m.reads(powersave.Reads{Slurm: true, SlurmAt: time.Unix(1000, 5e8), Kubernetes: true})
	assert.Equal(t, map[string]float64{"slurm": 1, "kubernetes": 1, "at": 1000.5}, gauges())
	m.reads(powersave.Reads{SlurmAt: time.Unix(1000, 5e8), Kubernetes: true})
	assert.Equal(t, map[string]float64{"slurm": 0, "kubernetes": 1, "at": 1000.5}, gauges())
}
