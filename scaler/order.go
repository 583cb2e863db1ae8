package scaler

import (
	"slices"
	"strings"
)

// slurmctld starts het jobs by backfill alone, and that changes the order in which all others get their nodes:
//
//   - Where it looks at the queue in order it passes over a het job, and starts nothing that comes after it on any node of its partitions; at the second
//     component for the same partition it stops (job_scheduler.c _schedule, fail_this_part).
//   - Backfill plans the components in turn, and keeps their nodes, all of each, from what comes later. At the end of its round it starts the het jobs it could plan,
//     each component on whatever suits it then (backfill.c _het_job_start_test, _het_job_start_now).
//   - Seconds lie between the two, and nodes that were given to jobs boot by then. From 26.05 on they come before those that are powered down
//     (node_scheduler.c _set_sched_weight).
//
// So a job may start elsewhere, or a round later.

// inTurn gives the entries their nodes in that order. Without het jobs it is the queue's.
func (d *demand) inTurn() {
	rest := make([]*entry, len(d.queue))
	for i := range d.queue {
		rest[i] = &d.queue[i]
	}
	if slices.ContainsFunc(rest, (*entry).planned) {
		for d.placer.looks > 0 && len(rest) > 0 {
			before := d.started
			rest = d.schedule(rest)
			d.world.boot()
			rest = d.backfill(rest)
			d.world.boot()
			if d.started == before {
				break
			}
		}
	}
	for _, e := range rest {
		d.run(e)
	}
}

// boot has nodes boot that are powered up for jobs placed by now.
func (w *world) boot() {
	if !w.snap.Select.OneNodeFirstFit { // before 26.05
		return
	}
	for i := range w.bins {
		b := &w.bins[i]
		b.boots = b.opened
	}
}

// planned reports that only backfill starts it: a het job that could run at all.
func (e *entry) planned() bool {
	return e.parts != nil && !slices.ContainsFunc(e.parts, func(c component) bool { return c.need.verdict != nil })
}

// waits reports that there are tasks yet to be placed.
func (e *entry) waits() bool {
	return e.first.need.verdict == nil && e.done < e.count && e.array.left() > 0
}

// schedule is a look at the queue in order. It returns what still waits.
func (d *demand) schedule(queue []*entry) (rest []*entry) {
	p := &d.placer
	defer p.keepNone()
	closed := map[string]bool{}
	for i, e := range queue {
		if !e.planned() {
			if !e.first.need.within(closed) {
				d.run(e)
			}
			if e.waits() {
				rest = append(rest, e)
			}
			continue
		}
		rest = append(rest, e)
		for _, c := range e.parts {
			for _, part := range c.need.partitions(d.world.partitions) {
				if closed[part.Name] {
					return append(rest, queue[i+1:]...)
				}
				closed[part.Name] = true
				p.keepAll(part.Name)
			}
		}
	}
	return rest
}

// within reports whether all partitions of the job are among those.
func (n *need) within(closed map[string]bool) bool {
	if len(closed) == 0 {
		return false
	}
	for name := range strings.SplitSeq(n.req.Partitions, ",") {
		if !closed[name] {
			return false
		}
	}
	return true
}

// backfill is a round of it. It returns what still waits.
func (d *demand) backfill(queue []*entry) (rest []*entry) {
	p := &d.placer
	var hets []*entry
	for _, e := range queue {
		switch {
		case !e.planned():
			d.run(e)
		case p.plan(e.needs()):
			hets = append(hets, e)
		}
	}
	p.keepNone()
	for _, e := range hets {
		d.run(e)
	}
	for _, e := range queue {
		if e.waits() {
			rest = append(rest, e)
		}
	}
	return rest
}

func (e *entry) needs() []*need {
	needs := make([]*need, len(e.parts))
	for i, c := range e.parts {
		needs[i] = c.need
	}
	return needs
}

// plan finds nodes for the components of a het job, and keeps them from all others.
func (p *placer) plan(needs []*need) bool {
	p.gen++
	p.trial, p.undo = true, p.undo[:0]
	defer func() { p.trial = false }()
	var bins []int32
	for _, n := range needs {
		spots := p.placeBeside(n)
		if spots == nil {
			p.takeBack()
			return false
		}
		for i := range spots {
			bins = append(bins, spots[i].bin)
		}
	}
	p.takeBack()
	p.keep(bins)
	return true
}

// keep lets nobody have the nodes, until keepNone.
func (p *placer) keep(bins []int32) {
	for _, at := range bins {
		p.w.bins[at].kept = true
	}
	p.kept = append(p.kept, bins...)
}

func (p *placer) keepAll(partition string) {
	for _, c := range p.w.classes {
		if slices.Contains(c.partitions, partition) {
			p.keep(c.bins)
		}
	}
}

func (p *placer) keepNone() {
	for _, at := range p.kept {
		p.w.bins[at].kept = false
	}
	p.kept = p.kept[:0]
}
