package slurmrest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHiddenJob(t *testing.T) {
	const all, alone = "GET /slurm/v0.0.45/jobs/state/", "GET /slurm/v0.0.44/job/"
	ask := func(t *testing.T, f *fake) (uint32, []string) {
		t.Helper()
		c := dialFake(t, f)
		list, _, err := c.QueueJobs(t.Context(), time.Time{})
		require.NoError(t, err)
		shown := map[uint32]bool{}
		for _, j := range list {
			shown[j.ID] = true
		}
		f.reset()
		job, _, err := c.HiddenJob(t.Context(), shown)
		require.NoError(t, err)
		return job, f.seen()
	}
	for name, tc := range map[string]struct {
		others   map[string]bool
		want     uint32
		requests []string
	}{
		"all are shown":           {requests: []string{all}},
		"one that waits":          {others: map[string]bool{"1": true}, want: 1, requests: []string{all, alone + "1?flags=ALL", all + "?job_id=1"}},
		"of a het job":            {others: map[string]bool{"5": true, "6": true, "7": true}, want: 5, requests: []string{all, alone + "5?flags=ALL", all + "?job_id=5"}},
		"an array's task":         {others: map[string]bool{"11": true}, want: 11, requests: []string{all, alone + "11?flags=ALL", all + "?job_id=11"}},
		"one that has ended":      {others: map[string]bool{"12": true}, requests: []string{all}},
		"all jobs, the first one": {others: map[string]bool{"1": true, "5": true, "6": true, "7": true, "10": true, "11": true, "12": true}, want: 1, requests: []string{all, alone + "1?flags=ALL", all + "?job_id=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobsFake()
			f.others = tc.others
			job, requests := ask(t, f)
			assert.Equal(t, tc.want, job)
			assert.Equal(t, tc.requests, requests)
		})
	}
	t.Run("jobs that came after the list are looked at alone, and not all", func(t *testing.T) {
		f := jobsFake()
		job, _, err := dialFake(t, f).HiddenJob(t.Context(), nil)
		require.NoError(t, err)
		assert.Zero(t, job)
		assert.Equal(t, []string{all, alone + "1?flags=ALL", alone + "5?flags=ALL", alone + "6?flags=ALL", alone + "7?flags=ALL"}, f.seen())
	})
	t.Run("one that ends, and is forgotten, meanwhile", func(t *testing.T) {
		f := jobsFake()
		f.others = map[string]bool{"1": true}
		f.script = []func(http.ResponseWriter) error{nil, func(w http.ResponseWriter) error {
			f.jobs = f.jobs[1:]
			return reply(500, errInvalidJobID, "Invalid job id specified")(w)
		}}
		job, _, err := dialFake(t, f).HiddenJob(t.Context(), map[uint32]bool{5: true, 6: true, 7: true, 10: true, 11: true})
		require.NoError(t, err)
		assert.Zero(t, job)
	})
	t.Run("who it is", func(t *testing.T) {
		for user, token := range map[string]TokenSource{"alice": KeyFile{Path: file(t, "key"), User: "alice"}, "": Static("secret")} {
			f := jobsFake()
			f.others = map[string]bool{"1": true}
			cfg := f.config()
			cfg.Token = token
			c, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			job, got, err := c.HiddenJob(t.Context(), map[uint32]bool{5: true, 6: true, 7: true, 10: true, 11: true})
			require.NoError(t, err)
			assert.EqualValues(t, 1, job)
			assert.Equal(t, user, got)
		}
	})
	t.Run("no answer is no word", func(t *testing.T) {
		for answers := range 3 {
			f := jobsFake()
			f.others = map[string]bool{"1": true}
			f.script = make([]func(http.ResponseWriter) error, answers)
			f.script = append(f.script, lose(errors.New("cut")))
			job, _, err := dialFake(t, f).HiddenJob(t.Context(), nil)
			require.ErrorContains(t, err, "cut")
			assert.Zero(t, job)
		}
	})
}
