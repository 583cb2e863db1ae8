package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
)

// Defaults of Config.
const (
	DefaultEvery      = 500 * time.Millisecond
	DefaultNodesEvery = 5 * time.Second
	DefaultAllEvery   = 30 * time.Second
	DefaultRest       = 2
	DefaultMaxAge     = 30 * time.Second

	// restAll is how long all jobs are not read again though nothing has changed, as a multiple of what the read took, and at most.
	restAll, restAllMost = 10, 10 * time.Minute

	selectEvery = 10 * time.Minute
	retryFirst  = 500 * time.Millisecond
	retryMost   = 5 * time.Second
)

// Queue reads what Slurm shows. internal/slurmrest's Client implements it.
type Queue interface {
	QueuePartitions(context.Context) ([]scaler.Partition, error)
	QueueNodes(context.Context) ([]scaler.Node, error)
	// QueueJobs reads all jobs if any changed since the time returned by an earlier call, or in any case if that is
	// zero. It returns Slurm's time of the answer; zero: nothing changed.
	QueueJobs(ctx context.Context, since time.Time) ([]scaler.Job, time.Time, error)
}

// Selector is a Queue that may know how slurmctld hands out nodes; told is false if it does not.
type Selector interface {
	Select(context.Context) (s scaler.Select, told bool, err error)
}

// NodeSets tells which NodeSets there are. kube/nodesets implements it.
type NodeSets interface {
	// NodeSets returns them, and what tells the name of the NodeSet of a node ("" if it is in none). It fails
	// until they have been read.
	NodeSets() ([]scaler.NodeSet, func(node string) string, error)
	// Changed is closed when NodeSets will say something new.
	Changed() <-chan struct{}
}

// Config of a Watcher. Zero fields but Queue get their defaults.
type Config struct {
	Queue    Queue
	NodeSets NodeSets // nil: there are none but those of Watcher.With
	// Options go into the Snapshot. If Queue is a Selector that tells Select, its word counts.
	scaler.Options

	// Every is the time between two questions whether jobs have changed.
	Every time.Duration
	// NodesEvery is the most time between two reads of nodes, and a third of MaxAge at the most; AllEvery between two of all jobs, changed or not.
	NodesEvery, AllEvery time.Duration
	// Rest is how long nothing is read after a read, as a multiple of what the read took.
	Rest float64
	// MaxAge is the age at which figures are too old to go by; it grows with the time that reads take.
	MaxAge time.Duration

	Log *slog.Logger
	Now func() time.Time
	// OnRead is told of each read, which may be "unchanged" and "demand" beside Reads: "jobs", "nodes", "partitions", "configuration", "unchanged" (jobs, none of which changed), "new jobs" (single ones), "states"
	// (of jobs, to see whether all are shown), or "demand" (the reckoning), how long it took, and how it failed.
	OnRead func(what string, took time.Duration, err error)
}

// Reads are what is read of Slurm, as OnRead is told.
var Reads = []string{"jobs", "new jobs", "states", "nodes", "partitions", "configuration"}

// Watcher holds the newest Figures of one cluster. Its methods may be called at any time, before and after Run, too.
type Watcher struct {
	cfg  Config
	wake chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	figures *Figures      // nil: none yet
	seen    time.Time     // when the older of jobs and nodes was last known to be as in figures
	slow    time.Duration // what reading everything took
	failed  error         // why the last look failed
	asking  string        // what Slurm is being asked for; empty: nothing
	asked   time.Time     // since when

	extras    map[string]*extra
	claims    map[claim]string // names of extras
	extrasNow uint64           // grows with each change of extras that bears on figures
	reckoned  uint64           // extrasNow of figures
}

