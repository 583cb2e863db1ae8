package controlplane

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// NamespaceLease is the Lease of a daemon that works in one namespace alone, in that namespace. Daemons of all namespaces leave the namespace to it.
const NamespaceLease = "slurmtide-controller-of-namespace"

// holdFor is how long a Lease counts that does not say it.
const holdFor = 20 * time.Second

// tenants are the Leases that were seen, by namespace. They count from when a renewal was seen first: clocks may differ.
type tenants struct {
	sync.Mutex
	seen map[string]tenant
}

type tenant struct {
	holder, renewed string
	at              time.Time
}

// leave tells for how long a namespace is left to a daemon of its own; 0: it is not.
func (l *Loop) leave(namespace string) time.Duration {
	if l.leases == nil {
		return 0 // this is one
	}
	lease := find[coordinationv1.Lease](l.leases, namespace, NamespaceLease)
	l.tenants.Lock()
	defer l.tenants.Unlock()
	if lease == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.RenewTime == nil {
		delete(l.tenants.seen, namespace)
		return 0
	}
	before, known := l.tenants.seen[namespace]
	now := tenant{*lease.Spec.HolderIdentity, lease.Spec.RenewTime.String(), l.o.Now()}
	if known && before.holder == now.holder && before.renewed == now.renewed {
		now.at = before.at
	}
	if !known || before.holder != now.holder {
		l.o.Log.Info("namespace is left to a daemon of its own", "namespace", namespace, "holder", now.holder)
	}
	if l.tenants.seen == nil {
		l.tenants.seen = map[string]tenant{}
	}
	l.tenants.seen[namespace] = now
	hold := holdFor
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		hold = time.Duration(*s) * time.Second
	}
	return max(0, now.at.Add(hold).Sub(l.o.Now()))
}
