package ahead

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slurmtide/slurmtide/scaler"
)

var (
	epoch = time.Unix(1795248000, 0).UTC()
	shape = &scaler.Shape{CPUs: 4, Memory: 1000}
)

func in(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// cluster has nodes cpu-0..cpu-3 and gpu-0..gpu-1 in partitions of the same names, all of them powered down.
func cluster(jobs ...scaler.Job) Facts {
	s := scaler.Snapshot{Jobs: jobs, Partitions: []scaler.Partition{{Name: "cpu"}, {Name: "gpu"}}, NodeSets: []scaler.NodeSet{{Name: "cpu"}, {Name: "gpu"}}}
	for set, n := range map[string]int{"cpu": 4, "gpu": 2} {
		for i := range n {
			s.Nodes = append(s.Nodes, scaler.Node{Name: fmt.Sprintf("%s-%d", set, i), NodeSet: set, Partitions: []string{set}, State: scaler.NodeOff, Shape: shape})
		}
	}
	return Facts{Snapshot: s}
}

// whole is a pending job for whole nodes.
func whole(id uint32, partition string, nodes uint32, change func(*scaler.Job)) scaler.Job {
	j := scaler.Job{ID: id, Priority: 1, Account: "a", Request: scaler.Request{Partitions: partition, MinNodes: nodes, Tasks: nodes, CPUs: 4 * nodes, CPUsPerTask: 4, Memory: 1000}}
	if change != nil {
		change(&j)
	}
	return j
}

func begins(seconds int) func(*scaler.Job) {
	return func(j *scaler.Job) { j.Begin, j.Start, j.Reason = in(seconds), in(seconds), "BeginTime" }
}

func depends(text string) func(*scaler.Job) {
	return func(j *scaler.Job) { j.Dependent, j.Dependency, j.Reason = true, text, "Dependency" }
}

// half is a component of the het job 7 that takes half a node.
func half(id uint32, offset int) scaler.Job {
	return whole(id, "cpu", 1, func(j *scaler.Job) {
		begins(10)(j)
		j.HetJobID, j.HetOffset, j.CPUs, j.CPUsPerTask, j.Memory = 7, offset, 2, 2, 500
	})
}

func runs(id uint32, nodes string, ends int) scaler.Job {
	j := scaler.Job{ID: id, State: scaler.JobRunning, Nodes: nodes}
	if ends != 0 {
		j.End = in(ends)
	}
	return j
}

func (f Facts) with(change func(*Facts)) Facts {
	change(&f)
	return f
}

// up has these nodes up, with as many CPUs in use.
func (f Facts) up(cpus uint32, names ...string) Facts {
	for i := range f.Snapshot.Nodes {
		if n := &f.Snapshot.Nodes[i]; slices.Contains(names, n.Name) {
			n.State, n.AllocCPUs = scaler.NodeUp, cpus
		}
	}
	return f
}

// booting has these nodes on their way up.
func (f Facts) booting(names ...string) Facts {
	f.Snapshot.Nodes = slices.Clone(f.Snapshot.Nodes)
	for i := range f.Snapshot.Nodes {
		if n := &f.Snapshot.Nodes[i]; slices.Contains(names, n.Name) && n.State == scaler.NodeOff {
			n.State = scaler.NodeBooting
		}
	}
	return f
}

func (p Plan) String() string {
	var b strings.Builder
	for _, w := range p.Wishes {
		fmt.Fprintf(&b, "%s: %d %v until %v", w.NodeSet, w.Nodes, w.Names, w.Until.Sub(epoch))
		for _, j := range w.Jobs {
			fmt.Fprintf(&b, "; job %d %s at %v %d", j.ID, j.Source, j.Start.Sub(epoch), j.Nodes)
			if j.Cut > 0 {
				fmt.Fprintf(&b, " of %d", j.Nodes+j.Cut)
			}
		}
		b.WriteString("\n")
	}
	if !p.Next.IsZero() {
		fmt.Fprintf(&b, "next %v\n", p.Next.Sub(epoch))
	}
	return b.String()
}

func makePlan(now time.Time, f Facts, settings ...Settings) Plan {
	f.Report = scaler.Demand(now, f.Snapshot)
	return Make(now, f, settings)
}

func TestMake(t *testing.T) {
	cpu := Settings{NodeSet: "cpu", Lead: 20 * time.Second, MaxNodes: 10}
	set := func(change func(*Settings)) Settings { s := cpu; change(&s); return s }
	for name, tc := range map[string]struct {
		facts    Facts
		settings []Settings
		want     string
	}{
		"off by default":         {cluster(whole(7, "cpu", 2, begins(10))), nil, ""},
		"a cap of none":          {cluster(whole(7, "cpu", 2, begins(10))), []Settings{set(func(s *Settings) { s.MaxNodes = 0 })}, ""},
		"nothing to wait for":    {cluster(whole(7, "cpu", 2, nil)), []Settings{cpu}, ""},
		"too early":              {cluster(whole(7, "cpu", 2, begins(50))), []Settings{cpu}, "next 30s\n"},
		"a begin time":           {cluster(whole(7, "cpu", 2, begins(20))), []Settings{cpu}, "cpu: 2 [cpu-0 cpu-1] until 1m50s; job 7 BeginTime at 20s 2\nnext 1m50s\n"},
		"a begin time just past": {cluster(whole(7, "cpu", 2, begins(0))).with(func(f *Facts) { f.Snapshot.Jobs[0].Reason = "BeginTime" }), []Settings{cpu}, ""},
		"its time has come, and Slurm has not": {cluster(whole(7, "cpu", 1, begins(-20))).up(0, "cpu-0").with(func(f *Facts) { f.Wished = map[uint32]Job{7: {ID: 7, Source: BeginTime, Start: in(-20)}} }), []Settings{cpu},
			"cpu: 1 [cpu-0] until 1m10s; job 7 BeginTime at -20s 1\nnext 1m10s\n"},
		"its time was long ago": {cluster(whole(7, "cpu", 1, begins(-100))).with(func(f *Facts) { f.Wished = map[uint32]Job{7: {ID: 7, Source: BeginTime, Start: in(-100)}} }), []Settings{cpu}, ""},
		"another NodeSet's":     {cluster(whole(7, "gpu", 2, begins(10))), []Settings{cpu}, "next 1m40s\n"},
		"each its own lead": {cluster(whole(7, "cpu", 1, begins(10)), whole(8, "gpu", 1, begins(10))), []Settings{cpu, {NodeSet: "gpu", Lead: 5 * time.Second, MaxNodes: 1}},
			"cpu: 1 [cpu-0] until 1m40s; job 7 BeginTime at 10s 1\nnext 5s\n"},
		"a job above the cap": {cluster(whole(7, "cpu", 3, begins(10)), whole(8, "cpu", 1, begins(12))), []Settings{set(func(s *Settings) { s.MaxNodes = 2 })},
			"cpu: 2 [cpu-0 cpu-1] until 1m40s; job 7 BeginTime at 10s 2 of 3; job 8 BeginTime at 12s 0 of 1\nnext 1m40s\n"},
		"an account above its cap": {cluster(whole(7, "cpu", 2, begins(10)), whole(8, "cpu", 1, func(j *scaler.Job) { begins(12)(j); j.Account = "b" })),
			[]Settings{set(func(s *Settings) { s.PerAccount = map[string]int{"a": 1} })},
			"cpu: 2 [cpu-0 cpu-1] until 1m42s; job 7 BeginTime at 10s 1 of 2; job 8 BeginTime at 12s 1\nnext 1m40s\n"},
		"the same when they boot": {cluster(whole(7, "cpu", 2, begins(10)), whole(8, "cpu", 1, func(j *scaler.Job) { begins(12)(j); j.Account = "b" })).booting("cpu-0", "cpu-1"),
			[]Settings{set(func(s *Settings) { s.PerAccount = map[string]int{"a": 1} })},
			"cpu: 2 [cpu-0 cpu-1] until 1m42s; job 7 BeginTime at 10s 1 of 2; job 8 BeginTime at 12s 1\nnext 1m40s\n"},
		"what is up counts first": {cluster(whole(7, "cpu", 3, begins(10))).up(0, "cpu-2"), []Settings{set(func(s *Settings) { s.MaxNodes = 1 })},
			"cpu: 1 [cpu-2] until 1m40s; job 7 BeginTime at 10s 1 of 3\nnext 1m40s\n"},
		"a large array and a small cap": {cluster(whole(7, "cpu", 1, func(j *scaler.Job) { begins(10)(j); j.ArrayJobID, j.ArrayTasks = 7, "0-99999" })), []Settings{set(func(s *Settings) { s.MaxNodes = 2 })},
			"cpu: 2 [cpu-0 cpu-1] until 1m40s; job 7 BeginTime at 10s 2 of 3\nnext 1m40s\n"},
		"all accounts have one, but for some": {cluster(whole(7, "cpu", 2, begins(10)), whole(8, "cpu", 2, func(j *scaler.Job) { begins(12)(j); j.Account = "b" })),
			[]Settings{set(func(s *Settings) { s.MaxPerAccount, s.PerAccount = 1, map[string]int{"b": 0} })},
			"cpu: 1 [cpu-0] until 1m40s; job 7 BeginTime at 10s 1 of 2; job 8 BeginTime at 12s 0 of 2\nnext 1m40s\n"},
		"not of this source":                   {cluster(whole(7, "cpu", 2, begins(10))), []Settings{set(func(s *Settings) { s.Sources = []Source{Dependency} })}, ""},
		"beside jobs that Slurm powers up for": {cluster(whole(1, "cpu", 3, nil), whole(7, "cpu", 2, begins(10))), []Settings{cpu}, "next 1m40s\n"},
		"after jobs that Slurm powers up for":  {cluster(whole(1, "cpu", 3, nil), whole(7, "cpu", 1, begins(10))), []Settings{cpu}, "cpu: 1 [cpu-3] until 1m40s; job 7 BeginTime at 10s 1\nnext 1m40s\n"},
		"idle nodes are held":                  {cluster(whole(7, "cpu", 2, begins(10))).up(0, "cpu-2"), []Settings{cpu}, "cpu: 2 [cpu-2 cpu-3] until 1m40s; job 7 BeginTime at 10s 2\nnext 1m40s\n"},
		"on nodes that others leave":           {cluster(runs(1, "cpu-0", 8), whole(7, "cpu", 2, begins(10))).up(4, "cpu-0"), []Settings{cpu}, "cpu: 1 [cpu-1] until 1m40s; job 7 BeginTime at 10s 1\nnext 1m40s\n"},
		"others leave too late":                {cluster(runs(1, "cpu-0", 12), whole(7, "cpu", 2, begins(10))).up(4, "cpu-0"), []Settings{cpu}, "cpu: 2 [cpu-1 cpu-2] until 1m40s; job 7 BeginTime at 10s 2\nnext 1m40s\n"},
		"each at its own time": {cluster(runs(1, "cpu-0", 12), whole(7, "cpu", 1, begins(10)), whole(8, "cpu", 1, begins(13))).up(4, "cpu-0"), []Settings{cpu},
			"cpu: 1 [cpu-1] until 1m40s; job 7 BeginTime at 10s 1\nnext 1m40s\n"},
		"a dependency":                      {cluster(runs(1, "cpu-0", 10), whole(7, "cpu", 3, depends("afterok:1(unfulfilled)"))).up(4, "cpu-0"), []Settings{cpu}, "cpu: 2 [cpu-1 cpu-2] until 1m40s; job 7 Dependency at 10s 2\nnext 1m40s\n"},
		"a dependency without limit":        {cluster(runs(1, "cpu-0", 0), whole(7, "cpu", 3, depends("afterok:1(unfulfilled)"))), []Settings{cpu}, ""},
		"a dependency on a pending job":     {cluster(whole(1, "cpu", 1, begins(5)), whole(7, "cpu", 3, depends("afterok:1(unfulfilled)"))), []Settings{cpu}, "cpu: 1 [cpu-0] until 1m35s; job 1 BeginTime at 5s 1\nnext 1m35s\n"},
		"dependencies, the last counts":     {cluster(runs(1, "", 10), runs(2, "", 15), whole(7, "cpu", 1, depends("afterok:1(unfulfilled),afterany:2(unfulfilled)"))), []Settings{cpu}, "cpu: 1 [cpu-0] until 1m45s; job 7 Dependency at 15s 1\nnext 1m45s\n"},
		"dependencies, any of them":         {cluster(runs(1, "", 10), runs(2, "", 15), whole(7, "cpu", 1, depends("afterok:1(unfulfilled)?afterany:2(unfulfilled)"))), []Settings{cpu}, "cpu: 1 [cpu-0] until 1m40s; job 7 Dependency at 10s 1\nnext 1m40s\n"},
		"dependencies, one not known":       {cluster(runs(1, "", 10), whole(7, "cpu", 1, depends("afterok:1(unfulfilled),singleton(unfulfilled)"))), []Settings{cpu}, ""},
		"dependencies that failed":          {cluster(runs(1, "", 10), whole(7, "cpu", 1, depends("afterok:1(failed)"))), []Settings{cpu}, ""},
		"after an array":                    {cluster(scaler.Job{ID: 2, ArrayJobID: 1, State: scaler.JobRunning, End: in(9)}, scaler.Job{ID: 1, ArrayJobID: 1, State: scaler.JobRunning, End: in(11)}, whole(7, "cpu", 1, depends("afterok:1_*(unfulfilled)"))), []Settings{cpu}, "cpu: 1 [cpu-0] until 1m41s; job 7 Dependency at 11s 1\nnext 1m41s\n"},
		"after an array that waits":         {cluster(scaler.Job{ID: 2, ArrayJobID: 1, State: scaler.JobRunning, End: in(9)}, whole(1, "cpu", 1, func(j *scaler.Job) { j.ArrayJobID, j.ArrayTasks, j.Reason = 1, "3-4", "JobHeldUser" }), whole(7, "cpu", 1, depends("afterok:1_*(unfulfilled)"))), []Settings{cpu}, ""},
		"after a job that leaves":           {cluster(scaler.Job{ID: 1, State: scaler.JobLeaving, Nodes: "cpu-0"}, whole(7, "cpu", 2, depends("afterany:1(unfulfilled)"))).up(4, "cpu-0"), []Settings{cpu}, "cpu: 1 [cpu-1] until 1m30s; job 7 Dependency at 0s 1\nnext 1m30s\n"},
		"a begin time after the dependency": {cluster(runs(1, "", 10), whole(7, "cpu", 1, func(j *scaler.Job) { depends("afterok:1(unfulfilled)")(j); begins(15)(j) })), []Settings{cpu}, "cpu: 1 [cpu-0] until 1m45s; job 7 BeginTime at 15s 1\nnext 1m45s\n"},
		"a reservation": {cluster(whole(7, "cpu", 1, func(j *scaler.Job) { j.Reservation, j.Reason = "r", "Reservation" })).with(func(f *Facts) {
			f.Reservations = map[string]scaler.Reservation{"r": {Nodes: "cpu-[2-3]", Start: in(10)}}
		}), []Settings{cpu},
			"cpu: 1 [cpu-2] until 1m40s; job 7 Reservation at 10s 1\nnext 1m40s\n"},
		"a reservation that is not known": {cluster(whole(7, "cpu", 1, func(j *scaler.Job) { j.Reservation, j.Reason = "r", "Reservation" })), []Settings{cpu}, ""},
		"an expected start": {cluster(runs(1, "cpu-[0-1]", 10), whole(7, "cpu", 3, func(j *scaler.Job) { j.Reason, j.Start = "Resources", in(10) })).up(4, "cpu-0", "cpu-1"), []Settings{cpu},
			"cpu: 1 [cpu-2] until 1m40s; job 7 ExpectedStart at 10s 1\nnext 1m40s\n"},
		"a het job, each component on nodes of its own": {cluster(half(7, 0), half(8, 1), half(9, 2)), []Settings{cpu},
			"cpu: 3 [cpu-0 cpu-1 cpu-2] until 1m40s; job 7 BeginTime at 10s 1; job 8 BeginTime at 10s 1; job 9 BeginTime at 10s 1\nnext 1m40s\n"},
		"a het job that has not room for all": {cluster(half(7, 0), half(8, 1), whole(9, "cpu", 3, func(j *scaler.Job) { begins(10)(j); j.HetJobID, j.HetOffset = 7, 2 })), []Settings{cpu}, "next 1m40s\n"},
		"a het job starts with its last":      {cluster(half(7, 0), whole(8, "cpu", 1, func(j *scaler.Job) { begins(30)(j); j.HetJobID, j.HetOffset = 7, 1 })), []Settings{cpu}, "next 10s\n"},
		"held":                                {cluster(whole(7, "cpu", 1, func(j *scaler.Job) { begins(10)(j); j.Priority = 0 })), []Settings{cpu}, ""},
		"an array":                            {cluster(whole(7, "cpu", 1, func(j *scaler.Job) { begins(10)(j); j.ArrayJobID, j.ArrayTasks, j.ArrayLimit = 7, "0-9%3", 3 })), []Settings{cpu}, "cpu: 3 [cpu-0 cpu-1 cpu-2] until 1m40s; job 7 BeginTime at 10s 3\nnext 1m40s\n"},
		"half of a het job":                   {cluster(whole(7, "cpu", 1, func(j *scaler.Job) { begins(10)(j); j.HetJobID = 7 }), whole(8, "cpu", 1, func(j *scaler.Job) { j.HetJobID, j.HetOffset, j.Reason = 7, 1, "JobHeldUser" })), []Settings{cpu}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, makePlan(epoch, tc.facts, tc.settings...).String())
		})
	}
}