// New makes a Watcher; Run makes it work.
func New(cfg Config) *Watcher {
	set := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	set(&cfg.Every, DefaultEvery)
	set(&cfg.NodesEvery, DefaultNodesEvery)
	set(&cfg.AllEvery, DefaultAllEvery)
	set(&cfg.MaxAge, DefaultMaxAge)
	cfg.NodesEvery = min(cfg.NodesEvery, cfg.MaxAge/3) // figures are as old as the nodes in them
	if cfg.Rest <= 0 {
		cfg.Rest = DefaultRest
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnRead == nil {
		cfg.OnRead = func(string, time.Duration, error) {}
	}
	return &Watcher{cfg: cfg, wake: make(chan struct{}, 1), changed: make(chan struct{}), extras: map[string]*extra{}, claims: map[claim]string{}}
}

// Latest returns the newest figures, or a *NotReadError.
func (w *Watcher) Latest() (Figures, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest()
}

func (w *Watcher) latest() (Figures, error) {
	if w.figures == nil {
		return Figures{}, &NotReadError{Cause: w.cause()}
	}
	if age := w.cfg.Now().Sub(w.seen); age > max(w.cfg.MaxAge, 4*w.slow) {
		return Figures{}, &NotReadError{Last: w.seen, Age: age, Cause: w.cause()}
	}
	f := *w.figures
	f.Read = w.seen
	return f, nil
}

// cause is why there are no figures. It needs w.mu.
func (w *Watcher) cause() error {
	if w.failed != nil || w.asking == "" {
		return w.failed
	}
	return fmt.Errorf("slurmrestd has not answered for %v (%s)", w.cfg.Now().Sub(w.asked).Round(time.Second), w.asking)
}

// Changed returns a channel that is closed when Latest may have something new to say, an error perhaps. Get it before
// calling Latest, or a change in between is missed.
func (w *Watcher) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// announce needs w.mu.
func (w *Watcher) announce() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// Run reads the queue until ctx is done.
func (w *Watcher) Run(ctx context.Context) error {
	r := reader{w: w, options: w.cfg.Options, partitionsOf: map[string][]string{}, late: newLateJobs(), peek: peeker{answer: make(chan peeked, 1)}}
	defer r.endPeek()
	pause := retryFirst
	for {
		err := r.look(ctx)
		wait := r.jobsNext.Sub(w.cfg.Now())
		if err != nil && ctx.Err() == nil {
			w.note(err)
			wait, pause = pause, min(2*pause, retryMost)
		} else {
			pause = retryFirst
			if r.peeks() && !r.peek.under && r.peek.next.Before(r.jobsNext) {
				wait = r.peek.next.Sub(w.cfg.Now())
			}
		}
		r.failed = err != nil
		timer := time.NewTimer(max(0, wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case p := <-r.peek.answer:
			r.takePeek(ctx, p)
		case <-r.sets:
			r.sets, r.stale = nil, true
		case <-w.wake:
			r.stale = true
		}
		timer.Stop()
	}
}

// note keeps why a look failed.
func (w *Watcher) note(err error) {
	w.mu.Lock()
	fresh := w.failed == nil || w.failed.Error() != err.Error()
	w.failed = err
	if errors.As(err, new(*HiddenJobsError)) { // the ones before may have been as wrong
		w.figures = nil
	}
	w.announce()
	w.mu.Unlock()
	if fresh { // without the lock: a log that hangs must not keep answers back
		w.cfg.Log.Warn("reading Slurm's queue", "error", err)
	}
}

// reader is what the loop knows. Only Run uses it.
type reader struct {
	w          *Watcher
	snap       scaler.Snapshot
	since      time.Time // Slurm's time of the last read of jobs
	allAt      time.Time // when all jobs were last read
	jobsSeen   time.Time // when jobs were last known to be as in snap
	nodesSeen  time.Time
	jobsNext   time.Time // when they may be read again
	nodesNext  time.Time // the same
	jobsTook   time.Duration
	nodesTook  time.Duration
	nodesOlder bool      // jobs have changed since nodes were read
	stale      bool      // the figures have to be worked out anew
	begins     time.Time // when the next job may begin, as of the last reckoning

	options  scaler.Options
	selectAt time.Time // when Select was last asked for
	misses   scaler.Misses

	partitionsOf map[string][]string // of NodeSets, as last seen
	left         map[string]bool     // nodes whose jobs have all gone since nodes were read

	jobs    []scaler.Job // of the last read of all; those of snap, without late ones
	late    lateJobs
	peek    peeker
	sight   sight
	started bool            // some of the late ones have, since a read of the nodes last began
	failed  bool            // the last look
	sets    <-chan struct{} // closed when there are other NodeSets than those in the figures
}

// look reads what is due. Nodes are read before jobs and never without: a job that starts between the two is then seen on its nodes, and
// not both as one that waits and by what it takes of them.
func (r *reader) look(ctx context.Context) error {
	cfg := &r.w.cfg
	start := cfg.Now()
	if start.Before(r.jobsNext) {
		if r.peeks() && r.mayPeek() && !start.Before(r.peek.next) {
			r.startPeek(ctx)
		}
		return r.publish()
	}
	due := r.nodesOlder || !start.Before(r.nodesSeen.Add(cfg.NodesEvery))
	fresh := due && !start.Before(r.nodesNext)
	take := func() {}
	r.started = false
	if fresh {
		var err error
		if take, err = r.readNodes(ctx); err != nil {
			return err
		}
	}
	changed, err := r.readJobs(ctx, take)
	if err != nil {
		return err
	}
	// With nodes that are older than the jobs the figures may be a little off, but a new job counts at once.
	r.nodesOlder = r.nodesOlder || changed && !fresh || r.started
	return r.publish()
}

// readNodes returns what takes them over: together with the jobs, for beside older ones they would tell of jobs that still count as pending.
func (r *reader) readNodes(ctx context.Context) (take func(), err error) {
	if err := r.readSelect(ctx); err != nil {
		return nil, err
	}
	start := r.w.cfg.Now()
	partitions, took, err := timed(ctx, r, "partitions", func() ([]scaler.Partition, error) { return r.w.cfg.Queue.QueuePartitions(ctx) })
	if err != nil {
		return nil, err
	}
	if len(partitions) == 0 { // slurmctld has some; all jobs would look as if nothing could run them
		return nil, errors.New("there are no partitions in Slurm's answer: may the token's user see them? It has to be SlurmUser, or an operator")
	}
	nodes, also, err := timed(ctx, r, "nodes", func() ([]scaler.Node, error) { return r.w.cfg.Queue.QueueNodes(ctx) })
	if err != nil {
		return nil, err
	}
	r.nodesTook = took + also
	// Half a MaxAge, and two reads that take as long, would make them too old.
	r.nodesNext = r.restAfter(r.nodesTook, r.w.cfg.MaxAge/4)
	return func() {
		r.snap.Partitions, r.snap.Nodes = partitions, nodes
		r.nodesSeen, r.nodesOlder, r.stale, r.left = start, false, true, nil
	}, nil
}

// readSelect asks now and then: it changes only when slurmctld is started with another slurm.conf.
func (r *reader) readSelect(ctx context.Context) error {
	selector, ok := r.w.cfg.Queue.(Selector)
	if !ok || !r.selectAt.IsZero() && r.w.cfg.Now().Sub(r.selectAt) < selectEvery {
		return nil
	}
	type answer struct {
		s    scaler.Select
		told bool
	}
	a, _, err := timed(ctx, r, "configuration", func() (answer, error) {
		s, told, err := selector.Select(ctx)
		return answer{s, told}, err
	})
	if err != nil {
		return err
	}
	if a.told {
		r.options.Select = a.s
	}
	r.selectAt = r.w.cfg.Now()
	return nil
}

// readJobs says whether any have changed. It takes over the nodes that were read before.
func (r *reader) readJobs(ctx context.Context, nodes func()) (bool, error) {
	cfg := &r.w.cfg
	start, since := cfg.Now(), r.since
	if start.Sub(r.allAt) >= max(cfg.AllEvery, min(restAll*r.jobsTook, restAllMost)) {
		since = time.Time{}
	}
	r.late.begin()
	r.w.ask("jobs")
	var jobs []scaler.Job
	var at time.Time
	var took time.Duration
	var err error
	r.during(ctx, func() {
		jobs, at, err = cfg.Queue.QueueJobs(ctx, since)
		took = cfg.Now().Sub(start)
	})
	r.w.ask("")
	what := "jobs"
	if err == nil && at.IsZero() {
		what = "unchanged"
	}
	cfg.OnRead(what, took, err)
	if err != nil {
		return false, err
	}
	if at.IsZero() {
		jobs = r.jobs
	}
	if err := r.see(ctx, jobs, !at.IsZero()); err != nil {
		return false, err
	}
	r.jobsSeen = start
	nodes()
	if at.IsZero() {
		r.jobsNext = cfg.Now().Add(cfg.Every)
		return false, nil
	}
	r.allAt = start
	r.leave(jobs)
	r.late.all(jobs)
	r.jobs, r.snap.Jobs = jobs, r.late.with(jobs)
	r.since, r.stale, r.jobsTook = at, true, took
	r.jobsNext = r.restAfter(took, cfg.MaxAge/2)
	return true, nil
}

func timed[T any](ctx context.Context, r *reader, what string, read func() (T, error)) (v T, took time.Duration, err error) {
	w := r.w
	start := w.cfg.Now()
	w.ask(what)
	r.during(ctx, func() {
		v, err = read()
		took = w.cfg.Now().Sub(start)
	})
	w.ask("")
	w.cfg.OnRead(what, took, err)
	return v, took, err
}

// ask notes what Slurm is being asked for.
func (w *Watcher) ask(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking, w.asked = what, w.cfg.Now()
}

// restAfter is when the next read may be, after one that took d: not so late, after most, that figures would be too old.
func (r *reader) restAfter(d, most time.Duration) time.Time {
	cfg := &r.w.cfg
	rest := min(time.Duration(cfg.Rest*float64(d)), most)
	return cfg.Now().Add(max(rest, cfg.Every))
}

// publish works the figures out anew if anything changed, and says how fresh they are.
func (r *reader) publish() error {
	w := r.w
	now := w.cfg.Now()
	if !r.begins.IsZero() && !now.Before(r.begins) {
		r.stale = true
	}
	if !r.stale {
		r.good(nil, 0)
		return nil
	}
	snap, own, extras, err := r.complete(now)
	if err != nil {
		return err
	}
	f := figure(now, snap, own)
	f.NodesOlder = r.nodesOlder
	end := w.cfg.Now()
	w.cfg.OnRead("demand", end.Sub(now), nil)
	r.misses = r.misses.Tell(scaler.MissesOf(f.Report), w.cfg.Log.Warn)
	r.stale, r.begins = false, nextBegin(now, snap.Jobs)
	rest := end.Add(end.Sub(now)) // leave the CPU to those who ask
	for _, next := range []*time.Time{&r.jobsNext, &r.peek.next} {
		if next.Before(rest) {
			*next = rest
		}
	}
	r.good(f, extras)
	return nil
}

// nextBegin is when the next pending job may begin: Slurm does not say that it has changed then. Zero: there is none.
func nextBegin(now time.Time, jobs []scaler.Job) time.Time {
	var next time.Time
	for i := range jobs {
		j := &jobs[i]
		if j.State == scaler.JobPending && j.Begin.After(now) && (next.IsZero() || j.Begin.Before(next)) {
			next = j.Begin
		}
	}
	return next
}

// good notes that all is read, and takes over new figures if there are any.
func (r *reader) good(f *Figures, extras uint64) {
	w := r.w
	seen := r.jobsSeen
	if r.nodesSeen.Before(seen) {
		seen = r.nodesSeen
	}
	w.mu.Lock()
	recovered := w.failed != nil
	w.seen, w.slow, w.failed = seen, r.jobsTook+r.nodesTook, nil
	if f != nil {
		w.figures, w.reckoned = f, extras
	}
	if f != nil || recovered {
		w.announce()
	}
	w.mu.Unlock()
	if recovered {
		w.cfg.Log.Info("Slurm's queue is read again")
	}
}

// complete puts NodeSets and settings into the snapshot, and tells how many of them are Kubernetes' own, and which state of the extras is in it.
func (r *reader) complete(now time.Time) (scaler.Snapshot, int, uint64, error) {
	w := r.w
	var sets []scaler.NodeSet
	owner := func(string) string { return "" }
	if w.cfg.NodeSets != nil {
		r.sets = w.cfg.NodeSets.Changed() // before they are asked for, so that nothing is missed
		var err error
		if sets, owner, err = w.cfg.NodeSets.NodeSets(); err != nil {
			return scaler.Snapshot{}, 0, 0, err
		}
	}
	extras, extrasNow := w.extraSets(now)
	snap := r.snap
	snap.Nodes = own(snap.Nodes, owner, extras)
	r.free(snap.Nodes)
	snap.NodeSets = append(inPartitions(sets, snap.Nodes, r.partitionsOf), extras...)
	snap.Options = r.options
	return snap, len(sets), extrasNow, nil
}
