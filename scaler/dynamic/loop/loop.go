// Package loop runs the planner of package dynamic against the world: it reads Slurm, is told of pods and NodeSets, and
// carries out what the planner decides. One goroutine owns the planner; calls run beside it and report back.
//
// Only the bridge that leads plans. Without a NodeSet of mode Dynamic nothing is read.
//
// It reads Slurm itself, and not through a Watcher of package watch, for what it takes down it has to know more of than demand takes: whether a
// read was begun before or after a pod was seen or an order answered (Reading.Number), that records were read before jobs, so that a job which
// starts meanwhile is on one side at least, whose records they are (comment, instance ID, reason) and what reservations name. A Watcher
// reads nodes and jobs each in its own time, which is right for figures and saves reads; here one complete read in order is the point. It is made when
// jobs have changed, while something is in hand, and every five seconds.
package loop

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slurmtide/slurmtide/internal/inbox"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/scaler"
	"github.com/slurmtide/slurmtide/scaler/dynamic"
)

// Slurm is what the loop needs of slurmctld. internal/slurmrest's Client implements it.
type Slurm interface {
	// Records returns all nodes, twice over: for the planner and for scaler.Demand.
	Records(context.Context) ([]powersave.SlurmNode, []scaler.Node, error)
	QueuePartitions(context.Context) ([]scaler.Partition, error)
	// Select reads how slurmctld hands out nodes; told is false if it does not tell.
	Select(context.Context) (s scaler.Select, told bool, err error)
	// QueueJobs reads all jobs if any changed since the time returned by an earlier call, or in any case if that is
	// zero. It returns Slurm's time of the answer; zero: nothing changed.
	QueueJobs(ctx context.Context, since time.Time) ([]scaler.Job, time.Time, error)
	// Reservations returns the hostlists of all reservations by name.
	Reservations(context.Context) (map[string]string, error)
	// Nodes returns some nodes. If some are not there, the error has the method MissingNodes() []string.
	Nodes(ctx context.Context, names ...string) ([]powersave.SlurmNode, error)
	UpdateNodes(context.Context, powersave.NodeUpdate) error
	// DeleteNode makes slurmctld forget a node. An error may have the method MissingNodes() []string.
	DeleteNode(ctx context.Context, name string) error
}

// Kubernetes is what the loop needs of the API server; see powersave/bridge for what the methods promise.
type Kubernetes interface {
	Create(ctx context.Context, a powersave.CreatePod) (uid string, err error)
	Delete(ctx context.Context, node, uid string) (gone bool, err error)
	Mark(ctx context.Context, a powersave.MarkPod) error
	UpdateStatus(ctx context.Context, counts powersave.NodeSetCounts) error
	Warn(nodeSet, node, uid, reason, text string)
}

// Config says what the loop works on. Slurm, Kubernetes, Log and Plan.Owner are required.
type Config struct {
	Slurm      Slurm
	Kubernetes Kubernetes
	Log        *slog.Logger
	Metrics    *Metrics // may be nil
	Plan       dynamic.Config
	// Options for scaler.Demand. What Slurm itself tells of them goes before.
	Options scaler.Options
	// Parallel bounds the pods that are being created at once, and those that are being deleted. Default 64.
	Parallel int
	// Every is the time between two looks whether the queue has changed, and between two reads while something is in hand. Default 500 ms.
	Every time.Duration
	// ReadEvery is the most time between two complete reads. Default 5 s.
	ReadEvery time.Duration
	// Passed is told how the nodes are after a pass, and what was done and said since the one before. It is called from one goroutine, while this bridge leads and
	// has read Slurm. Nil: nobody is.
	Passed func(time.Time, history.Pass)
}

const (
	callTimeout = 30 * time.Second
	readTimeout = 2 * time.Minute
	// rest is how long Slurm is left alone after a read, as a multiple of what the read took; when something waits, it is 1.
	rest           = 2
	failPause      = 5 * time.Second
	partitionsEach = 30 * time.Second
	optionsEach    = 10 * time.Minute      // they change with slurm.conf
	stepPause      = 20 * time.Millisecond // news that come close together share a step
	statusPause    = 500 * time.Millisecond
	statusRetry    = 10 * time.Second
	statusCheck    = 30 * time.Second // the status is looked at again: somebody else may have written it
	updatesAtOnce  = 8
)

