package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
)

func timeline(requested float64) powersave.Timeline {
	r := func(after float64) time.Time { return at(requested + after) }
	return powersave.Timeline{Requested: r(0), Accepted: r(0.01), Asked: r(0.01), Created: r(0.05), Scheduled: r(0.1), Running: r(0.6), Registered: r(0.9)}
}

// finished is a demo of two jobs that went well: two nodes at second 1, one with a GPU at second 10.
func finished() (*report, *facts) {
	r := &report{Jobs: []jobRun{
		{Name: "two-nodes", ID: 1, Submitted: at(1)},
		{Name: "gpu", ID: 2, Submitted: at(10)},
	}}
	r.Jobs[0].ran(at(2.5), "cpu-1", "cpu-0")
	r.Jobs[1].ran(at(11.8), "gpu-0")
	down := func(node string, requested float64) *powerDown {
		return &powerDown{Node: node, UID: node, Requested: at(requested), Accepted: at(requested + 0.01), Deleting: at(requested + 0.1), Gone: at(requested + 1), Free: at(requested + 1.4)}
	}
	return r, &facts{
		Bridge: bridge.Status{Version: "v1", Engine: powersave.Status{History: []powersave.Boot{
			{Node: "cpu-0", Times: timeline(0.5)}, // of somebody else, before
			{Node: "cpu-0", Times: timeline(1.4)}, {Node: "cpu-1", Times: timeline(1.5)}, {Node: "gpu-0", Times: timeline(10.5)},
		}}},
		Downs: []*powerDown{down("cpu-0", 20), down("cpu-1", 20), down("gpu-0", 22), {Node: "cpu-9", UID: "x", Deleting: at(3)}},
	}
}

func TestReport(t *testing.T) {
	r, f := finished()
	r.fill(f)
	require.NoError(t, r.check())
	assert.Len(t, r.Boots, 3)
	assert.Equal(t, at(1.4), r.Boots[0].Requested, "the boot for the job, not an earlier one")
	assert.Len(t, r.PowerDowns, 3, "a pod that went without a request is no power-down")
	golden.Compare(t, "testdata/summary.txt", r.text())
}

func TestReportRunningUnseen(t *testing.T) {
	r, f := finished()
	f.Bridge.Engine.History[1].Times.Running = time.Time{}
	r.fill(f)
	require.NoError(t, r.check(), "the node registered before Kubernetes said that its container runs")
	assert.Regexp(t, `running +- +1\.10\n`, r.text())
}

func TestReportCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"node was up already":    {func(f *facts) { f.Bridge.Engine.History[3].Times = timeline(9) }, "node gpu-0 was not booted for job gpu (2): the job did not start from zero"},
		"no boot":                {func(f *facts) { f.Bridge.Engine.History = nil }, "node cpu-0 was not booted"},
		"phase missing":          {func(f *facts) { f.Bridge.Engine.History[2].Times.Scheduled = time.Time{} }, "boot of node cpu-1 for job two-nodes: the bridge has not recorded when it was scheduled"},
		"phases out of order":    {func(f *facts) { f.Bridge.Engine.History[2].Times.Running = at(1.6).Add(-time.Millisecond) }, "it was running before it was scheduled"},
		"no suspend request":     {func(f *facts) { f.Downs[1].Requested = time.Time{} }, "node cpu-1: no suspend request was seen"},
		"pod's end not seen":     {func(f *facts) { f.Downs[2].Gone = time.Time{} }, "node gpu-0: its pod's end"},
		"name's return not seen": {func(f *facts) { f.Downs[0].Free = time.Time{} }, "node cpu-0: its pod's end or its return"},
	} {
		t.Run(name, func(t *testing.T) {
			r, f := finished()
			tt.change(f)
			r.fill(f)
			assert.ErrorContains(t, r.check(), tt.want)
		})
	}
}

func TestPhases(t *testing.T) {
	assert.Empty(t, phases([]powerDown(nil)))
	got := phases([]powerDown{
		{Requested: at(0), Accepted: at(1), Gone: at(4)}, {Requested: at(10), Accepted: at(13), Gone: at(12)},
		{Requested: at(20), Accepted: at(22)}, {Requested: at(30), Accepted: at(36)},
	})
	assert.Equal(t, []phase{
		{Name: "accepted", Count: 4, Min: 1, Median: 2.5, Max: 6},
		{Name: "pod gone", Count: 2, Min: 2, Median: 3, Max: 4},
	}, got)
}

func TestReportText(t *testing.T) {
	assert.Empty(t, (&report{}).text(), "a demo that failed early has nothing to sum up")
}

func TestReportWrite(t *testing.T) {
	r, f := finished()
	r.fill(f)
	r.Result = resultPass
	path := filepath.Join(t.TempDir(), "new", "demo.json")
	require.NoError(t, r.write(path))
	require.NoError(t, r.write(path), "and again")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var got struct {
		Result string
		Boots  []map[string]any
	}
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, "PASS", got.Result)
	require.Len(t, got.Boots, 3)
	for _, field := range []string{"node", "job", "requested", "accepted", "asked", "created", "scheduled", "running", "registered", "jobRunning"} {
		assert.Contains(t, got.Boots[0], field)
	}
	assert.NoFileExists(t, path+".new")

	assert.ErrorContains(t, r.write(filepath.Join(path, "below-a-file")), "writing the report")
}

func TestJobRan(t *testing.T) {
	r := jobRun{Submitted: at(1)}
	r.ran(at(5), "cpu-3")
	r.ran(at(3), "cpu-2")
	r.ran(at(7), "cpu-2")
	assert.Equal(t, []string{"cpu-2", "cpu-3"}, r.Nodes)
	assert.Equal(t, []time.Time{at(3), at(7)}, []time.Time{r.Running, r.AllRun})
	assert.Equal(t, map[string]time.Time{"cpu-2": at(3), "cpu-3": at(5)}, r.began, "the first task of each node")
	assert.InDelta(t, 2, r.SecondsToRunning, 0)
	assert.InDelta(t, 6, r.SecondsToAllRunning, 0)
}
