// Package bridge runs the engine of package powersave against the world: it feeds it the
// spool, the pods, the NodeSets, what Slurm shows and the time, and carries out what it
// decides. One goroutine owns the engine; calls that may take long run beside it and
// report back as events.
package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slurmtide/slurmtide/internal/inbox"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Slurm is what the bridge needs of slurmctld.
type Slurm interface {
	// Nodes returns the named nodes, or with no names all of them. When slurmctld does not
	// know some of the names, the others are returned with an error that has a method
	// MissingNodes() []string.
	Nodes(ctx context.Context, names ...string) ([]powersave.SlurmNode, error)
	// UpdateNodes applies one change to several nodes.
	UpdateNodes(ctx context.Context, u powersave.NodeUpdate) error
	// Jobs returns the jobs with these IDs, each het job with all its components, without those that slurmctld has forgotten.
	Jobs(ctx context.Context, ids ...uint32) ([]powersave.SlurmJob, error)
	// UpdateJob changes one job. An error may have the method JobGone() bool.
	UpdateJob(ctx context.Context, u powersave.JobUpdate) error
}

// Kubernetes is what the bridge needs of the API server. What happens there comes in
// through the methods PodsSynced, Pod, PodGone and NodeSets of Bridge.
type Kubernetes interface {
	// Create makes the pod of a boot and returns its UID; a pod of the same generation that
	// exists already is success. An error may have the methods Permanent() bool and
	// ExistingPod() (powersave.Pod, bool), the pod that has the name, and Trouble() powersave.Trouble.
	Create(ctx context.Context, a powersave.CreatePod) (uid string, err error)
	// Delete asks for the pod with this UID to go. gone reports that no such pod exists any more.
	Delete(ctx context.Context, node, uid string) (gone bool, err error)
	// Mark notes on the pod with this UID whether jobs may be on it. A pod that is gone is no error.
	Mark(ctx context.Context, a powersave.MarkPod) error
	// TaintHost keeps further pods off a host, and says there why. A host that is gone is no error.
	TaintHost(ctx context.Context, a powersave.TaintHost) error
	// UpdateStatus writes the counts into the NodeSet's status.
	UpdateStatus(ctx context.Context, counts powersave.NodeSetCounts) error
	// Warn records an Event on the NodeSet, and on the pod with the UID if there is one. reason is CamelCase.
	Warn(nodeSet, node, uid, reason, text string)
}

// Traces makes OpenTelemetry traces of what happens. None of its methods may wait.
type Traces interface {
	Add(entries ...history.Entry)
	// Finished says that all a request asked for is done or superseded.
	Finished(now time.Time, request string)
	// TraceID is that of a request.
	TraceID(request string) string
}

// Config says what the bridge works on. The fields without a default are required.
type Config struct {
	Spool      *spool.Spool
	SpoolDir   string
	Slurm      Slurm
	Kubernetes Kubernetes
	Rooms      Rooms
	Log        *slog.Logger
	Metrics    *Metrics // may be nil
	Engine     powersave.Config
	// Others returns the figures of NodeSets that the engine is not told of, for status and metrics. Nil: there are none.
	Others func() []powersave.NodeSetCounts
	// OthersBoots returns their nodes that have a pod, for who asks what became of them. Nil: there are none.
	OthersBoots func() []powersave.Boot
	// OthersHosted returns their nodes whose pods have a host, for metrics. Nil: there are none.
	OthersHosted func() []powersave.Hosted
	// Parallel bounds the pods that are being created at once, and those that are being deleted. Default 64.
	Parallel int
	// ScanEvery is how often the spool is read without a poke. Default 2 s.
	ScanEvery time.Duration
	// OnCounts is told the figures of the NodeSets when they may have changed. It must not wait; nil: nobody is.
	OnCounts func([]powersave.NodeSetCounts)
	// History is told what happens; nil: nobody is.
	History *history.Store
	// Traces are told the same; nil: nobody is.
	Traces Traces
	// Version is shown in the status.
	Version string
}

// Times of the loop.
const (
	callTimeout   = 30 * time.Second       // one call to Kubernetes or Slurm
	deleteTimeout = 10 * time.Second       // the client may wait with a call, but Slurm may use the node again
	statusPause   = 500 * time.Millisecond // between two writes of NodeSet status
	statusRetry   = 10 * time.Second
	statusCheck   = 30 * time.Second // the status is looked at again: somebody else may have written it
	scanTooLarge  = 10 * time.Second // a scan that takes longer is worth a warning
)

// marksAtOnce bounds the pods and hosts that are being marked at once: nobody waits for it.
const marksAtOnce = 8

