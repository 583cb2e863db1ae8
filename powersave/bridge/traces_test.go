package bridge

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/powersave/traces"
	"github.com/slurmtide/slurmtide/powersave/traces/tracestest"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// tape takes down what a bridge in fake time tells, and tells it to traces in real time, in which there are collectors.
type tape struct {
	calls    []func(*traces.Traces)
	finished []string
}

func (t *tape) Add(entries ...history.Entry) {
	t.calls = append(t.calls, func(to *traces.Traces) { to.Add(entries...) })
}

func (t *tape) Finished(now time.Time, request string) {
	t.finished = append(t.finished, request)
	t.calls = append(t.calls, func(to *traces.Traces) { to.Finished(now, request) })
}

func (t *tape) TraceID(request string) string { return (*traces.Traces)(nil).TraceID(request) }

// play returns what a collector gets.
func (tp *tape) play(t *testing.T) []tracestest.Span {
	t.Helper()
	c := tracestest.Start(t)
	to, err := traces.New(t.Context(), traces.Config{Endpoint: c.Server.URL, Log: slog.New(slog.DiscardHandler), Dropped: func(n int) { t.Errorf("%d spans are dropped", n) }})
	require.NoError(t, err)
	for _, call := range tp.calls {
		call(to)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, to.Run(ended))
	return c.Spans()
}

// phases are a node's boot and its parts, with their offerings and errors.
func phases(spans []tracestest.Span, node string) (lines []string) {
	boot := spans[slices.IndexFunc(spans, func(s tracestest.Span) bool { return s.Name == "boot" && s.Attributes["slurm.node.name"] == node })]
	for _, s := range spans {
		if s.ID == boot.ID || s.Parent == boot.ID {
			lines = append(lines, strings.TrimSpace(s.Name+" "+s.Attributes["slurmtide.offering"]+" "+s.Error))
		}
	}
	return lines
}

// TestTraces has a job boot, another one on a second offering, and one for which a node cannot boot at all.
func TestTraces(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	var told tape
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.createTakes = 20 * time.Millisecond
		w.jobs = map[uint32]powersave.SlurmJob{7: {ID: 7, State: powersave.JobRunning | powersave.JobConfiguring}}
		b, stop := w.startWith(t, dir, Config{Slurm: w, Kubernetes: w, Engine: powersave.Config{Alone: true}, Traces: &told, Log: slog.New(slog.NewTextHandler(&log, nil))})
		defer stop()
		nodes, err := slurmconf.ParseHostlist("cpu-[0-9]")
		require.NoError(t, err)
		b.NodeSets([]powersave.NodeSet{{Name: "cpu", Nodes: nodes, Offerings: []powersave.Offering{{Name: "spot"}, {Name: "on-demand"}}}})
		start := func() {
			w.set(booting, "cpu-0", "cpu-1")
			go b.Gate(t.Context(), spool.GateRequest{JobID: 7, Nodes: "cpu-[0-1]"})
			synctest.Wait()
			pass(300 * time.Millisecond)
			submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
			pass(7 * time.Millisecond)
			b.Poked()
			pass(40 * time.Second)
		}
		off := func() {
			w.set(leaving, "cpu-0", "cpu-1")
			submit(t, dir, spool.KindSuspend, "cpu-[0-1]", "")
			pass(5 * time.Second)
		}
		pass(time.Second)
		start()
		off()
		w.look(func() { w.stuck, w.stuckOn = "cpu-1", "spot" })
		start()
		off()
		w.look(func() { w.stuckOn = "" })
		start()
		off()
	})
	require.Len(t, told.finished, 6)
	byTrace := map[string][]tracestest.Span{}
	for _, s := range told.play(t) {
		byTrace[s.Trace] = append(byTrace[s.Trace], s)
	}
	require.Len(t, byTrace, 3, "one for each resume request, none for the others")
	good := []string{"boot spot", "accept request", "create pod spot", "start pod spot"}
	elsewhere := []string{"boot on-demand", "accept request", "create pod spot", "schedule pod spot capacity: Unschedulable: trying another offering", "remove old pod spot",
		"create pod on-demand", "start pod on-demand"}
	for i, want := range []struct {
		first, second       []string // nodes
		failed, class, gate string
	}{
		{first: good, second: good},
		{first: good, second: elsewhere},
		{
			first:  []string{"boot on-demand", "accept request", "create pod on-demand", "start pod on-demand"}, // spot is not tried so soon again
			second: []string{"boot on-demand capacity: Unschedulable", "accept request", "create pod on-demand", "schedule pod on-demand capacity: Unschedulable"},
			failed: "1 of 2 boots failed: capacity: Unschedulable", class: "capacity", gate: "capacity: Unschedulable",
		},
	} {
		request := told.finished[2*i]
		assert.Contains(t, log.String(), " request="+request+" kind=resume nodes=cpu-[0-1] jobs=1 age=7ms trace="+told.TraceID(request), "the log leads there")
		spans := byTrace[told.TraceID(request)]
		assert.Equal(t, want.first, phases(spans, "cpu-0")[:len(want.first)])
		assert.Equal(t, want.second, phases(spans, "cpu-1")[:len(want.second)])
		root := spans[slices.IndexFunc(spans, func(s tracestest.Span) bool { return s.Parent == "" })]
		assert.Equal(t, []string{"resume", request, "cpu-[0-1]", "7", want.failed},
			[]string{root.Name, root.Attributes["slurmtide.request.id"], root.Attributes["slurm.nodes"], root.Attributes["slurm.job.ids"], root.Error})
		for _, s := range spans {
			switch s.Name {
			case "gate":
				assert.Equal(t, root.ID, s.Parent)
				assert.Equal(t, 300*time.Millisecond, root.Start.Sub(s.Start))
				assert.Equal(t, root.End, s.End)
				assert.Equal(t, want.gate, s.Error)
			case "boot":
				assert.Equal(t, root.ID, s.Parent)
				assert.Equal(t, root.Start, s.Start)
				assert.False(t, s.End.After(root.End))
				if s.Error != "" {
					assert.Equal(t, want.class, s.Attributes["slurmtide.verdict.class"])
				}
			case "accept request":
				assert.Equal(t, 7*time.Millisecond, s.End.Sub(s.Start))
			case "start pod":
				assert.Equal(t, time.Second, s.End.Sub(s.Start), "as long as the world takes")
			}
		}
	}
}
