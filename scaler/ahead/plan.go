package ahead

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/slurmtide/slurmtide/scaler"
)

// Source says from what a job's start is known.
type Source string

// Sources.
const (
	BeginTime     Source = "BeginTime"
	Dependency    Source = "Dependency"
	Reservation   Source = "Reservation"
	ExpectedStart Source = "ExpectedStart"
)

// Grace is how long nodes are held for a job after the time at which it was to start.
//
// slurmctld may look at the queue once a minute only (sched_interval).
const Grace = 90 * time.Second

// Settings are those of one NodeSet.
type Settings struct {
	NodeSet       string
	Lead          time.Duration // how long before the start nodes are to be powered up
	MaxNodes      int           // most nodes that are held for jobs to come; 0: none
	MaxPerAccount int           // the same for the jobs of one account; 0: no limit
	PerAccount    map[string]int
	Sources       []Source // nil: all
}

func (s *Settings) takes(source Source) bool {
	return s.Sources == nil || slices.Contains(s.Sources, source)
}

// most is how many nodes the account may have; -1: no limit.
func (s *Settings) most(account string) int {
	if n, ok := s.PerAccount[account]; ok {
		return n
	}
	if s.MaxPerAccount > 0 {
		return s.MaxPerAccount
	}
	return -1
}

// Facts is what there is.
type Facts struct {
	Snapshot scaler.Snapshot
	// Report is what scaler.Demand says of the snapshot.
	Report       scaler.Report
	Reservations map[string]scaler.Reservation // by name; nil: not known
	// Gone are jobs that have ended and are in the snapshot no more (Leavers.See).
	Gone map[uint32]Gone
	// Wished are the jobs that nodes were wished for (Tally.Wished): they are held until the job has them, also when its time has
	// come and it counts.
	Wished map[uint32]Job
}

// Plan is what should be warm.
type Plan struct {
	Wishes []Wish // ordered by NodeSet, those without nodes left out
	// Next is when the plan may change though the facts do not; zero: never.
	Next time.Time
}

// Wish is for one NodeSet.
type Wish struct {
	NodeSet string
	Nodes   int // to be up, beside those in use
	// Names are the nodes that the jobs would take, some of them up already; at most Nodes, for some may have no record.
	Names []string
	Jobs  []Job     // whom they are for, in the order in which they start
	Until time.Time // when it ends if no other plan is made
}

// Job is a job to come.
type Job struct {
	ID      uint32
	Account string
	Source  Source
	Start   time.Time
	Nodes   int // that are wished for
	// Names are theirs; fewer than Nodes if some have no record yet.
	Names []string
	Cut   int // that it would take beside them, and a limit forbids; of an array at least
}

// candidate is a job whose start is known.
type candidate struct {
	job      *scaler.Job
	source   Source
	start    time.Time
	priority uint32 // of a het job the highest of its components
}

// leader is the job that stands for all components of a het job.
func (c candidate) leader() uint32 { return cmp.Or(c.job.HetJobID, c.job.ID) }

// free is by when the nodes that others leave will be free for it.
func (c candidate) free(now time.Time) time.Time {
	if c.source == ExpectedStart && !c.start.After(now) { // those before it take longer than they should
		return c.start.Add(Grace)
	}
	return c.start
}

// joinHets gives all components of a het job the start of the last, and one priority.
func joinHets(list []candidate) {
	last := map[uint32]candidate{}
	for _, c := range list {
		all, ok := last[c.leader()]
		if !ok || c.start.After(all.start) {
			all.start, all.source = c.start, c.source
		}
		all.priority = max(all.priority, c.job.Priority)
		last[c.leader()] = all
	}
	for i := range list {
		all := last[list[i].leader()]
		list[i].start, list[i].source, list[i].priority = all.start, all.source, all.priority
	}
}

// Make plans. It gives the same for the same facts, in whatever order jobs and nodes stand in them.
func Make(now time.Time, f Facts, settings []Settings) Plan {
	settings = slices.DeleteFunc(slices.Clone(settings), func(s Settings) bool { return s.MaxNodes <= 0 || s.Lead <= 0 })
	slices.SortFunc(settings, func(a, b Settings) int { return cmp.Compare(a.NodeSet, b.NodeSet) })
	if len(settings) == 0 {
		return Plan{}
	}
	var plan Plan
	next := func(t time.Time) {
		if t.After(now) && (plan.Next.IsZero() || t.Before(plan.Next)) {
			plan.Next = t
		}
	}
	var due []candidate
	for _, c := range candidates(now, &f) {
		isDue := false
		for i := range settings {
			if !settings[i].takes(c.source) {
				continue
			}
			from := c.start.Add(-settings[i].Lead)
			next(from)
			isDue = isDue || !from.After(now)
		}
		if isDue {
			due = append(due, c)
			next(c.start.Add(Grace))
		}
	}
	wishes := map[string]*wish{}
	for i := range settings {
		wishes[settings[i].NodeSet] = &wish{Settings: settings[i], accounts: map[string]int{}}
	}
	place(now, &f, due, func(c candidate, n scaler.PlacedNode) bool {
		w := wishes[n.NodeSet]
		return w == nil || w.add(now, c, n)
	})
	for _, name := range slices.Sorted(maps.Keys(wishes)) {
		if w := wishes[name]; len(w.Jobs) > 0 {
			plan.Wishes = append(plan.Wishes, w.Wish)
		}
	}
	return plan
}

