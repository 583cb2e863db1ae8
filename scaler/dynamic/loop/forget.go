package loop

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/scaler/dynamic"
)

// claimed is who names nodes, as last read for records that are to go. Orders that were given together share a read.
type claimed struct {
	mu    sync.Mutex
	began time.Time // of the read; zero: there was none
	named dynamic.Named
}

// since reads jobs, if they have changed since the time that QueueJobs returned, and reservations, unless somebody has done that after the order was given.
func (c *claimed) since(ctx context.Context, slurm Slurm, given, jobsAt time.Time) (dynamic.Named, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return dynamic.Named{}, err
	}
	if !c.began.IsZero() && !c.began.Before(given) {
		return c.named, nil
	}
	began := time.Now()
	reservations, err := slurm.Reservations(ctx)
	if err != nil {
		return dynamic.Named{}, err
	}
	jobs, _, err := slurm.QueueJobs(ctx, jobsAt)
	if err != nil {
		return dynamic.Named{}, err
	}
	c.began, c.named = began, dynamic.NamedBy(jobs, reservations)
	return c.named, nil
}

// mayForget fails if somebody has a use for a record that is to go: jobs and reservations that came after the read, or the node itself.
func (l *Loop) mayForget(ctx context.Context, a dynamic.DeleteRecord, given, jobsAt time.Time) error {
	named, err := l.claimed.since(ctx, l.Slurm, given, jobsAt)
	if err != nil {
		return err
	}
	if by := named.By(a.Node); by != "" {
		return fmt.Errorf("%s by now", by)
	}
	nodes, err := l.Slurm.Nodes(ctx, a.Node)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if !a.MayForget(n) {
			return fmt.Errorf("Slurm shows the node %s by now", n.State)
		}
	}
	return nil
}
