package bridge

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// samples returns the values of a metric by its labels ("class=capacity nodeset=cpu"); of a histogram, how many there are.
func samples(t *testing.T, registry *prometheus.Registry, metric string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, sample := range f.GetMetric() {
			var labels []string
			for _, l := range sample.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			values[strings.Join(labels, " ")] = sample.GetCounter().GetValue() + sample.GetGauge().GetValue() + float64(sample.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestSlurmrestRequestsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	m.SlurmrestRequest("list nodes", "200", 20*time.Millisecond)
	m.SlurmrestRequest("list nodes", "200", 30*time.Millisecond)
	m.SlurmrestRequest("update nodes", "error", time.Second)

	assert.Equal(t, map[string]float64{"code=200 verb=list_nodes": 2, "code=error verb=update_nodes": 1}, samples(t, registry, "slurmtide_slurmrestd_requests_total"))
	assert.Equal(t, map[string]float64{"verb=list_nodes": 2, "verb=update_nodes": 1}, samples(t, registry, "slurmtide_slurmrestd_request_seconds"))
}

func TestReadsAreShown(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	gauges := func() map[string]float64 {
		values := samples(t, registry, "slurmtide_readable")
		values["at"] = samples(t, registry, "slurmtide_slurm_complete_read_timestamp_seconds")[""]
		return values
	}
	assert.Equal(t, map[string]float64{"api=slurm": 0, "api=kubernetes": 0, "at": 0}, gauges(), "from the start")
	m.reads(powersave.Reads{Slurm: true, SlurmAt: time.Unix(1000, 5e8), Kubernetes: true})
	assert.Equal(t, map[string]float64{"api=slurm": 1, "api=kubernetes": 1, "at": 1000.5}, gauges())
	m.reads(powersave.Reads{SlurmAt: time.Unix(1000, 5e8), Kubernetes: true})
	assert.Equal(t, map[string]float64{"api=slurm": 0, "api=kubernetes": 1, "at": 1000.5}, gauges())
}
