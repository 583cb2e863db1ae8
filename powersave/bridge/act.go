package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// act carries out one action. Whatever takes long comes back as an event.
func (b *Bridge) act(ctx context.Context, a powersave.Action) {
	switch a := a.(type) {
	case powersave.CreatePod:
		b.calls.Go(func() {
			select {
			case b.creates <- struct{}{}:
				b.tell(b.create(ctx, a))
				<-b.creates
			case <-ctx.Done():
			}
		})
	case powersave.DeletePod:
		requests := b.engine.Requests(a.Node)
		b.calls.Go(func() {
			late := time.NewTimer(time.Until(a.Before))
			defer late.Stop()
			select {
			case b.deletes <- struct{}{}:
				b.tell(b.delete(ctx, a, requests))
				<-b.deletes
			case <-late.C:
				b.tell(powersave.PodDeleteFailed{Node: a.Node, UID: a.UID, Late: true})
			case <-ctx.Done():
			}
		})
	case powersave.MarkPod:
		b.calls.Go(func() {
			select {
			case b.marks <- struct{}{}:
				b.tell(b.mark(ctx, a))
				<-b.marks
			case <-ctx.Done():
			}
		})
	case powersave.TaintHost:
		b.calls.Go(func() {
			select {
			case b.marks <- struct{}{}:
				b.tell(b.taintHost(ctx, a))
				<-b.marks
			case <-ctx.Done():
			}
		})
	case powersave.UpdateNodes:
		requests := b.engine.Requests(a.Update.Nodes...)
		b.calls.Go(func() {
			for _, ev := range b.update(ctx, a.Update, requests) {
				b.tell(ev)
			}
		})
	case powersave.ReadSlurm:
		b.calls.Go(func() { b.tell(b.read(ctx, a)) })
	case powersave.TellJob:
		b.calls.Go(func() { b.tell(b.tellJob(ctx, a)) })
	case powersave.HoldJob:
		b.calls.Go(func() { b.tell(b.holdJob(ctx, a)) })
	case powersave.ReadBacks:
		b.calls.Go(func() { b.tell(b.readBacks(ctx)) })
	case powersave.AskRoom:
		b.calls.Go(func() {
			select {
			case b.creates <- struct{}{}:
				b.tell(b.askRoom(ctx, a))
				<-b.creates
			case <-ctx.Done():
			}
		})
	case powersave.ReadRooms:
		b.calls.Go(func() { b.tell(b.readRooms(ctx)) })
	case powersave.DropRoom:
		b.calls.Go(func() {
			select {
			case b.deletes <- struct{}{}:
				b.tell(b.dropRoom(ctx, a))
				<-b.deletes
			case <-ctx.Done():
			}
		})
	case powersave.BootFailed:
		b.bootFailed(a)
	case powersave.FloorShort:
		b.Log.Warn("floor not reached", "nodeset", a.NodeSet, "reason", a.Why, "text", a.Text)
		b.Kubernetes.Warn(a.NodeSet, "", "", "FloorNotReached", fmt.Sprintf("%s: %s", a.Why, a.Text))
	case powersave.JobsLost:
		b.Kubernetes.Warn(a.NodeSet, a.Node, "", "JobsLost", fmt.Sprintf("node %s: %s: it is powered down, its jobs are requeued if they may be", a.Node, a.Why))
	case powersave.FinishRequest:
		b.Log.Info("request finished", "request", a.ID)
		if b.Traces != nil {
			b.Traces.Finished(time.Now(), a.ID)
		}
		b.finish(ctx, a.ID)
	case powersave.AnswerGate:
		b.at(StepGate)
		if g, waiting := b.gates[a.ID]; waiting {
			delete(b.gates, a.ID)
			if a.Ready {
				b.jobStarts(g.nodes)
			}
			g.reply <- spool.GateReply{Ready: a.Ready, Reason: a.Reason, Notify: a.Notify}
		}
	case powersave.BootDone:
		b.at(StepRegistered)
		t := a.Boot.Times
		b.Metrics.boot(a.Boot)
		b.Log.Info("node registered", "node", a.Boot.Node, "nodeset", a.Boot.NodeSet, "request", a.Boot.Request, "jobs", a.Boot.Jobs,
			"host", a.Boot.Host, "took", t.Registered.Sub(t.Requested).Round(time.Millisecond))
	case powersave.GangDone:
		b.Metrics.gang(time.Now(), a)
	case powersave.Report:
		level := map[powersave.ReportLevel]slog.Level{powersave.Info: slog.LevelInfo, powersave.Warn: slog.LevelWarn, powersave.Fault: slog.LevelError}[a.Level]
		b.Log.Log(ctx, level, a.Text, "node", a.Node, "nodeset", a.NodeSet, "request", a.Request)
	}
}

// jobStarts counts a job by the NodeSet of its first node that has one; jobs on nodes of none are not ours.
func (b *Bridge) jobStarts(nodes slurmconf.Hostlist) {
	for name := range nodes.All() {
		if set := b.engine.NodeSetOf(name); set != "" {
			b.Metrics.start(set)
			return
		}
	}
}

