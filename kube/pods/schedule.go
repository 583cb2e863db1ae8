package pods

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
)

// wallClock is when a window opens: what cron says of the clock on the wall of a place. cron itself passes over days on which that
// clock is put forward (SpecSchedule.Next: a midnight that is not there costs the whole day), so it is asked about a clock that never is.
type wallClock struct {
	cron   *cron.SpecSchedule // in UTC
	place  *time.Location
	hourly bool // every hour, or every few
}

// schedule is when a window opens.
func schedule(w v1alpha1.ReplicaWindow) (wallClock, error) {
	fields := strings.Fields(w.Start)
	if len(fields) != 5 || strings.ContainsAny(w.Start, "@=") { // what cron takes beside the five fields; "@every" has no times of its own
		return wallClock{}, errors.New("five fields are wanted")
	}
	parsed, err := cron.ParseStandard(w.Start)
	if err != nil {
		return wallClock{}, err
	}
	place, err := time.LoadLocation(cmp.Or(w.TimeZone, "UTC"))
	if err != nil {
		return wallClock{}, err
	}
	fixed, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return wallClock{}, errors.New("five fields are wanted")
	}
	fixed.Location = time.UTC
	return wallClock{fixed, place, strings.HasPrefix(fields[1], "*")}, nil
}

// Next gives the first beginning after t; zero: none within five years. A time that the clock leaves out when it is put forward is the
// moment when that is done, and of one that comes twice the first counts; what begins every hour does so by the clock as it is.
func (s wallClock) Next(t time.Time) time.Time {
	after, at := t.UTC(), t.In(s.place)
	for range 100 { // times of one offset each, from the one with at on
		begin, end := at.ZoneBounds()
		_, offset := at.Zone()
		ahead := time.Duration(offset) * time.Second
		if _, before := begin.Add(-time.Second).Zone(); before > offset && !begin.IsZero() && !s.hourly { // put back
			if again := begin.UTC().Add(time.Duration(before-offset)*time.Second - time.Second); after.Before(again) {
				after = again
			}
		}
		next := s.cron.Next(after.Add(ahead))
		if next.IsZero() {
			return next
		}
		if next = next.Add(-ahead); end.IsZero() || next.Before(end) {
			return next.In(t.Location())
		}
		after, at = end.UTC().Add(-time.Second), end
		if _, then := end.Zone(); then > offset && !s.hourly { // put forward
			left := s.cron.Next(after.Add(ahead))
			if !left.IsZero() && left.Before(end.UTC().Add(time.Duration(then)*time.Second)) {
				return end.In(t.Location())
			}
		}
	}
	return time.Time{}
}
