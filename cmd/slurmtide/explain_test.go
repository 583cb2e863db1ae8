package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/scaler/ask"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// fakeScaler knows job 7, and says where it was asked.
func fakeScaler(t *testing.T) (url string, asked *string) {
	asked = new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = r.URL.String()
		switch r.URL.Path {
		case "/explain/job/8":
			http.Error(w, "Slurm lists no job 8 that waits or runs", http.StatusNotFound)
			return
		case "/explain/job/7":
			if r.URL.Query().Get("output") == "json" {
				_, _ = w.Write([]byte("[{\"cluster\":\"tide\",\"job\":7,\"text\":\"it counts\"}]\n"))
				return
			}
		}
		_, _ = w.Write([]byte("job 7 counts: 2 nodes are to be powered up for it\n"))
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// explainJob is the command with a scaler and a spool.
func explainJob(t *testing.T, dir, scaler, cluster, output string, id uint32) (string, error) {
	t.Helper()
	at, err := ask.At(scaler, ask.TLS{})
	require.NoError(t, err)
	demand := func(ctx context.Context, asJSON bool) ([]byte, error) {
		return explainDemand(ctx, at, cluster, id, asJSON)
	}
	var said strings.Builder
	err = explanation{subject: history.Subject{Job: id}, demand: demand, insist: true}.write(t.Context(), dir, output, 5*time.Second, &said)
	return said.String(), err
}

func TestExplainJobByTheScalerAlone(t *testing.T) {
	scaler, asked := fakeScaler(t)
	dir := filepath.Join(t.TempDir(), "none")
	said, err := explainJob(t, dir, scaler+"/", "", "text", 7)
	require.NoError(t, err)
	assert.Equal(t, "job 7 counts: 2 nodes are to be powered up for it\n", said)
	assert.Equal(t, "/explain/job/7", *asked)
	_, err = explainJob(t, dir, scaler, "a b", "text", 7)
	require.NoError(t, err)
	assert.Equal(t, "/explain/job/7?cluster=a+b", *asked)
	_, err = explainJob(t, dir, scaler, "", "text", 8)
	require.ErrorContains(t, err, "Slurm lists no job 8 that waits or runs; and the bridge says nothing of it: there is no spool directory")

	said, err = explainJob(t, dir, scaler, "", "json", 7)
	require.NoError(t, err)
	assert.JSONEq(t, `{"demand":[{"cluster":"tide","job":7,"text":"it counts"}]}`, said)
	said, err = explainJob(t, dir, scaler, "", "yaml", 7)
	require.NoError(t, err)
	assert.Equal(t, "demand:\n- cluster: tide\n  job: 7\n  text: it counts\n", said)
	_, err = explainJob(t, dir, scaler, "", "yaml", 9)
	require.ErrorContains(t, err, "it is of an older version")
}

// fakeBridge answers what it is asked with answer.
type fakeBridge struct {
	spool.Handler
	answer func(history.Subject) history.Answer
}

func (b fakeBridge) Explain(_ context.Context, question json.RawMessage) (json.RawMessage, error) {
	var s history.Subject
	if err := json.Unmarshal(question, &s); err != nil {
		return nil, err
	}
	return json.Marshal(b.answer(s))
}

func (b fakeBridge) serve(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "spool")
	_, err := spool.Open(dir)
	require.NoError(t, err)
	l, err := spool.Listen(dir)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- spool.Serve(ctx, l, b, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return dir
}

func answer(state string) func(s history.Subject) history.Answer {
	return func(s history.Subject) history.Answer {
		a := history.Answer{Subject: s, Time: noon.Add(time.Minute)}
		if s.Job == 8 || s.Node == "cpu-8" {
			a.SlurmMissing = true
			return a
		}
		a.Slurm = []history.Shown{{Name: s.String(), State: state, Submitted: noon}}
		a.Entries = []history.Entry{{Time: noon.Add(420 * time.Millisecond), What: history.PodCreated, Node: "cpu-0", PodUID: "u", Jobs: []uint32{7}}}
		return a
	}
}

func TestExplainAsksTheBridge(t *testing.T) {
	scaler, asked := fakeScaler(t)
	dir := fakeBridge{answer: answer("RUNNING")}.serve(t)
	said, err := explainJob(t, dir, scaler, "", "text", 7)
	require.NoError(t, err)
	assert.Contains(t, said, "Slurm shows job 7 as RUNNING\n")
	assert.Contains(t, said, "2026-05-01 12:00:00.420     +0.42 s  pod created: cpu-0\n")
	assert.Empty(t, *asked, "what a job that runs counts for is of no interest")

	dir = fakeBridge{answer: answer("PENDING")}.serve(t)
	said, err = explainJob(t, dir, scaler, "", "text", 7)
	require.NoError(t, err)
	assert.Contains(t, said, "pod created: cpu-0\n")
	assert.True(t, strings.HasSuffix(said, "\nDemand:     job 7 counts: 2 nodes are to be powered up for it\n"), said)
	said, err = explainJob(t, dir, scaler, "", "json", 7)
	require.NoError(t, err)
	var got struct {
		Job    uint32
		Steps  []history.Step
		Demand []struct{ Text string }
	}
	require.NoError(t, json.Unmarshal([]byte(said), &got))
	assert.Equal(t, uint32(7), got.Job)
	require.Len(t, got.Steps, 2)
	assert.InDelta(t, 0.42, got.Steps[1].After, 1e-9)
	require.Len(t, got.Demand, 1)
	assert.Equal(t, "it counts", got.Demand[0].Text)

	_, err = explainJob(t, dir, scaler, "", "text", 8)
	require.EqualError(t, err, "Slurm lists no job 8 that waits or runs")
	said, err = explainJob(t, dir, "http://127.0.0.1:1", "", "text", 7)
	require.NoError(t, err, "the bridge knows it")
	assert.Contains(t, said, "Note:       asking the scaler: ")

	var out strings.Builder
	require.NoError(t, explanation{subject: history.Subject{Node: "cpu-0"}}.write(t.Context(), dir, "yaml", time.Second, &out))
	assert.Contains(t, out.String(), "\nnode: cpu-0\n")
	err = explanation{subject: history.Subject{Node: "cpu-8"}}.write(t.Context(), dir, "text", time.Second, &out)
	require.ErrorContains(t, err, "node cpu-8: nothing is known of it: neither Slurm nor the bridge has such a one")
}

// TestExplainWithoutABridge reads what the history knows.
func TestExplainWithoutABridge(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	_, err := spool.Open(dir)
	require.NoError(t, err)
	told := history.NewStore(dir, slog.New(slog.DiscardHandler), nil)
	told.Add(history.Entry{Time: noon, What: history.PodGone, Node: "cpu-0", Jobs: []uint32{7}})
	told.Flush()
	var out strings.Builder
	require.NoError(t, explanation{subject: history.Subject{Node: "cpu-0"}}.write(t.Context(), dir, "text", time.Second, &out))
	assert.Contains(t, out.String(), "2026-05-01 12:00:00.000              pod gone\n")
	assert.Contains(t, out.String(), "Note:       only the history is known: no bridge runs on spool "+dir)
	err = explanation{subject: history.Subject{Node: "cpu-1"}}.write(t.Context(), dir, "text", time.Second, &out)
	require.ErrorContains(t, err, "; the history there does not know node cpu-1")
}

// Who sits at a terminal is told what is waited for.
func TestExplainWaits(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer tty.Close()
	demand := func(context.Context, bool) ([]byte, error) {
		echo := make([]byte, 100) // of what is written to the terminal: nothing comes before
		n, err := tty.Read(echo)
		assert.Contains(t, string(echo[:n]), "waiting for the scaler")
		return []byte("counts\n"), err
	}
	var out bytes.Buffer
	require.NoError(t, explanation{subject: history.Subject{Job: 7}, demand: demand, stderr: tty}.write(t.Context(), t.TempDir(), "text", time.Minute, &out))
	assert.Equal(t, "counts\n", out.String())
}
