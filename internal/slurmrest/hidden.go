package slurmrest

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/golang-jwt/jwt/v5"

	"github.com/slurmtide/slurmtide/internal/slurmrest/answer"
)

// mostLooked is how many jobs that were not shown are asked for one by one.
const mostLooked = 4

// HiddenJob looks for a job that waits or runs and that slurmctld keeps from the token's user, who is named if the token tells: one that is not
// among those shown, nor shown when it is asked for alone. 0: there is none.
//
// With PrivateData=jobs slurmctld leaves the jobs of others out of its answers to users who are no operators, without a word
// (job_mgr.c _hide_job_user_rec, pack_one_job), but tells the states of all jobs to everybody (job_state.c dump_job_state has no user).
// If a Slurm to come hides these as well, no job looks hidden any more.
func (c *Client) HiddenJob(ctx context.Context, shown map[uint32]bool) (job uint32, user string, err error) {
	states, err := c.jobStates(ctx, nil)
	if err != nil {
		return 0, "", err
	}
	// Jobs may have come, or have started as an array's task, since those shown were read. Such IDs are higher than those that are always missing.
	looked := 0
	for _, id := range slices.Sorted(maps.Keys(states)) {
		if !states[id].active || shown[id] {
			continue
		}
		if looked++; looked > mostLooked {
			break
		}
		visible, err := c.showsJob(ctx, id)
		if err != nil {
			return 0, "", err
		}
		if visible {
			continue
		}
		again, err := c.jobStates(ctx, []uint32{id})
		if err != nil {
			return 0, "", err
		}
		if again[id].active { // else it has ended, and is forgotten
			return id, c.tokenUser(ctx), nil
		}
	}
	return 0, "", nil
}

// showsJob reports whether slurmctld has the job, as far as the token's user may know.
func (c *Client) showsJob(ctx context.Context, id uint32) (bool, error) {
	err := c.do(ctx, oneJob(id, answer.DecodeEnvelope))
	var e *Error
	if errors.As(err, &e) && e.Number == errInvalidJobID {
		return false, nil
	}
	return true, err
}

// tokenUser is whom Slurm takes the token's bearer for; empty: the token does not tell.
func (c *Client) tokenUser(ctx context.Context) string {
	token, err := c.token(ctx, "")
	if err != nil {
		return ""
	}
	claims := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(token, claims); err != nil {
		return ""
	}
	user, _ := claims["sun"].(string) // as in KeyFile
	return user
}
