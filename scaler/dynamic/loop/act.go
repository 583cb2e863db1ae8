package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/scaler/dynamic"
)

// requestDynamic is what pods of mode Dynamic carry for the request that began them: there is none.
const requestDynamic = "dynamic"

// act begins to carry out actions.
func (l *Loop) act(ctx context.Context, actions []dynamic.Action) {
	var updates []*dynamic.Update // those that differ in their nodes only make one
	for _, a := range actions {
		switch a := a.(type) {
		case dynamic.Report:
			l.reported(a)
			if !a.Warning {
				l.Log.Info(a.Text, "node", a.Node, "nodeset", a.NodeSet)
				continue
			}
			l.Log.Warn(a.Text, "node", a.Node, "nodeset", a.NodeSet)
			l.Kubernetes.Warn(a.NodeSet, a.Node, "", "NodeTrouble", a.Text)
		case dynamic.CreatePod:
			l.do(ctx, l.creates, a, 0, func(ctx context.Context) error {
				uid, err := l.Kubernetes.Create(ctx, powersave.CreatePod{
					Node: a.Node, NodeSet: a.NodeSet, Generation: a.Generation, Request: requestDynamic, Offering: a.Offering,
				})
				if err == nil {
					l.Log.Info("pod created", "node", a.Node, "nodeset", a.NodeSet, "uid", uid)
				}
				return err
			})
		case dynamic.DeletePod:
			l.do(ctx, l.deletes, a, dynamic.ActOn, func(ctx context.Context) error {
				if err := l.mayGo(ctx, a); err != nil {
					return err
				}
				gone, err := l.Kubernetes.Delete(ctx, a.Node, a.UID)
				if err == nil {
					l.Log.Info("pod deletion", "node", a.Node, "uid", a.UID, "why", a.Why, "gone", gone)
				}
				if gone {
					l.PodGone(a.Node, a.UID)
				}
				return err
			})
		case dynamic.DeleteRecord:
			given, jobsAt := time.Now(), l.since
			l.do(ctx, l.updates, a, dynamic.ActOn, func(ctx context.Context) error {
				if err := l.mayForget(ctx, a, given, jobsAt); err != nil {
					return err
				}
				err := l.Slurm.DeleteNode(ctx, a.Node)
				if err == nil {
					l.Log.Info("node record deleted", "node", a.Node, "nodeset", a.NodeSet)
				}
				return err
			})
		case dynamic.MarkPod:
			l.do(ctx, l.updates, a, 0, func(ctx context.Context) error { return l.Kubernetes.Mark(ctx, a.MarkPod) })
		case dynamic.Update:
			i := slices.IndexFunc(updates, func(u *dynamic.Update) bool {
				return u.State == a.State && u.Reason == a.Reason && u.Comment == a.Comment
			})
			if i >= 0 {
				updates[i].Nodes = append(updates[i].Nodes, a.Nodes...)
				continue
			}
			updates = append(updates, &a)
		}
	}
	for _, u := range updates {
		within := time.Duration(0)
		if u.State == powersave.StateDown {
			within = dynamic.ActOn
		}
		l.do(ctx, l.updates, *u, within, func(ctx context.Context) error {
			err := l.Slurm.UpdateNodes(ctx, u.NodeUpdate)
			if err == nil {
				l.Log.Info("nodes updated", "update", u.String(), "reason", u.Reason)
			}
			return err
		})
	}
}

// errLate answers what takes something down and could not begin soon enough.
var errLate = errors.New("it waited for its turn for too long: Slurm is read again first")

