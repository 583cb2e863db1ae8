package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/internal/golden"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/history"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ms(n int) time.Time { return noon.Add(time.Duration(n) * time.Millisecond) }

// times are of a boot that reaches a phase each 100 ms, so many of them.
func times(from, phases int) powersave.Timeline {
	at := func(n int) time.Time {
		if n > phases {
			return time.Time{}
		}
		return ms(from + 100*n)
	}
	return powersave.Timeline{Requested: at(0), Accepted: at(1), Asked: at(1), Created: at(2), Scheduled: at(3), Running: at(4), Registered: at(5)}
}

// day is a bridge at noon that has had one of everything.
func day() (bridge.Status, []history.Entry) {
	st := bridge.Status{
		Version: "v1.2.3", Lease: bridge.Lease{Leading: true}, Spool: spool.Stats{Depth: 2},
		Engine: powersave.Status{
			Time: noon, SlurmRead: ms(-1000), KubernetesRead: true, Gates: 1, Pods: 5,
			NodeSets: []powersave.NodeSetCounts{
				{Name: "cpu", Nodes: 100, PoweredUp: 12, Booting: 3, Ready: 7, Failed: 2, Unread: 1, Floor: &powersave.FloorCounts{Wanted: 8, Held: 7, Why: "Capacity", Text: "no host", Ahead: 1}},
				{Name: "gpu", Nodes: 10, Unknown: 2, Problem: "spec.template has no container slurmd", Update: &powersave.UpdateCounts{Outdated: 3, Text: "its nodes have jobs", Refused: "no right"}, Breakers: []powersave.BreakerRecord{
					{Key: powersave.BreakerKey{NodeSet: "gpu", Offering: "spot"}, State: powersave.BreakerOpen, Class: powersave.TroubleCapacity, Reason: "0/5 nodes are available", Until: ms(40_000), Failures: 2},
					{Key: powersave.BreakerKey{NodeSet: "gpu"}, State: powersave.BreakerHalfOpen, Class: powersave.TroubleCrash, Reason: "slurmd ended with 1", Failures: 3},
					{Key: powersave.BreakerKey{NodeSet: "gpu", Offering: "reserved"}, State: powersave.BreakerClosed},
				}},
			},
			Boots: []powersave.Boot{
				{Node: "cpu-12", NodeSet: "cpu", Request: "r3", Jobs: []uint32{9}, Phase: powersave.PhasePending, Problem: "0/5 nodes are available: 5 Insufficient cpu", Times: times(-5000, 2)},
				{Node: "cpu-11", NodeSet: "cpu", Request: "r3", Jobs: []uint32{9, 10}, Phase: powersave.PhaseRunning, Host: "host-a", Times: times(-5000, 4)},
				{Node: "cpu-9", NodeSet: "cpu", Request: "r2", Jobs: []uint32{8}, Phase: powersave.PhaseAccepted, Times: times(-9000, 1)},
			},
			History: []powersave.Boot{
				{Node: "cpu-1", NodeSet: "cpu", Request: "r1", Jobs: []uint32{7}, Host: "host-a", Times: times(-60_000, 5)},
				{Node: "cpu-2", NodeSet: "cpu", Request: "r1", Jobs: []uint32{7}, Host: "host-b", Times: times(-59_900, 5)},
				{Node: "cpu-13", NodeSet: "cpu", Request: "r3", Jobs: []uint32{9}, Host: "host-b", Times: times(-5000, 5)},
			},
			Notes: []powersave.Note{
				{Time: ms(-3000), Node: "cpu-3", Text: "pod of nobody"}, {Time: ms(-2000), Text: "something else"}, {Time: ms(-1000), Node: "cpu-3", Text: "pod of nobody"},
			},
		},
	}
	entries := []history.Entry{
		{Time: ms(-400_000), What: history.NodeRegistered, Node: "cpu-77", Request: "r-1", Requested: ms(-402_000)}, // its beginning is older than what was read
		{Time: ms(-300_000), What: history.RequestAccepted, Nodes: "gpu-[0-1]", Request: "r0", Kind: "resume", Jobs: []uint32{5}, Requested: ms(-300_100)},
		{Time: ms(-299_900), What: history.PodCreated, Node: "gpu-0", NodeSet: "gpu", Offering: "spot", Request: "r0", PodUID: "u0"},
		{Time: ms(-299_900), What: history.PodCreated, Node: "gpu-1", NodeSet: "gpu", Offering: "spot", Request: "r0", PodUID: "u1"},
		{Time: ms(-290_000), What: history.BootFailed, Node: "gpu-1", NodeSet: "gpu", Offering: "spot", Request: "r0", Class: "capacity", Reason: "0/5 nodes are available", Jobs: []uint32{5}},
		{Time: ms(-289_000), What: history.BootFailed, Node: "gpu-0", NodeSet: "gpu", Offering: "spot", Request: "r0", Class: "capacity", Reason: "0/5 nodes are available", Jobs: []uint32{5}},
		{Time: ms(-288_000), What: history.JobGivenBack, Jobs: []uint32{5}, Reason: "slurmtide: capacity: 0/5 nodes are available", Times: 2},
		{Time: ms(-60_000), What: history.GateWaits, Jobs: []uint32{7}},
		{Time: ms(-60_000), What: history.RequestAccepted, Nodes: "cpu-[1-2]", Request: "r1", Kind: "resume", Jobs: []uint32{7}, Requested: ms(-60_000)},
		{Time: ms(-59_500), What: history.NodeRegistered, Node: "cpu-1", NodeSet: "cpu", Request: "r1"},
		{Time: ms(-59_350), What: history.GateOpened, Jobs: []uint32{7}},
	}
	return st, entries
}

