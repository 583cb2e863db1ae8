package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// testHandler is a Handler made of functions.
type testHandler struct {
	poked  func()
	gate   func(ctx context.Context, r GateRequest) GateReply
	status func(ctx context.Context) (json.RawMessage, error)

	explain func(question json.RawMessage) (json.RawMessage, error)
}

func (h testHandler) Poked() { h.poked() }

func (h testHandler) Gate(ctx context.Context, r GateRequest) GateReply { return h.gate(ctx, r) }

func (h testHandler) Status(ctx context.Context) (json.RawMessage, error) { return h.status(ctx) }

func (h testHandler) Explain(_ context.Context, question json.RawMessage) (json.RawMessage, error) {
	return h.explain(question)
}

// serve runs a bridge's socket in a new spool until stop is called or the test ends.
func serve(t *testing.T, dir string, h Handler) (stop func()) {
	t.Helper()
	_, err := Open(dir)
	require.NoError(t, err)
	l, err := Listen(dir)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, h, slog.New(slog.DiscardHandler)) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(func() {
		stop()
		goleak.VerifyNone(t)
	})
	return stop
}

func TestPoke(t *testing.T) {
	dir := newDir(t)
	require.Error(t, Poke(dir), "no bridge")
	poked := make(chan struct{}, 1)
	stop := serve(t, dir, testHandler{poked: func() { poked <- struct{}{} }})
	require.NoError(t, Poke(dir))
	<-poked
	stop()
	require.Error(t, Poke(dir), "the bridge has gone")
	assert.NoFileExists(t, layout{dir}.socket())
}

// A bridge that is stopped takes no connection and its queue fills up: programs must not
// wait for it, gates may.
func TestBridgeThatHangs(t *testing.T) {
	dir := newDir(t)
	_, err := Open(dir)
	require.NoError(t, err)
	l, err := Listen(dir)
	require.NoError(t, err)
	defer l.Close()
	for range 10_000 {
		if err = Poke(dir); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, syscall.EAGAIN)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = AskGate(ctx, dir, GateRequest{JobID: 1})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel = context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, l, testHandler{poked: func() {}, gate: func(context.Context, GateRequest) GateReply { return GateReply{Ready: true} }}, slog.New(slog.DiscardHandler))
	}()
	reply, err := AskGate(t.Context(), dir, GateRequest{JobID: 1})
	require.NoError(t, err)
	assert.True(t, reply.Ready)
	cancel()
	require.NoError(t, <-served)
}

func TestStatus(t *testing.T) {
	dir := newDir(t)
	var fail error
	serve(t, dir, testHandler{status: func(context.Context) (json.RawMessage, error) {
		return json.RawMessage(`{"nodes":[1,2]}`), fail
	}})
	got, err := AskStatus(t.Context(), dir)
	require.NoError(t, err)
	assert.JSONEq(t, `{"nodes":[1,2]}`, string(got))
	fail = errors.New("still starting")
	_, err = AskStatus(t.Context(), dir)
	assert.EqualError(t, err, "asking bridge: still starting")
}

func TestGateReply(t *testing.T) {
	dir := newDir(t)
	want := GateRequest{JobID: 7, Nodes: "cpu-[0-1]", Deadline: time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC), ArrayJobID: 5, ArrayTaskID: 2, HetJobID: 3, HetJobOffset: 1, Partition: "batch"}
	release := make(chan GateReply, 1)
	serve(t, dir, testHandler{gate: func(_ context.Context, r GateRequest) GateReply {
		assert.Equal(t, want, r)
		return <-release
	}})
	for _, reply := range []GateReply{{Ready: true}, {Reason: "no capacity"}} {
		release <- reply
		got, err := AskGate(t.Context(), dir, want)
		require.NoError(t, err)
		assert.Equal(t, reply, got)
	}
}

