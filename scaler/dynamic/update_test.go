package dynamic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// revise changes the template.
func (w *world) revise(to int) {
	w.sets[0].Revision = fmt.Sprintf("r%d", to)
	w.sets[0].SpecGeneration++
}

// outFor says whether a node that runs is out for an update. A record that is kept for its name may have got another pod since.
func (w *world) outFor(name string) bool {
	r, pod := w.records[name], w.pods[name]
	return pod != nil && r != nil && strings.HasSuffix(r.Comment, " "+pod.UID) && r.State.Any(powersave.NodeDrain) && strings.HasPrefix(r.Reason, powersave.UpdatePrefix)
}

// mayReplace looks at drains for an update. One that comes late, when its pod was lost meanwhile, takes nothing out any more.
func (w *world) mayReplace(name string, a Update) {
	if a.State != powersave.StateDrain || !strings.HasPrefix(a.Reason, powersave.UpdatePrefix) || w.pods[name] == nil {
		return
	}
	out := 0
	for other := range w.records {
		if other != name && w.outFor(other) {
			out++
		}
	}
	if r := w.sets[0].Rolling; r == nil || out >= r.MaxUnavailable {
		w.breaks("%v: %d are out for an update already", a, out)
	}
}

func (w *world) revisions() (r []string) {
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		r = append(r, name+"/"+w.pods[name].Revision)
	}
	return r
}

func (w *world) update() powersave.UpdateCounts {
	return *w.planner.Counts("")[0].Update
}

// rolling is a NodeSet of revision r1 with five names.
func rolling(floor, most int) *world {
	return newWorld("dyn-[0-4]", floor, func(s *powersave.NodeSet) {
		s.Revision, s.Rolling = "r1", &powersave.RollingUpdate{MaxUnavailable: most}
	})
}

// A floor of three, one out at once: never do fewer than two serve, and other names have the new pods.
func TestRollingUpdate(t *testing.T) {
	w := rolling(3, 1)
	w.seconds(10)
	require.Equal(t, []string{"dyn-0/r1", "dyn-1/r1", "dyn-2/r1"}, w.revisions())
	assert.Equal(t, powersave.UpdateCounts{Revision: "r1", Current: "r1", Updated: 3}, w.update())
	w.revise(2)
	w.second(true)
	assert.Equal(t, powersave.UpdateCounts{Revision: "r2", Current: "r1", Outdated: 3, Why: powersave.UpdateReplacing, Text: "1 of at most 1 nodes are out for it"}, w.update())
	for range 60 {
		w.second(true)
		serve := 0
		for name, r := range w.records {
			if w.pods[name] != nil && !r.State.Any(judged) {
				serve++
			}
		}
		require.GreaterOrEqual(t, serve, 2, "%v", w.revisions())
	}
	require.Len(t, w.pods, 3)
	assert.Equal(t, powersave.UpdateCounts{Revision: "r2", Current: "r2", Updated: 3}, w.update())
	assert.Empty(t, w.broken)
}

// Idle nodes first; jobs run on, and no new ones come.
func TestRollingUpdateOfBusyNodes(t *testing.T) {
	w := rolling(0, 1)
	one, two := w.submit(1), w.submit(1)
	w.seconds(8)
	require.Equal(t, 2, w.running())
	w.submit(1)
	w.seconds(8)
	require.Equal(t, 3, w.running())
	w.end(w.jobs[2])
	w.revise(2)
	w.seconds(3)
	require.False(t, w.outFor("dyn-0"), "the idle one first")
	require.False(t, w.outFor("dyn-1"))
	require.Equal(t, []string{"dyn-0/r1", "dyn-1/r1"}, w.revisions())
	w.seconds(20)
	require.True(t, w.outFor("dyn-0"))
	require.Equal(t, "slurmtide: update: revision r1 is replaced when idle", w.records["dyn-0"].Reason)
	require.False(t, w.outFor("dyn-1"), "one at once")
	assert.Equal(t, powersave.UpdateCounts{Revision: "r2", Current: "r1", Outdated: 2, Replacing: 1, Why: powersave.UpdateReplacing, Text: "1 of at most 1 nodes are out for it"}, w.update())
	w.submit(1)
	w.seconds(10)
	require.Equal(t, 3, w.running())
	require.Equal(t, []string{"dyn-0"}, one.on, "it runs on")
	w.end(one)
	w.seconds(10)
	require.Nil(t, w.pods["dyn-0"])
	require.True(t, w.outFor("dyn-1"), "its turn")
	w.end(two)
	w.seconds(10)
	require.Equal(t, powersave.UpdateDone, w.update().Why)
	assert.Empty(t, w.broken)
}