func TestTally(t *testing.T) {
	wish := func(set string, jobs ...Job) Plan { return Plan{Wishes: []Wish{{NodeSet: set, Jobs: jobs}}} }
	up := func(names ...string) Facts { return cluster().up(0, names...) }
	job := Job{ID: 7, Start: in(10), Nodes: 2, Names: []string{"cpu-0", "cpu-1"}}
	type look struct {
		at   int
		plan Plan
		f    Facts
		jobs []scaler.Job
		want []Outcome
	}
	pending := []scaler.Job{whole(7, "cpu", 2, nil)}
	first := look{0, wish("cpu", job), up(), pending, nil}
	for name, looks := range map[string][]look{
		"a hit":                  {first, {11, Plan{}, up("cpu-0", "cpu-1"), []scaler.Job{runs(7, "cpu-[0-1]", 90)}, []Outcome{{"cpu", 7, Hit, 2}}}, {12, Plan{}, up(), nil, nil}},
		"late":                   {first, {11, Plan{}, up("cpu-0"), []scaler.Job{runs(7, "cpu-[0-1]", 90)}, []Outcome{{"cpu", 7, Hit, 1}, {"cpu", 7, Late, 1}}}},
		"elsewhere":              {first, {11, Plan{}, up("cpu-0", "gpu-0"), []scaler.Job{runs(7, "cpu-0,gpu-0", 90)}, []Outcome{{"cpu", 7, Hit, 1}, {"cpu", 7, Miss, 1}}}},
		"cancelled":              {first, {5, Plan{}, up(), nil, []Outcome{{"cpu", 7, Miss, 2}}}},
		"put off":                {first, {5, Plan{}, up(), pending, []Outcome{{"cpu", 7, Miss, 2}}}},
		"cancelled late":         {first, {12, Plan{}, up(), pending, nil}, {20, Plan{}, up("cpu-0", "cpu-1"), nil, []Outcome{{"cpu", 7, Miss, 2}}}},
		"unseen":                 {first, {12, Plan{}, up("cpu-0", "cpu-1"), nil, []Outcome{{"cpu", 7, Miss, 2}}}},
		"seen as it ends":        {first, {12, Plan{}, up("cpu-0", "cpu-1"), []scaler.Job{{ID: 7, State: scaler.JobLeaving, Nodes: "cpu-[0-1]"}}, []Outcome{{"cpu", 7, Hit, 2}}}},
		"on others that were up": {first, {11, Plan{}, up("cpu-0", "cpu-1", "cpu-2"), []scaler.Job{runs(7, "cpu-[1-2]", 90)}, []Outcome{{"cpu", 7, Hit, 1}, {"cpu", 7, Miss, 1}}}},
		"on others that boot":    {first, {11, Plan{}, up("cpu-0"), []scaler.Job{runs(7, "cpu-[0,2]", 90)}, []Outcome{{"cpu", 7, Hit, 1}, {"cpu", 7, Miss, 1}}}},
		"wished for in turn":     {first, {1, wish("cpu", Job{ID: 7, Start: in(10), Nodes: 2, Names: []string{"cpu-2", "cpu-3"}}), up(), pending, nil}, {11, Plan{}, up("cpu-0", "cpu-3"), []scaler.Job{runs(7, "cpu-[0,3]", 90)}, []Outcome{{"cpu", 7, Hit, 2}}}},
		"without a record":       {{0, wish("cpu", Job{ID: 7, Start: in(10), Nodes: 2, Names: []string{"cpu-0"}}), up(), pending, nil}, {11, Plan{}, up("cpu-1", "cpu-2"), []scaler.Job{runs(7, "cpu-[1-2]", 90)}, []Outcome{{"cpu", 7, Hit, 1}, {"cpu", 7, Miss, 1}}}},
		"it starts a bit later":  {first, {12, Plan{}, up(), pending, nil}, {40, Plan{}, up("cpu-0", "cpu-1"), []scaler.Job{runs(7, "cpu-[0-1]", 90)}, []Outcome{{"cpu", 7, Hit, 2}}}},
		"it does not start":      {first, {12, Plan{}, up(), pending, nil}, {131, Plan{}, up(), pending, []Outcome{{"cpu", 7, Miss, 2}}}},
		"the wish grows":         {first, {1, wish("cpu", Job{ID: 7, Start: in(10), Nodes: 1}), up(), pending, nil}, {5, Plan{}, up(), nil, []Outcome{{"cpu", 7, Miss, 2}}}},
		"nothing was wished for": {{0, wish("cpu", Job{ID: 7, Start: in(10), Cut: 2}), up(), pending, nil}, {5, Plan{}, up(), nil, nil}},
		"an array starts":        {first, {11, Plan{}, up("cpu-0"), []scaler.Job{{ID: 8, ArrayJobID: 7, State: scaler.JobRunning, Nodes: "cpu-0"}, whole(7, "cpu", 1, func(j *scaler.Job) { j.ArrayJobID = 7 })}, []Outcome{{"cpu", 7, Hit, 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var tally Tally
			for _, l := range looks {
				l.f.Snapshot.Jobs = l.jobs
				assert.Equal(t, l.want, tally.Take(in(l.at), l.plan, l.f.Snapshot), "at %ds", l.at)
			}
			assert.Empty(t, tally.jobs)
		})
	}
}

func TestMakeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []scaler.Job
		for id := range uint32(rapid.IntRange(1, 8).Draw(t, "jobs")) {
			partition := rapid.SampledFrom([]string{"cpu", "gpu", "cpu,gpu"}).Draw(t, "partition")
			nodes := uint32(rapid.IntRange(1, 3).Draw(t, "nodes"))
			kind := rapid.SampledFrom([]func(*scaler.Job){nil, begins(rapid.IntRange(-5, 60).Draw(t, "begin")), depends("afterok:99(unfulfilled)")}).Draw(t, "kind")
			jobs = append(jobs, whole(id+1, partition, nodes, func(j *scaler.Job) {
				if kind != nil {
					kind(j)
				}
				j.Account = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "account")
			}))
		}
		jobs = append(jobs, runs(99, "cpu-0", rapid.IntRange(1, 60).Draw(t, "end")))
		facts := cluster(jobs...).up(4, "cpu-0").up(0, "cpu-1")
		settings := []Settings{
			{NodeSet: "cpu", Lead: time.Duration(rapid.IntRange(1, 60).Draw(t, "lead")) * time.Second, MaxNodes: rapid.IntRange(0, 5).Draw(t, "max"), PerAccount: map[string]int{"a": rapid.IntRange(0, 3).Draw(t, "a")}},
			{NodeSet: "gpu", Lead: 30 * time.Second, MaxNodes: 2, MaxPerAccount: 1},
		}
		plan := makePlan(epoch, facts, settings...)

		demand := scaler.Demand(epoch, facts.Snapshot)
		why := map[uint32]scaler.Why{}
		for _, j := range demand.Jobs {
			why[j.ID] = j.Why
		}
		for _, w := range plan.Wishes {
			s := settings[slices.IndexFunc(settings, func(s Settings) bool { return s.NodeSet == w.NodeSet })]
			d := demand.NodeSets[slices.IndexFunc(demand.NodeSets, func(d scaler.NodeSetDemand) bool { return d.Name == w.NodeSet })]
			require.LessOrEqual(t, w.Nodes, s.MaxNodes)
			require.LessOrEqual(t, len(w.Names), w.Nodes)
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(w.Names))), len(w.Names), "each once")
			require.LessOrEqual(t, d.Nodes()+w.Nodes, d.Up+d.Booting+d.Off, "with those that are needed anyway no more than there are")
			sum, accounts := 0, map[string]int{}
			for _, j := range w.Jobs {
				sum += j.Nodes
				accounts[j.Account] += j.Nodes
				require.False(t, why[j.ID].Counts(), "job %d is Slurm's own business", j.ID)
				require.False(t, j.Start.Add(-s.Lead).After(epoch), "job %d is not due", j.ID)
			}
			require.Equal(t, w.Nodes, sum)
			for account, n := range accounts {
				if most := s.most(account); most >= 0 {
					require.LessOrEqual(t, n, most)
				}
			}
			for _, name := range w.Names {
				require.NotContains(t, demand.NodeSets[0].PowerUp, name)
				require.NotEqual(t, "cpu-0", name, "it is in use")
			}
		}
		if !plan.Next.IsZero() {
			require.True(t, plan.Next.After(epoch))
		}

		// Once they boot nothing more is asked for, unless jobs that count would take them.
		var names []string
		for _, w := range plan.Wishes {
			names = append(names, w.Names...)
		}
		then := facts.booting(names...)
		if slices.ContainsFunc(demand.Jobs, func(j scaler.JobDemand) bool { return j.Why.Counts() }) {
			then = facts
		}
		for _, w := range makePlan(epoch, then, settings...).Wishes {
			for _, name := range w.Names {
				at := slices.IndexFunc(then.Snapshot.Nodes, func(n scaler.Node) bool { return n.Name == name })
				require.True(t, then.Snapshot.Nodes[at].State != scaler.NodeOff || slices.Contains(names, name), "%s beside %v", name, names)
			}
		}

		shuffled := facts
		shuffled.Snapshot.Jobs = rapid.Permutation(facts.Snapshot.Jobs).Draw(t, "jobs' order")
		shuffled.Snapshot.Nodes = rapid.Permutation(facts.Snapshot.Nodes).Draw(t, "nodes' order")
		require.Equal(t, plan.String(), makePlan(epoch, shuffled, settings...).String())
	})
}