func indented(t *testing.T, what any) string {
	t.Helper()
	text, err := json.MarshalIndent(what, "", "  ")
	require.NoError(t, err)
	return string(text) + "\n"
}

func TestLook(t *testing.T) {
	st, entries := day()
	v, _ := Look("tide", st, entries)
	golden.Compare(t, "testdata/view.json", indented(t, v))
}

// An empty cluster has lists that are empty, not null: the script counts them.
func TestLookAtNothing(t *testing.T) {
	v, _ := Look("tide", bridge.Status{}, nil)
	golden.Compare(t, "testdata/nothing.json", indented(t, v))
}

func TestTrouble(t *testing.T) {
	well := bridge.Status{Lease: bridge.Lease{Leading: true}, Engine: powersave.Status{SlurmRead: noon, KubernetesRead: true}}
	for name, test := range map[string]struct {
		change func(*bridge.Status)
		want   []string
	}{
		"none":                        {func(*bridge.Status) {}, []string{}},
		"Slurm away":                  {func(st *bridge.Status) { st.Engine.SlurmError = "refused" }, []string{"Slurm cannot be read, so nothing is taken down: refused"}},
		"Slurm not read":              {func(st *bridge.Status) { st.Engine.SlurmRead = time.Time{} }, []string{"Slurm has not been read yet"}},
		"Kubernetes away":             {func(st *bridge.Status) { st.KubernetesError = "refused" }, []string{"Kubernetes cannot be read, so nothing is taken down: refused"}},
		"Kubernetes not read":         {func(st *bridge.Status) { st.Engine.KubernetesRead = false }, []string{"Kubernetes has not been read yet: pods and NodeSets have not been listed"}},
		"no lease":                    {func(st *bridge.Status) { st.Lease = bridge.Lease{Error: "forbidden"} }, []string{"The lease cannot be had, so only requests of this spool are carried out: forbidden"}},
		"another's lease":             {func(st *bridge.Status) { st.Lease = bridge.Lease{Holder: "b"} }, []string{}},
		"requests that are set aside": {func(st *bridge.Status) { st.Spool.Bad = 1 }, []string{"Requests that could not be read have been set aside in the spool's directory bad"}},
	} {
		t.Run(name, func(t *testing.T) {
			st := well
			test.change(&st)
			assert.Equal(t, test.want, trouble(st))
		})
	}
}

func TestLeaderWithoutLease(t *testing.T) {
	st := bridge.Status{Lease: bridge.Lease{Leading: true, Error: "the API server answers late"}, Engine: powersave.Status{SlurmRead: noon, KubernetesRead: true}}
	assert.Empty(t, trouble(st), "it leads as long as its lease lasts")
}

func TestProblems(t *testing.T) {
	for name, test := range map[string]struct {
		set  powersave.NodeSetCounts
		want []string
	}{
		"none":               {powersave.NodeSetCounts{}, nil},
		"it cannot be used":  {powersave.NodeSetCounts{Problem: "no container"}, []string{"it cannot be used: no container"}},
		"old figures":        {powersave.NodeSetCounts{Stale: "Slurm cannot be read"}, []string{"its figures are old: Slurm cannot be read"}},
		"a floor":            {powersave.NodeSetCounts{Floor: &powersave.FloorCounts{Wanted: 2, Held: 2, Why: "Kept", Text: "all are up"}}, nil},
		"a floor, not held":  {powersave.NodeSetCounts{Floor: &powersave.FloorCounts{Wanted: 2, Held: 1, Why: "Capacity"}}, []string{"its floor is not reached: Capacity"}},
		"none come ahead":    {powersave.NodeSetCounts{Floor: &powersave.FloorCounts{AheadText: "no right to read jobs"}}, []string{"nodes ahead of jobs: no right to read jobs"}},
		"an update, done":    {powersave.NodeSetCounts{Update: &powersave.UpdateCounts{Text: "done"}}, nil},
		"an update, goes on": {powersave.NodeSetCounts{Update: &powersave.UpdateCounts{Outdated: 1}}, nil},
		"an update, waits":   {powersave.NodeSetCounts{Update: &powersave.UpdateCounts{Outdated: 1, Text: "its nodes have jobs"}}, []string{"update: its nodes have jobs"}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, problems(test.set)) })
	}
}

