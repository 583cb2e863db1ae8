package powersave

import (
	"fmt"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// UpdateWindow is when outdated pods are replaced (spec.updateStrategy.scheduled): only while it is open are nodes taken out. What is drained
// when it ends is put back.
type UpdateWindow struct {
	Schedule Schedule
	Duration time.Duration
}

// At gives the window that is open at a time, or else the next one; false: there is none.
func (w *UpdateWindow) At(now time.Time) (begin, end time.Time, found bool) {
	begin = w.Schedule.Next(now.Add(-w.Duration))
	if begin.IsZero() {
		return begin, end, false
	}
	return begin, begin.Add(w.Duration), true
}

// waits says what is waited for while the window is not open.
func (w *UpdateWindow) waits(now time.Time) updateState {
	begin, end, found := w.At(now)
	if !found {
		return updateState{true, UpdateWindowOver, "the window is over, and no other comes: set another start"}
	}
	return updateState{true, UpdateScheduled, fmt.Sprintf("they are replaced between %s and %s", begin.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339))}
}

// Reserve is what is to be reserved in Slurm for an update, so that jobs which would run into its window are placed elsewhere, or wait.
type Reserve struct {
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	Nodes string    `json:"nodes"` // a hostlist
}

// UpdateReserved says what came of a reservation for a NodeSet's update; an empty Err means that Slurm has it.
type UpdateReserved struct{ NodeSet, Err string }

func (UpdateReserved) event() {}

func (e *Engine) updateReserved(ev UpdateReserved) {
	u := &e.updates
	if u.refused == nil {
		u.refused = map[string]string{}
	}
	u.refused[ev.NodeSet] = ev.Err
	if ev.Err == "" {
		delete(u.refused, ev.NodeSet)
	}
}

// passWindows takes in that a window has begun, or ended, before anything is decided.
func (e *Engine) passWindows() {
	if u := &e.updates; !u.windowAt.IsZero() && !u.windowAt.After(e.now) {
		e.setWindows()
		u.read = -1 // the newest read is to be looked at once more
	}
}

// setWindows works out which windows are open, and when one begins or ends next.
func (e *Engine) setWindows() {
	u := &e.updates
	u.windowAt, u.shut = time.Time{}, map[string]bool{}
	for name := range u.rolling {
		w := e.sets[name].Window
		if w == nil {
			continue
		}
		begin, end, found := w.At(e.now)
		if u.shut[name] = !found || begin.After(e.now); !u.shut[name] {
			begin = end
		}
		if found && (u.windowAt.IsZero() || begin.Before(u.windowAt)) {
			u.windowAt = begin
		}
	}
}

// updatesDue is when keepUpdates has something to do; zero: no time is known.
func (e *Engine) updatesDue() time.Time {
	if !e.leading {
		return time.Time{}
	}
	return e.updates.windowAt
}

// reserve is what to reserve for the update of a NodeSet, with the nodes whose pods are outdated, as far as Slurm has them.
func (e *Engine) reserve(set NodeSet, nodes []string) *Reserve {
	if set.Window == nil || set.Problem != "" || len(nodes) == 0 {
		return nil
	}
	begin, end, found := set.Window.At(e.now)
	if !found {
		return nil
	}
	slices.Sort(nodes)
	return &Reserve{Begin: begin, End: end, Nodes: slurmconf.CompressHostlist(nodes)}
}

// windowSlack is how long before a window and after it what is in maintenance may be so for the window: slurmctld's clock may be ahead, and it
// looks at what has ended every few seconds.
const windowSlack = time.Minute

// seeReserved takes in whether the node is in maintenance through the reservation for an update. It stays so, whatever is wanted since,
// until slurmctld shows otherwise. Such a node serves, but for new jobs: a floor that powered up others in its place would double the hosts.
func (e *Engine) seeReserved(n *node) {
	if !n.slurm.State.Any(NodeMaintenance) {
		n.care.reserved, n.care.leavesBy = false, time.Time{}
		return
	}
	switch set := e.sets[n.set]; {
	case set.Window != nil && set.Problem == "" && e.behind(n):
		begin, _, found := set.Window.At(e.now.Add(-windowSlack))
		n.care.reserved = n.care.reserved || found && !begin.After(e.now.Add(windowSlack))
	}
}

// leavesIn is how long a node that was replaced may take to leave the reservation. One that people have made keeps it until its end, and
// the update is not to wait for that.
const leavesIn = 30 * time.Second

// leaves says that the node, which is powered down, is about to leave the reservation for an update.
func (n *node) leaves(now time.Time) bool {
	if n.care.reserved && n.care.leavesBy.IsZero() {
		n.care.leavesBy = now.Add(leavesIn)
	}
	return n.care.reserved && n.care.leavesBy.After(now)
}
