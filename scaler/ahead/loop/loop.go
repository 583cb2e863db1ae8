// Package loop runs the planner of package ahead: it watches Slurm's queue, and tells the engine of package powersave which nodes
// should be up. Only the bridge that leads plans; without a NodeSet that wants look-ahead Slurm is not asked.
package loop

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/scaler/ahead"
	"github.com/slurmtide/slurmtide/scaler/watch"
)

// Slurm is what the loop needs of slurmctld. internal/slurmrest's Client implements it.
type Slurm interface {
	watch.Queue
	// QueueReservations returns all reservations by name.
	QueueReservations(context.Context) (map[string]scaler.Reservation, error)
}

// Config says what the loop works on. Slurm, Tell and Log are required.
type Config struct {
	Slurm Slurm
	// Tell hands a wish to the engine. It must not wait.
	Tell    func(powersave.WarmWished)
	Log     *slog.Logger
	Metrics *Metrics // may be nil
	scaler.Options
}

const (
	// jobsEvery is the time between two looks whether the queue has changed: starts are known long before.
	jobsEvery = time.Second
	// againEvery is how often an unchanged wish is told: it ends by itself when nobody does.
	againEvery        = 10 * time.Second
	planPause         = 200 * time.Millisecond // between two plans at least
	reservationsEvery = 30 * time.Second
	reservationsSoon  = 5 * time.Second // if a job waits for one that is not known
	callTimeout       = 30 * time.Second
)

// Loop is the daemon's part for look-ahead. Its methods may be called from any goroutine.
type Loop struct {
	Config

	mu      sync.Mutex
	leading bool
	sets    []powersave.NodeSet
	boots   map[string]powersave.BootTimes
	changed chan struct{} // closed at the next change of any of them
}

// New returns a Loop; Run starts it.
func New(c Config) *Loop { return &Loop{Config: c, changed: make(chan struct{})} }

func (l *Loop) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Lead takes whether this bridge leads.
func (l *Loop) Lead(leading bool) { l.change(func() { l.leading = leading }) }

// TakeNodeSets takes all NodeSets of the cluster.
func (l *Loop) TakeNodeSets(sets []powersave.NodeSet) { l.change(func() { l.sets = sets }) }

// Counts takes the engine's figures: how long boots take.
func (l *Loop) Counts(counts []powersave.NodeSetCounts) {
	boots := make(map[string]powersave.BootTimes, len(counts))
	for _, c := range counts {
		if len(c.BootTimes) > 0 {
			boots[c.Name] = c.BootTimes
		}
	}
	l.mu.Lock()
	same := reflect.DeepEqual(boots, l.boots)
	l.mu.Unlock()
	if !same {
		l.change(func() { l.boots = boots })
	}
}

// Changed implements watch.NodeSets.
func (l *Loop) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// NodeSets implements watch.NodeSets. Nodes without a record in Slurm cannot be powered up, and do not count.
func (l *Loop) NodeSets() ([]scaler.NodeSet, func(node string) string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sets := make([]scaler.NodeSet, 0, len(l.sets))
	for _, s := range l.sets {
		sets = append(sets, scaler.NodeSet{Name: s.Name})
	}
	known := l.sets
	return sets, func(node string) string {
		for _, s := range known {
			if s.Nodes.Contains(node) {
				return s.Name
			}
		}
		return ""
	}, nil
}

// settings are those of the NodeSets that want look-ahead; none if this bridge does not lead.
func (l *Loop) settings() ([]ahead.Settings, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []ahead.Settings
	for _, s := range l.sets {
		if !l.leading || s.LookAhead == nil || s.Problem != "" {
			continue
		}
		one := ahead.Settings{
			NodeSet: s.Name, Lead: s.LookAhead.LeadTime(l.boots[s.Name]),
			MaxNodes: s.LookAhead.MaxNodes, MaxPerAccount: s.LookAhead.MaxPerAccount, PerAccount: s.LookAhead.PerAccount,
		}
		for _, source := range s.LookAhead.Sources {
			one.Sources = append(one.Sources, ahead.Source(source))
		}
		all = append(all, one)
	}
	return all, l.changed
}

