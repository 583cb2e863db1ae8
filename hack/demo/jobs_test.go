package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMark(t *testing.T) {
	got, err := parseMark("1795237041.020304050\n")
	require.NoError(t, err)
	assert.Equal(t, time.Unix(1795237041, 20304050).UTC(), got)
	for name, text := range map[string]string{"empty": "", "no fraction": "1795237041", "no nanoseconds": "1795237041.5", "busybox": "1795237041.%N", "text": "hello"} {
		t.Run(name, func(t *testing.T) {
			_, err := parseMark(text)
			assert.ErrorContains(t, err, "is not what `date +%s.%N` prints")
		})
	}
}

func TestParseSbatch(t *testing.T) {
	got, err := parseSbatch("gpu", "1795237041.000000001\n17\n")
	require.NoError(t, err)
	assert.Equal(t, jobRun{Name: "gpu", ID: 17, Submitted: time.Unix(1795237041, 1).UTC()}, got)
	for name, text := range map[string]string{"nothing": "", "no id": "1795237041.000000001\n", "no time": "17\n18\n", "other clusters": "1795237041.000000001\n17;other\n"} {
		t.Run(name, func(t *testing.T) {
			_, err := parseSbatch("gpu", text)
			assert.Error(t, err)
		})
	}
}

func TestParseSrun(t *testing.T) {
	got, err := parseSrun("100.000000000\n103.500000000 4 cpu-7\n102.250000000 4 cpu-6\n")
	require.NoError(t, err)
	assert.Equal(t, jobRun{
		Name: "srun", ID: 4, Nodes: []string{"cpu-6", "cpu-7"}, Submitted: time.Unix(100, 0).UTC(),
		Running: time.Unix(102, 250e6).UTC(), AllRun: time.Unix(103, 500e6).UTC(), SecondsToRunning: 2.25, SecondsToAllRunning: 3.5,
		began: map[string]time.Time{"cpu-6": time.Unix(102, 250e6).UTC(), "cpu-7": time.Unix(103, 500e6).UTC()},
	}, got)

	got, err = parseSrun("100.000000000\n103.500000000 4 cpu-7\n102.250000000 4 cpu-7\n")
	require.NoError(t, err)
	assert.Len(t, got.Nodes, 1, "both tasks on one node must not look like two nodes")
	for name, text := range map[string]string{
		"nothing": "", "one task": "100.000000000\n103.500000000 4 cpu-7\n", "no host": "100.000000000\n103.500000000 4\n102.250000000 4 cpu-7\n",
		"no id": "100.000000000\n103.500000000 x cpu-6\n102.250000000 4 cpu-7\n", "no time": "x\n103.500000000 4 cpu-6\n102.250000000 4 cpu-7\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseSrun(text)
			assert.Error(t, err)
		})
	}
}

func TestSplitLines(t *testing.T) {
	assert.Equal(t, []string{"a", "", "b"}, splitLines("a\n\nb\nhalf a li"))
	assert.Empty(t, splitLines("half a li"))
}

// Whatever Slurm, the shell and the bridge print, reading it ends in a result or an error.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"1795237041.000000001\n17\n", "100.000000000\n103.500000000 4 cpu-7\n102.250000000 4 cpu-6\n",
		`{"jobs": [{"job_id": 1, "array_job_id": {"set": true, "number": 1}, "job_state": ["RUNNING"], "nodes": "cpu-[0-1]"}]}{"nodes": [{"name": "cpu-0", "state": ["IDLE"]}]}`,
		"time=2026-11-21T05:18:57.979Z level=INFO msg=request kind=suspend nodes=cpu-[4-6] age=9ms\n", `{"statistics": {"schedule_cycle_total": 1}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if run, err := parseSbatch("x", text); err == nil {
			assert.False(t, run.Submitted.Before(time.Unix(0, 0)))
		}
		if run, err := parseSrun(text); err == nil {
			assert.NotEmpty(t, run.Nodes)
		}
		if l, err := readLook(json.NewDecoder(strings.NewReader(text))); err == nil {
			for _, j := range l.Jobs {
				assert.NotEmpty(t, j.label())
				assert.False(t, j.done() && j.failed())
			}
		}
		_, _ = parseSuspends(text)
		_, _ = parsePasses(text)
	})
}
