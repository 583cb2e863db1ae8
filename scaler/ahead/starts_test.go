package ahead

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/scaler"
)

// What is known of a start changes while it comes nearer, and no wish lasts for ever.
func TestStarts(t *testing.T) {
	cpu := Settings{NodeSet: "cpu", Lead: 20 * time.Second, MaxNodes: 10}
	leaves := func(id uint32, end int, bad bool) scaler.Job {
		return scaler.Job{ID: id, State: scaler.JobLeaving, End: in(end), Failed: bad}
	}
	wished := func(source Source, start int) func(*Facts) {
		return func(f *Facts) { f.Wished = map[uint32]Job{7: {ID: 7, Source: source, Start: in(start)}} }
	}
	gone := func(at int, bad bool) func(*Facts) {
		return func(f *Facts) { f.Gone = map[uint32]Gone{1: {At: in(at), Failed: bad}} }
	}
	on := func(text string) scaler.Job { return whole(7, "cpu", 1, depends(text)) }
	full := func(start int) Facts {
		return cluster(runs(1, "cpu-[0-1]", 10), whole(7, "cpu", 3, func(j *scaler.Job) { j.Reason, j.Start = "Resources", in(start) })).up(4, "cpu-0", "cpu-1")
	}
	reserved := func(names string) scaler.Job {
		return whole(7, "cpu", 1, func(j *scaler.Job) { j.Reservation, j.Reason = names, "Reservation" })
	}
	two := func(f *Facts) {
		f.Reservations = map[string]scaler.Reservation{"r": {Nodes: "cpu-2", Start: in(15)}, "s": {Nodes: "cpu-3", Start: in(10)}}
	}
	for name, tc := range map[string]struct {
		facts Facts
		want  string
	}{
		"after one that leaves":                 {cluster(leaves(1, -5, false), on("afterok:1(unfulfilled)")), "cpu: 1 [cpu-0] until 1m25s; job 7 Dependency at -5s 1\nnext 1m25s\n"},
		"after one that cannot leave":           {cluster(leaves(1, -91, false), on("afterok:1(unfulfilled)")), ""},
		"after one that has failed":             {cluster(leaves(1, -5, true), on("afterok:1(unfulfilled)")), ""},
		"whatever becomes of it":                {cluster(leaves(1, 0, true), on("afterany:1(unfulfilled)")), "cpu: 1 [cpu-0] until 1m30s; job 7 Dependency at 0s 1\nnext 1m30s\n"},
		"if it fails, and it does":              {cluster(leaves(1, 0, true), on("afternotok:1(unfulfilled)")), "cpu: 1 [cpu-0] until 1m30s; job 7 Dependency at 0s 1\nnext 1m30s\n"},
		"if it fails, and it does not":          {cluster(leaves(1, 0, false), on("afternotok:1(unfulfilled)")), ""},
		"if it fails, as it will at its limit":  {cluster(runs(1, "", 10), on("afternotok:1(unfulfilled)")), "cpu: 1 [cpu-0] until 1m40s; job 7 Dependency at 10s 1\nnext 1m40s\n"},
		"if one of the array fails":             {cluster(scaler.Job{ID: 1, ArrayJobID: 1, State: scaler.JobLeaving, End: in(0)}, scaler.Job{ID: 2, ArrayJobID: 1, State: scaler.JobLeaving, End: in(0), Failed: true}, on("afterok:1_*(unfulfilled)")), ""},
		"if all of the array must end":          {cluster(scaler.Job{ID: 1, ArrayJobID: 1, State: scaler.JobLeaving, End: in(0)}, scaler.Job{ID: 2, ArrayJobID: 1, State: scaler.JobRunning, End: in(9)}, on("afterok:1_*(unfulfilled)")), "cpu: 1 [cpu-0] until 1m39s; job 7 Dependency at 9s 1\nnext 1m39s\n"},
		"after one that is gone":                {cluster(on("afterok:1(unfulfilled)")).with(gone(-3, false)), "cpu: 1 [cpu-0] until 1m27s; job 7 Dependency at -3s 1\nnext 1m27s\n"},
		"after one that was seen to fail":       {cluster(on("afterok:1(unfulfilled)")).with(gone(-3, true)), ""},
		"after one that nobody has seen":        {cluster(on("afterok:1(unfulfilled)")), ""},
		"after the rest of an array":            {cluster(scaler.Job{ID: 2, ArrayJobID: 1, State: scaler.JobRunning, End: in(9)}, on("afterok:1_*(unfulfilled)")).with(gone(0, false)), "cpu: 1 [cpu-0] until 1m39s; job 7 Dependency at 9s 1\nnext 1m39s\n"},
		"let go before the limit":               {cluster(whole(7, "cpu", 1, nil)).with(wished(Dependency, 15)), "cpu: 1 [cpu-0] until 1m30s; job 7 Dependency at 0s 1\nnext 1m30s\n"},
		"an expected start that is over":        {full(0), ""},
		"the same, and nodes were wished for":   {full(0).with(wished(ExpectedStart, -30)), "cpu: 1 [cpu-2] until 1m0s; job 7 ExpectedStart at -30s 1\nnext 1m0s\n"},
		"the same, and it does not come":        {full(0).with(wished(ExpectedStart, -91)), ""},
		"the same, and it is put off":           {full(40).with(wished(ExpectedStart, -30)), "next 20s\n"},
		"one of two reservations":               {cluster(reserved("r,s")).with(two), "cpu: 1 [cpu-3] until 1m40s; job 7 Reservation at 10s 1\nnext 1m40s\n"},
		"one of two reservations, one is known": {cluster(reserved("x,r")).with(two), "cpu: 1 [cpu-2] until 1m45s; job 7 Reservation at 15s 1\nnext 1m45s\n"},
		"nodes that somebody else has reserved": {cluster(whole(7, "cpu", 1, begins(10))).with(func(f *Facts) {
			for i := range f.Snapshot.Nodes {
				f.Snapshot.Nodes[i].Reservation = "theirs"
			}
		}), "next 1m40s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, makePlan(epoch, tc.facts, cpu).String())
		})
	}
}

