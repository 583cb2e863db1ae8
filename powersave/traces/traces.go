// Package traces exports what becomes of resume requests as OpenTelemetry traces: one a request, with a span for each boot, for each of its phases, and for
// each start gate that waits. Boots of mode Dynamic, which nobody requests, have one each. Spans are made of the history's entries when a boot has ended, with the times that stand there; the engine knows nothing of them.
//
// Nothing depends on it: a span that cannot be exported is counted and forgotten.
package traces

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/slurmtide/slurmtide/internal/inbox"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

const (
	// lateFor is how long after its end entries of a request may come, and those of one that the bridge before has left may be accepted again.
	lateFor = 10 * time.Minute
	// mostGates bounds the jobs whose gates wait, or have gone away without a word.
	mostGates = 10_000
	// mostJobs bounds the jobs that a span names.
	mostJobs = 64
)

// Traces makes spans of entries.
type Traces struct {
	export
	todo *inbox.Inbox

	// Owned by the goroutine of Run.
	ending <-chan struct{}
	maker  history.Maker
	open   map[string]*request
	jobs   map[uint32]*request  // by job: the newest that names it, for a while after its end
	gates  map[uint32]time.Time // by job: since when its gate waits
	past   []*history.Boot      // of no request under way: the bridge before knew it, or there is none. Those of mode Dynamic that boot are not in it
	until  time.Time            // when past is forgotten; zero: that is not known yet
	ended  []ended
}

// request is a resume request under way.
type request struct {
	id    string
	span  trace.Span
	ctx   context.Context
	began time.Time
	gated time.Time // when the last of its gates was answered
	ended time.Time // zero: it is under way
	jobs  []uint32
	boots []*history.Boot
}

// ended is a request that was finished, of which something may yet be told.
type ended struct {
	at    time.Time
	boots []*history.Boot
	jobs  []uint32
	of    *request // nil: of none
}

func newTraces(to export, past []history.Entry) *Traces {
	t := &Traces{export: to, todo: inbox.New(), open: map[string]*request{}, jobs: map[uint32]*request{}, gates: map[uint32]time.Time{}}
	t.maker = history.Maker{Begun: t.bootBegun}
	for i := range past {
		t.maker.Add(&past[i])
		t.gate(&past[i])
	}
	t.maker.Ended = t.bootEnded // of those of the past the bridge before has made spans
	t.past = slices.DeleteFunc(t.past, func(b *history.Boot) bool { return b.Dynamic && b.Outcome == history.Booting })
	return t
}

// TraceID is the trace of a request, or of a boot of mode Dynamic by its pod's UID: the first 16 bytes of the SHA-256 of its ID, in hex.
func (t *Traces) TraceID(request string) string {
	id := hash(request)
	return hex.EncodeToString(id[:16])
}

func hash(parts ...string) [sha256.Size]byte { return sha256.Sum256([]byte(strings.Join(parts, "/"))) }

// ids has a span get IDs that follow from what it tells of: what a bridge that was started anew tells again replaces what was told before.
func ids(ctx context.Context, parts ...string) context.Context {
	id := hash(parts...)
	return context.WithValue(ctx, idsKey{}, trace.SpanID(id[:8]))
}

type idsKey struct{}

// generator gives spans the IDs that their contexts say.
type generator struct{}

func (generator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	traceID, _ := ctx.Value(traceKey{}).(trace.TraceID)
	return traceID, generator{}.NewSpanID(ctx, traceID)
}

func (generator) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	id, _ := ctx.Value(idsKey{}).(trace.SpanID)
	return id
}

type traceKey struct{}

// Add takes what has happened, in order. It never waits.
func (t *Traces) Add(entries ...history.Entry) {
	if len(entries) > 0 {
		t.todo.Put(func(context.Context) { t.add(entries) })
	}
}

// Finished ends the trace of a request of which all is done or superseded; others it ignores. It never waits.
func (t *Traces) Finished(now time.Time, id string) {
	t.todo.Put(func(context.Context) { t.finished(now, id) })
}

// Run makes spans and exports them until ctx is done, and then for a few seconds what is left.
func (t *Traces) Run(ctx context.Context) error {
	t.ending = ctx.Done()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-t.todo.Ready():
			t.work(ctx)
		}
	}
	t.work(ctx)
	t.flush()
	return nil
}