// What has come up for a job counts, and nothing else: not what failed, nor what came up before.
func TestUp(t *testing.T) {
	over := []Boot{
		{Jobs: []uint32{7}, Outcome: history.Registered, ended: ms(100)},
		{Jobs: []uint32{7, 8}, Outcome: history.Registered, ended: ms(0)},
		{Jobs: []uint32{7}, Outcome: history.Failed, ended: ms(100)},
		{Jobs: []uint32{7}, Outcome: history.Registered, ended: ms(-1)},
		{Jobs: []uint32{9}, Outcome: history.Registered, ended: ms(100)},
	}
	waiting := []powersave.Waiting{{Job: 7, Since: noon}, {Job: 8, Since: ms(50)}}
	got := jobs(waiting, over, nil)
	assert.Equal(t, 2, got.Items[0].Up)
	assert.Zero(t, got.Items[1].Up)

	full := make([]powersave.Boot, 1000)
	full[0].Times.Registered = noon
	assert.Equal(t, got, jobs(waiting, over, full))
	full[0].Times.Registered = ms(1)
	assert.Zero(t, jobs(waiting, over, full).Items[0].Up, "more may have come up than is remembered")
	assert.Equal(t, got, jobs(waiting, over, full[:999]))
}

// Of many boots the newest count, of them the middle one, the one that is slower than 95 of 100, and the slowest.
func TestSeconds(t *testing.T) {
	var all []Boot
	for i := range 300 { // the newest takes 1 s, the next one 2 s
		took := float64((i*77)%200 + 1)
		if i >= 200 {
			took = 1e6
		}
		all = append(all, Boot{Node: fmt.Sprint("n", took), NodeSet: "cpu", Outcome: history.Registered, Seconds: []float64{0, 0, 0, took / 2, took / 2, 1e9}})
	}
	all = append(all, Boot{Node: "failed", NodeSet: "cpu", Outcome: history.Failed, Seconds: []float64{1e6}})
	got := seconds(all)
	require.Len(t, got, 1)
	assert.Equal(t, Seconds{NodeSet: "cpu", Boots: 200, Median: []float64{0, 0, 0, 50.5, 50.5}, Half: 101, P95: 190, Slowest: 200, SlowestNode: "n200"}, got[0])
}

// Kubernetes may say that a container runs after slurmctld has said that its slurmd is there. The boot was over by then.
func TestContainerAfterRegistration(t *testing.T) {
	st, entries := day()
	late := times(-60_000, 5)
	late.Running = late.Registered.Add(time.Second)
	st.Engine.History[0].Times = late
	sums := func(over []Boot) map[string]float64 {
		took := map[string]float64{}
		for i := range over {
			took[over[i].Node] = rounded(over[i].took())
		}
		return took
	}
	assert.InDelta(t, 0.5, sums(boots(st.Engine, entries))["cpu-1"], 1e-9)
	st.Engine.History = nil
	entries = append(entries, history.Entry{Time: ms(-58_000), What: history.ContainerStarted, Node: "cpu-1", NodeSet: "cpu", Request: "r1"})
	assert.InDelta(t, 0.5, sums(boots(st.Engine, entries))["cpu-1"], 1e-9)
}

func TestVerdicts(t *testing.T) {
	var entries []history.Entry
	fail := func(node, reason string) {
		entries = append(entries, history.Entry{Time: ms(len(entries)), What: history.BootFailed, Node: node, NodeSet: "cpu", Class: "crash", Reason: reason, Jobs: []uint32{1}})
	}
	fail("cpu-10", "a")
	fail("cpu-2", "a")
	fail("cpu-10", "a")
	for i := range 150 {
		fail(fmt.Sprint("cpu-", i), "b")
	}
	got := verdicts(entries).Items
	require.Len(t, got, 2)
	assert.Equal(t, "cpu-[50-149]", got[0].Nodes, "the newest")
	assert.Equal(t, 150, got[0].Times)
	assert.Equal(t, Verdict{NodeSet: "cpu", Class: "crash", Reason: "a", Times: 3, First: ms(0), Last: ms(2), Nodes: "cpu-[2,10]", Node: "cpu-10", Do: history.Advice("crash", false)}, got[1])
	assert.NotEmpty(t, got[1].Do)
}