func TestGateEnds(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	blocking := testHandler{gate: func(ctx context.Context, _ GateRequest) GateReply {
		entered <- struct{}{}
		<-ctx.Done()
		left <- struct{}{}
		return GateReply{}
	}}
	ask := func(ctx context.Context, dir string, r GateRequest) chan error {
		result := make(chan error, 1)
		go func() {
			_, err := AskGate(ctx, dir, r)
			result <- err
		}()
		return result
	}
	t.Run("client goes away", func(t *testing.T) {
		dir := newDir(t)
		serve(t, dir, blocking)
		ctx, cancel := context.WithCancel(t.Context())
		result := ask(ctx, dir, GateRequest{JobID: 1})
		<-entered
		cancel()
		assert.ErrorIs(t, <-result, context.Canceled)
		<-left
	})
	t.Run("deadline", func(t *testing.T) {
		dir := newDir(t)
		serve(t, dir, blocking)
		result := ask(t.Context(), dir, GateRequest{JobID: 1, Deadline: time.Now()})
		<-entered
		<-left
		assert.NoError(t, <-result, "the handler's reply still arrives")
	})
	t.Run("server stops", func(t *testing.T) {
		dir := newDir(t)
		stop := serve(t, dir, blocking)
		result := ask(t.Context(), dir, GateRequest{JobID: 1})
		<-entered
		go stop()
		<-left
		if err := <-result; err != nil { // the handler's reply may be faster than the end of the connection
			assert.ErrorContains(t, err, "asking bridge: ")
		}
	})
	t.Run("handler panics", func(t *testing.T) {
		dir := newDir(t)
		serve(t, dir, testHandler{gate: func(context.Context, GateRequest) GateReply { panic("on purpose") }})
		reply, err := AskGate(t.Context(), dir, GateRequest{JobID: 1})
		require.NoError(t, err)
		assert.Equal(t, GateReply{Reason: "the bridge failed"}, reply)
	})
}

func TestThousandGates(t *testing.T) {
	dir := newDir(t)
	const gates = 2000
	waiting, open := make(chan struct{}, gates), make(chan struct{})
	serve(t, dir, testHandler{
		gate: func(context.Context, GateRequest) GateReply {
			waiting <- struct{}{}
			<-open
			return GateReply{Ready: true}
		},
		status: func(context.Context) (json.RawMessage, error) { return json.RawMessage(`1`), nil },
	})
	var wg sync.WaitGroup
	for i := range gates {
		wg.Go(func() {
			reply, err := AskGate(t.Context(), dir, GateRequest{JobID: uint32(i + 1)})
			assert.True(t, reply.Ready, "%v", err)
		})
	}
	for range gates {
		<-waiting
	}
	_, err := AskStatus(t.Context(), dir)
	require.NoError(t, err, "gates do not keep others out")
	close(open)
	wg.Wait()
}

func TestTooManyGates(t *testing.T) {
	s := &server{handler: testHandler{}, log: slog.New(slog.DiscardHandler)}
	s.gates.Store(maxGates)
	client, far := net.Pipe()
	s.wg.Go(func() { s.serve(t.Context(), far) })
	_, err := converse(t.Context(), client, question{Op: opGate, Gate: &GateRequest{JobID: 1}}, time.Minute)
	require.ErrorContains(t, err, "the bridge holds too many start gates")
	s.wg.Wait()
	assert.EqualValues(t, maxGates, s.gates.Load())

	s.conns.Store(maxConns + 1)
	client, far = net.Pipe()
	s.wg.Go(func() { s.serve(t.Context(), far) })
	line, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Contains(t, string(line), "the bridge has too many connections")
	s.wg.Wait()
}

func TestBadQuestions(t *testing.T) {
	tests := map[string]struct{ line, answer string }{
		"garbage":     {"GET / HTTP/1.1\r\n\r\n", "bad question"},
		"unknown":     {`{"op":"dance"}`, `unknown question \"dance\"`},
		"empty":       {`{}`, "unknown question"},
		"gate of air": {`{"op":"gate"}`, "unknown question"},
		"endless":     {`{"op":"` + strings.Repeat("x", 2*maxQuestion), "bad question"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &server{handler: testHandler{}, log: slog.New(slog.DiscardHandler)}
			client, far := net.Pipe()
			s.wg.Go(func() { s.serve(t.Context(), far) })
			go func() { _, _ = io.WriteString(client, test.line) }()
			line, err := io.ReadAll(client)
			require.NoError(t, err)
			assert.Contains(t, string(line), test.answer)
			s.wg.Wait()
			client.Close()
		})
	}
}

