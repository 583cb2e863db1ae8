package powersave

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// Config holds the Engine's times. The zero value of a field means its default.
type Config struct {
	// FreshFor is the age up to which a resume request is carried out without asking Slurm
	// whether it still stands. Default 30 s.
	FreshFor time.Duration
	// PollFast is the pause between reads while a slurmd could register any moment. Default 100 ms.
	PollFast time.Duration
	// PollSlow is the pause while power-downs or gates wait. Default 1 s.
	PollSlow time.Duration
	// PollWait is the pause while boots wait for a host. Default 5 s.
	PollWait time.Duration
	// PollIdle is the pause while nothing happens. Default 60 s.
	PollIdle time.Duration
	// Sightings is how far apart two complete reads must be to confirm something lost. Default 10 s.
	Sightings time.Duration
	// RegisterGrace is how long a running slurmd may stay unregistered after a repeated power-up
	// before its pod is replaced. Default 5 s.
	RegisterGrace time.Duration
	// BadHardware matches the reasons with which people, or their health checks, drain nodes whose hardware is bad; the
	// hosts of those nodes are marked (TaintHost). Nil: none are.
	BadHardware *regexp.Regexp
	// History is how many finished boots, and how many finished power-downs, Status shows. Default 1000.
	History int
	// Alone: there is no other bridge, so the Engine leads without being told (see Leading).
	Alone bool
}

func (c Config) withDefaults() Config {
	c.FreshFor = cmp.Or(c.FreshFor, 30*time.Second)
	c.PollFast = cmp.Or(c.PollFast, 100*time.Millisecond)
	c.PollSlow = cmp.Or(c.PollSlow, time.Second)
	c.PollWait = cmp.Or(c.PollWait, 5*time.Second)
	c.PollIdle = cmp.Or(c.PollIdle, time.Minute)
	c.Sightings = cmp.Or(c.Sightings, 10*time.Second)
	c.RegisterGrace = cmp.Or(c.RegisterGrace, 5*time.Second)
	c.History = cmp.Or(c.History, 1000)
	return c
}

const (
	retryFirst   = 250 * time.Millisecond // pause after the first failed call for a node, doubled each time
	retryMost    = 15 * time.Second
	freeBatch    = 250 * time.Millisecond // node names freed within this time share one update
	recordedNote = 20                     // newest problems kept for Status
)

// Engine is the state machine. Use it from one goroutine.
type Engine struct {
	cfg Config

	nodes     map[string]*node
	byName    []*node // the same, in order unless sorted is false: see all
	sorted    bool
	active    []*node // with an order in hand, oldest first; settled ones are dropped lazily
	sets      map[string]NodeSet
	requests  map[string]*request
	telling   []*request // all nodes settled, but a job they name waits for others
	tellAgain bool       // one may have ceased to
	serial    int        // of the newest TellJob or HoldJob
	recalled  bool       // requests were looked at again when all nodes were known
	gangs     map[uint32]*gang
	kept      []uint32 // gangs that wait for nothing in hand, see dropGang
	hets      hets
	gates     []*gate
	heldGates []heldGate // arrived before the NodeSets were known

	podsRead, setsRead, hostsRead bool
	hostsDenied                   bool // hosts cannot be read
	blind                         bool // pods or NodeSets cannot be read at present
	leading                       bool
	resumedAt                     time.Time // when ResumeProgram came last
	unasked                       bool      // a gate was let go since then because it did not
	allAtOnce                     bool      // as that request has it

	reads    reads
	freeable []*node // pods gone, name to be freed in Slurm
	freeAt   time.Time
	wakes    wakeHeap

	hosts   HostTroubles
	tending []*node  // to be updated at the end of this step
	taints  []*taint // hosts to be marked

	rooms     rooms
	floors    floors
	updates   updates
	bootTimes map[string]BootTimes // by NodeSet
	// resumeTimeout is slurm.conf's, as the newest request told; 0: not known.
	resumeTimeout time.Duration
	breakers      Breakers
	counted       map[string]Use     // what use counted in this step
	tied          map[uint32]bool    // what tiedToOthers said in this step
	closed        map[string]closing // NodeSets whose powered-down nodes are to stay out of Slurm's choice
	// closedRead is the complete read closed was worked out for; closedAgain asks for that once more.
	closedRead  time.Time
	closedAgain bool
	// closedBy is the count of the breakers' changes closed was worked out for, closedUntil when time alone could change it.
	closedBy    int
	closedUntil time.Time

	releasing []*node         // to be powered down at the end of this step
	dismissed []*node         // let go, though they serve, and slurmctld has not taken it yet
	backs     []*back         // jobs being given back
	givenBack map[uint32]int  // how often, for jobs that have not started since
	losses    map[uint32]loss // of jobs, lately
	found     found

	history    []Boot
	offHistory []Off
	notes      []Note

	now time.Time
	out []Action
}

