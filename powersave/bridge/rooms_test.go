package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// autoscaler keeps requests; its first answers are lost.
type autoscaler struct {
	mu    sync.Mutex
	lose  int
	rooms map[string]powersave.Room
	asked []powersave.RoomRequest
}

var errLost = errors.New("the answer was lost")

func (a *autoscaler) lost() error {
	if a.lose == 0 {
		return nil
	}
	a.lose--
	return errLost
}

func (a *autoscaler) Ask(_ context.Context, r powersave.RoomRequest) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := fmt.Sprintf("job-%d-%d", r.Job, r.Attempt)
	if _, exists := a.rooms[name]; !exists {
		a.rooms[name] = powersave.Room{Name: name, Job: r.Job, Attempt: r.Attempt, State: powersave.RoomAccepted}
		a.asked = append(a.asked, r)
	}
	return name, a.lost()
}

func (a *autoscaler) List(context.Context) (all []powersave.Room, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.rooms {
		all = append(all, r)
	}
	return all, a.lost()
}

func (a *autoscaler) Drop(_ context.Context, name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.rooms, name)
	return nil
}

func (a *autoscaler) set(state powersave.RoomState, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, r := range a.rooms {
		r.State, r.Message = state, message
		a.rooms[name] = r
	}
}

// forbidden refuses everything.
type forbidden struct {
	*autoscaler
	err error
}

func (f forbidden) Ask(context.Context, powersave.RoomRequest) (string, error) { return "", f.err }
func (f forbidden) List(context.Context) ([]powersave.Room, error)             { return nil, f.err }

// The engine is told whether only this request is refused, or nothing can be asked for.
func TestRoomThatIsRefused(t *testing.T) {
	for _, everywhere := range []bool{false, true} {
		b := New(Config{Rooms: forbidden{err: fmt.Errorf("asking: %w", refused{everywhere})}, Log: slog.New(slog.DiscardHandler)})
		asked := b.askRoom(t.Context(), powersave.AskRoom{Request: powersave.RoomRequest{Job: 7, Attempt: 5}})
		assert.Equal(t, powersave.RoomAsked{Job: 7, Attempt: 5, Everywhere: everywhere, Err: "asking: refused"}, asked)
		assert.Equal(t, powersave.RoomsRead{Everywhere: everywhere, Err: "asking: refused"}, b.readRooms(t.Context()))
	}
}

func TestRooms(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chmod700(dir))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		scaler := &autoscaler{rooms: map[string]powersave.Room{}, lose: 2}
		w.rooms = scaler
		b, stop := w.start(t, dir)
		defer stop()
		nodes, err := slurmconf.ParseHostlist("cpu-[0-9]")
		require.NoError(t, err)
		b.NodeSets([]powersave.NodeSet{{Name: "cpu", Nodes: nodes, AskForRoom: true}})
		pass(time.Second)

		w.set(booting, "cpu-0", "cpu-1")
		submit(t, dir, spool.KindResume, "cpu-[0-1]", jobFile)
		b.Poked()
		pass(10 * time.Second)
		require.Len(t, scaler.asked, 1, "answers that are lost do not make more requests")
		assert.Equal(t, []powersave.RoomSet{{NodeSet: "cpu", Pods: 2}}, scaler.asked[0].Sets)
		w.look(func() { assert.Zero(t, w.creates, "there is no room yet") })

		scaler.set(powersave.RoomProvisioned, "two hosts")
		pass(5 * time.Second)
		w.look(func() { assert.Equal(t, 2, w.creates) })
		assert.Empty(t, scaler.rooms, "the job has its nodes")
		assert.Equal(t, 0, pending(t, b))
	})
}