// Run works until ctx is done.
func (l *Loop) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		settings, changed := l.settings()
		if len(settings) > 0 {
			l.look(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return nil
}

// look plans as long as somebody wants it.
func (l *Loop) look(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	watcher := watch.New(watch.Config{Queue: l.Slurm, NodeSets: l, Options: l.Options, Every: jobsEvery, Log: l.Log.With("for", "look-ahead")})
	var running sync.WaitGroup
	running.Go(func() { _ = watcher.Run(ctx) }) // it ends with ctx, and has no other end
	defer running.Wait()
	defer cancel()
	l.Log.Info("jobs that are yet to start get their nodes ahead")
	p := planner{l: l}
	for {
		read := watcher.Changed()
		settings, changed := l.settings()
		if len(settings) == 0 {
			l.Log.Info("no nodes are powered up ahead of jobs any more")
			l.Tell(powersave.WarmWished{})
			l.Metrics.plan(nil, ahead.Plan{})
			return
		}
		wait := againEvery
		if figures, err := watcher.Latest(); err == nil { // else what was wished for last holds until it ends
			wait = p.plan(ctx, figures, settings)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-read:
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		select { // news that come close together share a plan
		case <-ctx.Done():
			return
		case <-time.After(planPause):
		}
	}
}

// planner is what a look remembers.
type planner struct {
	l            *Loop
	tally        ahead.Tally
	leavers      ahead.Leavers
	told         []powersave.WarmWish
	reservations map[string]scaler.Reservation
	askedAt      time.Time // for reservations
}

// plan makes a plan, tells it, and returns after how long it is to be made again.
func (p *planner) plan(ctx context.Context, figures watch.Figures, settings []ahead.Settings) time.Duration {
	l, now := p.l, time.Now()
	p.readReservations(ctx, now, figures.Snapshot.Jobs)
	plan := ahead.Make(now, ahead.Facts{
		Snapshot: figures.Snapshot, Report: figures.Report, Reservations: p.reservations,
		Gone: p.leavers.See(now, figures.Snapshot.Jobs), Wished: p.tally.Wished(),
	}, settings)
	if !figures.NodesOlder { // else nodes that are up by now would count as late
		for _, o := range p.tally.Take(now, plan, figures.Snapshot) {
			l.Log.Info("look-ahead", "nodeset", o.NodeSet, "job", o.Job, "result", o.Result, "nodes", o.Nodes)
			l.Metrics.outcome(o)
		}
	}
	l.Metrics.plan(settings, plan)
	var wishes []powersave.WarmWish
	for _, w := range plan.Wishes {
		if w.Nodes > 0 {
			wishes = append(wishes, powersave.WarmWish{NodeSet: w.NodeSet, Nodes: w.Nodes, Names: w.Names, Until: w.Until})
		}
	}
	if !sameWishes(wishes, p.told) {
		for _, w := range plan.Wishes {
			for _, j := range w.Jobs {
				l.Log.Info("nodes for a job to come", "nodeset", w.NodeSet, "job", j.ID, "from", j.Source, "start", j.Start, "nodes", j.Nodes, "cut", j.Cut)
			}
		}
	}
	if len(wishes)+len(p.told) > 0 {
		l.Tell(powersave.WarmWished{Wishes: wishes})
	}
	p.told = wishes
	if plan.Next.IsZero() {
		return againEvery
	}
	return min(againEvery, max(plan.Next.Sub(now), time.Millisecond))
}

func sameWishes(a, b []powersave.WarmWish) bool {
	return slices.EqualFunc(a, b, func(a, b powersave.WarmWish) bool {
		return a.NodeSet == b.NodeSet && a.Nodes == b.Nodes && slices.Equal(a.Names, b.Names)
	})
}

// readReservations asks for them now and then while a job waits for one, and sooner for one that is new. If they cannot be read those of
// before hold.
func (p *planner) readReservations(ctx context.Context, now time.Time, jobs []scaler.Job) {
	waits, every := false, reservationsEvery
	for i := range jobs {
		if j := &jobs[i]; j.State == scaler.JobPending && j.Reservation != "" {
			waits = true
			if !p.knows(j.Reservation) {
				every = reservationsSoon
				break
			}
		}
	}
	if !waits || now.Sub(p.askedAt) < every {
		return
	}
	p.askedAt = now
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := p.l.Slurm.QueueReservations(ctx)
	if err != nil {
		p.l.Log.Warn("reading reservations; jobs that wait for one that is new, or was changed, are not looked ahead for", "error", err)
		return
	}
	p.reservations = all
}

// knows reports whether one of the reservations that a job names is known.
func (p *planner) knows(names string) bool {
	for name := range strings.SplitSeq(names, ",") {
		if _, known := p.reservations[name]; known {
			return true
		}
	}
	return false
}