func (b *Bridge) create(ctx context.Context, a powersave.CreatePod) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.at(StepCreate)
	uid, err := b.Kubernetes.Create(ctx, a)
	b.at(StepCreated)
	b.Metrics.podCall("create", err)
	if err == nil {
		b.Log.Info("pod created", "node", a.Node, "nodeset", a.NodeSet, "request", a.Request, "uid", uid)
		return powersave.PodCreated{Node: a.Node, UID: uid, Generation: a.Generation}
	}
	failed := powersave.PodCreateFailed{Node: a.Node, Generation: a.Generation, Trouble: troubleOf(err), Everywhere: everywhere(err), Err: err.Error()}
	var permanent interface{ Permanent() bool }
	if errors.As(err, &permanent) {
		failed.Permanent = permanent.Permanent()
	}
	var exists interface{ ExistingPod() (powersave.Pod, bool) }
	if errors.As(err, &exists) {
		if pod, ok := exists.ExistingPod(); ok {
			failed.Existing = &pod
		}
	}
	return failed
}

func (b *Bridge) delete(ctx context.Context, a powersave.DeletePod, requests []string) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	b.at(StepDelete)
	gone, err := b.Kubernetes.Delete(ctx, a.Node, a.UID)
	b.at(StepDeleted)
	b.Metrics.podCall("delete", err)
	if err != nil {
		return powersave.PodDeleteFailed{Node: a.Node, UID: a.UID, Err: err.Error()}
	}
	b.Log.Info("pod deletion", "node", a.Node, "uid", a.UID, "why", a.Why, "gone", gone, "requests", requests)
	return powersave.PodDeleted{Node: a.Node, UID: a.UID, Gone: gone}
}

func (b *Bridge) mark(ctx context.Context, a powersave.MarkPod) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.at(StepMark)
	err := b.Kubernetes.Mark(ctx, a)
	b.at(StepMarked)
	b.Metrics.podCall("mark", err)
	if err != nil {
		return powersave.PodMarked{MarkPod: a, Err: err.Error()}
	}
	return powersave.PodMarked{MarkPod: a}
}

func (b *Bridge) taintHost(ctx context.Context, a powersave.TaintHost) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.at(StepTaint)
	err := b.Kubernetes.TaintHost(ctx, a)
	b.at(StepTainted)
	b.Metrics.hostMark(err)
	if err != nil {
		return powersave.HostTainted{TaintHost: a, Err: err.Error()}
	}
	return powersave.HostTainted{TaintHost: a}
}

// update answers for all of the update's nodes, in one event or in two.
func (b *Bridge) update(ctx context.Context, u powersave.NodeUpdate, requests []string) []powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.at(StepUpdate)
	var events []powersave.Event
	var err error
	if u.LooksFirst() {
		kept := u
		if u.Nodes, kept.Nodes, err = b.look(ctx, u); len(kept.Nodes) > 0 {
			events = append(events, powersave.NodesUpdated{Update: kept, Err: "somebody else has taken them out of use just now"})
		}
	}
	if len(u.Nodes) == 0 {
		return events
	}
	if err == nil {
		err = b.Slurm.UpdateNodes(ctx, u)
	}
	b.at(StepUpdated)
	b.Metrics.slurmCall("update", err)
	if err != nil {
		return append(events, powersave.NodesUpdated{Update: u, Err: err.Error()})
	}
	level := slog.LevelInfo
	if u.State == powersave.StateRenew { // every few seconds
		level = slog.LevelDebug
	}
	b.Log.Log(ctx, level, "nodes updated", "update", u.String(), "reason", u.Reason, "requests", requests)
	return append(events, powersave.NodesUpdated{Update: u})
}

// look tells the update's nodes from those that a person has a say in. What slurmctld does not know, it says itself.
func (b *Bridge) look(ctx context.Context, u powersave.NodeUpdate) (ours, others []string, err error) {
	nodes, err := b.Slurm.Nodes(ctx, u.Nodes...)
	if _, partial := missingNodes(err); err != nil && !partial {
		return u.Nodes, nil, err
	}
	for _, n := range nodes {
		if !u.MayReach(n) {
			others = append(others, n.Name)
		}
	}
	return slices.DeleteFunc(slices.Clone(u.Nodes), func(name string) bool { return slices.Contains(others, name) }), others, nil
}

func (b *Bridge) read(ctx context.Context, a powersave.ReadSlurm) powersave.Event {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	b.at(StepRead)
	nodes, err := b.Slurm.Nodes(ctx, a.Nodes...)
	b.at(StepReadDone)
	unknown, partial := missingNodes(err)
	if partial {
		err = nil
	}
	b.Metrics.slurmCall("read", err)
	if err != nil {
		return powersave.SlurmReadFailed{Err: err.Error()}
	}
	return powersave.SlurmRead{Complete: len(a.Nodes) == 0, Nodes: nodes, Unknown: unknown}
}
