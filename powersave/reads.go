package powersave

import "time"

// reads plans when Slurm is read, one read at a time, so that its cost stays bounded: after a
// read that took d the next one waits restFactor times d. That pause is cut to restShort, but
// never below d, since on a busy machine d says little about what the read cost slurmctld.
type reads struct {
	underway  bool
	asked     time.Time
	ended     time.Time
	complete  time.Time // when the last complete read was asked for
	whole     int       // its number
	wholeAt   time.Time // when it was answered
	notBefore time.Time
	hurryAt   time.Time // after a failure: when to try again if something is in hand
	due       time.Time
	wholeDue  time.Time // a complete read is wanted by then
	failures  int
	failing   time.Time // when the first of them was asked for
	lastErr   string
	count     int // reads asked for so far; the number of the newest
}

const (
	restFactor = 5
	restShort  = 300 * time.Millisecond
	failPause  = 30 * time.Second // longest pause after a failed read
	failHurry  = 5 * time.Second  // the same while something is in hand
)

// want asks for a read by t at the latest.
func (r *reads) want(t time.Time) {
	if r.due.IsZero() || t.Before(r.due) {
		r.due = t
	}
}

// wantComplete asks for a read of all nodes by t at the latest.
func (r *reads) wantComplete(t time.Time) {
	if r.wholeDue.IsZero() || t.Before(r.wholeDue) {
		r.wholeDue = t
	}
	r.want(t)
}

func (r *reads) next() time.Time {
	if r.underway {
		return time.Time{}
	}
	if r.due.Before(r.notBefore) {
		return r.notBefore
	}
	return r.due
}

// blind is since when Slurm has not answered; false: it does.
func (r *reads) blind() (since time.Time, blind bool) {
	if r.failures > 0 {
		return r.failing, true
	}
	return r.asked, r.underway
}

func (r *reads) failed(now time.Time, err string) {
	r.underway, r.ended, r.lastErr = false, now, err
	if r.failures++; r.failures == 1 {
		r.failing = r.asked
	}
	pause := min(time.Second<<min(r.failures-1, 5), failPause)
	r.notBefore, r.hurryAt = now.Add(pause), now.Add(min(pause, failHurry))
	r.due = r.notBefore
}

// hang says that Slurm does not answer, or not soon.
func (r *reads) hang(now time.Time) bool {
	return r.failures > 0 || r.underway && now.Sub(r.asked) >= actOn
}

// hurry cuts the pause after a failure short.
func (r *reads) hurry() {
	if r.failures > 0 && r.hurryAt.Before(r.notBefore) {
		r.notBefore = r.hurryAt
		r.want(r.hurryAt)
	}
}

func (r *reads) answered(now time.Time, ev SlurmRead) {
	r.underway, r.ended, r.failures, r.lastErr = false, now, 0, ""
	if ev.Complete {
		r.complete, r.whole, r.wholeAt, r.wholeDue = r.asked, r.count, now, time.Time{}
	}
	took := now.Sub(r.asked)
	r.notBefore = now.Add(min(restFactor*took, max(restShort, took)))
	r.due = time.Time{}
}

func (e *Engine) readFailed(err string) {
	e.reads.failed(e.now, err)
	e.note(Warn, nil, "", "reading nodes from slurmrestd failed: "+err)
	e.compactActive()
}

// readSlurm takes in an answer and decides on every node it may concern.
func (e *Engine) readSlurm(ev SlurmRead) {
	if ev.Complete && len(ev.Nodes) == 0 && len(e.nodes) > 0 {
		// slurmctld does not run without nodes; whatever this is, it must not make all of them vanish.
		e.readFailed("it lists no node at all: does its token belong to SlurmUser, and has slurmctld started?")
		return
	}
	e.reads.answered(e.now, ev)
	whole := ev.Complete && e.podsRead && e.setsRead && !e.blind
	var seen map[string]bool
	if ev.Complete {
		seen = make(map[string]bool, len(ev.Nodes))
	}
	for _, s := range ev.Nodes {
		if ev.Complete {
			seen[s.Name] = true
		}
		n, known := e.nodes[s.Name]
		if !known { // not of any NodeSet, and in no request
			continue
		}
		if !n.see(s, &e.reads, whole, e.cfg.Sightings) && ev.Complete {
			e.reads.wantComplete(e.now.Add(e.cfg.PollSlow)) // what else has become of it is not to wait for PollIdle once more
		}
		e.seeReserved(n)
		e.missesMembers(n)
	}
	for _, name := range ev.Unknown {
		// Only a complete read tells that a node does not exist.
		if n := e.nodes[name]; n != nil {
			n.unknown = e.reads.count
			e.reads.wantComplete(e.pollFor(n))
		}
	}
	var gone []*node // whose orders and pods must come to an end all the same
	if ev.Complete {
		for _, n := range e.all() {
			if seen[n.name] {
				continue
			}
			n.vanish(&e.reads, whole, e.cfg.Sightings)
			if n.boot != nil || n.off != nil || n.pod != nil {
				gone = append(gone, n)
			}
		}
	}
	if whole && !e.recalled {
		e.recalled = true
		e.rememberAgain()
	}
	e.pruneRest()
	e.joinRest()
	e.joinGates()
	for _, s := range ev.Nodes {
		if n := e.nodes[s.Name]; n != nil {
			e.decide(n)
		}
	}
	for _, n := range gone {
		e.decide(n)
	}
	e.checkGates()
	e.scheduleNext()
}

