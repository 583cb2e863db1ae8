package traces

import (
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/powersave/history"
)

// phase is one part of a boot.
type phase struct {
	name          string
	start, end    time.Time
	offering, pod string // pod is a UID
	failed        string // why it came to nothing; empty: it did not
}

// phases tells what a boot that has ended spent its time with, in order and without gaps. Parts whose end nobody has seen apart are one, with all their names.
func phases(b *history.Boot) []phase {
	w := walk{at: b.Began()}
	if !b.Dynamic {
		w.reach("accept request", b.Accepted)
	}
	w.cleared(b.Cleared)
	for _, p := range b.Tried {
		w.offering, w.pod = p.Offering, p.PodUID
		w.reach("wait", p.Asked)
		w.reach("create pod", p.Created)
		w.reach("schedule pod", p.Scheduled)
		w.reach("start pod", p.Started)
		w.reach("register slurmd", time.Time{})
		w.stop(p.Left, p.Reason)
		w.cleared(p.Gone)
	}
	w.offering, w.pod = b.Offering, b.PodUID
	w.reach("wait", b.Asked)
	w.reach("create pod", b.Created)
	w.reach("schedule pod", b.Scheduled)
	w.reach("start pod", b.Started)
	w.reach("register slurmd", b.Registered)
	w.stop(b.Ended, failure(b))
	return w.out
}

// failure is class and reason of a boot that failed.
func failure(b *history.Boot) string {
	if b.Outcome != history.Failed {
		return ""
	}
	return b.Class + ": " + b.Reason
}

// walk goes through the phases of a boot.
type walk struct {
	at            time.Time // until here they are told
	passed        []string  // since then, without their times
	offering, pod string
	out           []phase
}

// reach ends a phase. What took no time is left out.
func (w *walk) reach(name string, at time.Time) {
	w.passed = append(w.passed, name)
	if at.IsZero() {
		return
	}
	if at.After(w.at) {
		w.add(strings.Join(w.passed, ", "), at, "")
	}
	w.passed = nil
}

// cleared tells of a former pod's removal, if there was one.
func (w *walk) cleared(at time.Time) {
	if at.After(w.at) {
		w.add("remove old pod", at, "")
	}
}

// stop ends the phase under way before its time, if there is one.
func (w *walk) stop(at time.Time, failed string) {
	if len(w.passed) > 0 && (at.After(w.at) || failed != "") {
		w.add(w.passed[0], at, failed)
	}
	w.passed = nil
}

func (w *walk) add(name string, end time.Time, failed string) {
	if end.Before(w.at) {
		end = w.at
	}
	w.out = append(w.out, phase{name: name, start: w.at, end: end, offering: w.offering, pod: w.pod, failed: failed})
	w.at = end
}
