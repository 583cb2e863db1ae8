package powersave

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Defaults of the breakers.
const (
	// DefaultBackoffInitial is how long a breaker stays open the first time.
	DefaultBackoffInitial = time.Minute
	// DefaultOfferingBackoff is the same for an offering: it had no capacity, and there are others.
	DefaultOfferingBackoff = 3 * time.Minute
	// DefaultBackoffMax is how long a breaker stays open at most.
	DefaultBackoffMax = 30 * time.Minute

	// breakerThreshold is how many boots in a row must crash, be refused or never register.
	breakerThreshold = 3
	// probeForgotten is when a probe that nobody reported on counts as gone: a breaker must not
	// stay half-open for ever.
	probeForgotten = 30 * time.Minute
)

// BreakerKey names a breaker: a NodeSet's own (Offering "") or that of one of its offerings.
type BreakerKey struct {
	NodeSet  string `json:"nodeSet"`
	Offering string `json:"offering,omitempty"`
}

// BreakerState says what a breaker lets through.
type BreakerState string

// States of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // everything
	BreakerOpen     BreakerState = "open"      // nothing until its time, or a change of the spec
	BreakerHalfOpen BreakerState = "half-open" // nothing: one probe is out, and decides
)

// BreakerRecord is one breaker as plain data, for a NodeSet's status.
type BreakerRecord struct {
	Key      BreakerKey   `json:"key"`
	State    BreakerState `json:"state"`
	Class    Trouble      `json:"class"` // of the newest failure that counted
	Reason   string       `json:"reason"`
	Until    time.Time    `json:"until,omitzero"` // zero: until the spec changes
	Failures int          `json:"failures"`       // that counted since the last success
	Tries    int          `json:"tries"`          // how often it opened since the last success
	Spec     int64        `json:"spec"`           // the spec generation that failed
	// SpecHash is NodeSet.SpecHash of that spec; "" if who saved the record did not know of it.
	SpecHash string `json:"specHash,omitempty"`
}

// Attempt is leave to make one pod. The boot keeps it and reports what came of it with exactly one
// of Failed, Succeeded and ProbeGone. One that is made up from a pod found after a restart, by NodeSet.AttemptOf,
// is an attempt like any other that is not a probe.
type Attempt struct {
	NodeSet, Offering string
	Spec              int64  // generation of the spec the pod is made from
	SpecHash          string // and its hash

	setProbe, offeringProbe uint64 // which probe it is for the NodeSet's and the offering's breaker; 0: none
}

// Attempt is one on an offering, of the NodeSet's present spec.
func (s NodeSet) Attempt(offering string) Attempt {
	return Attempt{NodeSet: s.Name, Offering: offering, Spec: s.SpecGeneration, SpecHash: s.SpecHash}
}

// AttemptOf is the one that a pod of the NodeSet stands for which somebody else has made. Of which spec one of another revision is nobody
// knows, only that it is not the present one: its failure is not held against that.
func (s NodeSet) AttemptOf(p Pod) Attempt {
	a := s.Attempt(p.Offering)
	if s.Revision != "" && p.Revision != s.Revision {
		a.Spec, a.SpecHash = 0, ""
	}
	return a
}

// sameSpec says that nothing has been changed since that could help a boot. Where a hash is not known any change counts.
func (s NodeSet) sameSpec(generation int64, hash string) bool {
	if hash == "" || s.SpecHash == "" {
		return generation == s.SpecGeneration
	}
	return hash == s.SpecHash
}

// Probe reports whether others wait for the outcome of this attempt.
func (a Attempt) Probe() bool { return a.setProbe != 0 || a.offeringProbe != 0 }

// Choice is where the next pod of a NodeSet may go, or why nowhere.
type Choice struct {
	Attempt
	OK bool
	// If not OK: the class and text of what stands against it, and when it is worth asking again. A zero
	// Until means that no time is known: it takes a change of the spec, the end of a probe or of a pod.
	Class Trouble
	Why   string
	Until time.Time
	Soon  bool // it takes the end of a probe, or of a pod that is ending: worth waiting for
	Full  bool // nothing but limits stands against it
}

// verdict is what a boot that is refused ends with.
func (c Choice) verdict() Verdict {
	return Verdict{Trouble: c.Class, Reason: strings.TrimPrefix(c.Why, string(c.Class)+": ")}
}