// wish is one that is being made.
type wish struct {
	Wish
	Settings
	accounts map[string]int
}

// add takes in a node that a job would take. It is false if a limit forbids to wish for it.
func (w *wish) add(now time.Time, c candidate, n scaler.PlacedNode) bool {
	if !w.takes(c.source) || c.start.Add(-w.Lead).After(now) {
		return true
	}
	if last := len(w.Jobs) - 1; last < 0 || w.Jobs[last].ID != c.job.ID {
		w.Wish.NodeSet = w.Settings.NodeSet
		w.Jobs = append(w.Jobs, Job{ID: c.job.ID, Account: c.job.Account, Source: c.source, Start: c.start})
	}
	j := &w.Jobs[len(w.Jobs)-1]
	if most := w.most(j.Account); w.Nodes >= w.MaxNodes || most >= 0 && w.accounts[j.Account] >= most {
		j.Cut++
		return false
	}
	j.Nodes++
	w.Nodes++
	w.accounts[j.Account]++
	if n.Name != "" {
		w.Names = append(w.Names, n.Name)
		j.Names = append(j.Names, n.Name)
	}
	if until := c.start.Add(Grace); until.After(w.Until) {
		w.Until = until
	}
	return true
}

func sooner(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// place finds nodes for the jobs, ordered by their start, and asks for each whether it may be wished for: those that are up first. Components of a
// het job stay together.
func place(now time.Time, f *Facts, due []candidate, may func(candidate, scaler.PlacedNode) bool) {
	slices.SortFunc(due, func(a, b candidate) int {
		return cmp.Or(a.free(now).Compare(b.free(now)), cmp.Compare(b.priority, a.priority), cmp.Compare(a.leader(), b.leader()), cmp.Compare(a.job.ID, b.job.ID))
	})
	s := f.Snapshot
	s.Nodes = reserve(s.Nodes, f, due)
	list := make([]scaler.Later, len(due))
	at := make(map[uint32]int, len(due))
	for i, c := range due {
		list[i], at[c.job.ID] = scaler.Later{ID: c.job.ID, Start: c.free(now)}, i
	}
	scaler.PlaceAfter(now, s, list, func(id uint32, nodes []scaler.PlacedNode) []bool {
		granted := make([]bool, len(nodes))
		for _, off := range [2]bool{false, true} {
			for i, n := range nodes {
				if n.Off == off {
					granted[i] = may(due[at[id]], n)
				}
			}
		}
		return granted
	})
}

// candidates are all pending jobs that do not count, and whose start is known and to come, or just past.
func candidates(now time.Time, f *Facts) []candidate {
	why := make(map[uint32]scaler.Why, len(f.Report.Jobs))
	for i := range f.Report.Jobs {
		why[f.Report.Jobs[i].ID] = f.Report.Jobs[i].Why
	}
	ends := newEnds(now, f)
	var all []candidate
	components, found := map[uint32]int{}, map[uint32]int{}
	for i := range f.Snapshot.Jobs {
		j := &f.Snapshot.Jobs[i]
		if j.State != scaler.JobPending {
			continue
		}
		components[j.HetJobID]++
		w, wished := f.Wished[j.ID]
		c, known := start(now, j, why[j.ID], ends, f.Reservations)
		switch {
		case !wished:
		case !known && why[j.ID].Counts(): // perhaps earlier than was known: what it waited for has ended
			c, known = candidate{job: j, source: w.Source, start: sooner(w.Start, now)}, true
		case !known && why[j.ID] == scaler.WhyFull && w.Source == ExpectedStart && !w.Start.After(now):
			c, known = candidate{job: j, source: w.Source, start: w.Start}, true
		}
		if known {
			found[j.HetJobID]++
			all = append(all, c)
		}
	}
	joinHets(all)
	return slices.DeleteFunc(all, func(c candidate) bool { // Slurm starts all components of a het job or none
		return c.start.Add(Grace).Before(now) || c.job.HetJobID != 0 && found[c.job.HetJobID] < components[c.job.HetJobID]
	})
}

// start finds out when a job will start: when the last of what stands against it is over.
func start(now time.Time, j *scaler.Job, why scaler.Why, ends *ends, reservations map[string]scaler.Reservation) (candidate, bool) {
	c := candidate{job: j}
	later := func(t time.Time, source Source) {
		if c.source == "" || t.After(c.start) {
			c.start, c.source = t, source
		}
	}
	switch why {
	case scaler.WhyBeginTime, scaler.WhyDependency, scaler.WhyReservation:
	case scaler.WhyFull:
		// slurmctld shows none in the past: what is over is shown as now (job_mgr.c pack_job), and says nothing.
		if !j.Start.After(now) || j.Reservation != "" {
			return c, false
		}
		later(j.Start, ExpectedStart)
		return c, true
	default:
		return c, false
	}
	if j.Completing || j.Priority == 0 {
		return c, false
	}
	if j.Dependent {
		end, known := ends.of(j.Dependency)
		if !known {
			return c, false
		}
		later(end, Dependency)
	}
	if j.Reservation != "" {
		at, known := soonest(j, reservations)
		if !known {
			return c, false
		}
		later(at, Reservation)
	}
	if why == scaler.WhyBeginTime || j.Begin.After(now) {
		later(j.Begin, BeginTime)
	}
	return c, c.source != "" && !c.start.IsZero()
}
