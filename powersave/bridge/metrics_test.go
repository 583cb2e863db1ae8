package bridge

import (
	"errors"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
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

// happened is samples without what has not happened yet.
func happened(t *testing.T, registry *prometheus.Registry, metric string) map[string]float64 {
	t.Helper()
	values := samples(t, registry, metric)
	maps.DeleteFunc(values, func(_ string, n float64) bool { return n == 0 })
	return values
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

// The page as Prometheus gets it, with every metric and every word that a label may be.
func TestMetricsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { golden.Compare(t, "testdata/metrics.golden.txt", page()) })
}

func page() string {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	at := time.Unix(1000, 5e8)
	ShowSpool(registry, func() (spool.Stats, error) { return spool.Stats{Depth: 5, Oldest: at, Bad: 1}, nil })
	for _, kind := range []spool.Kind{spool.KindResume, spool.KindSuspend, spool.KindResumeFail} {
		m.request(kind, 10*time.Minute)
	}
	m.request(spool.KindSuspend, 0) // which knows none
	m.boot(powersave.Boot{NodeSet: "cpu", Offering: "spot", Request: "r1", Jobs: []uint32{7}, Times: powersave.Timeline{
		Requested: at, Accepted: at.Add(time.Second), Created: at.Add(2 * time.Second), Scheduled: at.Add(3 * time.Second), Running: at.Add(8 * time.Second), Registered: at.Add(9 * time.Second)}})
	m.gang(at.Add(12*time.Second), powersave.GangDone{Job: 7, NodeSet: "cpu", Outcome: powersave.GangReady})
	m.start("cpu")
	for i, class := range powersave.Troubles {
		m.verdict(powersave.BootFailed{NodeSet: "cpu", Jobs: make([]uint32, i), Verdict: powersave.Verdict{Trouble: class}})
	}
	m.gate(9*time.Second, true)
	m.gate(time.Second, false)
	m.reads(powersave.Reads{Slurm: true, SlurmAt: at})
	m.hostMark(nil)
	m.HistoryLost(2)
	m.podCall("create", nil)
	m.podCall("delete", errors.New("no"))
	m.slurmCall("read", nil)
	m.slurmCall("update", errors.New("no"))
	m.leading(true)
	counts := []powersave.NodeSetCounts{{
		Name: "cpu", Nodes: 10, PoweredUp: 4, Booting: 1, Ready: 2, Failed: 1, Unknown: 3, Floor: &powersave.FloorCounts{Wanted: 3, Held: 2},
	}}
	hosted := []powersave.Hosted{{NodeSet: "cpu", Offering: "plain"}, {NodeSet: "cpu", Offering: "spot", Nodes: map[powersave.HostedAs]int{
		powersave.HostedBooting: 1, powersave.HostedAllocated: 2, powersave.HostedIdle: 3, powersave.HostedLeaving: 4, powersave.HostedUnavailable: 5,
	}}}
	others := []powersave.NodeSetCounts{{Name: "dyn", Nodes: 3, PoweredUp: 2, Ready: 2}}
	m.figures(time.Now(), counts, others, hosted, 6)
	counts[0].Breakers = []powersave.BreakerRecord{
		{Key: powersave.BreakerKey{NodeSet: "cpu"}, State: powersave.BreakerOpen, Class: powersave.TroubleImage},
		{Key: powersave.BreakerKey{NodeSet: "cpu", Offering: "spot"}, State: powersave.BreakerHalfOpen, Class: powersave.TroubleCapacity},
		{Key: powersave.BreakerKey{NodeSet: "cpu", Offering: "plain"}, State: powersave.BreakerClosed, Class: powersave.TroubleQuota},
	}
	for _, class := range powersave.Troubles {
		if class != powersave.TroubleLost { // which opens none
			key := powersave.BreakerKey{NodeSet: "dyn", Offering: "of-" + string(class)}
			others[0].Breakers = append(others[0].Breakers, powersave.BreakerRecord{Key: key, State: powersave.BreakerOpen, Class: class})
		}
	}
	m.figures(time.Now(), counts, others, hosted, 6)
	time.Sleep(10 * time.Second)
	m.underWay(powersave.InHand{Number: 5, Oldest: at}, powersave.InHand{Number: 1, Oldest: at.Add(time.Second)}, powersave.InHand{Number: 2, Oldest: at})

	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// What can be known from the start has a series before it happens: increase() sees the first event.
func TestFromTheStart(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	m.figures(time.Now(), []powersave.NodeSetCounts{{Name: "cpu"}}, nil, []powersave.Hosted{{NodeSet: "cpu", Offering: "spot"}}, 0)
	for metric, series := range map[string]int{
		"slurmtide_requests_total": 3, "slurmtide_gate_wait_seconds": 2, "slurmtide_pod_calls_total": 6, "slurmtide_slurm_calls_total": 12, "slurmtide_host_marks_total": 2,
		"slurmtide_boots_total": 1, "slurmtide_boot_failures_total": 8, "slurmtide_jobs_given_back_total": 8, "slurmtide_gangs_total": 3, "slurmtide_jobs_started_total": 1,
		"slurmtide_breaker_changes_total": 6, "slurmtide_node_seconds_total": 6, "slurmtide_boot_phase_seconds": 6, "slurmtide_history_lost_total": 1,
	} {
		got := samples(t, registry, metric)
		assert.Len(t, got, series, metric)
		for labels, value := range got {
			assert.Zero(t, value, "%s %s", metric, labels)
		}
	}
	m.verdict(powersave.BootFailed{NodeSet: "cpu", Jobs: []uint32{7}, Verdict: powersave.Verdict{Trouble: powersave.TroubleQuota}})
	assert.InDelta(t, 1, samples(t, registry, "slurmtide_jobs_given_back_total")["class=quota nodeset=cpu"], 0)
	assert.Len(t, samples(t, registry, "slurmtide_jobs_given_back_total"), 8, "the words are those of verdicts")
}

// A NodeSet that is deleted takes its series along, and one that comes later has its own.
func TestNodeSetsComeAndGo(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	sets := func() map[string]bool {
		families, err := registry.Gather()
		require.NoError(t, err)
		all := map[string]bool{}
		for _, f := range families {
			for _, sample := range f.GetMetric() {
				for _, l := range sample.GetLabel() {
					if l.GetName() == "nodeset" {
						all[l.GetValue()] = true
					}
				}
			}
		}
		return all
	}
	show := func(names ...string) {
		var counts []powersave.NodeSetCounts
		var hosted []powersave.Hosted
		for _, name := range names {
			open := powersave.BreakerRecord{Key: powersave.BreakerKey{NodeSet: name}, State: powersave.BreakerOpen, Class: powersave.TroubleImage}
			counts = append(counts, powersave.NodeSetCounts{Name: name, Floor: &powersave.FloorCounts{}, Breakers: []powersave.BreakerRecord{open}})
			hosted = append(hosted, powersave.Hosted{NodeSet: name})
		}
		m.figures(time.Now(), counts, nil, hosted, 0)
	}
	show("a", "b")
	for _, name := range []string{"a", "b"} {
		m.boot(powersave.Boot{NodeSet: name})
		m.gang(time.Now(), powersave.GangDone{NodeSet: name, Outcome: powersave.GangLeft})
	}
	assert.Equal(t, map[string]bool{"a": true, "b": true}, sets())
	show("b", "c")
	assert.Equal(t, map[string]bool{"b": true, "c": true}, sets())
	other := powersave.NodeSetCounts{Name: "dyn"} // which the engine is not told of
	m.figures(time.Now(), nil, []powersave.NodeSetCounts{other}, []powersave.Hosted{{NodeSet: "dyn", Offering: "spot"}}, 0)
	assert.Equal(t, map[string]bool{"dyn": true}, sets())
	assert.Len(t, samples(t, registry, "slurmtide_breaker_changes_total"), 6)
	other.Breakers = []powersave.BreakerRecord{{Key: powersave.BreakerKey{NodeSet: "dyn", Offering: "spot"}, State: powersave.BreakerOpen, Class: powersave.TroubleCapacity}}
	m.figures(time.Now(), nil, []powersave.NodeSetCounts{other}, nil, 0)
	assert.Equal(t, map[string]float64{"nodeset=dyn offering=spot state=open": 1}, happened(t, registry, "slurmtide_breaker_changes_total"))
	m.figures(time.Now(), nil, nil, nil, 0)
	assert.Empty(t, sets(), "another bridge leads")
}

func TestBreakerChanges(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	show := func(records ...powersave.BreakerRecord) {
		m.figures(time.Now(), []powersave.NodeSetCounts{{Name: "cpu", Breakers: records}}, nil, nil, 0)
	}
	is := func(offering string, state powersave.BreakerState) powersave.BreakerRecord {
		return powersave.BreakerRecord{Key: powersave.BreakerKey{NodeSet: "cpu", Offering: offering}, State: state, Class: powersave.TroubleCapacity}
	}
	changes := func() map[string]float64 {
		return happened(t, registry, "slurmtide_breaker_changes_total")
	}
	show(is("spot", powersave.BreakerOpen))
	assert.Empty(t, changes(), "it was open before this bridge began")
	show(is("spot", powersave.BreakerOpen))
	assert.Empty(t, changes())
	show(is("", powersave.BreakerOpen), is("spot", powersave.BreakerHalfOpen))
	show(is("", powersave.BreakerClosed), is("spot", powersave.BreakerOpen))
	show(is("spot", powersave.BreakerOpen))
	show()
	assert.Equal(t, map[string]float64{
		"nodeset=cpu offering= state=open": 1, "nodeset=cpu offering= state=closed": 1,
		"nodeset=cpu offering=spot state=half-open": 1, "nodeset=cpu offering=spot state=open": 1, "nodeset=cpu offering=spot state=closed": 1,
	}, changes())
}

// A boot is ready when the first of the jobs that wait for it has all its nodes. One whose jobs are given back never is.
func TestReady(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	at := time.Unix(1000, 0)
	boot := func(offering string, jobs ...uint32) {
		m.boot(powersave.Boot{NodeSet: "cpu", Offering: offering, Jobs: jobs, Times: powersave.Timeline{Requested: at, Accepted: at, Registered: at.Add(9 * time.Second)}})
	}
	ready := func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		got := map[string]float64{}
		for _, f := range families {
			for _, sample := range f.GetMetric() {
				if l := sample.GetLabel(); f.GetName() == "slurmtide_boot_phase_seconds" && l[2].GetValue() == "ready" {
					got[l[1].GetValue()] += sample.GetHistogram().GetSampleSum()
				}
			}
		}
		return got
	}
	boot("alone")
	boot("pair", 7)
	boot("shared", 7, 8)
	boot("lost", 9)
	assert.Equal(t, map[string]float64{"alone": 9}, ready())
	m.gang(at.Add(20*time.Second), powersave.GangDone{Job: 8, NodeSet: "cpu", Outcome: powersave.GangReady})
	assert.Equal(t, map[string]float64{"alone": 9, "shared": 20}, ready())
	m.gang(at.Add(30*time.Second), powersave.GangDone{Job: 7, NodeSet: "cpu", Outcome: powersave.GangReady})
	m.gang(at.Add(40*time.Second), powersave.GangDone{Job: 9, NodeSet: "cpu", Outcome: powersave.GangGivenBack})
	m.gang(at.Add(50*time.Second), powersave.GangDone{Job: 9, NodeSet: "cpu", Outcome: powersave.GangReady})
	assert.Equal(t, map[string]float64{"alone": 9, "shared": 20, "pair": 30}, ready())
	assert.Equal(t, map[string]float64{"nodeset=cpu outcome=ready": 3, "nodeset=cpu outcome=given_back": 1}, samples(t, registry, "slurmtide_gangs_total"))
	assert.Empty(t, m.arrived, "nothing is kept")
}