func (t *Traces) work(ctx context.Context) {
	for _, f := range t.todo.Take() {
		f(ctx)
	}
}

func (t *Traces) add(entries []history.Entry) {
	for i := range entries {
		e := &entries[i]
		if e.What == history.RequestAccepted && e.Kind == string(spool.KindResume) {
			t.accept(e)
		}
		if e.Dynamic { // no request that ends tells the time
			t.forget(e.Time)
		}
		t.maker.Add(e)
		t.gate(e)
	}
}

// accept begins the trace of a request, or takes in what else it names.
func (t *Traces) accept(e *history.Entry) {
	r := t.open[e.Request]
	if r == nil {
		r = &request{id: e.Request, began: earlier(e.Requested, e.Time)}
		id := hash(r.id)
		ctx := context.WithValue(ids(context.Background(), r.id, "resume"), traceKey{}, trace.TraceID(id[:16]))
		r.ctx, r.span = t.tracer.Start(ctx, "resume", trace.WithTimestamp(r.began), trace.WithAttributes(attribute.String("slurmtide.request.id", r.id)))
		t.open[r.id] = r
		t.past = slices.DeleteFunc(t.past, func(b *history.Boot) bool {
			if b.Request == r.id {
				r.boots = append(r.boots, b)
			}
			return b.Request == r.id
		})
	}
	for _, job := range e.Jobs {
		t.jobs[job] = r
		if !slices.Contains(r.jobs, job) {
			r.jobs = append(r.jobs, job)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (t *Traces) bootBegun(b *history.Boot) {
	switch r := t.open[b.Request]; {
	case r != nil:
		r.boots = append(r.boots, b)
	case b.Dynamic && t.maker.Ended != nil: // it is forgotten some time after its end
	default:
		t.past = append(t.past, b)
	}
}

// bootEnded makes the spans of a boot.
func (t *Traces) bootEnded(b *history.Boot) {
	root := context.Background()
	switch r := t.open[b.Request]; {
	case r != nil:
		root = r.ctx
	case b.Dynamic: // it is a trace of its own
		id := hash(b.Request)
		root = context.WithValue(root, traceKey{}, trace.TraceID(id[:16]))
		t.ended = append(t.ended, ended{at: bootEnd(b), boots: []*history.Boot{b}})
	default:
		return
	}
	t.giveWay()
	request := b.Request
	if b.Dynamic {
		request = ""
	}
	attributes := append(texts("slurmtide.request.id", request, "slurm.node.name", b.Node, "k8s.pod.name", b.Node, "k8s.pod.uid", b.PodUID, "k8s.node.name", b.Host,
		"slurmtide.nodeset", b.NodeSet, "slurmtide.offering", b.Offering, "slurmtide.outcome", string(b.Outcome), "slurmtide.verdict.class", b.Class,
		"slurmtide.reason", b.Reason), attribute.Int("slurmtide.pods", b.Pods))
	attributes = append(attributes, jobIDs(b.Jobs)...)
	ctx, span := t.tracer.Start(ids(root, b.Request, "boot", b.Node), "boot", trace.WithTimestamp(b.Began()), trace.WithAttributes(attributes...))
	for i, p := range phases(b) {
		_, part := t.tracer.Start(ids(ctx, b.Request, "boot", b.Node, fmt.Sprint(i)), p.name, trace.WithTimestamp(p.start),
			trace.WithAttributes(texts("slurmtide.offering", p.offering, "k8s.pod.uid", p.pod)...))
		if p.failed != "" {
			part.SetStatus(codes.Error, p.failed)
		}
		part.End(trace.WithTimestamp(p.end))
	}
	if failed := failure(b); failed != "" {
		span.SetStatus(codes.Error, failed)
	}
	span.End(trace.WithTimestamp(bootEnd(b)))
}

// giveWay waits while many spans wait for a collector that takes them, up to ten milliseconds: boots by the thousand that end together must not drop each other's.
func (t *Traces) giveWay() {
	for i := 0; i < 10 && t.waiting.many(); i++ {
		select {
		case <-time.After(time.Millisecond):
		case <-t.ending:
			return
		}
	}
}

func bootEnd(b *history.Boot) time.Time {
	if b.Outcome == history.Registered {
		return later(b.Began(), b.Registered)
	}
	return later(b.Began(), b.Ended)
}

// later is for ends of spans: the clock may have been put back since they began, and collectors take a span that ends before that for centuries.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// texts makes attributes of keys and values, in pairs, without those that are empty.
func texts(pairs ...string) []attribute.KeyValue {
	var all []attribute.KeyValue
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			all = append(all, attribute.String(pair[0], pair[1]))
		}
	}
	return all
}

func jobIDs(jobs []uint32) []attribute.KeyValue {
	if len(jobs) == 0 {
		return nil
	}
	values := make([]int64, min(len(jobs), mostJobs))
	for i := range values {
		values[i] = int64(jobs[i])
	}
	return []attribute.KeyValue{attribute.Int64Slice("slurm.job.ids", values)}
}

// gate makes a span of the time that a job's gate has waited, in the trace of the newest request for the job.
func (t *Traces) gate(e *history.Entry) {
	if e.What != history.GateWaits && e.What != history.GateOpened && e.What != history.GateGivenUp || len(e.Jobs) == 0 {
		return
	}
	job := e.Jobs[0]
	if e.What == history.GateWaits {
		if len(t.gates) >= mostGates {
			for some := range t.gates {
				delete(t.gates, some)
				break
			}
		}
		t.gates[job] = e.Time
		return
	}
	since, waits := t.gates[job]
	delete(t.gates, job)
	r := t.jobs[job]
	if !waits || r == nil || !r.ended.IsZero() && since.After(r.ended) { // the job starts once more, on nodes that are up
		return
	}
	r.gated = later(since, e.Time)
	_, span := t.tracer.Start(ids(r.ctx, r.id, "gate", fmt.Sprint(job)), "gate", trace.WithTimestamp(since), trace.WithAttributes(jobIDs(e.Jobs)...))
	if e.What == history.GateGivenUp {
		span.SetStatus(codes.Error, e.Reason)
	}
	span.End(trace.WithTimestamp(r.gated))
}

func (t *Traces) finished(now time.Time, id string) {
	t.forget(now)
	r := t.open[id]
	if r == nil {
		return
	}
	end, failed, reason := r.began, 0, ""
	if r.gated.After(end) {
		end = r.gated
	}
	nodes := make([]string, 0, len(r.boots))
	for _, b := range r.boots {
		t.maker.End(b, now)
		if at := bootEnd(b); at.After(end) {
			end = at
		}
		if b.Outcome == history.Failed {
			failed++
			reason = failure(b)
		}
		nodes = append(nodes, b.Node)
	}
	r.span.SetAttributes(attribute.String("slurm.nodes", slurmconf.CompressHostlist(nodes)), attribute.Int("slurmtide.boots", len(r.boots)), attribute.Int("slurmtide.boots.failed", failed))
	r.span.SetAttributes(jobIDs(r.jobs)...)
	if failed > 0 {
		r.span.SetStatus(codes.Error, fmt.Sprintf("%d of %d boots failed: %s", failed, len(r.boots), reason))
	}
	r.span.End(trace.WithTimestamp(end))
	delete(t.open, id)
	r.ended = now
	t.ended = append(t.ended, ended{at: now, boots: r.boots, jobs: r.jobs, of: r}) // gates may be answered a moment later
}

// forget drops what nothing is told of any more.
func (t *Traces) forget(now time.Time) {
	if t.until.IsZero() {
		t.until = now.Add(lateFor)
	}
	if now.After(t.until) {
		t.ended = append(t.ended, ended{at: t.until, boots: t.past})
		t.past, t.until = nil, now.Add(lateFor)
	}
	for len(t.ended) > 0 && now.Sub(t.ended[0].at) > lateFor {
		for _, b := range t.ended[0].boots {
			t.maker.Forget(b)
		}
		for _, job := range t.ended[0].jobs {
			if t.jobs[job] == t.ended[0].of {
				delete(t.jobs, job)
			}
		}
		t.ended = t.ended[1:]
	}
}