// Bridge is the daemon. It implements spool.Handler.
type Bridge struct {
	Config
	engine  *powersave.Engine
	inbox   *inbox.Inbox
	poked   chan struct{}
	creates chan struct{} // slots: slow creates must hold up nothing else
	deletes chan struct{}
	marks   chan struct{}
	calls   sync.WaitGroup

	// Owned by the goroutine of Run.
	requests  map[string]bool // in the spool; false: finished, and could not be removed
	finished  []string        // requests to be removed
	finishing bool            // some are being removed
	gates     map[uint64]waitingGate
	sent      map[string]powersave.NodeSetCounts // status as last written
	writing   map[string]bool                    // a write of the NodeSet's status is under way
	retries   map[string]time.Time               // when a write that failed may be tried again
	statusAt  time.Time
	checkAt   time.Time // when sent is no longer taken for what is there
	dirty     bool
	podsRead  bool
	leadsFrom time.Time // zero: from the start

	watchError string
	reads      powersave.Reads // as last shown in metrics
	lease      Lease
	othersLed  bool // since this bridge did

	recorder *history.Recorder // nil without History and Traces
	dynamics *history.Dynamic  // nil before the first pass

	lastGate atomic.Uint64
}

// waitingGate is a start-gate that has not been answered.
type waitingGate struct {
	reply chan spool.GateReply
	nodes slurmconf.Hostlist
}

// New returns a bridge; Run starts it.
func New(c Config) *Bridge {
	if c.Parallel == 0 {
		c.Parallel = 64
	}
	if c.ScanEvery == 0 {
		c.ScanEvery = 2 * time.Second
	}
	c.Metrics.leading(c.Engine.Alone)
	b := &Bridge{
		Config:   c,
		lease:    Lease{Leading: c.Engine.Alone},
		engine:   powersave.New(c.Engine),
		inbox:    inbox.New(),
		poked:    make(chan struct{}, 1),
		creates:  make(chan struct{}, c.Parallel),
		deletes:  make(chan struct{}, c.Parallel),
		marks:    make(chan struct{}, marksAtOnce),
		requests: map[string]bool{},
		gates:    map[uint64]waitingGate{},
		sent:     map[string]powersave.NodeSetCounts{},
		writing:  map[string]bool{},
		retries:  map[string]time.Time{},
	}
	if c.History != nil || c.Traces != nil {
		b.recorder = history.NewRecorder()
	}
	return b
}

// Run works until ctx is done. What is in hand then is found again by the next start.
func (b *Bridge) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer b.calls.Wait()
	defer cancel()
	scan := time.NewTicker(b.ScanEvery)
	defer scan.Stop()
	if b.History != nil {
		b.History.Add(history.Begun(time.Now(), b.Version))
		b.calls.Go(func() { b.watchJobs(ctx) })
	}
	wake := time.NewTimer(0)
	defer wake.Stop()
	b.scan(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.inbox.Ready():
			for _, f := range b.inbox.Take() {
				f(ctx)
			}
		case <-b.poked:
			b.scan(ctx)
		case <-scan.C:
			b.scan(ctx)
		case <-wake.C:
			b.step(ctx, powersave.Tick{})
		}
		if r := b.engine.Reads(); r != b.reads {
			b.reads = r
			b.Metrics.reads(r)
		}
		b.publish(ctx)
		if next := b.nextWake(); !next.IsZero() {
			wake.Reset(max(time.Until(next), 0))
		} else {
			wake.Stop()
		}
	}
}

func (b *Bridge) nextWake() time.Time {
	next := b.engine.NextWake()
	if status, due := b.nextStatus(); due && (next.IsZero() || status.Before(next)) {
		return status
	}
	return next
}

// tell hands an event to the engine, from any goroutine.
func (b *Bridge) tell(ev powersave.Event) {
	b.inbox.Put(func(ctx context.Context) { b.step(ctx, ev) })
}

func (b *Bridge) step(ctx context.Context, ev powersave.Event) {
	now := time.Now()
	actions := b.engine.Step(now, ev)
	entries := b.recorder.Step(now, ev, actions)
	b.History.Add(entries...)
	if b.Traces != nil {
		b.Traces.Add(entries...)
	}
	for _, a := range actions {
		b.act(ctx, a)
	}
	if _, idle := ev.(powersave.Tick); !idle && !b.dirty {
		b.dirty = true
	}
}

// PodsSynced takes the complete list of pods.
func (b *Bridge) PodsSynced(pods []powersave.Pod) {
	b.inbox.Put(func(ctx context.Context) {
		b.podsRead = true
		b.step(ctx, powersave.PodsRead{Pods: pods})
	})
}

// Pod takes the newest state of a pod.
func (b *Bridge) Pod(p powersave.Pod) {
	b.at(StepPodSeen)
	b.tell(powersave.PodSeen{Pod: p})
}

// PodGone takes the end of a pod.
func (b *Bridge) PodGone(node, uid string) {
	b.at(StepPodGone)
	b.tell(powersave.PodGone{Node: node, UID: uid})
}

// HostsSynced takes the complete list of hosts.
func (b *Bridge) HostsSynced(hosts []powersave.Host) { b.tell(powersave.HostsRead{Hosts: hosts}) }