// Each second of each node is counted once, however often somebody looks.
func TestNodeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		m := NewMetrics(registry)
		set := func(booting, idle int) {
			m.figures(time.Now(), []powersave.NodeSetCounts{{Name: "cpu"}}, nil, []powersave.Hosted{{NodeSet: "cpu", Offering: "spot", Nodes: map[powersave.HostedAs]int{
				powersave.HostedBooting: booting, powersave.HostedIdle: idle,
			}}}, 0)
		}
		seconds := func(use string) float64 {
			return samples(t, registry, "slurmtide_node_seconds_total")["nodeset=cpu offering=spot use="+use]
		}
		time.Sleep(time.Hour)
		set(2, 0)
		assert.Zero(t, seconds("booting"), "nothing was known before")
		time.Sleep(3 * time.Second)
		assert.InDelta(t, 6, seconds("booting"), 0)
		assert.InDelta(t, 6, seconds("booting"), 0)
		time.Sleep(time.Second)
		set(1, 1)
		time.Sleep(10 * time.Second)
		set(0, 2)
		time.Sleep(5 * time.Second)
		assert.InDelta(t, 2*4+10, seconds("booting"), 1e-9)
		assert.InDelta(t, 10+2*5, seconds("idle"), 1e-9)
		assert.Zero(t, seconds("allocated"))
		now := time.Now()
		time.Sleep(2 * time.Second)
		assert.InDelta(t, 10+2*7, seconds("idle"), 1e-9, "a scrape, while the bridge works out its figures")
		idle := []powersave.Hosted{{NodeSet: "cpu", Offering: "spot", Nodes: map[powersave.HostedAs]int{powersave.HostedIdle: 2}}}
		m.figures(now, []powersave.NodeSetCounts{{Name: "cpu"}}, nil, idle, 0)
		assert.InDelta(t, 10+2*7, seconds("idle"), 1e-9, "what it has counted does not count again")
		time.Sleep(time.Second)
		assert.InDelta(t, 10+2*8, seconds("idle"), 1e-9)
	})
}

