package sim_test

import (
	"slices"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// NodeSet b is deleted, or names its nodes no longer, and comes back.

// goneGrace is how long a NodeSet may be away without its jobs being given back.
const goneGrace = 10 * time.Second

type setGone struct {
	known int           // the bridge's life that was told of NodeSet b
	since time.Time     // when that life was told that it is away; zero: it is there
	was   time.Duration // how long that was so last
	other time.Time     // as rough, but for its absence
}

// toldOfB notes whether the bridge is told that NodeSet b is there.
func (w *world) toldOfB(there bool) {
	g := &w.gone
	if g.known != w.life {
		g.since, g.was = time.Time{}, 0
	}
	switch {
	case there:
		if !g.since.IsZero() {
			g.was = w.now.Sub(g.since)
		}
		g.known, g.since = w.life, time.Time{}
	case g.known == w.life && g.since.IsZero():
		g.since = w.now
	}
}

// leaveSet takes NodeSet b away. If it was deleted, Kubernetes deletes its pods.
func (w *world) leaveSet(st *step, later func(func())) {
	w.rough = latest(w.rough, w.now.Add(st.long+recovery))
	w.tellSets(0)
	if w.some(2*time.Millisecond, changeSets, 1) > 0 {
		for i, p := range w.pods {
			if p != nil && w.nodes[i].set() == 1 {
				w.terminate(p, 10*time.Minute)
			}
		}
	}
	later(func() { w.tellSets(max(0, w.setsAt.Sub(w.now))) })
}

// mayTakeForGone looks whether a NodeSet was there that a verdict says is gone, and has had the time to be made again. Who comes late to a node
// may be told so when it is back.
func (w *world) mayTakeForGone(a powersave.BootFailed) {
	g := &w.gone
	away := g.was
	if !g.since.IsZero() {
		away = max(away, w.now.Sub(g.since))
	}
	if gone, late := strings.Contains(a.Verdict.Reason, " is gone: "), strings.HasPrefix(a.Verdict.Reason, "not up after "); gone && !late && (g.known != w.life || away < goneGrace) {
		w.breaks("takes a NodeSet for gone", "%s: %s", a.Node, a.Verdict)
	}
}

// patrolGone looks whether a job waits for a node that no pod can be made for, since its NodeSet is gone.
func (w *world) patrolGone(n *node, p *pod) {
	since := w.gone.since
	waits := slices.ContainsFunc(n.jobs, func(j *slurmJob) bool { return j.state == configuring && !j.unheard && !j.reported.IsZero() })
	if since.IsZero() || !n.ours() || n.set() != 1 || !waits || !n.flags.Any(powersave.NodePoweringUp) || p != nil && p.Phase != powersave.PodTerminating {
		n.barredSince = w.now
		return
	}
	if w.engine != nil && w.listed && w.now.Sub(latest(since, n.barredSince)) > goneGrace+prompt && w.now.Sub(w.gone.other) > prompt {
		w.breaks("waits for a NodeSet that is gone", "%s since %.3f: %s", w.show(n), since.Sub(start).Seconds(), w.picture())
	}
}