func TestLeavers(t *testing.T) {
	array := func(id uint32, state scaler.JobState, bad bool) scaler.Job {
		return scaler.Job{ID: id, ArrayJobID: 1, State: state, Failed: bad}
	}
	var l Leavers
	for _, look := range []struct {
		at   int
		jobs []scaler.Job
		want map[uint32]Gone
	}{
		{0, []scaler.Job{runs(5, "", 90), array(1, scaler.JobPending, false), array(2, scaler.JobRunning, false), whole(6, "cpu", 1, nil)}, map[uint32]Gone{}},
		{10, []scaler.Job{runs(5, "", 90), array(1, scaler.JobRunning, false)}, map[uint32]Gone{2: {At: in(10)}}}, // 6 never ran
		{11, []scaler.Job{array(1, scaler.JobLeaving, true)}, map[uint32]Gone{2: {At: in(10)}, 5: {At: in(11)}}},
		{12, nil, map[uint32]Gone{1: {in(12), true}, 2: {At: in(10)}, 5: {At: in(11)}}},
		{101, nil, map[uint32]Gone{1: {in(12), true}, 5: {At: in(11)}}},
		{110, nil, map[uint32]Gone{}},
	} {
		assert.Equal(t, look.want, l.See(in(look.at), look.jobs), "at %ds", look.at)
	}
	l.See(in(200), []scaler.Job{runs(5, "", 0)})
	assert.Empty(t, l.See(in(201), []scaler.Job{whole(5, "cpu", 1, nil)}), "requeued")

	l.See(in(300), []scaler.Job{array(2, scaler.JobLeaving, true), array(3, scaler.JobRunning, false)})
	l.See(in(301), []scaler.Job{array(3, scaler.JobRunning, false)})
	assert.Equal(t, Gone{in(302), true}, l.See(in(302), nil)[1], "a task that failed stands for its array when it is long gone")
}
