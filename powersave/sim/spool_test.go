package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/spool"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// The programs of slurm.conf, and their requests.

// spooled is a request, and the power epoch each node was in when the program was called.
type spooled struct {
	powersave.Request
	epochs [nodeCount]int // 0: not named
	at     time.Time
	done   bool // it is being removed
}

// program is a run of ResumeProgram, SuspendProgram or ResumeFailProgram.
func (w *world) program(kind spool.Kind, nodes []*node) {
	if len(nodes) == 0 {
		return
	}
	r := spooled{Request: powersave.Request{Kind: kind, Started: w.now}}
	var names []string
	for _, n := range nodes {
		names = append(names, n.name)
		r.epochs[n.index] = n.epoch
	}
	if kind == spool.KindResume {
		if !w.untold {
			r.ResumeTimeout = resumeTimeout
		}
		for _, j := range w.jobs {
			if j.state == configuring && slices.ContainsFunc(j.nodes, func(n *node) bool { return slices.Contains(nodes, n) }) {
				r.Jobs = append(r.Jobs, powersave.Job{ID: j.id, Nodes: hostlist(j.nodes)})
				if j.asked = w.now; !w.any(programLost) {
					j.reported = w.now
					if j.first.IsZero() {
						j.first = w.now
					}
				}
			}
		}
	}
	if w.any(programLost) {
		w.logf("%s of %v is killed", kind, names)
		for _, n := range nodes {
			n.unheard = n.epoch
			for _, j := range n.jobs {
				j.unheard = true
			}
		}
		return
	}
	if w.any(programOdd) {
		names = append(names, names[0], "ghost")
	}
	r.Nodes = slurmconf.NewHostlist(names...)
	times := 1
	if w.any(programTwice) {
		times = 2
	}
	for i := range times {
		r := r
		w.after(w.delay(50*time.Millisecond, programSlow, i, 10*time.Second), func() {
			w.sequence = max(w.sequence+1, w.now.UnixNano())
			w.lastID++
			r.Sequence, r.ID = w.sequence, fmt.Sprintf("%s%d", kind, w.lastID)
			w.after(w.delay(10*time.Millisecond, programSlow, i, 2*time.Second), func() { w.spoolIt(r) })
		})
	}
}

func (w *world) spoolIt(r spooled) {
	r.at = w.now
	w.spool = append(w.spool, r)
	slices.SortFunc(w.spool, func(a, b spooled) int { return int(a.Sequence - b.Sequence) })
	w.logf("spool %s nodes=%v", r.ID, r.Nodes)
	w.tell(w.delay(5*time.Millisecond, programSlow, 2, 2*time.Second), powersave.RequestAccepted{Request: r.Request})
	if w.any(programTwice) {
		w.after(w.some(5*time.Second, programTwice, 0), func() {
			if slices.ContainsFunc(w.spool, func(o spooled) bool { return o.ID == r.ID && !o.done }) {
				w.step(powersave.RequestAccepted{Request: r.Request})
			}
		})
	}
}

func (w *world) finish(id string) {
	i := slices.IndexFunc(w.spool, func(r spooled) bool { return r.ID == id })
	if i < 0 {
		return // it came once more just before it was finished, which does no harm
	}
	r := w.spool[i]
	w.spool[i].done = true
	w.removeRequest(id)
	for i, epoch := range r.epochs {
		n, p := w.nodes[i], w.pods[i]
		switch {
		case epoch == 0 || n.epoch != epoch:
		case r.Kind == spool.KindResume && n.flags.Any(powersave.NodePoweringUp) && !n.down:
			w.breaks("finished early", "%s, but %s is %s", id, n.name, n.state())
		case r.Kind == spool.KindResumeFail && n.down && n.ours() && strings.HasPrefix(n.reason, "ResumeTimeout") && w.now.After(w.rough):
			w.breaks("gives no reason", "%s is finished, and %s is %s (%s)", id, n.name, n.state(), n.reason)
		case r.Kind != spool.KindResume && p != nil && p.Phase != powersave.PodTerminating && !p.lost && w.now.Sub(p.Created) > stale && len(n.jobs) == 0 && n.ours():
			w.breaks("finished early", "%s, but %s is %s with pod %s", id, n.name, n.state(), p.UID)
		}
	}
}

// removeRequest is what the bridge does with a finished one, again and again.
func (w *world) removeRequest(id string) {
	life := w.life
	w.call(w.some(10*time.Millisecond, programSlow, 3), func() {
		if !w.any(finishFails) {
			w.spool = slices.DeleteFunc(w.spool, func(r spooled) bool { return r.ID == id })
		} else if life == w.life {
			w.after(2*time.Second, func() {
				if life == w.life {
					w.removeRequest(id)
				}
			})
		}
	})
}