// Breakers keep boots from being tried over and over where they fail. There is one per NodeSet and
// one per offering. Lack of capacity and quota belong to the offering, if there are any; all
// other trouble to the NodeSet:
//
//   - capacity and quota open the breaker at once;
//   - crash, refused and bootstrap open it when three boots fail without a success between them;
//   - image and config open it at once, until the spec changes in more than how many nodes are to be up, or for a time if
//     they are none of the spec's (Refused);
//   - lost says nothing about the next boot.
//
// A breaker whose time has come, or whose NodeSet has a new spec, lets one probe through. Its success closes
// the breaker; its failure opens it for twice as long. The zero value is ready for a call of NodeSets.
type Breakers struct {
	sets   map[string]breakerPolicy
	known  map[BreakerKey]*breaker // without an entry: closed, and nothing failed
	probes uint64
	// changes counts what could make Look say something else.
	changes int
}

type breakerPolicy struct {
	uid          string
	initial, max time.Duration // 0: default
	offerings    []string
}

type breaker struct {
	BreakerRecord
	probe   uint64 // 0: none is out
	probeAt time.Time
}

// NodeSets takes in all NodeSets there are: their back-off, and for those not known yet the breakers
// that were saved in their status. Breakers of what is gone are forgotten.
func (b *Breakers) NodeSets(sets []NodeSet) {
	b.changes++
	before := b.sets
	b.sets = make(map[string]breakerPolicy, len(sets))
	for _, set := range sets {
		p := breakerPolicy{uid: set.UID, initial: set.BackoffInitial, max: set.BackoffMax}
		for _, o := range set.Offerings {
			p.offerings = append(p.offerings, o.Name)
		}
		b.sets[set.Name] = p
		if old, known := before[set.Name]; !known || old.uid != set.UID {
			b.forget(set.Name)
			b.Restore(set.Breakers)
		}
	}
	for key := range b.known {
		if p, ok := b.sets[key.NodeSet]; !ok || key.Offering != "" && !slices.Contains(p.offerings, key.Offering) {
			delete(b.known, key)
		}
	}
}

func (b *Breakers) forget(nodeSet string) {
	for key := range b.known {
		if key.NodeSet == nodeSet {
			delete(b.known, key)
		}
	}
}

// Snapshot returns the breakers of a NodeSet about which there is something to say: its own first, then
// those of its offerings by name. It is never nil.
func (b *Breakers) Snapshot(nodeSet string) []BreakerRecord {
	all := []BreakerRecord{}
	for key, s := range b.known {
		if key.NodeSet == nodeSet {
			all = append(all, s.BreakerRecord)
		}
	}
	slices.SortFunc(all, func(x, y BreakerRecord) int { return cmp.Compare(x.Key.Offering, y.Key.Offering) })
	return all
}

// Restore takes over what Snapshot saved. Probes that were out are forgotten: half-open becomes open,
// and as its time has passed, the next attempt is the new probe.
func (b *Breakers) Restore(records []BreakerRecord) {
	for _, r := range records {
		if r.State == BreakerHalfOpen {
			r.State = BreakerOpen
		}
		r.Failures, r.Tries = max(r.Failures, 0), max(r.Tries, 0)
		b.put(&breaker{BreakerRecord: r})
	}
}

// takeOver is Restore for what another bridge saved: of breakers that are open here, ours know more.
func (b *Breakers) takeOver(records []BreakerRecord) {
	b.Restore(slices.DeleteFunc(slices.Clone(records), func(r BreakerRecord) bool { return b.known[r.Key].isOpen() }))
}

func (b *Breakers) put(s *breaker) {
	if b.known == nil {
		b.known = map[BreakerKey]*breaker{}
	}
	b.known[s.Key] = s
	b.changes++
}