// Loop is the daemon's part for mode Dynamic. Its methods may be called from any goroutine.
type Loop struct {
	Config
	inbox   *inbox.Inbox
	calls   sync.WaitGroup
	creates chan struct{}
	deletes chan struct{}
	updates chan struct{}

	// Owned by the goroutine of Run.
	leading    bool
	epoch      int // counts planners: answers to one that is gone are dropped
	planner    *dynamic.Planner
	over       chan struct{} // closed when the planner is gone
	beganAt    time.Time     // when the planner was made
	sets       []powersave.NodeSet
	synced     bool
	unread     string // why Kubernetes cannot be read
	pods       map[string]powersave.Pod
	hosts      *powersave.HostTroubles // nil: not read yet
	noHosts    bool                    // they may not be read
	reading    *dynamic.Reading
	underway   bool
	asked      int
	askedAt    time.Time
	since      time.Time // of jobs, as QueueJobs returned it
	partitions []scaler.Partition
	partsAt    time.Time
	options    *scaler.Options // nil: not read yet
	optionsAt  time.Time
	readAt     time.Time // end of the newest complete read
	nextRead   time.Time
	soonest    time.Time // not before this, whoever waits
	lastErr    string
	dirty      bool
	stepAt     time.Time
	sent       map[string]powersave.NodeSetCounts
	writing    map[string]bool
	statusAt   time.Time
	checkAt    time.Time // when sent is no longer taken for what is there

	claimed claimed
	said    []history.Entry // since Passed was told

	mu     sync.Mutex
	counts []powersave.NodeSetCounts
	hosted []powersave.Hosted
	boots  []powersave.Boot
}

// New returns a Loop; Run starts it.
func New(c Config) *Loop {
	if c.Parallel == 0 {
		c.Parallel = 64
	}
	if c.Every == 0 {
		c.Every = 500 * time.Millisecond
	}
	if c.ReadEvery == 0 {
		c.ReadEvery = 5 * time.Second
	}
	return &Loop{
		Config: c, inbox: inbox.New(), pods: map[string]powersave.Pod{},
		creates: make(chan struct{}, c.Parallel), deletes: make(chan struct{}, c.Parallel), updates: make(chan struct{}, updatesAtOnce),
		sent: map[string]powersave.NodeSetCounts{}, writing: map[string]bool{},
	}
}

// Run works until ctx is done. What is in hand then is found again by the next start.
func (l *Loop) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.calls.Wait()
	defer cancel()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.inbox.Ready():
			for _, f := range l.inbox.Take() {
				f(ctx)
			}
		case <-wake.C:
		}
		if !l.active() {
			wake.Stop()
			continue
		}
		now := time.Now()
		if l.dirty && !now.Before(l.stepAt) {
			l.step(ctx, now)
		}
		if !l.underway && !now.Before(l.nextRead) {
			l.read(ctx, now)
		}
		l.publish(ctx, now)
		next := now.Add(time.Second)
		if !l.underway && l.nextRead.Before(next) {
			next = l.nextRead
		}
		if l.dirty && l.stepAt.Before(next) {
			next = l.stepAt
		}
		wake.Reset(max(next.Sub(now), time.Millisecond))
	}
}

// active reports whether there is anything to plan.
func (l *Loop) active() bool {
	return l.leading && l.synced && l.planner != nil
}

// tell has f done by the goroutine of Run.
func (l *Loop) tell(f func()) {
	l.inbox.Put(func(context.Context) {
		f()
		l.dirty = true
	})
}

// NodeSets takes all NodeSets of the cluster, those of mode Cloud too.
func (l *Loop) NodeSets(sets []powersave.NodeSet) {
	l.tell(func() {
		l.sets = sets
		clear(l.sent) // also the same counts say something new: that the new spec has been seen
		l.start()
	})
}

// start makes a planner when one is needed. It is kept when the last NodeSet goes: records may have to be deleted.
func (l *Loop) start() {
	wanted := slices.ContainsFunc(l.sets, func(s powersave.NodeSet) bool { return s.Dynamic != nil })
	if l.leading && l.planner == nil && wanted {
		l.epoch++
		l.planner, l.over = dynamic.New(l.Plan), make(chan struct{})
		l.reading, l.nextRead, l.beganAt = nil, time.Time{}, time.Now()
	}
}

// PodsSynced takes the complete list of pods of mode Dynamic.
func (l *Loop) PodsSynced(pods []powersave.Pod) {
	l.tell(func() {
		l.synced = true
		clear(l.pods)
		for _, p := range pods {
			l.pods[p.Node] = p
		}
	})
}

// Pod takes the newest state of a pod.
func (l *Loop) Pod(p powersave.Pod) {
	l.tell(func() {
		l.pods[p.Node] = p
		if l.planner != nil {
			l.hurry() // it may be about to register
		}
	})
}

// PodGone takes the end of a pod.
func (l *Loop) PodGone(node, uid string) {
	l.tell(func() {
		if l.pods[node].UID == uid {
			delete(l.pods, node)
		}
	})
}

// HostsSynced takes the complete list of hosts.
func (l *Loop) HostsSynced(hosts []powersave.Host) {
	l.tell(func() {
		if l.hosts == nil {
			l.hosts = &powersave.HostTroubles{}
		}
		l.hosts.TakeAll(time.Now(), hosts, l.hostsInUse())
	})
}

// Host takes the newest state of a host.
func (l *Loop) Host(h powersave.Host) {
	l.tell(func() {
		if l.hosts != nil && l.hosts.Take(time.Now(), h) && h.Trouble == powersave.HostGone {
			l.hosts.Forget(l.hostsInUse())
		}
	})
}

// HostsUnread takes that hosts may not be read; the bridge says why.
func (l *Loop) HostsUnread(error) { l.tell(func() { l.noHosts = true }) }