// What is no longer to be replaced is put back.
func TestUpdateTakenBack(t *testing.T) {
	for name, back := range map[string]func(w *world){
		"the template is changed back": func(w *world) { w.revise(1) },
		"on delete": func(w *world) {
			w.sets[0].Rolling = nil
			w.sets[0].SpecGeneration++
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := rolling(0, 1)
			j := w.startOne(t)
			w.revise(2)
			w.seconds(3)
			require.True(t, w.outFor("dyn-0"))
			w.planner, w.reading = New(Config{Owner: owner}), nil // another bridge
			w.seconds(5)
			require.True(t, w.outFor("dyn-0"))
			back(w)
			w.seconds(3)
			require.False(t, w.records["dyn-0"].State.Any(powersave.NodeDrain))
			w.seconds(5)
			assert.True(t, j.running)
			assert.NotEqual(t, powersave.UpdateReplacing, w.update().Why)
			assert.Empty(t, w.broken)
		})
	}
}

// People's drains, and nodes that somebody names, are left alone.
func TestUpdateHeld(t *testing.T) {
	w := rolling(2, 2)
	w.seconds(10)
	w.records["dyn-0"].State |= powersave.NodeDrain
	w.records["dyn-0"].Reason = "disk"
	w.reserved["dyn-1"] = "course"
	w.seconds(10) // another one for the floor
	w.revise(2)
	w.seconds(60)
	require.Equal(t, "disk", w.records["dyn-0"].Reason)
	require.Contains(t, w.revisions(), "dyn-0/r1")
	require.Contains(t, w.revisions(), "dyn-1/r1")
	require.Equal(t, powersave.UpdateHeld, w.update().Why)
	clear(w.reserved)
	w.records["dyn-0"].State &^= powersave.NodeDrain
	w.records["dyn-0"].Reason = ""
	w.seconds(60)
	require.Equal(t, powersave.UpdateDone, w.update().Why)
	assert.Empty(t, w.broken)
}

// What is drained goes, also while others are wanted and cannot be made.
func TestUpdateWhileNodesAreWanted(t *testing.T) {
	w := rolling(0, 1)
	w.end(w.startOne(t))
	w.submit(3)
	w.revise(2)
	for range 20 {
		w.now = w.now.Add(time.Second)
		w.reading = w.read()
		w.step()
		for _, a := range w.todo {
			_, create := a.(CreatePod)
			w.carry(a, create, false)
		}
		w.todo = nil
	}
	require.Empty(t, w.pods)
	w.seconds(40)
	require.Equal(t, 1, w.running())
	assert.Empty(t, w.broken)
}

// A busy node that waits for its job is put back when the NodeSet rests.
func TestUpdateBacksOffFromBusyNodes(t *testing.T) {
	w := rolling(2, 2)
	j := w.startOne(t)
	w.seconds(10)
	w.revise(2)
	w.seconds(1)
	w.second(false)
	require.True(t, w.outFor("dyn-0"))
	for range 60 {
		w.second(false)
		for _, pod := range w.pods {
			if pod.Revision == "r2" {
				pod.Trouble, pod.Reason = powersave.TroubleImage, "ErrImagePull"
			}
		}
	}
	require.Equal(t, powersave.UpdateBackingOff, w.update().Why)
	require.False(t, w.outFor("dyn-0"))
	assert.True(t, j.running)
	assert.Empty(t, w.broken)
}

// Where all places of an offering are taken those that are replaced leave theirs.
func TestUpdateAtTheLimit(t *testing.T) {
	w := rolling(2, 1)
	w.sets[0].Offerings = []powersave.Offering{{Name: "own", Limit: 2}}
	w.seconds(10)
	require.Equal(t, []string{"dyn-0/r1", "dyn-1/r1"}, w.revisions())
	w.revise(2)
	w.seconds(300)
	assert.Equal(t, powersave.UpdateCounts{Revision: "r2", Current: "r2", Updated: 2}, w.update())
	assert.Empty(t, w.broken)
}