// until is when time alone could make Look say something else; zero: never.
func (b *Breakers) until(now time.Time) (next time.Time) {
	for _, s := range b.known {
		t := s.Until
		if s.probe != 0 {
			t = s.probeAt.Add(probeForgotten)
		}
		if s.isOpen() && t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// AllClosed reports that nothing stands against any boot.
func (b *Breakers) AllClosed() bool {
	for _, s := range b.known {
		if s.isOpen() {
			return false
		}
	}
	return true
}

// rests says that boots have failed on one of the NodeSet's offerings, and none has succeeded since, nor has its spec been changed.
func (b *Breakers) rests(set NodeSet) bool {
	for key, s := range b.known {
		if key.NodeSet == set.Name && s.isOpen() && set.sameSpec(s.Spec, s.SpecHash) {
			return true
		}
	}
	return false
}

// Look says what Pick would, and takes no probe. A nil use leaves limits out.
func (b *Breakers) Look(now time.Time, set NodeSet, use Use) Choice {
	choice, _ := b.choose(now, set, use)
	return choice
}

// Pick chooses where the next pod of a NodeSet goes: the first of its offerings that is below
// its limit and whose breaker lets it through.
func (b *Breakers) Pick(now time.Time, set NodeSet, use Use) Choice {
	choice, probes := b.choose(now, set, use)
	for _, s := range probes {
		b.changes++
		b.probes++
		s.State, s.probe, s.probeAt = BreakerHalfOpen, b.probes, now
		if s.Key.Offering == "" {
			choice.setProbe = b.probes
		} else {
			choice.offeringProbe = b.probes
		}
	}
	return choice
}

// choose also returns the breakers that the choice would be a probe of.
func (b *Breakers) choose(now time.Time, set NodeSet, use Use) (Choice, []*breaker) {
	var probes []*breaker
	own := b.known[BreakerKey{NodeSet: set.Name}]
	choice := b.pass(now, own, set)
	choice.Attempt = set.Attempt("")
	if !choice.OK {
		return choice, nil
	}
	if own.isOpen() {
		probes = append(probes, own)
	}
	if len(set.Offerings) == 0 {
		return choice, probes
	}
	refused := Choice{Attempt: choice.Attempt, Full: true}
	for _, o := range set.Offerings {
		s := b.known[BreakerKey{NodeSet: set.Name, Offering: o.Name}]
		c := b.pass(now, s, set)
		// Beyond the limit the end of a probe is not worth waiting for either.
		if p := use[o.Name]; (c.OK || c.Soon && p.Taken == beyond) && o.Limit > 0 && p.Taken >= o.Limit {
			c = Choice{Class: TroubleCapacity, Why: fmt.Sprintf("all %d nodes of its limit are in use", o.Limit), Soon: p.Ending > 0, Full: true}
			if p.Taken == beyond {
				c.Why = fmt.Sprintf("limit %d", o.Limit)
			}
		}
		if c.OK {
			choice.Offering = o.Name
			if s.isOpen() {
				probes = append(probes, s)
			}
			return choice, probes
		}
		refused.add(o.Name, c)
	}
	return refused, nil
}

// add notes that an offering cannot be used either.
func (c *Choice) add(offering string, refused Choice) {
	if c.Why != "" {
		c.Why += "; "
	}
	c.Why += "offering " + offering + ": " + refused.Why
	c.Soon, c.Full = c.Soon || refused.Soon, c.Full && refused.Full
	// The class is that of the offering that can be tried first.
	sooner := !refused.Until.IsZero() && (c.Until.IsZero() || refused.Until.Before(c.Until))
	if sooner || c.Class == TroubleNone {
		c.Class = refused.Class
	}
	if sooner {
		c.Until = refused.Until
	}
}

// pass says whether a breaker lets an attempt through; as a probe, if it is open.
func (b *Breakers) pass(now time.Time, s *breaker, set NodeSet) Choice {
	if !s.isOpen() {
		return Choice{OK: true}
	}
	refused := Choice{Class: s.Class, Why: Verdict{Trouble: s.Class, Reason: s.Reason}.String()}
	if s.probe != 0 && now.Sub(s.probeAt) < probeForgotten {
		refused.Why += " (one pod tries it now)"
		refused.Soon = true
		return refused
	}
	if !set.sameSpec(s.Spec, s.SpecHash) {
		return Choice{OK: true}
	}
	if s.untilChanged() {
		refused.Why += " (not tried again before the NodeSet is changed)"
		return refused
	}
	until := s.Until
	// A clock that was set back, or a shorter spec.backoff, must not keep it open for longer than it may be.
	if latest := now.Add(b.openTime(s)); until.After(latest) {
		until = latest
		s.Until = latest
	}
	if now.Before(until) {
		refused.Until = until
		return refused
	}
	return Choice{OK: true}
}

// Failed reports that an attempt came to nothing, and why.
func (b *Breakers) Failed(now time.Time, a Attempt, class Trouble, reason string) {
	b.failed(now, a, class, reason, untilChanged(class))
}

// Refused reports that an attempt came to nothing for what no change of the spec can mend, and what every node will meet: a right is missing.
func (b *Breakers) Refused(now time.Time, a Attempt, reason string) {
	b.failed(now, a, TroubleConfig, reason, false)
}

// failed: barred says that only a change of the spec can help.
func (b *Breakers) failed(now time.Time, a Attempt, class Trouble, reason string, barred bool) {
	b.changes++
	key, known := b.blame(a, class)
	probe := b.isProbe(a, key)
	b.ProbeGone(a)
	if !known {
		return
	}
	s := b.known[key]
	if s == nil {
		s = &breaker{BreakerRecord: BreakerRecord{Key: key, State: BreakerClosed}}
		b.put(s)
	}
	switch {
	case probe, !s.isOpen():
		s.Failures++
		s.Class, s.Reason, s.Spec, s.SpecHash = class, reason, a.Spec, a.SpecHash
		if !probe && inARow(class) && s.Failures < breakerThreshold {
			return
		}
		s.State = BreakerOpen
		s.Tries++
		s.Until = time.Time{}
		if !barred {
			s.Until = now.Add(b.openTime(s))
		}
	case barred && (!s.untilChanged() || a.Spec > s.Spec):
		// Of attempts that began before the breaker opened only this is news: time will not help.
		s.Class, s.Reason, s.Spec, s.SpecHash, s.Until = class, reason, a.Spec, a.SpecHash, time.Time{}
	}
}

// Succeeded reports that the attempt's node registered.
func (b *Breakers) Succeeded(a Attempt) {
	for _, key := range a.keys() {
		s := b.known[key]
		// A node that got its host before the breaker opened does not prove that there is another.
		if s != nil && (!s.isOpen() || inARow(s.Class) || b.isProbe(a, key)) {
			delete(b.known, key)
			b.changes++
		}
	}
	b.ProbeGone(a)
}

// ProbeGone reports that an attempt ended without a result: nobody wants the node any more. The next may be
// the probe. For an attempt that is not one it does nothing.
func (b *Breakers) ProbeGone(a Attempt) {
	for _, key := range a.keys() {
		if b.isProbe(a, key) {
			s := b.known[key]
			s.State, s.probe = BreakerOpen, 0
			b.changes++
		}
	}
}

// blame returns the breaker that a class of trouble belongs to; false if to none, or to an offering
// that is gone.
func (b *Breakers) blame(a Attempt, class Trouble) (BreakerKey, bool) {
	key := BreakerKey{NodeSet: a.NodeSet}
	set, known := b.sets[a.NodeSet]
	switch class {
	case TroubleCapacity, TroubleQuota:
		key.Offering = a.Offering
		if len(set.offerings) > 0 || a.Offering != "" {
			known = known && slices.Contains(set.offerings, a.Offering)
		}
		return key, known
	case TroubleImage, TroubleConfig, TroubleCrash, TroubleRefused, TroubleBootstrap:
		return key, known
	default: // lost says nothing about the next boot
		return key, false
	}
}

func (b *Breakers) isProbe(a Attempt, key BreakerKey) bool {
	number := a.setProbe
	if key.Offering != "" {
		number = a.offeringProbe
	}
	s := b.known[key]
	return s != nil && number != 0 && s.probe == number
}

// openTime is how long the breaker stays open after its newest failure.
func (b *Breakers) openTime(s *breaker) time.Duration {
	p := b.sets[s.Key.NodeSet]
	d := p.initial
	if d <= 0 {
		d = DefaultBackoffInitial
		if s.Key.Offering != "" {
			d = DefaultOfferingBackoff
		}
	}
	most := p.max
	if most <= 0 {
		most = max(DefaultBackoffMax, p.initial)
	}
	for i := 1; i < s.Tries && d < most; i++ {
		d *= 2
	}
	return min(d, most)
}

// keys are the breakers an attempt has to do with.
func (a Attempt) keys() []BreakerKey {
	keys := []BreakerKey{{NodeSet: a.NodeSet}}
	if a.Offering != "" {
		keys = append(keys, BreakerKey{NodeSet: a.NodeSet, Offering: a.Offering})
	}
	return keys
}

func (s *breaker) isOpen() bool { return s != nil && s.State != BreakerClosed }

// untilChanged reports whether an open breaker waits for another spec, and for no time.
func (s *breaker) untilChanged() bool { return untilChanged(s.Class) && s.Until.IsZero() }

// untilChanged reports whether only people can end this trouble.
func untilChanged(class Trouble) bool { return class == TroubleImage || class == TroubleConfig }

// inARow reports whether one failure of the class may be chance.
func inARow(class Trouble) bool {
	return class == TroubleCrash || class == TroubleRefused || class == TroubleBootstrap
}
