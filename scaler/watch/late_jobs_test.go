package watch

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/scaler"
)

func tasks(jobs []scaler.Job) (tasks []string) {
	for _, j := range jobs {
		tasks = append(tasks, j.ArrayTasks)
	}
	slices.Sort(tasks)
	return tasks
}

func TestLateJobs(t *testing.T) {
	job := func(ids ...uint32) (jobs []scaler.Job) {
		for _, id := range ids {
			jobs = append(jobs, scaler.Job{ID: id})
		}
		return jobs
	}
	ids := func(jobs []scaler.Job) (ids []uint32) {
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		return ids
	}
	marks := func(of ...uint32) map[uint32]string {
		m := map[uint32]string{}
		for _, id := range of {
			m[id] = "PENDING"
		}
		return m
	}
	fresh := func() *lateJobs {
		l := newLateJobs()
		l.begin()
		l.all(job(5, 7))
		return &l
	}
	t.Run("nothing is known", func(t *testing.T) {
		l := newLateJobs()
		asked := l.ask().ids
		assert.Empty(t, asked)
	})
	t.Run("those to come", func(t *testing.T) {
		q := fresh().ask()
		asked, known := q.ids, q.known
		assert.Len(t, asked, window)
		assert.EqualValues(t, 8, asked[0])
		assert.Empty(t, known)
	})
	t.Run("found while all are read", func(t *testing.T) {
		l := fresh()
		l.take(l.ask(), job(8), marks(8))
		l.begin()
		l.take(l.ask(), job(9), marks(8, 9))
		before := job(5, 7)
		l.all(before)
		assert.Equal(t, []uint32{5, 7, 9}, ids(l.with(before)), "8 has ended and is forgotten, 9 came after")
		assert.Equal(t, nextIDs{9}, l.next)
	})
	t.Run("read with all", func(t *testing.T) {
		l := fresh()
		l.take(l.ask(), job(8), marks(8))
		l.begin()
		all := []scaler.Job{{ID: 5}, {ID: 7}, {ID: 8, Reason: "Resources"}}
		l.all(all)
		assert.Equal(t, all, l.with(all), "once, and as it is now")
	})
	t.Run("started while all are read", func(t *testing.T) {
		l := fresh()
		l.take(l.ask(), job(8), marks(8))
		l.begin()
		_, went, _ := l.take(l.ask(), nil, map[uint32]string{8: "RUNNING"})
		assert.True(t, went)
		all := job(5, 7, 8)
		l.all(all)
		assert.Equal(t, []uint32{5, 7}, ids(l.with(all)), "the read of all began before")
		l.begin()
		l.all(all)
		assert.Equal(t, []uint32{5, 7, 8}, ids(l.with(all)), "it waits again")
	})
	t.Run("starts and waits again while all are read", func(t *testing.T) {
		l := fresh()
		l.take(l.ask(), job(8), marks(8))
		l.begin()
		l.take(l.ask(), nil, map[uint32]string{8: "RUNNING"})
		l.take(l.ask(), job(8), marks(8))
		all := job(5, 7, 8)
		l.all(all)
		assert.Equal(t, []uint32{5, 7, 8}, ids(l.with(all)))
	})
	t.Run("not looked at by slurmctld", func(t *testing.T) {
		l := fresh()
		first := []scaler.Job{{ID: 8, Reason: "None"}, {ID: 9, Reason: "Resources"}}
		l.take(l.ask(), first, marks(8, 9))
		known := l.ask().known
		assert.Equal(t, marks(9), known, "8 is read again")
		came, went, _ := l.take(l.ask(), first[:1], marks(8, 9))
		assert.False(t, came || went)
		came, went, _ = l.take(l.ask(), []scaler.Job{{ID: 8, Reason: "QOSMaxJobsPerUserLimit"}}, marks(8, 9))
		assert.Equal(t, []bool{true, false}, []bool{came, went})
		known = l.ask().known
		assert.Equal(t, marks(8, 9), known)
	})
	t.Run("place for others", func(t *testing.T) {
		l := fresh()
		var many []scaler.Job
		var of []uint32
		for id := range uint32(mostLate) {
			many, of = append(many, scaler.Job{ID: 8 + id}), append(of, 8+id)
		}
		l.take(l.ask(), many, marks(of...))
		asked := l.ask().ids
		assert.Len(t, asked, mostLate, "no more are looked for")
		l.begin()
		l.all(many)
		asked = l.ask().ids
		assert.Len(t, asked, mostLate/2+window)
		assert.EqualValues(t, 8+mostLate/2, asked[0], "the newest stay")
		assert.Len(t, l.with(many), mostLate)
	})
	t.Run("the newest has ended", func(t *testing.T) {
		l := fresh()
		l.take(l.ask(), nil, map[uint32]string{40: "COMPLETED"})
		l.begin()
		l.all(job(5))
		asked := l.ask().ids
		assert.EqualValues(t, 41, asked[0], "IDs are not given out twice")
	})
	t.Run("small numbers again", func(t *testing.T) {
		l := fresh()
		l.begin()
		l.all(job(1, 2, 5))
		asked := l.ask().ids
		assert.Contains(t, asked, uint32(3))
		assert.Contains(t, asked, uint32(8), "it may have been a job that is queued once more")
	})
	t.Run("an array is not looked at again", func(t *testing.T) {
		l := fresh()
		l.take(l.ask(), []scaler.Job{{ID: 8, ArrayTasks: "0-9"}}, map[uint32]string{8: "8_* PENDING"})
		q := l.ask()
		asked, known := q.ids, q.known
		assert.Empty(t, known)
		assert.EqualValues(t, 9, asked[0])
		came, went, _ := l.take(l.ask(), nil, map[uint32]string{9: "9_0 RUNNING"})
		assert.False(t, came || went)
		l.begin()
		l.all([]scaler.Job{{ID: 5}, {ID: 7}, {ID: 8, ArrayTasks: "1-9"}})
		assert.Equal(t, "1-9", l.with(nil)[0].ArrayTasks)
	})
	t.Run("all tasks of an array start", func(t *testing.T) {
		l := fresh()
		l.take(l.ask(), []scaler.Job{{ID: 8, ArrayTasks: "0-1"}}, map[uint32]string{8: "8_[0-1] PENDING"})
		l.begin()
		l.take(l.ask(), nil, map[uint32]string{9: "9_0 RUNNING"})
		all := []scaler.Job{{ID: 5}, {ID: 7}, {ID: 8, ArrayJobID: 8, State: scaler.JobRunning}, {ID: 9, ArrayJobID: 8, State: scaler.JobRunning}}
		l.all(all)
		assert.Equal(t, all, l.with(all), "the last one has the array's ID")
	})
	t.Run("tasks start while all are read", func(t *testing.T) {
		l := fresh()
		l.begin()
		l.take(l.ask(), []scaler.Job{{ID: 8, ArrayTasks: "0-9"}}, map[uint32]string{8: "8_[0-9] PENDING"})
		all := []scaler.Job{{ID: 5}, {ID: 7}, {ID: 8, ArrayTasks: "5-9"}, {ID: 9, ArrayJobID: 8, State: scaler.JobRunning}}
		l.all(all)
		assert.Equal(t, []string{"", "", "", "5-9"}, tasks(l.with(all)), "each counts once")
	})
	t.Run("an older answer", func(t *testing.T) {
		l := fresh()
		q := l.ask()
		l.begin()
		all := []scaler.Job{{ID: 5}, {ID: 7}, {ID: 8, State: scaler.JobRunning}}
		l.all(all)
		came, went, more := l.take(q, job(8), marks(8))
		assert.Equal(t, []bool{false, false, true}, []bool{came, went, more}, "it is asked again")
		assert.Equal(t, all, l.with(all))
	})
	t.Run("an answer that was asked for before", func(t *testing.T) {
		l := fresh()
		q := l.ask()
		l.begin()
		l.take(q, job(8, 9), marks(8, 9))
		all := []scaler.Job{{ID: 5}, {ID: 7}, {ID: 8, State: scaler.JobRunning}}
		l.all(all)
		assert.Equal(t, append(all, job(9)...), l.with(all), "8 has started since; 9 may have come since")
	})
	t.Run("what was seen to run is nothing new", func(t *testing.T) {
		l := fresh()
		l.begin()
		l.take(l.ask(), nil, map[uint32]string{8: "RUNNING", 9: "RUNNING"})
		l.all(job(5, 7, 8))
		assert.Equal(t, nextIDs{9}, l.next)
		l.begin()
		l.all(job(5, 7, 8, 9))
		assert.Equal(t, nextIDs{9}, l.next)
		l.take(l.ask(), nil, map[uint32]string{10: "RUNNING", 11: "RUNNING"})
		l.begin()
		l.all(job(5, 7, 8, 9, 10))
		assert.Equal(t, nextIDs{11}, l.next)
	})
	t.Run("more", func(t *testing.T) {
		l := fresh()
		_, _, more := l.take(l.ask(), nil, marks(7+window))
		assert.True(t, more)
	})
}
