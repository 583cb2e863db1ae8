package slurmconf

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
)

// The inputs are written as power_save.c of each release writes them: the same fields
// in the same order, unset strings null, slashes escaped.
func TestParseResumeFileGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/resumefile/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, inputs)
	for _, input := range inputs {
		t.Run(strings.TrimSuffix(filepath.Base(input), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(input)
			require.NoError(t, err)
			f, err := ParseResumeFile(data)
			require.NoError(t, err)

			var got bytes.Buffer
			written, err := json.Marshal(f)
			require.NoError(t, err)
			require.NoError(t, json.Indent(&got, written, "", "  "))
			got.WriteString("\n")
			for _, p := range f.Problems {
				got.WriteString(p.Error() + "\n")
			}
			golden.Compare(t, strings.TrimSuffix(input, ".json")+".golden", got.String())

			if len(f.Problems) == 0 {
				assert.JSONEq(t, string(data), string(written))
			}
			var again ResumeFile
			require.NoError(t, json.Unmarshal(written, &again))
			again.Problems, f.Problems = nil, nil // left out jobs are gone
			assert.Equal(t, f, again)
		})
	}
}

func TestParseResumeFileFields(t *testing.T) {
	data, err := os.ReadFile("testdata/resumefile/26.05.json")
	require.NoError(t, err)
	f, err := ParseResumeFile(data)
	require.NoError(t, err)
	assert.Empty(t, f.Problems)
	assert.Empty(t, f.Unknown)
	assert.Equal(t, "cloud[1-3,7-8]", f.AllNodes.String())
	require.Len(t, f.Jobs, 2)
	j := f.Jobs[0]
	require.NotNil(t, j.Priority)
	assert.Equal(t, uint32(4294901758), *j.Priority)
	j.Priority = nil
	alloc, _ := ParseHostlist("cloud[1-4]")
	resume, _ := ParseHostlist("cloud[1-3]")
	assert.Equal(t, ResumeJob{
		JobID: 140814, NodesAlloc: alloc, NodesResume: resume, Partition: "cloud", Features: "c1,c2",
		Reservation: "resv_1234", Oversubscribe: "OK", Exclusive: "NO",
	}, j)
	assert.Zero(t, f.Jobs[1].NodesResume.Len())
}

func TestParseResumeFileErrors(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"empty":         {"", "resume file: empty"},
		"blank":         {" \n", "resume file: empty"},
		"null":          {"null", "resume file: want a JSON object, found null"},
		"list":          {"[]", "resume file: want a JSON object, found array"},
		"cut off":       {`{"jobs":[{"job_id":1`, "resume file: cut off after 20 bytes"},
		"syntax":        {"{\"jobs\":[],\n  oops}", "resume file: line 2, column 3: invalid character 'o' looking for beginning of object key string"},
		"data after":    {"{} {}", "resume file: more data after the JSON object, at byte 5"},
		"garbage after": {"{} x", "resume file: more data after the JSON object, at byte 4"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseResumeFile([]byte(tt.in))
			assert.EqualError(t, err, tt.want)
		})
	}
}

func TestParseResumeFileProblems(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []string
		jobs int
	}{
		"nothing in it":     {`{}`, []string{"all_nodes_resume: missing"}, 0},
		"nulls":             {`{"all_nodes_resume":null,"jobs":null}`, nil, 0},
		"jobs not a list":   {`{"all_nodes_resume":"n1","jobs":{}}`, []string{"jobs: want a list or null, found {}"}, 0},
		"nodes not a list":  {`{"all_nodes_resume":"n[1","jobs":[{"job_id":7}]}`, []string{`all_nodes_resume: hostlist: "[1" at position 2: this [ has no closing ]`}, 1},
		"nodes a number":    {`{"all_nodes_resume":1,"jobs":[]}`, []string{"all_nodes_resume: want a string or null, found 1"}, 0},
		"all strings null":  {`{"all_nodes_resume":"","jobs":[{"job_id":7,"nodes_alloc":null,"nodes_resume":null,"partition":null,"features":null,"extra":null,"reservation":null,"oversubscribe":null,"exclusive":null,"priority":null}]}`, nil, 1},
		"job ID too large":  {`{"all_nodes_resume":"","jobs":[{"job_id":4294967296}]}`, []string{"jobs[0].job_id: want a number from 1 to 4294967295 (job left out), found 4294967296"}, 0},
		"job ID zero":       {`{"all_nodes_resume":"","jobs":[{"job_id":0}]}`, []string{"jobs[0].job_id: want a number from 1 to 4294967295 (job left out), found none"}, 0},
		"priority wrong":    {`{"all_nodes_resume":"","jobs":[{"job_id":1,"priority":-1}]}`, []string{"jobs[0] (job 1).priority: want a number from 0 to 4294967295, found -1"}, 1},
		"unknown is silent": {`{"all_nodes_resume":"","jobs":[{"job_id":1,"qos":{}}],"more":[]}`, nil, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := ParseResumeFile([]byte(tt.in))
			require.NoError(t, err)
			var got []string
			for _, p := range f.Problems {
				got = append(got, p.Error())
			}
			assert.Equal(t, tt.want, got)
			assert.Len(t, f.Jobs, tt.jobs)
			for _, j := range f.Jobs {
				assert.Nil(t, j.Priority)
			}
		})
	}
}
