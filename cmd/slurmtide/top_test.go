package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/scaler/ask"
)

// busy is a bridge with so many boots in hand.
func busy(boots int) bridge.Status {
	ago := func(s int) time.Time { return noon.Add(-time.Duration(s) * time.Second) }
	st := bridge.Status{Version: "v1.2.3", Lease: bridge.Lease{Leading: true}, Spool: spool.Stats{Depth: 2}, Engine: powersave.Status{
		Time: noon, KubernetesRead: true, Gates: 3, Pods: 12,
		NodeSets: []powersave.NodeSetCounts{
			{Name: "cpu", Nodes: 100, PoweredUp: 12, Booting: 5, Ready: 7, Floor: &powersave.FloorCounts{Wanted: 2, Held: 2, Ahead: 1}},
			{Name: "gpu", Nodes: 10, Breakers: []powersave.BreakerRecord{{Key: powersave.BreakerKey{NodeSet: "gpu", Offering: "spot"}, State: powersave.BreakerOpen, Class: "capacity", Until: ago(-40)}}},
		},
		History: []powersave.Boot{
			{Times: powersave.Timeline{Requested: ago(90), Registered: ago(80)}},
			{Times: powersave.Timeline{Requested: ago(50), Registered: ago(48)}}, {Times: powersave.Timeline{Requested: ago(50), Registered: ago(45)}},
		},
		FinishedOffs: []powersave.Off{{Times: powersave.OffTimes{Finished: ago(59)}}, {Times: powersave.OffTimes{Finished: ago(61)}}},
		Offs:         []powersave.Boot{{Node: "cpu-90", Phase: powersave.PhaseFreeing, Host: "host-b", Times: powersave.Timeline{Accepted: ago(1)}}},
	}}
	for i := range boots {
		b := powersave.Boot{Node: fmt.Sprint("cpu-", i), Phase: powersave.BootPhases[1+i%5], Jobs: []uint32{uint32(7 + i%2)}, Host: "host-a", Times: powersave.Timeline{Requested: ago(2 + i)}}
		if b.Phase == powersave.PhasePending {
			b.Problem = "0/5 nodes are available: 5 Insufficient cpu"
		}
		st.Engine.Boots = append(st.Engine.Boots, b)
	}
	return st
}

func TestTopFrame(t *testing.T) {
	golden.Compare(t, "testdata/top.txt", strings.Join((&frame{}).draw(sight{Status: busy(6), demanded: demanded{demand: &asked}}, ""), "\n")+"\n")
}

// asked is what a scaler says.
var asked = ask.Demand{
	NodeSets: []ask.NodeSet{{Name: "cpu", Needed: 19, PowerUp: 7, InUse: 7}, {Name: "other", Needed: 5}},
	Pending:  []ask.Pending{{Jobs: 3, Says: "need nodes that are off", Counts: true}, {Jobs: 10, Says: "are held"}},
}

// The scaler is asked each time; without it the rest is shown, and that it is away where somebody has named it.
func TestTopAsksTheScaler(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	_, err := spool.Open(dir)
	require.NoError(t, err)
	l, err := spool.Listen(dir)
	require.NoError(t, err)
	go func() { _ = spool.Serve(t.Context(), l, fakeStatus{st: busy(1)}, slog.New(slog.DiscardHandler)) }()
	var down error
	picture := func(insist bool) string {
		var out strings.Builder
		once := top{dir: dir, timeout: 5 * time.Second, every: time.Second, w: &out, insist: insist, demand: func(context.Context) (ask.Demand, error) { return asked, down }}
		require.NoError(t, once.run(t.Context()))
		return out.String()
	}
	assert.Contains(t, picture(false), "pending jobs: 3 need nodes that are off, 10 are held\n")
	assert.Regexp(t, `(?m)^cpu +.* 19 \(\+7\) `, picture(true))
	down = errors.New("connection refused")
	assert.Contains(t, picture(true), "THE SCALER HAS NO FIGURES: connection refused\n")
	for _, without := range []string{picture(false), picture(true)} {
		assert.NotContains(t, without, "pending jobs")
		assert.Regexp(t, `(?m)^cpu +100 .* 0 +- `, without)
	}
	assert.NotContains(t, picture(false), "THE SCALER")
}

func TestTopFits(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 24}, {200, 60}, {80, 20}} {
		st := busy(300)
		st.Engine.SlurmError, st.KubernetesError = "no answer", "refused"
		lines := (&frame{width: size[0], height: size[1]}).draw(sight{Status: st}, "")
		assert.LessOrEqual(t, len(lines), size[1], size)
		for _, line := range lines {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), size[0], line)
		}
		all := strings.Join(lines, "\n")
		for _, want := range []string{"SLURM CANNOT BE READ: no answer", "KUBERNETES CANNOT BE READ: refused", "NODESET", "JOB", "NODE ", "more"} {
			assert.Contains(t, all, want, size)
		}
		assert.NotContains(t, all, "\x1b")
	}
}