// While the spool cannot be read there are no figures of it, and the page has the rest.
func TestSpoolMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	stats, fails := spool.Stats{}, error(nil)
	ShowSpool(registry, func() (spool.Stats, error) { return stats, fails })
	assert.Equal(t, map[string]float64{"": 0}, samples(t, registry, "slurmtide_spool_requests"))
	assert.Empty(t, samples(t, registry, "slurmtide_spool_oldest_request_timestamp_seconds"), "nothing waits since 1970")
	stats = spool.Stats{Depth: 2, Oldest: time.Unix(1000, 5e8), Bad: 3}
	assert.Equal(t, map[string]float64{"": 2}, samples(t, registry, "slurmtide_spool_requests"))
	assert.Equal(t, map[string]float64{"": 1000.5}, samples(t, registry, "slurmtide_spool_oldest_request_timestamp_seconds"))
	assert.Equal(t, map[string]float64{"": 3}, samples(t, registry, "slurmtide_spool_set_aside_requests"))
	fails = errors.New("no such directory")
	assert.Empty(t, samples(t, registry, "slurmtide_spool_requests"))
}

// What is told of a NodeSet when it is gone already makes no series that stay, nor does a job of which nobody knows the NodeSet.
func TestStragglersLeaveNoSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	cpu := []powersave.NodeSetCounts{{Name: "cpu"}}
	m.figures(time.Unix(1, 0), cpu, nil, nil, 0)
	count := func() (n int) {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	before := count()
	of := func(nodeSet string) {
		m.boot(powersave.Boot{NodeSet: nodeSet, Offering: "spot", Jobs: []uint32{7}, Times: powersave.Timeline{Requested: time.Unix(1, 0), Accepted: time.Unix(2, 0), Registered: time.Unix(3, 0)}})
		m.gang(time.Unix(3, 0), powersave.GangDone{Job: 7, NodeSet: nodeSet, Outcome: powersave.GangReady})
		m.verdict(powersave.BootFailed{NodeSet: nodeSet, Verdict: powersave.Verdict{Trouble: powersave.TroubleImage}, Jobs: []uint32{8}})
		m.start(nodeSet)
	}
	of("gone")
	m.gang(time.Unix(3, 0), powersave.GangDone{Job: 9, Outcome: powersave.GangLeft})
	assert.Greater(t, count(), before)
	assert.NotContains(t, samples(t, registry, "slurmtide_gangs_total"), "nodeset= outcome=left")
	m.figures(time.Unix(4, 0), cpu, nil, nil, 0)
	assert.Equal(t, before, count())

	// Of one that is known a moment later it counts.
	of("new")
	m.figures(time.Unix(5, 0), append(cpu, powersave.NodeSetCounts{Name: "new"}), nil, nil, 0)
	m.figures(time.Unix(6, 0), append(cpu, powersave.NodeSetCounts{Name: "new"}), nil, nil, 0)
	assert.InDelta(t, 1, samples(t, registry, "slurmtide_boots_total")["nodeset=new"], 0)
	m.figures(time.Unix(7, 0), cpu, nil, nil, 0)
	assert.Equal(t, before, count())
}

func TestSlowBoots(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	boot := func(took time.Duration) {
		m.boot(powersave.Boot{NodeSet: "cpu", Times: powersave.Timeline{Requested: time.Unix(1000, 0), Registered: time.Unix(1000, 0).Add(took)}})
	}
	boot(time.Hour) // nobody knows ResumeTimeout yet
	m.request(spool.KindResume, 10*time.Minute)
	boot(8 * time.Minute)
	boot(8*time.Minute + time.Second)
	m.boot(powersave.Boot{NodeSet: "cpu", Times: powersave.Timeline{Registered: time.Unix(1000, 0)}}) // nor when it was asked for
	assert.Equal(t, map[string]float64{"nodeset=cpu": 1}, happened(t, registry, "slurmtide_slow_boots_total"))
	assert.Equal(t, map[string]float64{"nodeset=cpu": 4}, happened(t, registry, "slurmtide_boots_total"))
}