// Host takes the newest state of a host.
func (b *Bridge) Host(h powersave.Host) { b.tell(powersave.HostSeen{Host: h}) }

// HostsUnread takes why hosts may not be read.
func (b *Bridge) HostsUnread(err error) { b.tell(powersave.HostsUnread{Err: err.Error()}) }

// WatchError takes why the API server cannot be read; nil: it can again.
func (b *Bridge) WatchError(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	b.inbox.Put(func(ctx context.Context) {
		if text != "" && text != b.watchError {
			b.Log.Error("Kubernetes cannot be read; nothing is taken down until it can", "error", text)
		}
		changed := (text == "") != (b.watchError == "")
		b.watchError = text
		if changed {
			b.step(ctx, powersave.KubernetesUnread{Err: text})
		}
	})
}

// NodeSets takes all NodeSets.
func (b *Bridge) NodeSets(sets []powersave.NodeSet) {
	b.inbox.Put(func(ctx context.Context) {
		clear(b.retries)
		clear(b.sent) // also the same counts say something new: that the new spec has been seen
		b.step(ctx, powersave.NodeSetsRead{NodeSets: sets})
	})
}

// WarmWished takes which nodes should be up for jobs that are yet to start.
func (b *Bridge) WarmWished(w powersave.WarmWished) { b.tell(w) }

// UpdateReserved takes what came of a reservation for an update.
func (b *Bridge) UpdateReserved(r powersave.UpdateReserved) { b.tell(r) }

// Poked implements spool.Handler.
func (b *Bridge) Poked() {
	select {
	case b.poked <- struct{}{}:
	default: // one is waiting already; it will see this request, too
	}
}

// Gate implements spool.Handler.
func (b *Bridge) Gate(ctx context.Context, r spool.GateRequest) spool.GateReply {
	nodes, err := slurmconf.ParseHostlist(r.Nodes)
	if err != nil {
		return spool.GateReply{Reason: "reading the job's nodes: " + err.Error()}
	}
	id := b.lastGate.Add(1)
	reply := make(chan spool.GateReply, 1)
	opened := time.Now()
	b.inbox.Put(func(ctx context.Context) {
		b.gates[id] = waitingGate{reply, nodes}
		b.step(ctx, powersave.GateOpened{ID: id, JobID: r.JobID, Nodes: nodes, Deadline: r.Deadline, HetJob: r.HetJobID, Attempt: r.Attempt})
	})
	select {
	case answer := <-reply:
		b.Metrics.gate(time.Since(opened), answer.Ready)
		b.Log.Debug("gate opened", "job", r.JobID, "nodes", r.Nodes, "ready", answer.Ready, "reason", answer.Reason, "waited", time.Since(opened))
		return answer
	case <-ctx.Done():
		b.inbox.Put(func(loop context.Context) {
			delete(b.gates, id)
			b.step(loop, powersave.GateClosed{ID: id})
		})
		return spool.GateReply{Reason: "no longer waiting: " + ctx.Err().Error()}
	}
}

// Status is what `slurmtide status` shows.
type Status struct {
	Version         string           `json:"version"`
	Lease           Lease            `json:"lease"`
	KubernetesError string           `json:"kubernetesError,omitempty"`
	Spool           spool.Stats      `json:"spool"`
	Engine          powersave.Status `json:"engine"`
	// Dynamic are boots of mode Dynamic under way, of which the engine is not told.
	Dynamic []powersave.Boot `json:"dynamic,omitempty"`
}

// Status implements spool.Handler: a Snapshot.
func (b *Bridge) Status(ctx context.Context) (json.RawMessage, error) {
	st, err := b.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(st)
}

// Snapshot is how it stands now.
func (b *Bridge) Snapshot(ctx context.Context) (Status, error) {
	got := make(chan Status, 1)
	b.inbox.Put(func(context.Context) {
		got <- Status{Version: b.Version, Lease: b.lease, KubernetesError: b.watchError, Engine: b.engine.Status(time.Now())}
	})
	select {
	case st := <-got:
		st.Engine.NodeSets = append(st.Engine.NodeSets, b.others()...)
		st.Dynamic = b.otherBooting()
		stats, err := b.Spool.Stats()
		if err != nil {
			b.Log.Warn("spool cannot be read", "error", err)
		}
		st.Spool = stats
		return st, nil
	case <-ctx.Done():
		return Status{}, ctx.Err()
	}
}

func (b *Bridge) others() []powersave.NodeSetCounts {
	if b.Others == nil {
		return nil
	}
	return b.Others()
}

// missingNodes returns the names an error of Slurm.Nodes calls unknown.
func missingNodes(err error) ([]string, bool) {
	var missing interface{ MissingNodes() []string }
	if !errors.As(err, &missing) {
		return nil, false
	}
	return missing.MissingNodes(), true
}
