package printed

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readCapture reads what scontrol 26.05 printed, cut down to a few jobs and nodes.
func readCapture(t *testing.T, name string) Look {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer f.Close()
	l, err := ReadLook(json.NewDecoder(f))
	require.NoError(t, err)
	return l
}

func TestReadLook(t *testing.T) {
	type jobFacts struct {
		label, state, nodes string
		done, failed        bool
	}
	type nodeFacts struct {
		words string
		off   bool
	}
	for name, tt := range map[string]struct {
		jobs  []jobFacts
		nodes map[string]nodeFacts
	}{
		"pending.json": {
			jobs:  []jobFacts{{label: "13_[0-3]", state: "PENDING"}},
			nodes: map[string]nodeFacts{"cpu-0": {words: "ALLOCATED+POWERED_DOWN"}},
		},
		"booting.json": {
			jobs: []jobFacts{
				{label: "12", state: "CONFIGURING", nodes: "cpu-[0-1]"},
				{label: "13_0", state: "CONFIGURING", nodes: "cpu-2"},
				{label: "14", state: "PENDING"},
				{label: "13_2", state: "CONFIGURING", nodes: "cpu-3"},
				{label: "13_3", state: "CONFIGURING", nodes: "cpu-3"},
			},
			nodes: map[string]nodeFacts{
				"cpu-0": {words: "ALLOCATED+POWERING_UP"},
				"cpu-2": {words: "ALLOCATED+POWERING_UP"},
				"cpu-4": {words: "IDLE+POWERED_DOWN", off: true},
			},
		},
		"done.json": {
			jobs: []jobFacts{
				{label: "2", state: "COMPLETED", nodes: "gpu-0", done: true},
				{label: "3_0", state: "COMPLETED", nodes: "cpu-2", done: true},
				{label: "3_7", state: "COMPLETED", nodes: "cpu-5", done: true},
				{label: "12", state: "FAILED", nodes: "cpu-[0-1]", failed: true},
			},
			nodes: map[string]nodeFacts{
				"cpu-0": {words: "IDLE+POWERING_DOWN"},
				"cpu-9": {words: "IDLE+POWERED_DOWN", off: true},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := readCapture(t, name)
			var jobs []jobFacts
			for _, j := range l.Jobs {
				jobs = append(jobs, jobFacts{j.Label(), j.State(), j.Nodes, j.Done(), j.Failed()})
			}
			assert.Equal(t, tt.jobs, jobs)
			nodes := map[string]nodeFacts{}
			for _, n := range l.Nodes {
				nodes[n.Name] = nodeFacts{n.Words(), n.Off()}
			}
			assert.Equal(t, tt.nodes, nodes)
		})
	}
}

func TestLookJob(t *testing.T) {
	l := readCapture(t, "booting.json")
	assert.Len(t, l.Job(13), 3, "the tasks of an array, one of which has the array's own id")
	assert.Len(t, l.Job(12), 1)
	assert.Equal(t, []string{"cpu-0", "cpu-1"}, l.Job(12)[0].NodeNames())
	assert.Empty(t, l.Job(14)[0].NodeNames())
	assert.Empty(t, l.Job(99))
}

func TestReadLookErrors(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":        {"", "scontrol show jobs: unexpected EOF"},
		"half":           {`{"jobs": [`, "scontrol show jobs: unexpected EOF"},
		"jobs only":      {`{"jobs": []}`, "scontrol show nodes: unexpected EOF"},
		"no JSON":        {"slurm_load_jobs error", "scontrol show jobs: invalid character"},
		"Slurm's errors": {`{"jobs": [], "errors": [{"error": "Unable to contact slurm controller", "description": "slurm_load_jobs"}]}`, "Unable to contact slurm controller slurm_load_jobs"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadLook(json.NewDecoder(strings.NewReader(tt.text)))
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestJobState(t *testing.T) {
	for name, tt := range map[string]struct {
		states       []string
		want         string
		done, failed bool
	}{
		"none":         {nil, "UNKNOWN", false, false},
		"running":      {[]string{"RUNNING"}, "RUNNING", false, false},
		"completing":   {[]string{"COMPLETED", "COMPLETING"}, "COMPLETING", false, false},
		"completed":    {[]string{"COMPLETED"}, "COMPLETED", true, false},
		"cancelled":    {[]string{"CANCELLED"}, "CANCELLED", false, true},
		"requeued":     {[]string{"PENDING", "REQUEUED"}, "REQUEUED", false, false},
		"held for bad": {[]string{"PENDING", "REQUEUE_HOLD"}, "REQUEUE_HOLD", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			j := Job{States: tt.states}
			assert.Equal(t, tt.want, j.State())
			assert.Equal(t, tt.done, j.Done())
			assert.Equal(t, tt.failed, j.Failed())
		})
	}
}

func TestNodeOff(t *testing.T) {
	for name, tt := range map[string]struct {
		states string
		want   bool
	}{
		"at rest":            {"IDLE CLOUD POWERED_DOWN", true},
		"a word of tomorrow": {"IDLE CLOUD POWERED_DOWN PLANNED SPARKLING", true},
		"up":                 {"IDLE CLOUD", false},
		"going down":         {"IDLE CLOUD POWERING_DOWN", false},
		"about to come up":   {"IDLE CLOUD POWERED_DOWN POWER_UP", false},
		"allocated":          {"ALLOCATED CLOUD POWERED_DOWN", false},
		"down":               {"DOWN CLOUD POWERED_DOWN", false},
		"drained":            {"IDLE CLOUD DRAIN POWERED_DOWN", false},
		"not a cloud node":   {"IDLE POWERED_DOWN", false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, Node{States: strings.Fields(tt.states)}.Off())
		})
	}
}

func TestParsePasses(t *testing.T) {
	got, err := ParsePasses(`{"statistics": {"schedule_cycle_total": 18, "bf_cycle_counter": 3}, "errors": []}`)
	require.NoError(t, err)
	assert.Equal(t, 18, got)
	for name, text := range map[string]string{"no JSON": "slurm_get_statistics: error", "other JSON": "{}"} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePasses(text)
			assert.ErrorContains(t, err, "reading sdiag")
		})
	}
}
