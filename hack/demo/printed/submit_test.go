package printed

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMark(t *testing.T) {
	got, err := ParseMark("1795237041.020304050\n")
	require.NoError(t, err)
	assert.Equal(t, time.Unix(1795237041, 20304050).UTC(), got)
	for name, text := range map[string]string{"empty": "", "no fraction": "1795237041", "no nanoseconds": "1795237041.5", "busybox": "1795237041.%N", "text": "hello"} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseMark(text)
			assert.ErrorContains(t, err, "is not what `date +%s.%N` prints")
		})
	}
}

func TestParseSbatch(t *testing.T) {
	submitted, id, err := ParseSbatch("1795237041.000000001\n17\n")
	require.NoError(t, err)
	assert.Equal(t, time.Unix(1795237041, 1).UTC(), submitted)
	assert.EqualValues(t, 17, id)
	for name, text := range map[string]string{"nothing": "", "no id": "1795237041.000000001\n", "no time": "17\n18\n", "other clusters": "1795237041.000000001\n17;other\n"} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseSbatch(text)
			assert.Error(t, err)
		})
	}
}

func TestParseSrun(t *testing.T) {
	submitted, tasks, err := ParseSrun("100.000000000\n103.500000000 4 cpu-7\n102.250000000 4 cpu-6\n")
	require.NoError(t, err)
	assert.Equal(t, time.Unix(100, 0).UTC(), submitted)
	assert.Equal(t, []Task{{time.Unix(103, 500e6).UTC(), 4, "cpu-7"}, {time.Unix(102, 250e6).UTC(), 4, "cpu-6"}}, tasks)
	for name, text := range map[string]string{
		"nothing": "", "one task": "100.000000000\n103.500000000 4 cpu-7\n", "no host": "100.000000000\n103.500000000 4\n102.250000000 4 cpu-7\n",
		"no id": "100.000000000\n103.500000000 x cpu-6\n102.250000000 4 cpu-7\n", "no time": "x\n103.500000000 4 cpu-6\n102.250000000 4 cpu-7\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseSrun(text)
			assert.Error(t, err)
		})
	}
}

func TestLines(t *testing.T) {
	assert.Equal(t, []string{"a", "", "b"}, Lines("a\n\nb\nhalf a li"))
	assert.Empty(t, Lines("half a li"))
}

// Whatever Slurm and the shell print, reading it ends in a result or an error.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"1795237041.000000001\n17\n", "100.000000000\n103.500000000 4 cpu-7\n102.250000000 4 cpu-6\n",
		`{"jobs": [{"job_id": 1, "array_job_id": {"set": true, "number": 1}, "job_state": ["RUNNING"], "nodes": "cpu-[0-1]"}]}{"nodes": [{"name": "cpu-0", "state": ["IDLE"]}]}`,
		`{"statistics": {"schedule_cycle_total": 1}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if submitted, _, err := ParseSbatch(text); err == nil {
			assert.False(t, submitted.Before(time.Unix(0, 0)))
		}
		if _, tasks, err := ParseSrun(text); err == nil {
			assert.Len(t, tasks, 2)
		}
		if l, err := ReadLook(json.NewDecoder(strings.NewReader(text))); err == nil {
			for _, j := range l.Jobs {
				assert.NotEmpty(t, j.Label())
				assert.False(t, j.Done() && j.Failed())
			}
		}
		_, _ = ParsePasses(text)
	})
}