func TestGivenBack(t *testing.T) {
	got := givenBack([]history.Entry{
		{What: history.JobGivenBack}, // of no job
		{Time: ms(0), What: history.JobGivenBack, Jobs: []uint32{7}, Reason: "slurmtide: crash", Times: 1},
		{Time: ms(1), What: history.JobGivenBack, Jobs: []uint32{8}, Reason: "slurmtide: crash"},
		{Time: ms(2), What: history.JobGivenBack, Jobs: []uint32{7}, Reason: "slurmtide: capacity", Times: 2},
	})
	assert.Equal(t, []GivenBack{{Job: 7, Time: ms(2), Reason: "capacity", Times: 2}, {Job: 8, Time: ms(1), Reason: "crash"}}, got.Items)
	assert.Empty(t, boots(powersave.Status{}, []history.Entry{{What: history.JobGivenBack}}), "nor is it a boot's end")
}

// large is a cluster of 10,000 nodes, all of which boot or have failed.
func large() (bridge.Status, []history.Entry) {
	st := bridge.Status{Engine: powersave.Status{Time: noon, SlurmRead: noon, KubernetesRead: true}}
	var entries []history.Entry
	for i := range 500 {
		c := powersave.NodeSetCounts{Name: fmt.Sprintf("set-%03d", i), Nodes: 20, Booting: 20, Breakers: []powersave.BreakerRecord{{State: powersave.BreakerOpen, Class: "crash", Reason: "it ended"}}}
		if i == 490 {
			c.Problem = "no such template"
		}
		st.Engine.NodeSets = append(st.Engine.NodeSets, c)
	}
	for i := range 10_000 {
		node, set := fmt.Sprint("node-", i), fmt.Sprintf("set-%03d", i%500)
		b := powersave.Boot{Node: node, NodeSet: set, Request: "r", Jobs: []uint32{uint32(i%1000 + 1)}, Phase: powersave.PhasePending, Problem: "0/5000 nodes are available", Times: times(i, 2)}
		st.Engine.Boots = append(st.Engine.Boots, b)
		entries = append(entries, history.Entry{Time: ms(i), What: history.BootFailed, Node: node, NodeSet: set, Request: "q", Class: "crash", Reason: fmt.Sprint("it ended with ", i%300)},
			history.Entry{Time: ms(i), What: history.JobGivenBack, Jobs: []uint32{uint32(i)}, Reason: "slurmtide: crash"})
		if i < 1000 {
			b.Request, b.Times = "p", times(-i, 5)
			st.Engine.History = append(st.Engine.History, b)
			st.Engine.Notes = append(st.Engine.Notes, powersave.Note{Node: node, Text: "late"})
		}
	}
	return st, entries
}

// However large the cluster is, a view is not, and says how much it leaves out.
func TestLookAtMany(t *testing.T) {
	st, entries := large()
	v, _ := Look("tide", st, entries)
	assert.Equal(t, Nodes{All: 10_000, Booting: 10_000}, v.Nodes)
	for name, got := range map[string][3]int{ // items, left out, of how many
		"NodeSets":   {len(v.NodeSets.Items), v.NodeSets.LeftOut, 500},
		"jobs":       {len(v.Jobs.Items), v.Jobs.LeftOut, 1000},
		"booting":    {len(v.Booting.Items), v.Booting.LeftOut, 10_000},
		"over":       {len(v.Over.Items), v.Over.LeftOut, 1000},
		"not tried":  {len(v.NotTried.Items), v.NotTried.LeftOut, 500},
		"verdicts":   {len(v.Verdicts.Items), v.Verdicts.LeftOut, 1500}, // NodeSets with three each
		"given back": {len(v.Backs.Items), v.Backs.LeftOut, 10_000},
		"notes":      {len(v.Notes.Items), v.Notes.LeftOut, 1000},
	} {
		assert.Equal(t, got[2], got[0]+got[1], name)
		assert.Positive(t, got[1], name)
		assert.Positive(t, got[0], name)
	}
	assert.Len(t, v.Seconds, mostSeconds)
	names := map[string]bool{}
	for _, s := range v.NodeSets.Items {
		names[s.Name] = true
	}
	assert.True(t, names["set-490"], "what needs somebody is not left out")
	text, err := json.Marshal(v)
	require.NoError(t, err)
	assert.Less(t, len(text), 150_000)
}