// do carries an action out when there is a slot, and tells the planner what came of it. Within is how soon it has to begin; 0: whenever.
// What waits is dropped when this bridge does not lead any more.
func (l *Loop) do(ctx context.Context, slots chan struct{}, a dynamic.Action, within time.Duration, call func(context.Context) error) {
	epoch, over, since := l.epoch, l.over, time.Now()
	l.calls.Go(func() {
		select {
		case slots <- struct{}{}:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
		err := errLate
		switch {
		case closed(over):
		case within > 0 && time.Since(since) > within:
		default:
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			err = call(ctx)
		}
		<-slots
		o := outcome(err)
		l.tell(func() {
			if epoch == l.epoch && l.planner != nil {
				l.done(a, o)
				l.planner.Done(time.Now(), l.asked, a, o)
			}
		})
	})
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// mayGo fails if Slurm uses the node of a pod that is to go.
func (l *Loop) mayGo(ctx context.Context, a dynamic.DeletePod) error {
	nodes, err := l.Slurm.Nodes(ctx, a.Node)
	if err != nil && !missing(err) {
		return err
	}
	for _, n := range nodes {
		if !dynamic.MayGo(n, a.UID) {
			return fmt.Errorf("Slurm shows the node %s by now", n.State)
		}
	}
	return nil
}

func missing(err error) bool { return errors.As(err, new(interface{ MissingNodes() []string })) }

func outcome(err error) (o dynamic.Outcome) {
	if err == nil {
		return o
	}
	o.Err = err.Error()
	var permanent interface{ Permanent() bool }
	if errors.As(err, &permanent) {
		o.Permanent = permanent.Permanent()
	}
	var trouble interface{ Trouble() powersave.Trouble }
	if errors.As(err, &trouble) {
		o.Trouble = trouble.Trouble()
	}
	o.Missing, o.Late = missing(err), errors.Is(err, errLate)
	return o
}

// Counts are the figures of the NodeSets of mode Dynamic, by name; none while another bridge leads.
func (l *Loop) Counts() []powersave.NodeSetCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Hosted are the nodes of those whose pods have a host, likewise.
func (l *Loop) Hosted() []powersave.Hosted {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hosted
}

// Boots are their nodes that have a pod, likewise.
func (l *Loop) Boots() []powersave.Boot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.boots
}

func (l *Loop) show(counts []powersave.NodeSetCounts, hosted []powersave.Hosted, boots []powersave.Boot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts, l.hosted, l.boots = counts, hosted, boots
}

// stale says since when Slurm cannot be read; empty: it can, or could less than a minute ago.
func (l *Loop) stale(now time.Time) string {
	fails := l.lastErr != "" || l.underway && now.Sub(l.askedAt) > powersave.UnreadAfter
	switch never := l.reading == nil; {
	case !fails, never && now.Sub(l.beganAt) <= powersave.UnreadAfter, !never && now.Sub(l.reading.Answered) <= powersave.UnreadAfter:
		return ""
	case never:
		return "Slurm cannot be read, and could not since this bridge leads"
	}
	return "Slurm cannot be read; the last time was at " + l.reading.Answered.UTC().Format("15:04:05Z")
}

// publish writes the status of NodeSets that has changed.
func (l *Loop) publish(ctx context.Context, now time.Time) {
	stale := l.stale(now)
	if l.reading == nil && stale == "" || now.Before(l.statusAt) {
		return
	}
	l.statusAt = now.Add(statusPause)
	counts := l.planner.Counts(stale)
	boots := l.planner.Boots()
	l.show(counts, l.planner.Hosted(stale), boots)
	if l.Passed != nil && boots != nil {
		l.Passed(now, history.Pass{Boots: boots, NodeSets: counts, Said: l.said})
		l.said = nil
	}
	l.Metrics.misses(l.planner.Misses())
	if !now.Before(l.checkAt) {
		clear(l.sent)
		l.checkAt = now.Add(statusCheck)
	}
	for _, c := range counts {
		if l.writing[c.Name] || reflect.DeepEqual(l.sent[c.Name], c) {
			continue
		}
		l.sent[c.Name], l.writing[c.Name] = c, true
		epoch := l.epoch
		l.calls.Go(func() {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			err := l.Kubernetes.UpdateStatus(call, c)
			if err != nil {
				l.Log.Warn("writing NodeSet status", "nodeset", c.Name, "error", err)
				select { // writing keeps the next one back
				case <-time.After(statusRetry):
				case <-ctx.Done():
				}
			}
			l.inbox.Put(func(context.Context) {
				delete(l.writing, c.Name)
				if err != nil && epoch == l.epoch {
					delete(l.sent, c.Name)
				}
			})
		})
	}
	maps.DeleteFunc(l.sent, func(name string, _ powersave.NodeSetCounts) bool {
		return !slices.ContainsFunc(counts, func(c powersave.NodeSetCounts) bool { return c.Name == name })
	})
}