func (l *Loop) hostsInUse() map[string]bool {
	used := map[string]bool{}
	for _, p := range l.pods {
		if p.Host != "" {
			used[p.Host] = true
		}
	}
	return used
}

// WatchError takes why the API server cannot be read; nil: it can again.
func (l *Loop) WatchError(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	l.tell(func() { l.unread = text })
}

// Lead takes whether this bridge leads. One that begins to knows nothing of what it knew before.
func (l *Loop) Lead(leading bool) {
	l.tell(func() {
		if l.leading == leading {
			return
		}
		if l.planner != nil {
			close(l.over)
		}
		l.leading, l.planner, l.options, l.said = leading, nil, nil, nil
		l.show(nil, nil, nil)
		l.Metrics.misses(nil)
		clear(l.sent)
		l.start()
	})
}

// step shows the planner what there is, and does what it wants.
func (l *Loop) step(ctx context.Context, now time.Time) {
	l.dirty, l.stepAt = false, now.Add(stepPause)
	f := dynamic.Facts{Sets: l.sets, Pods: slices.Collect(maps.Values(l.pods)), Blind: l.unread != "", Slurm: l.reading, Asked: l.asked, Hosts: l.hosts, HostsUnread: l.noHosts}
	l.act(ctx, l.planner.Step(now, f))
	if l.planner.Hurry() {
		l.hurry()
	}
}

// hurry has Slurm read soon.
func (l *Loop) hurry() {
	if l.soonest.Before(l.nextRead) && l.lastErr == "" {
		l.nextRead = l.soonest
	}
}

// read looks whether there is news in Slurm, and reads all of it if so, or if something is in hand, or after a while.
func (l *Loop) read(ctx context.Context, now time.Time) {
	l.underway, l.askedAt = true, now
	l.asked++
	number, epoch := l.asked, l.epoch
	whole := l.reading == nil || l.planner.Hurry() || now.Sub(l.readAt) >= l.ReadEvery
	since, partitions, options := l.since, l.partitions, l.options
	if now.Sub(l.partsAt) >= partitionsEach {
		partitions = nil
	}
	if now.Sub(l.optionsAt) >= optionsEach {
		options = nil
	}
	l.calls.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		began := time.Now()
		r, at, err := l.ask(ctx, whole, since, partitions, options)
		took := time.Since(began)
		l.inbox.Put(func(ctx context.Context) { // of Run: that of the call is over by now
			l.underway = false
			l.nextRead = time.Now().Add(max(l.Every, rest*took))
			if err != nil {
				if text := err.Error(); text != l.lastErr && ctx.Err() == nil {
					l.Log.Warn("Slurm cannot be read, nothing is done for NodeSets of mode Dynamic", "error", text)
					l.lastErr = text
				}
				l.nextRead = time.Now().Add(failPause)
				return
			}
			if l.lastErr != "" {
				l.Log.Info("Slurm can be read again")
				l.lastErr = ""
			}
			if r != nil {
				l.soonest = time.Now().Add(max(l.Every, took))
			}
			if r == nil || epoch != l.epoch || l.planner == nil {
				return
			}
			if partitions == nil {
				l.partsAt = began
			}
			if options == nil {
				l.optionsAt = began
			}
			r.Number, r.Answered = number, time.Now()
			l.reading, l.since, l.partitions, l.readAt = r, at, r.Queue.Partitions, time.Now()
			l.options = &r.Queue.Options
			l.dirty = true
		})
	})
}

// ask reads Slurm; without whole only if jobs have changed, and nil if they have not. Records are read before the jobs.
func (l *Loop) ask(ctx context.Context, whole bool, since time.Time, partitions []scaler.Partition, options *scaler.Options) (*dynamic.Reading, time.Time, error) {
	if !whole {
		_, at, err := l.Slurm.QueueJobs(ctx, since)
		if err != nil || at.IsZero() {
			return nil, at, err
		}
	}
	r := &dynamic.Reading{}
	var err error
	if r.Records, r.Queue.Nodes, err = l.Slurm.Records(ctx); err != nil {
		return nil, time.Time{}, err
	}
	if partitions == nil {
		if partitions, err = l.Slurm.QueuePartitions(ctx); err != nil {
			return nil, time.Time{}, err
		}
	}
	r.Queue.Partitions = partitions
	if options == nil {
		options = new(l.Options)
		s, told, err := l.Slurm.Select(ctx)
		if err != nil {
			return nil, time.Time{}, err
		}
		if told {
			s.MaxNodeCount = cmp.Or(s.MaxNodeCount, l.Options.Select.MaxNodeCount)
			options.Select = s
		}
	}
	r.Queue.Options = *options
	if r.Reservations, err = l.Slurm.Reservations(ctx); err != nil {
		return nil, time.Time{}, err
	}
	var at time.Time
	if r.Queue.Jobs, at, err = l.Slurm.QueueJobs(ctx, time.Time{}); err != nil {
		return nil, time.Time{}, err
	}
	return r, at, nil
}
