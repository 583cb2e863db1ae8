package slurmrest

import (
	"context"
	"errors"
	"slices"

	"github.com/slurmtide/slurmtide/powersave"
)

// renewAtOnce bounds the nodes of one renewal, so that little time lies between the look at them and the update.
const renewAtOnce = 16

// renew lets the idle time of nodes begin anew: state IDLE on an idle node sets its last_busy, and nothing else (node_mgr.c
// update_node). On one that was drained or failed meanwhile it would take that back, and Slurm has no update with a condition: so
// each node is looked at just before, and left alone unless it is plainly idle. slurmctld refuses it for nodes that have got a job.
func (c *Client) renew(ctx context.Context, names []string) error {
	good, bad := splitNames(names)
	var problems []error
	if bad != nil {
		problems = append(problems, &NotFoundError{Names: bad})
	}
	for chunk := range slices.Chunk(good, renewAtOnce) {
		nodes, err := c.Nodes(ctx, chunk...)
		if err != nil {
			problems = append(problems, err)
		}
		idle := powersave.NodeUpdate{State: powersave.StateRenew}
		for _, n := range nodes {
			if n.PlainlyIdle() {
				idle.Nodes = append(idle.Nodes, n.Name)
			}
		}
		if len(idle.Nodes) == 0 {
			continue
		}
		if err := c.update(ctx, idle); err != nil && !IsInvalidTransition(err) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}