func BenchmarkLook(b *testing.B) {
	st, entries := large()
	for b.Loop() {
		v, _ := Look("tide", st, entries)
		if _, err := json.Marshal(v); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSplit(t *testing.T) {
	var none time.Time
	for name, test := range map[string]struct {
		reached []time.Time
		want    []float64
	}{
		"nothing yet":             {[]time.Time{none, none}, []float64{}},
		"each":                    {[]time.Time{ms(10), ms(30), ms(1000)}, []float64{.01, .02, .97}},
		"one is not known":        {[]time.Time{ms(10), none, ms(1000)}, []float64{.01, 0, .99}},
		"the last is not known":   {[]time.Time{ms(10), none}, []float64{.01}},
		"earlier than the former": {[]time.Time{ms(50), ms(40), ms(60)}, []float64{.05, 0, .01}},
		"clocks that disagree":    {[]time.Time{ms(-5), ms(20)}, []float64{0, .02}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, split(noon, test.reached...)) })
	}
}

func TestOpened(t *testing.T) {
	entry := func(at int, what history.What, job uint32) history.Entry {
		return history.Entry{Time: ms(at), What: what, Jobs: []uint32{job}}
	}
	g := openings([]history.Entry{
		{What: history.Unreadable},
		entry(0, history.GateOpened, 6), // its beginning is older
		entry(0, history.GateWaits, 7), entry(100, history.GateOpened, 7),
		entry(200, history.GateWaits, 7), entry(300, history.GateGivenUp, 7), entry(400, history.GateOpened, 7),
		entry(0, history.GateWaits, 8), entry(150, history.GateOpened, 8),
		entry(0, history.GateWaits, 9), entry(100, history.GateOpened, 9), entry(200, history.GateOpened, 9),
	})
	for name, test := range map[string]struct {
		jobs []uint32
		at   int
		want time.Time
	}{
		"in time":         {[]uint32{7}, 50, ms(100)},
		"the first":       {[]uint32{8, 7}, 50, ms(100)},
		"only one waited": {[]uint32{7, 8}, 120, ms(150)},
		"given up":        {[]uint32{7}, 250, time.Time{}},
		"before":          {[]uint32{7}, -1, time.Time{}},
		"not known":       {[]uint32{6}, 0, time.Time{}},
		"open already":    {[]uint32{9}, 120, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, g.opened(test.jobs, ms(test.at))) })
	}
}

// Boots of mode Dynamic stand beside those of mode Cloud: under way as the loop tells, ended as the history does.
func TestDynamicBoots(t *testing.T) {
	st, entries := day()
	before, _ := Look("tide", st, entries)
	at := times(-4000, 3)
	at.Accepted = time.Time{}
	st.Dynamic = []powersave.Boot{{Node: "dyn-1", NodeSet: "dyn", UID: "u1", Host: "host-a", Phase: powersave.PhaseStarting, Times: at}}
	d := history.NewDynamic(nil)
	done := times(-8000, 5)
	done.Accepted = time.Time{}
	entries = append(entries, d.Pass(noon, history.Pass{
		Boots: []powersave.Boot{{Node: "dyn-0", NodeSet: "dyn", UID: "u0", Host: "host-a", Phase: powersave.PhaseRegistered, Times: done}, st.Dynamic[0]},
		Said:  []history.Entry{{Time: ms(-500), What: history.BootFailed, Node: "dyn-2", NodeSet: "dyn", Class: "crash", Reason: "exit code 1"}},
	})...)
	v, over := Look("tide", st, entries)
	require.Len(t, v.Booting.Items, len(before.Booting.Items)+1)
	one := v.Booting.Items[3]
	assert.Equal(t, Boot{Node: "dyn-1", NodeSet: "dyn", Host: "host-a", Began: ms(-4000), Seconds: []float64{0, 0.2, 0.1}, Now: "starting", Outcome: history.Booting}, one)
	require.Len(t, over, len(before.Over.Items)+1, "of one without a pod it is not known when it began")
	i := slices.IndexFunc(over, func(b Boot) bool { return b.Node == "dyn-0" })
	assert.Equal(t, []float64{0, 0.2, 0.1, 0.1, 0.1}, over[i].Seconds)
	assert.Equal(t, history.Registered, over[i].Outcome)
	assert.Contains(t, indented(t, v.Seconds), `"nodeSet": "dyn"`)
	assert.Equal(t, history.Advice("crash", true), v.Verdicts.Items[0].Do)
	assert.Equal(t, "dyn", v.Verdicts.Items[0].NodeSet)
}