// request counts down the nodes for which a spooled request is not settled yet.
type request struct {
	Request
	accepted time.Time
	open     int
}

// names says whether a job of the request has the node.
func (r *request) names(node string) bool {
	return slices.ContainsFunc(r.Jobs, func(j Job) bool { return j.Nodes.Contains(node) })
}

// tellsOf says that a bridge that is started now learns from the request of the boot that the job is given back for.
func (r *request) tellsOf(b *back) bool {
	if r.Kind == spool.KindResumeFail {
		return slices.ContainsFunc(b.nodes, r.Nodes.Contains)
	}
	return slices.ContainsFunc(r.Jobs, func(j Job) bool { return j.ID == b.job })
}

// New returns an Engine that knows nothing yet.
func New(cfg Config) *Engine {
	return &Engine{
		cfg:      cfg.withDefaults(),
		nodes:    map[string]*node{},
		sets:     map[string]NodeSet{},
		requests: map[string]*request{},
		gangs:    map[uint32]*gang{},
		leading:  cfg.Alone,

		givenBack: map[uint32]int{},
		losses:    map[uint32]loss{},
	}
}

// Step takes one event that happened at now and returns what is to be done about it.
// now must not go backwards; it needs no relation to the clocks of Slurm or Kubernetes.
func (e *Engine) Step(now time.Time, ev Event) []Action {
	if now.After(e.now) {
		e.now = now
	}
	e.out, e.counted, e.tied = nil, nil, nil
	e.passWindows()
	switch ev := ev.(type) {
	case RequestAccepted:
		e.accept(ev.Request)
	case NodeSetsRead:
		e.readNodeSets(ev.NodeSets)
	case PodsRead:
		e.readPods(ev.Pods)
	case PodSeen:
		e.seePod(ev.Pod)
	case KubernetesUnread:
		e.kubernetesUnread(ev.Err)
	case PodGone:
		e.losePod(ev.Node, ev.UID)
	case SlurmRead:
		e.readSlurm(ev)
	case SlurmReadFailed:
		e.readFailed(ev.Err)
	case PodCreated:
		e.podCreated(ev)
	case PodCreateFailed:
		e.podCreateFailed(ev)
	case PodDeleted:
		if ev.Gone {
			e.losePod(ev.Node, ev.UID)
		}
	case PodDeleteFailed:
		e.podDeleteFailed(ev)
	case NodesUpdated:
		e.nodesUpdated(ev)
	case JobTold:
		e.jobTold(ev)
	case JobHeld:
		e.jobHeld(ev)
	case BacksRead:
		e.backsRead(ev)
	case HostsRead:
		e.readHosts(ev.Hosts)
	case HostSeen:
		e.seeHost(ev.Host)
	case HostsUnread:
		e.hostsDenied, e.closedAgain = true, true
		e.note(Warn, nil, "", "hosts cannot be read, nodes on cordoned or failing hosts are not drained: "+ev.Err)
	case PodMarked:
		e.podMarked(ev)
	case RoomAsked:
		e.roomAsked(ev)
	case RoomsRead:
		e.roomsRead(ev)
	case RoomDropped:
		e.roomDropped(ev)
	case HostTainted:
		e.hostTainted(ev)
	case WarmWished:
		e.warmWished(ev)
	case UpdateReserved:
		e.updateReserved(ev)
	case Leading:
		e.lead(ev)
	case GateOpened:
		e.openGate(ev)
	case GateClosed:
		e.closeGate(ev.ID)
	case Tick:
	default:
		panic(fmt.Sprintf("powersave: unknown event %T", ev))
	}
	e.wake()
	e.findBacks()
	e.askBacks()
	e.askTaints()
	e.sendReleases()
	e.sendDismissals()
	e.closeSets()
	e.sendTending()
	e.keepFloors()
	e.keepUpdates()
	e.free()
	e.dropKept()
	e.finishTelling()
	e.planRooms()
	e.expireGates()
	e.planRead()
	return e.out
}

