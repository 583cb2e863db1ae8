package bridge

import (
	"context"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// Lease says how this bridge stands with the others of its cluster: the one that holds the lease reconciles, and writes
// the status of NodeSets.
type Lease struct {
	Name     string `json:"name,omitempty"`
	Identity string `json:"identity,omitempty"` // of this bridge
	Holder   string `json:"holder,omitempty"`   // identity of who holds it, as last seen; empty: nobody, or not known
	Leading  bool   `json:"leading"`            // this bridge reconciles
	Error    string `json:"error,omitempty"`    // why the lease cannot be read or written
}

// Text says who reconciles.
func (l Lease) Text() string {
	switch {
	case l.Leading:
		return "held by this bridge: it reconciles"
	case l.Error != "":
		return "NOT HELD: only requests of this spool are carried out: " + l.Error
	case l.Holder == "" || l.Holder == l.Identity:
		return "not held yet: only requests of this spool are carried out"
	default:
		return "held by " + l.Holder + ": only requests of this spool are carried out"
	}
}

// Lease takes how it stands with the lease now.
func (b *Bridge) Lease(l Lease) {
	b.inbox.Put(func(ctx context.Context) {
		old := b.lease
		b.lease = l
		b.othersLed = b.othersLed || l.Holder != "" && l.Holder != l.Identity
		b.logLease(old)
		if l.Leading == old.Leading {
			return
		}
		b.Metrics.leading(l.Leading)
		clear(b.sent) // somebody else may have written it meanwhile
		b.leadsFrom = time.Now()
		b.step(ctx, powersave.Leading{Leading: l.Leading, Others: b.othersLed})
		b.othersLed = false
	})
}

func (b *Bridge) logLease(old Lease) {
	l := b.lease
	log := b.Log.With("lease", l.Name, "identity", l.Identity, "holder", l.Holder)
	switch {
	case l.Leading && !old.Leading:
		log.Info("this bridge has the lease: it reconciles")
	case !l.Leading && old.Leading:
		log.Warn("this bridge has lost the lease: it carries out the requests of its spool, and does not reconcile", "error", l.Error)
	case l.Error != "" && l.Error != old.Error && l.Leading:
		log.Warn("the lease could not be renewed; tried again", "error", l.Error)
	case l.Error != "" && l.Error != old.Error:
		log.Warn("the lease cannot be had: this bridge carries out the requests of its spool, and does not reconcile", "error", l.Error)
	case l.Error == "" && old.Error != "":
		log.Info("the lease can be had again")
	case l.Holder != old.Holder && l.Holder != "" && l.Holder != l.Identity:
		log.Info("the lease is another bridge's: this one carries out the requests of its spool")
	}
}
