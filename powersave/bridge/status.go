package bridge

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// nextStatus is when publish has something to do, if it has. Before Slurm has been read there is only that to tell.
func (b *Bridge) nextStatus() (next time.Time, due bool) {
	switch {
	case !b.engine.SlurmRead() && b.engine.Unread() == "", b.lease.Leading && !b.knows():
		return next, false
	case b.dirty:
		return b.statusAt, true
	}
	next, due = b.checkAt, b.lease.Leading
	for _, at := range b.retries {
		if !due || at.Before(next) {
			next, due = at, true
		}
	}
	return next, due
}

// knows says that the figures of a bridge that leads may be written: all pods are in them, and they were read from Slurm since it leads, for the bridge that led before
// may have written newer ones than those of up to a minute ago. That one of the two cannot be read is told all the same.
func (b *Bridge) knows() bool {
	return (b.podsRead || b.watchError != "") && (b.readLeading() || b.engine.Unread() != "")
}

func (b *Bridge) readLeading() bool { return !b.engine.Reads().SlurmAt.Before(b.leadsFrom) }

// publish writes NodeSet status that has changed, at most every statusPause.
func (b *Bridge) publish(ctx context.Context) {
	now := time.Now()
	if next, due := b.nextStatus(); !due || now.Before(next) {
		return
	}
	b.dirty, b.statusAt = false, now.Add(statusPause)
	counts := b.engine.Counts()
	b.History.Add(b.recorder.Counts(now, counts)...)
	hosted := b.engine.Hosted()
	if b.OthersHosted != nil {
		hosted = append(hosted, b.OthersHosted()...)
	}
	b.Metrics.figures(now, counts, b.others(), hosted, len(b.gates))
	b.Metrics.underWay(b.engine.InHand())
	if b.OnCounts != nil {
		b.OnCounts(counts)
	}
	if !b.lease.Leading {
		clear(b.retries)
		return
	}
	if !now.Before(b.checkAt) {
		clear(b.sent)
		b.checkAt = now.Add(statusCheck)
	}
	for _, c := range counts {
		if !b.readLeading() {
			c.Unread = c.Nodes // what stands there is nearer to the truth
		}
		if !b.podsRead {
			c.Breakers = nil // nor is anything known of the nodes of offerings
		}
		switch {
		case b.writing[c.Name]:
			b.dirty = true // two writes at once could land in the wrong order
			continue
		case now.Before(b.retries[c.Name]):
			continue
		case reflect.DeepEqual(b.sent[c.Name], c):
			continue
		}
		delete(b.retries, c.Name)
		b.sent[c.Name], b.writing[c.Name] = c, true
		b.calls.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			b.at(StepStatus)
			err := b.Kubernetes.UpdateStatus(ctx, c)
			b.at(StepStatusDone)
			b.inbox.Put(func(context.Context) {
				delete(b.writing, c.Name)
				if err != nil {
					b.Log.Warn("writing NodeSet status", "nodeset", c.Name, "error", err)
					delete(b.sent, c.Name)
					b.retries[c.Name] = time.Now().Add(statusRetry)
				}
			})
		})
	}
	gone := func(name string) bool {
		return !slices.ContainsFunc(counts, func(c powersave.NodeSetCounts) bool { return c.Name == name })
	}
	maps.DeleteFunc(b.sent, func(name string, _ powersave.NodeSetCounts) bool { return gone(name) })
	maps.DeleteFunc(b.retries, func(name string, _ time.Time) bool { return gone(name) })
}