// besideALimit has one place on its own hosts, and spot for the rest.
func besideALimit(floor int) *world {
	w := rolling(floor, 1)
	w.sets[0].Offerings = []powersave.Offering{{Name: "own", Limit: 1}, {Name: "spot"}}
	return w
}

// reviseWithoutSpot begins an update while spot rests.
func (w *world) reviseWithoutSpot() {
	w.revise(2)
	w.planner.breakers.Failed(w.now, w.sets[0].Attempt("spot"), powersave.TroubleCapacity, "no room")
}

// One offering is full, and the other rests: only what is on the first can be replaced. What serves on the other stays until its time has come.
func TestUpdateBesideALimit(t *testing.T) {
	w := besideALimit(3)
	w.seconds(10)
	require.Len(t, w.pods, 3)
	w.reviseWithoutSpot()
	for range 60 {
		w.second(true)
		require.GreaterOrEqual(t, len(w.pods), 2)
	}
	assert.Equal(t, powersave.UpdateBackingOff, w.update().Why)
	assert.Equal(t, 1, w.update().Updated)
	w.seconds(300)
	assert.Equal(t, powersave.UpdateCounts{Revision: "r2", Current: "r2", Updated: 3}, w.update())
	assert.Empty(t, w.broken)
}

// The same with jobs on all nodes: the one that can be replaced is drained once, and stays so until its job has ended.
func TestUpdateBesideALimitOfBusyNodes(t *testing.T) {
	w := besideALimit(0)
	for range 4 {
		w.submit(1)
	}
	w.seconds(10)
	w.reviseWithoutSpot()
	w.seconds(3)
	require.True(t, w.outFor("dyn-0"))
	for range 100 {
		w.second(true)
		require.True(t, w.outFor("dyn-0"))
	}
	assert.Empty(t, w.broken)
}

// New pods do not come up: the NodeSet rests, and of three nodes one is lost. When that is mended all are replaced.
func TestUpdateBacksOff(t *testing.T) {
	w := rolling(3, 1)
	w.seconds(10)
	w.revise(2)
	good := true
	boots := func(seconds int) {
		for range seconds {
			w.second(false)
			for name, pod := range w.pods {
				if pod.Revision != "r2" || good {
					w.boot(name)
				} else if pod.Phase == powersave.PodPending {
					pod.Trouble, pod.Reason = powersave.TroubleImage, "ErrImagePull"
				}
			}
		}
	}
	good = false
	boots(120)
	old := 0
	for _, pod := range w.pods {
		if pod.Revision == "r1" {
			old++
		}
	}
	require.GreaterOrEqual(t, old, 2, "%v", w.revisions())
	require.Equal(t, powersave.UpdateBackingOff, w.update().Why)
	for name := range w.records {
		require.False(t, w.outFor(name), name)
	}
	w.revise(3)
	boots(int((5 * time.Minute).Seconds()))
	require.Len(t, w.pods, 3)
	require.Equal(t, powersave.UpdateDone, w.update().Why, "%v", w.revisions())
	assert.Empty(t, w.broken)
}

// A drain that slurmctld refuses is tried again after a pause, and not with every read.
func TestUpdateThatIsRefused(t *testing.T) {
	w := rolling(1, 1)
	w.seconds(10)
	w.revise(2)
	var asked []time.Duration
	begin := w.now
	for range 60 {
		w.now = w.now.Add(time.Second)
		w.reading = w.read()
		w.step()
		for _, a := range w.todo {
			if u, is := a.(Update); is && u.State == powersave.StateDrain {
				asked = append(asked, w.now.Sub(begin))
			}
			w.carry(a, true, false)
		}
		w.todo = nil
	}
	require.NotEmpty(t, asked)
	for i, wait := range []time.Duration{retryFirst, 2 * retryFirst, 4 * retryFirst} {
		require.Greater(t, len(asked), i+1, "%v", asked)
		assert.GreaterOrEqual(t, asked[i+1]-asked[i], wait, "%v", asked)
	}
	w.seconds(int(retryMost.Seconds()) + 60)
	require.Equal(t, powersave.UpdateDone, w.update().Why)
	assert.Empty(t, w.broken)
}