// scheduleNext sets when the next read is due from what is under way.
func (e *Engine) scheduleNext() {
	r := &e.reads
	r.wantComplete(r.complete.Add(e.cfg.PollIdle))
	if !r.wholeDue.IsZero() {
		r.want(r.wholeDue)
	}
	for _, n := range e.compactActive() {
		r.want(e.pollFor(n))
	}
	for _, g := range e.gates {
		r.want(e.pollForGate(g))
	}
	if len(e.updates.draining) > 0 {
		r.want(r.ended.Add(e.cfg.PollWait)) // their jobs may have ended
	}
}

// pollFor is when the order in hand of n wants Slurm to be read next.
func (e *Engine) pollFor(n *node) time.Time {
	last := e.reads.ended
	switch {
	case n.unknown == e.reads.count && n.missing:
		return last.Add(e.cfg.PollWait)
	case n.boot == nil && n.off == nil, n.unknown == e.reads.count:
		return last
	case n.off != nil && !n.off.confirmed && !n.readSince(n.off.read),
		n.boot != nil && n.boot.unsure && !n.readSince(n.boot.read):
		return last // nothing can be done before
	case n.off == nil && (n.pod == nil || n.pod.Phase == PodPending || n.pod.Phase == PodTerminating || n.outdated()),
		n.off != nil && n.pod != nil && n.pod.Phase == PodTerminating:
		return last.Add(e.cfg.PollWait) // nothing can register; Slurm may give up
	case n.off == nil && n.boot.anothers():
		return last.Add(e.cfg.PollWait) // nobody here waits for it
	case n.off == nil:
		return last.Add(e.cfg.PollFast)
	default:
		return last.Add(e.cfg.PollSlow)
	}
}

// planRead starts a read when one is due.
func (e *Engine) planRead() {
	r := &e.reads
	if r.count == 0 && !r.underway { // the first read ever is not due to anything
		r.want(e.now)
	}
	if len(e.active)+len(e.requests)+len(e.gates)+len(e.heldGates)+len(e.dismissed) > 0 {
		r.hurry()
	}
	next := r.next()
	if r.underway || next.IsZero() || next.After(e.now) {
		return
	}
	names := e.nodesToRead()
	if len(names) == 0 && !e.wholeDue() { // who wanted it is done
		r.due = r.wholeDue
		return
	}
	r.underway, r.asked, r.due = true, e.now, time.Time{}
	r.count++
	e.do(ReadSlurm{Nodes: names})
}

// wholeDue says that the next read has to be complete.
func (e *Engine) wholeDue() bool {
	r := &e.reads
	return r.complete.IsZero() || !r.wholeDue.IsZero() && !r.wholeDue.After(e.now)
}

// nodesToRead names the nodes a read is for, or none for all.
func (e *Engine) nodesToRead() []string {
	if e.wholeDue() {
		return nil
	}
	var names []string
	listed := map[string]bool{}
	add := func(name string) {
		if !listed[name] {
			listed[name] = true
			names = append(names, name)
		}
	}
	for _, n := range e.compactActive() {
		add(n.name)
	}
	for _, n := range e.dismissed {
		add(n.name)
	}
	for _, n := range e.updates.draining {
		add(n.name)
	}
	for _, g := range e.gates {
		for _, n := range g.nodes {
			add(n.name)
		}
	}
	return names
}

// compactActive drops nodes without an order from the list and returns it.
func (e *Engine) compactActive() []*node {
	kept := e.active[:0]
	for _, n := range e.active {
		if n.boot != nil || n.off != nil {
			kept = append(kept, n)
		} else {
			n.active = false
		}
	}
	clear(e.active[len(kept):])
	e.active = kept
	return kept
}
