package slurmrest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	v0043 "github.com/SlinkyProject/slurm-client/api/v0043"
	v0044 "github.com/SlinkyProject/slurm-client/api/v0044"
	v0045 "github.com/SlinkyProject/slurm-client/api/v0045"

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
	"github.com/slurmtide/slurmtide/powersave"
)

// reservation is what is made of, or of one that is there changed to. Root's jobs alone could use it: slurmctld wants somebody to be named.
type reservation struct {
	name       string
	nodes      []string
	begin, end time.Time // begin zero: as it is
}

const reservedFor = "root"

// Reserved returns every reservation by its name, also those that begin later.
func (c *Client) Reserved(ctx context.Context) (map[string]powersave.Reserve, error) {
	r, err := c.readReservations(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]powersave.Reserve, len(r.Nodes))
	for name, nodes := range r.Nodes {
		all[name] = powersave.Reserve{Nodes: nodes, Begin: r.Starts[name], End: r.Ends[name]}
	}
	return all, nil
}

// Reserve makes a reservation with the flags MAINT and IGNORE_JOBS, or changes the one of that name: jobs that run on its nodes run on, and no
// job that would run into it is started on them (reservation.c). A zero begin leaves that as it is, which must be so once it has begun.
//
// slurmrestd offers it from v0.0.43 (Slurm 25.05) only; with earlier ones the error has NotOffered() bool.
func (c *Client) Reserve(ctx context.Context, name string, nodes []string, begin, end time.Time) error {
	if err := reservable(name); err != nil {
		return err
	}
	if _, bad := splitNames(nodes); bad != nil || len(nodes) == 0 {
		return fmt.Errorf("reserve (%s): %q are no names of nodes", name, nodes)
	}
	return c.do(ctx, call{
		op: "reserve", detail: name, repeatable: true, read: answer.DecodeEnvelope,
		build: func(a *api) request {
			if a.reserve == nil {
				return nil
			}
			return a.reserve(reservation{name, nodes, begin, end})
		},
	})
}

// Unreserve removes a reservation; one that is not there is removed. slurmrestd offers it as it does Reserve.
func (c *Client) Unreserve(ctx context.Context, name string) error {
	if err := reservable(name); err != nil {
		return err
	}
	err := c.do(ctx, call{
		op: "remove reservation", detail: name, repeatable: true, read: answer.DecodeEnvelope,
		build: func(a *api) request {
			if a.unreserve == nil {
				return nil
			}
			return a.unreserve(name)
		},
	})
	var e *Error
	if errors.As(err, &e) && e.Number == errReservationInvalid {
		return nil
	}
	return err
}

func reservable(name string) error {
	if name == "" || strings.ContainsAny(name, "/,= \t\r\n") {
		return fmt.Errorf("%q is no reservation's name", name)
	}
	return nil
}

func reserveV0043(r reservation) request {
	body := v0043.V0043ReservationDescMsg{
		Name: &r.name, NodeList: &r.nodes, Users: &[]string{reservedFor},
		Flags:   &[]v0043.V0043ReservationDescMsgFlags{v0043.V0043ReservationDescMsgFlagsMAINT, v0043.V0043ReservationDescMsgFlagsIGNOREJOBS},
		EndTime: &v0043.V0043Uint64NoValStruct{Set: ptr(true), Number: ptr(r.end.Unix())},
	}
	if !r.begin.IsZero() {
		body.StartTime = &v0043.V0043Uint64NoValStruct{Set: ptr(true), Number: ptr(r.begin.Unix())}
	}
	return func(s string) (*http.Request, error) { return v0043.NewSlurmV0043PostReservationRequest(s, body) }
}

func reserveV0044(r reservation) request {
	body := v0044.V0044ReservationDescMsg{
		Name: &r.name, NodeList: &r.nodes, Users: &[]string{reservedFor},
		Flags:   &[]v0044.V0044ReservationDescMsgFlags{v0044.V0044ReservationDescMsgFlagsMAINT, v0044.V0044ReservationDescMsgFlagsIGNOREJOBS},
		EndTime: &v0044.V0044Uint64NoValStruct{Set: ptr(true), Number: ptr(r.end.Unix())},
	}
	if !r.begin.IsZero() {
		body.StartTime = &v0044.V0044Uint64NoValStruct{Set: ptr(true), Number: ptr(r.begin.Unix())}
	}
	return func(s string) (*http.Request, error) { return v0044.NewSlurmV0044PostReservationRequest(s, body) }
}

func reserveV0045(r reservation) request {
	body := v0045.V0045ReservationDescMsg{
		Name: &r.name, NodeList: &r.nodes, Users: &[]string{reservedFor},
		Flags:   &[]v0045.V0045ReservationDescMsgFlags{v0045.V0045ReservationDescMsgFlagsMAINT, v0045.V0045ReservationDescMsgFlagsIGNOREJOBS},
		EndTime: &v0045.V0045Uint64NoValStruct{Set: ptr(true), Number: ptr(r.end.Unix())},
	}
	if !r.begin.IsZero() {
		body.StartTime = &v0045.V0045Uint64NoValStruct{Set: ptr(true), Number: ptr(r.begin.Unix())}
	}
	return func(s string) (*http.Request, error) { return v0045.NewSlurmV0045PostReservationRequest(s, body) }
}