func (e *Engine) do(a Action) {
	if e.out == nil {
		e.out = make([]Action, 0, 4)
	}
	e.out = append(e.out, a)
}

func (e *Engine) node(name string) *node {
	n := e.nodes[name]
	if n == nil {
		n = &node{name: name, set: e.setOf(name)}
		e.nodes[name] = n
		e.byName, e.sorted = append(e.byName, n), false
	}
	return n
}

// all are the nodes, by name.
func (e *Engine) all() []*node {
	if !e.sorted {
		slices.SortFunc(e.byName, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
		e.sorted = true
	}
	return e.byName
}

// setOf names the NodeSet that owns a node: a usable one before one with a problem.
func (e *Engine) setOf(name string) string {
	owner, usable := "", false
	for s := range e.sets { // in whatever order: a sorted list for every new node costs more
		ok := e.sets[s].Problem == ""
		if better := owner == "" || ok && !usable || ok == usable && s < owner; better && e.sets[s].Nodes.Contains(name) {
			owner, usable = s, ok
		}
	}
	return owner
}

// accept turns a request into orders, node by node. What a newer request has already settled
// is counted as settled here, too.
func (e *Engine) accept(r Request) {
	if _, dup := e.requests[r.ID]; dup {
		return
	}
	e.floors.suspendTime = cmp.Or(r.SuspendTime, e.floors.suspendTime)
	e.resumeTimeout = cmp.Or(r.ResumeTimeout, e.resumeTimeout)
	req := &request{Request: r, accepted: e.now, open: r.Nodes.Len()}
	e.requests[r.ID] = req
	if req.open == 0 {
		e.finish(req)
		return
	}
	if r.Kind == spool.KindResume {
		e.resumedAt, e.unasked, e.allAtOnce = e.now, false, r.AllAtOnce
	}
	nodes := make([]*node, 0, r.Nodes.Len())
	for name := range r.Nodes.All() {
		n := e.node(name)
		nodes = append(nodes, n)
		switch r.Kind {
		case spool.KindResume:
			e.orderBoot(n, req)
		case spool.KindSuspend, spool.KindResumeFail:
			e.orderOff(n, req)
		default:
			e.note(Fault, n, r.ID, fmt.Sprintf("request of unknown kind %q ignored", r.Kind))
			e.settled(req)
		}
	}
	for _, n := range nodes {
		if n.boot != nil {
			for _, id := range slices.Clone(n.jobs) {
				if g := e.gangs[id]; g != nil && n.poweredUpSince(id, g.asked) {
					e.leave(n, id)
				}
			}
		}
	}
	for _, j := range r.Jobs { // before anything is decided: a boot that fails at once takes its jobs along
		e.remember(j, r)
	}
	e.joinRest()
	e.joinGates()
	for _, n := range nodes {
		e.decide(n)
	}
}

// settled counts one node of a request as done.
func (e *Engine) settled(req *request) {
	switch req.open--; {
	case req.open > 0:
	case e.tellsOfGang(req):
		e.telling = append(e.telling, req)
	default:
		e.finish(req)
	}
}

// tellsOfGang says whether a job that the request names waits for other nodes, or slurmctld has yet to be told to let go of those that
// came up for it, or the job that slurmctld has taken off them has yet to be told why. Only from the request a bridge that is started meanwhile
// learns that, and which nodes those are.
func (e *Engine) tellsOfGang(req *request) bool {
	return slices.ContainsFunc(req.Jobs, func(j Job) bool {
		g := e.gangs[j.ID]
		return g != nil && slices.Contains(g.requests, req.ID)
	}) || slices.ContainsFunc(e.dismissed, func(n *node) bool { return req.names(n.name) }) ||
		slices.ContainsFunc(e.backs, func(b *back) bool { return b.freed && !b.told && req.tellsOf(b) })
}

// finishTelling finishes the settled requests whose jobs wait no longer.
func (e *Engine) finishTelling() {
	if !e.tellAgain {
		return
	}
	e.tellAgain = false
	e.telling = slices.DeleteFunc(e.telling, func(req *request) bool {
		tells := e.tellsOfGang(req)
		if !tells {
			e.finish(req)
		}
		return !tells
	})
}

func (e *Engine) finish(req *request) {
	delete(e.requests, req.ID)
	e.do(FinishRequest{ID: req.ID})
}

func (e *Engine) readNodeSets(sets []NodeSet) {
	first, before := !e.setsRead, e.sets
	e.setsRead = true
	e.breakers.NodeSets(sets)
	e.sets = make(map[string]NodeSet, len(sets))
	e.rooms.used = false
	for _, s := range sets {
		e.sets[s.Name] = s
		e.rooms.used = e.rooms.used || s.AskForRoom
		e.closedAgain = e.closedAgain || s.Problem != before[s.Name].Problem
		if s.Problem != "" {
			e.do(Report{Level: Warn, NodeSet: s.Name, Text: s.Problem})
		}
	}
	for _, n := range e.byName {
		n.owner = ""
	}
	for _, usable := range []bool{false, true} { // the usable ones last: they win
		for _, s := range sets {
			if (s.Problem == "") != usable {
				continue
			}
			for name := range s.Nodes.All() {
				e.node(name).owner = s.Name
			}
		}
	}
	e.setRolling()
	if first { // all nodes are known now
		e.rememberAgain()
		e.setDeadlines()
	}
	for _, n := range e.all() {
		set := n.owner
		switch {
		case set != "":
			n.was = ""
		case n.was == "":
			if n.was = n.set; n.boot != nil {
				n.boot.troubleAt = e.now // it may be made again within seconds
			}
		}
		if n.boot != nil {
			set = cmp.Or(set, n.was)
		}
		if was := before[set]; !e.sets[set].sameSpec(was.SpecGeneration, was.SpecHash) {
			n.closed, e.closedAgain = closing{}, true
		}
		if set != "" && n.read == 0 {
			e.reads.wantComplete(e.now) // the next one may be far
		}
		if n.set == set && n.boot == nil && !first {
			continue
		}
		if n.set != set {
			n.warm = warm{ask: n.warm.ask} // what it was to another NodeSet's floor
		}
		n.set = set
		e.decide(n)
	}
	e.recallBoots(false)
	e.setUpdates()
	if e.leading {
		e.setFloors()
	}
	held := e.heldGates
	e.heldGates = nil
	for _, g := range held {
		e.admitGate(g)
	}
}

// note records a problem for Status and reports it. The same text about the same node is said once.
func (e *Engine) note(level ReportLevel, n *node, req, text string) {
	r := Report{Level: level, Request: req, Text: text}
	if n != nil {
		r.Node, r.NodeSet = n.name, n.set
		if n.noted == text {
			return
		}
		n.noted = text
	}
	e.do(r)
	if level == Info {
		return
	}
	if len(e.notes) == recordedNote {
		e.notes = slices.Delete(e.notes, 0, 1)
	}
	e.notes = append(e.notes, Note{Time: e.now, Node: r.Node, Request: req, Text: text})
}
