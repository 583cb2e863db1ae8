package bridge

import (
	"context"
	"errors"

	"github.com/slurmtide/slurmtide/powersave"
)

// Rooms is what the bridge needs of a cluster's autoscaler. Errors may have the methods Trouble() powersave.Trouble,
// Everywhere() bool, and OfJob() bool: the job asks for what cannot be asked for.
type Rooms interface {
	// Ask makes the request and returns its name; one that exists already is success.
	Ask(ctx context.Context, r powersave.RoomRequest) (name string, err error)
	// List returns all requests of the Slurm cluster.
	List(ctx context.Context) ([]powersave.Room, error)
	// Drop removes a request. One that is gone is no error.
	Drop(ctx context.Context, name string) error
}

func (b *Bridge) askRoom(ctx context.Context, a powersave.AskRoom) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := powersave.RoomAsked{Job: a.Request.Job, Attempt: a.Request.Attempt}
	b.at(StepAskRoom)
	name, err := b.Rooms.Ask(ctx, a.Request)
	b.at(StepRoomAsked)
	b.Metrics.podCall("ask_room", err)
	if err != nil {
		var own interface{ OfJob() bool }
		asked.Err, asked.Trouble, asked.Everywhere = err.Error(), troubleOf(err), everywhere(err)
		asked.OfJob = errors.As(err, &own) && own.OfJob()
		b.Log.Warn("asking for room", "job", a.Request.Job, "error", err)
		return asked
	}
	asked.Name = name
	pods := 0
	for _, s := range a.Request.Sets {
		pods += s.Pods
	}
	b.Log.Info("asked for room", "job", a.Request.Job, "pods", pods, "provisioningrequest", name)
	return asked
}

func (b *Bridge) readRooms(ctx context.Context) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rooms, err := b.Rooms.List(ctx)
	b.Metrics.podCall("list_rooms", err)
	if err != nil {
		return powersave.RoomsRead{Err: err.Error(), Trouble: troubleOf(err), Everywhere: everywhere(err)}
	}
	return powersave.RoomsRead{Rooms: rooms}
}

func (b *Bridge) dropRoom(ctx context.Context, a powersave.DropRoom) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.at(StepDropRoom)
	err := b.Rooms.Drop(ctx, a.Name)
	b.at(StepRoomGone)
	b.Metrics.podCall("drop_room", err)
	if err != nil {
		return powersave.RoomDropped{Name: a.Name, Err: err.Error()}
	}
	b.Log.Info("dropped request for room", "provisioningrequest", a.Name)
	return powersave.RoomDropped{Name: a.Name}
}

func troubleOf(err error) powersave.Trouble {
	var class interface{ Trouble() powersave.Trouble }
	if errors.As(err, &class) {
		return class.Trouble()
	}
	return powersave.TroubleNone
}

func everywhere(err error) bool {
	var says interface{ Everywhere() bool }
	return errors.As(err, &says) && says.Everywhere()
}
