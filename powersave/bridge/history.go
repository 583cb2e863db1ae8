package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const (
	// toldEntries bounds what is told of one job, node or NodeSet: the newest.
	toldEntries = 20_000
	// explainWait bounds what Slurm may take when somebody asks.
	explainWait = 3 * time.Second
	// jobsAtOnce are asked for one by one; of more, slurmrest reads the whole queue.
	jobsAtOnce = 4
	// jobsEvery second at most are asked for after they have started, in calls of jobsAtOnce.
	jobsEvery = 16
)

// watchJobs notes of each job that boots were made for when it was submitted, soon after it has started: slurmctld forgets it. What cannot be
// read is left out.
func (b *Bridge) watchJobs(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		due := b.recorder.Due(time.Now(), jobsEvery)
		for ids := range slices.Chunk(due, jobsAtOnce) {
			jobs, err := b.askJobs(ctx, ids...)
			if err != nil {
				break
			}
			for _, j := range jobs {
				b.History.Add(history.Seen(time.Now(), j))
			}
		}
	}
}

func (b *Bridge) askJobs(ctx context.Context, ids ...uint32) ([]powersave.SlurmJob, error) {
	ctx, cancel := context.WithTimeout(ctx, explainWait)
	defer cancel()
	jobs, err := b.Slurm.Jobs(ctx, ids...)
	b.Metrics.slurmCall("explain", err)
	return jobs, err
}

// Explain implements spool.Handler: the Answer about a history.Subject.
func (b *Bridge) Explain(ctx context.Context, question json.RawMessage) (json.RawMessage, error) {
	var subject history.Subject
	if err := json.Unmarshal(question, &subject); err != nil {
		return nil, fmt.Errorf("reading what is asked for: %w", err)
	}
	a, err := b.Answer(ctx, subject)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// Answer is what is known of the subject, by the engine, the history and Slurm.
func (b *Bridge) Answer(ctx context.Context, subject history.Subject) (history.Answer, error) {
	a := history.Answer{Subject: subject}
	type state struct {
		engine powersave.Status
		unread string
	}
	got := make(chan state, 1)
	b.inbox.Put(func(context.Context) {
		got <- state{engine: b.engine.Status(time.Now()), unread: b.watchError}
	})
	var st state
	select {
	case st = <-got:
	case <-ctx.Done():
		return a, ctx.Err()
	}
	a.Time, a.KubernetesError = st.engine.Time, st.unread
	for _, boot := range slices.Concat(st.engine.Boots, st.engine.Offs) {
		if boot.Node == a.Node || a.NodeSet != "" && boot.NodeSet == a.NodeSet || slices.Contains(boot.Jobs, a.Job) {
			a.Boots = append(a.Boots, boot)
		}
	}
	b.dynamic(&a)
	var asking sync.WaitGroup // who asks waits a few seconds at most
	asking.Go(func() { b.askSlurm(ctx, &a) })
	if b.History != nil {
		b.History.Flush()
		found, err := history.Read(b.SpoolDir, a.Subject, toldEntries)
		if err != nil {
			b.Log.Warn("history cannot be read", "error", err)
		}
		a.Found = found
	}
	asking.Wait()
	for _, c := range slices.Concat(st.engine.NodeSets, b.others()) {
		if c.Name == a.NodeSet || a.NodeSet == "" && a.In(c.Name) {
			a.NodeSets = append(a.NodeSets, c)
		}
	}
	b.making(&a)
	return a, nil
}

// Passed takes a pass of the loop of mode Dynamic. It belongs to one goroutine, which may be another than that of Run: the first pass has what a bridge before has left read.
func (b *Bridge) Passed(now time.Time, p history.Pass) {
	if b.recorder == nil {
		return
	}
	if b.dynamics == nil {
		var past []history.Entry
		if b.History != nil {
			var err error
			if past, err = history.DynamicIn(b.SpoolDir); err != nil {
				b.Log.Warn("history cannot be read: nodes of mode Dynamic that boot are told of once more", "error", err)
			}
		}
		b.dynamics = history.NewDynamic(past)
	}
	entries := b.dynamics.Pass(now, p)
	b.History.Add(entries...)
	if b.Traces != nil {
		b.Traces.Add(entries...)
	}
}

// making adds to a job that waits the NodeSets of mode Dynamic that make nodes for jobs of its partitions, and those nodes.
func (b *Bridge) making(a *history.Answer) {
	for _, c := range b.others() {
		if len(a.Serves(c)) == 0 {
			continue
		}
		a.Dynamic = true
		if !slices.ContainsFunc(a.NodeSets, func(have powersave.NodeSetCounts) bool { return have.Name == c.Name }) {
			a.NodeSets = append(a.NodeSets, c)
		}
		for _, boot := range b.otherBooting() {
			if boot.NodeSet == c.Name {
				a.Making = append(a.Making, boot)
			}
		}
	}
}

// otherBooting are the nodes of mode Dynamic that have not registered.
func (b *Bridge) otherBooting() (all []powersave.Boot) {
	if b.OthersBoots == nil {
		return nil
	}
	for _, boot := range b.OthersBoots() {
		if boot.Phase != powersave.PhaseRegistered && boot.Phase != powersave.PhaseRemoving {
			all = append(all, boot)
		}
	}
	return all
}

// dynamic adds nodes and NodeSets of mode Dynamic as they are now, which the engine does not know.
func (b *Bridge) dynamic(a *history.Answer) {
	if b.OthersBoots != nil {
		for _, boot := range b.OthersBoots() {
			if boot.Node == a.Node || a.NodeSet != "" && boot.NodeSet == a.NodeSet {
				a.Boots, a.Dynamic = append(a.Boots, boot), true
			}
		}
	}
	for _, c := range b.others() {
		a.Dynamic = a.Dynamic || c.Name == a.NodeSet
	}
}

// askSlurm adds how Slurm shows the subject now.
func (b *Bridge) askSlurm(ctx context.Context, a *history.Answer) {
	switch {
	case a.Job != 0:
		jobs, err := b.askJobs(ctx, a.Job)
		if err != nil {
			a.SlurmError = err.Error()
		}
		for _, j := range jobs {
			if j.ID == a.Job {
				a.Slurm = append(a.Slurm, history.Shown{
					Name: "job " + j.Name(), State: j.State.String(), Reason: j.StateReason, Nodes: slurmconf.CompressHostlist(j.Nodes), Partition: j.Partition,
					Submitted: j.Submitted, Eligible: j.Begin, Attempt: j.Restarts + 1,
				})
			}
		}
		a.SlurmMissing = err == nil && len(a.Slurm) == 0
	case a.Node != "":
		ctx, cancel := context.WithTimeout(ctx, explainWait)
		defer cancel()
		nodes, err := b.Slurm.Nodes(ctx, a.Node)
		b.Metrics.slurmCall("explain", err)
		if _, a.SlurmMissing = missingNodes(err); err != nil && !a.SlurmMissing {
			a.SlurmError = err.Error()
		}
		for _, n := range nodes {
			a.Slurm = append(a.Slurm, history.Shown{Name: "node " + n.Name, State: n.State.String(), Reason: n.Reason})
		}
	}
}