// fakeStatus answers with what it has, or not at all.
type fakeStatus struct {
	spool.Handler
	st bridge.Status
}

func (b fakeStatus) Status(context.Context) (json.RawMessage, error) { return json.Marshal(b.st) }

// terminal ends the run when it has been painted often enough.
type terminal struct {
	mu     sync.Mutex
	shown  []string
	during func(painted int)
}

func (w *terminal) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.shown = append(w.shown, string(p))
	n := len(w.shown)
	w.mu.Unlock()
	w.during(n)
	return len(p), nil
}

func TestTopPaintsUntilItIsEnded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	_, err := spool.Open(dir)
	require.NoError(t, err)
	l, err := spool.Listen(dir)
	require.NoError(t, err)
	served, away := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- spool.Serve(served, l, fakeStatus{st: busy(1)}, slog.New(slog.DiscardHandler)) }()

	var out strings.Builder
	nobody := func(context.Context) (ask.Demand, error) { return ask.Demand{}, errors.New("nobody is there") }
	once := top{dir: dir, demand: nobody, timeout: 5 * time.Second, every: time.Millisecond, w: &out}
	require.NoError(t, once.run(t.Context()))
	assert.Contains(t, out.String(), "cpu-0")
	assert.NotContains(t, out.String(), "\x1b")

	ctx, end := context.WithCancel(t.Context())
	screen := &terminal{during: func(painted int) {
		switch painted {
		case 3: // entered, and two pictures
			away()
			require.NoError(t, <-done)
		case 5:
			end()
		}
	}}
	live := top{dir: dir, demand: nobody, timeout: 5 * time.Second, every: time.Millisecond, w: screen, colours: true, size: func() (int, int) { return 100, 30 }}
	require.NoError(t, live.run(ctx))
	require.Len(t, screen.shown, 6)
	assert.Equal(t, enter, screen.shown[0])
	assert.Contains(t, screen.shown[1], "\x1b[H"+bold+"slurmtide top")
	assert.Contains(t, screen.shown[4], "THE BRIDGE DOES NOT ANSWER: no bridge runs")
	assert.Contains(t, screen.shown[4], "cpu-0", "what was known stays")
	assert.Equal(t, leave, screen.shown[5])
	require.ErrorContains(t, once.run(t.Context()), "no bridge runs on spool")
}

// hanging is a scaler that does not answer before it is told to.
func hanging(answers <-chan struct{}) func(context.Context) (ask.Demand, error) {
	return func(ctx context.Context) (ask.Demand, error) {
		select {
		case <-answers:
			return asked, nil
		case <-ctx.Done():
			return ask.Demand{}, ctx.Err()
		}
	}
}

// A scaler that hangs holds up nothing: the nodes are painted at once, and the demand when it comes. One picture waits for it only if somebody has named it.
func TestTopDoesNotWaitForTheScaler(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	_, err := spool.Open(dir)
	require.NoError(t, err)
	l, err := spool.Listen(dir)
	require.NoError(t, err)
	go func() { _ = spool.Serve(t.Context(), l, fakeStatus{st: busy(1)}, slog.New(slog.DiscardHandler)) }()

	answers := make(chan struct{})
	ctx, end := context.WithCancel(t.Context())
	screen := &terminal{during: func(int) {}}
	screen.during = func(painted int) {
		switch last := screen.shown[painted-1]; {
		case painted == 4: // entered, and three pictures without
			close(answers)
		case strings.Contains(last, "pending jobs: 3 need"):
			end()
		}
	}
	began := time.Now()
	live := top{dir: dir, demand: hanging(answers), timeout: time.Hour, every: time.Millisecond, w: screen, size: func() (int, int) { return 100, 30 }}
	require.NoError(t, live.run(ctx))
	require.GreaterOrEqual(t, len(screen.shown), 6)
	for _, picture := range screen.shown[1:4] {
		assert.Contains(t, picture, "cpu-0")
		assert.NotContains(t, picture, "pending jobs")
	}

	var out strings.Builder
	once := top{dir: dir, demand: hanging(nil), timeout: time.Hour, every: time.Second, w: &out}
	require.NoError(t, once.run(t.Context()))
	assert.Contains(t, out.String(), "cpu-0")
	assert.Less(t, time.Since(began), time.Minute)
	out.Reset()
	once.insist, once.timeout = true, 10*time.Second
	once.demand = func(ctx context.Context) (ask.Demand, error) {
		time.Sleep(unasked + 200*time.Millisecond)
		return asked, ctx.Err()
	}
	require.NoError(t, once.run(t.Context()))
	assert.Contains(t, out.String(), "pending jobs: 3 need", "who has named it waits for it")
}