func TestSilence(t *testing.T) {
	t.Run("a client that asks nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{handler: testHandler{}, log: slog.New(slog.DiscardHandler)}
			client, far := net.Pipe()
			defer client.Close()
			begin := time.Now()
			s.wg.Go(func() { s.serve(t.Context(), far) })
			_, _ = io.ReadAll(client)
			s.wg.Wait()
			assert.Equal(t, askWait, time.Since(begin))
		})
	})
	t.Run("a bridge that hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client, far := net.Pipe()
			defer far.Close()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			begin := time.Now()
			_, err := converse(t.Context(), client, question{Op: opGate}, silence)
			client.Close()
			require.EqualError(t, err, "asking bridge: the bridge said nothing for 15s")
			assert.Equal(t, silence, time.Since(begin))
		})
	})
	t.Run("a long wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{log: slog.New(slog.DiscardHandler), handler: testHandler{gate: func(context.Context, GateRequest) GateReply {
				time.Sleep(time.Hour)
				return GateReply{Ready: true}
			}}}
			client, far := net.Pipe()
			s.wg.Go(func() { s.serve(t.Context(), far) })
			begin := time.Now()
			a, err := converse(t.Context(), client, question{Op: opGate, Gate: &GateRequest{JobID: 1}}, silence)
			client.Close()
			require.NoError(t, err)
			assert.True(t, a.Gate.Ready)
			assert.Equal(t, time.Hour, time.Since(begin))
			s.wg.Wait()
		})
	})
}

func TestListen(t *testing.T) {
	t.Run("one at a time", func(t *testing.T) {
		dir := newDir(t)
		_, err := Open(dir)
		require.NoError(t, err)
		first, err := Listen(dir)
		require.NoError(t, err)
		info, err := os.Stat(layout{dir}.socket())
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		_, err = Listen(dir)
		require.ErrorContains(t, err, fmt.Sprintf("another bridge (process %d) serves spool %s", os.Getpid(), dir))
		require.NoError(t, first.Close())
		require.ErrorIs(t, first.Close(), net.ErrClosed)
		second, err := Listen(dir)
		require.NoError(t, err)
		require.NoError(t, second.Close())
	})
	t.Run("stale socket", func(t *testing.T) {
		dir := newDir(t)
		_, err := Open(dir)
		require.NoError(t, err)
		stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: layout{dir}.socket(), Net: "unix"})
		require.NoError(t, err)
		stale.SetUnlinkOnClose(false)

		_, err = Listen(dir)
		require.ErrorContains(t, err, "somebody answers on")
		require.NoError(t, stale.Close())
		l, err := Listen(dir)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	})
	t.Run("not a socket", func(t *testing.T) {
		dir := newDir(t)
		_, err := Open(dir)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(layout{dir}.socket(), nil, 0o600))
		_, err = Listen(dir)
		assert.ErrorContains(t, err, "is not a socket; move it away")
	})
	t.Run("no spool", func(t *testing.T) {
		_, err := Listen(newDir(t))
		assert.ErrorIs(t, err, os.ErrNotExist)
	})
}

func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30), "spool")
	poked := make(chan struct{}, 1)
	stop := serve(t, dir, testHandler{
		poked:  func() { poked <- struct{}{} },
		gate:   func(context.Context, GateRequest) GateReply { return GateReply{Ready: true} },
		status: func(context.Context) (json.RawMessage, error) { return json.RawMessage(`1`), nil },
	})
	require.NoError(t, Poke(dir))
	<-poked
	reply, err := AskGate(t.Context(), dir, GateRequest{JobID: 1})
	require.NoError(t, err)
	assert.True(t, reply.Ready)
	_, err = AskStatus(t.Context(), dir)
	require.NoError(t, err)
	_, err = Listen(dir)
	require.ErrorContains(t, err, "another bridge")
	stop()
	assert.NoFileExists(t, layout{dir}.socket())
}

func TestExplain(t *testing.T) {
	dir := newDir(t)
	serve(t, dir, testHandler{explain: func(question json.RawMessage) (json.RawMessage, error) {
		if string(question) != `{"job":7}` {
			return nil, errors.New("asked for " + string(question))
		}
		return json.RawMessage(`{"told":[1]}`), nil
	}})
	told, err := AskExplain(t.Context(), dir, json.RawMessage(`{"job":7}`))
	require.NoError(t, err)
	assert.JSONEq(t, `{"told":[1]}`, string(told))
	_, err = AskExplain(t.Context(), dir, json.RawMessage(`{}`))
	require.EqualError(t, err, "asking bridge: asked for {}")
}
