package dynamic

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// What people, and slurmctld, say of nodes.

// A slurmd that hangs is replaced, also when a reservation or a job names its node, and without a change of mind at each read.
func TestSilentAndNamed(t *testing.T) {
	for name, reserved := range map[string]bool{"by a reservation": true, "by a job": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-3]", 1)
			w.seconds(4)
			uid := w.pods["dyn-0"].UID
			j := w.submit(1, "dyn-0")
			if reserved {
				w.end(j)
				w.reserved["dyn-0"] = "later"
			}
			w.records["dyn-0"].State |= powersave.NodeNotResponding
			updates := w.updates
			w.seconds(150)
			require.Less(t, w.updates-updates, 8)
			require.NotContains(t, w.podUIDs(), uid)
			require.Contains(t, w.records, "dyn-0")
			if !reserved {
				require.Equal(t, 1, w.running())
			}
			require.Empty(t, w.broken)
		})
	}
}

func (w *world) podUIDs() (uids []string) {
	for _, p := range w.pods {
		uids = append(uids, p.UID)
	}
	return uids
}

// Nodes that somebody has taken out of use stay as they are, whoever plans.
func TestSomebodyElses(t *testing.T) {
	for name, state := range map[string]powersave.NodeState{
		"down":               powersave.NodeDown,
		"drained":            powersave.NodeIdle | powersave.NodeDrain,
		"drained and silent": powersave.NodeIdle | powersave.NodeDrain | powersave.NodeNotResponding,
		"failing":            powersave.NodeIdle | powersave.NodeFail,
		"failing and silent": powersave.NodeIdle | powersave.NodeFail | powersave.NodeNotResponding,
	} {
		for when, restart := range map[string]bool{"": false, ", and a new planner": true} {
			t.Run(name+when, func(t *testing.T) {
				w := newWorld("dyn-[0-3]", 0)
				w.end(w.startOne(t))
				r := w.records["dyn-0"]
				r.State, r.Reason = state|powersave.NodeDynamicNorm, "maintenance"
				w.seconds(400)
				if restart {
					w.planner = New(Config{Owner: owner})
				}
				w.seconds(400)
				require.Contains(t, w.pods, "dyn-0")
				require.Equal(t, "maintenance", r.Reason)
				require.Equal(t, state|powersave.NodeDynamicNorm, r.State)
				require.Empty(t, w.planner.Counts("")[0].Breakers, "it did boot")
			})
		}
	}
}

// For the floor another one takes the place of such a node, as far as maxPoweredUp lets it.
func TestFloorReplaces(t *testing.T) {
	for name, tc := range map[string]struct{ most, want int }{"": {0, 3}, "capped": {2, 2}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-3]", 2, func(s *powersave.NodeSet) { s.MaxPoweredUp = tc.most })
			w.seconds(5)
			require.Len(t, w.pods, 2)
			w.records["dyn-0"].State |= powersave.NodeDrain
			w.records["dyn-0"].Reason = "bad fan"
			w.seconds(20)
			require.Len(t, w.pods, tc.want)
			floor := w.planner.Counts("")[0].Floor
			if tc.most > 0 {
				require.Equal(t, powersave.FloorCapped, floor.Why)
			} else {
				require.Equal(t, &powersave.FloorCounts{Wanted: 2, Held: 2}, floor)
			}
			w.records["dyn-0"].State &^= powersave.NodeDrain
			w.seconds(60)
			require.Len(t, w.pods, 2)
		})
	}
}

func TestFloorWithoutNames(t *testing.T) {
	w := newWorld("dyn-0", 1)
	w.seconds(5)
	w.records["dyn-0"].State |= powersave.NodeDrain
	w.records["dyn-0"].Reason = "bad fan"
	w.seconds(5)
	require.Equal(t, powersave.FloorNoNodes, w.planner.Counts("")[0].Floor.Why)
}

// Who is not wanted keeps no node up, only its record.
func TestExcluded(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.submitAndRun(t, 3))
	j := w.submit(1)
	j.avoids, j.held = "dyn-1", true
	w.seconds(60)
	require.Empty(t, w.pods)
	require.Contains(t, w.records, "dyn-1", "slurmctld would end the job when it is started again")
	require.Len(t, w.records, 1)

	// Such a record is used again, once other names are.
	all := w.submit(4)
	w.seconds(10)
	require.True(t, all.running)
	w.end(all)
	w.end(j)
	w.seconds(60)
	require.Empty(t, w.pods)
	require.Empty(t, w.records)
	require.Empty(t, w.broken)
}

func (w *world) submitAndRun(t *testing.T, nodes int) *job {
	t.Helper()
	j := w.submit(nodes)
	w.seconds(8)
	require.True(t, j.running)
	return j
}

// A job that may not run yet keeps no node up either.
func TestHeldJobNames(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.submitAndRun(t, 3))
	j := w.submit(1, "dyn-1")
	j.held = true
	w.seconds(60)
	require.Empty(t, w.pods)
	require.Len(t, w.records, 1)
	j.held = false
	w.seconds(10)
	require.True(t, j.running)
	require.Equal(t, []string{"dyn-1"}, j.on)
	require.Empty(t, w.broken)
}

// slurmctld refuses a slurmd that offers less than its record says.
func TestRecordOfAnotherShape(t *testing.T) {
	for name, tc := range map[string]struct {
		cpus   int
		memory int64
		want   bool
	}{
		"the same":    {2, 1000, true},
		"less":        {1, 500, true},
		"more CPUs":   {4, 1000, false},
		"more memory": {2, 2000, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("dyn-[0-3]", 0)
			w.end(w.startOne(t))
			keep := w.submit(1)
			keep.avoids, keep.held = "dyn-0", true
			w.seconds(60)
			require.Empty(t, w.pods)
			w.records["dyn-0"].CPUs, w.records["dyn-0"].RealMemory = tc.cpus, tc.memory
			w.submit(1, "dyn-0")
			w.seconds(20)
			require.Equal(t, tc.want, len(w.pods) == 1)
		})
	}
}

// Pods that were left when their NodeSet went are nobody's in the end.
func TestNodeSetGone(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	j := w.submitAndRun(t, 2)
	other := newWorld("other-[0-3]", 0, func(s *powersave.NodeSet) { s.Name, s.UID = "other", "other" })
	w.sets = other.sets
	w.seconds(400)
	require.Len(t, w.pods, 2, "with a job")
	w.end(j)
	w.seconds(400)
	require.Empty(t, w.pods)
	require.Empty(t, w.records)
	require.Empty(t, w.broken)
}

// The node that a job names is made, and no other that somebody names.
func TestAskedByName(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.submitAndRun(t, 4))
	not := w.submit(1)
	not.avoids, not.held = "dyn-0,dyn-1,dyn-2,dyn-3", true
	for _, name := range []string{"dyn-0", "dyn-1", "dyn-2", "dyn-3"} {
		w.vanish(name)
	}
	w.seconds(60)
	require.Empty(t, w.pods)
	require.Len(t, w.records, 4)
	w.submit(1, "dyn-3")
	made := w.created
	w.seconds(10)
	require.Equal(t, 1, w.running())
	require.Equal(t, made+1, w.created)
}

// A record that slurmctld set down while nobody looked is used again for the job that names it.
func TestDownByItself(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.startOne(t))
	w.vanish("dyn-0")
	r := w.records["dyn-0"]
	r.State, r.Reason = powersave.NodeDown|powersave.NodeDynamicNorm, "Not responding"
	j := w.submit(1, "dyn-0")
	w.planner = New(Config{Owner: owner})
	w.seconds(30)
	require.True(t, j.running)
	require.Empty(t, w.broken)
}

// A list that cannot be read may name anything.
func TestUnreadableList(t *testing.T) {
	w := newWorld("dyn-[0-3]", 0)
	w.end(w.startOne(t))
	j := w.submit(1, "dyn-[0-")
	j.held = true
	w.seconds(100)
	require.Contains(t, w.pods, "dyn-0")
	require.False(t, w.records["dyn-0"].State.Any(powersave.NodeDrain))
	w.vanish("dyn-0")
	w.seconds(100)
	require.Contains(t, w.records, "dyn-0")
	warned := 0
	for _, r := range w.reports {
		if r.Warning && r.Node == "" {
			warned++
			require.Contains(t, r.Text, "nothing is taken down: the nodes of job 2 cannot be read: hostlist: ")
		}
	}
	require.Equal(t, 1, warned)
	w.end(j)
	w.seconds(60)
	require.Empty(t, w.records)
}

func TestMayGo(t *testing.T) {
	const idle, drained, allocated = powersave.NodeIdle, powersave.NodeIdle | powersave.NodeDrain, powersave.NodeAllocated
	for name, tc := range map[string]struct {
		state powersave.NodeState
		id    string
		want  bool
	}{
		"idle":                         {idle, "uid", false},
		"drained":                      {drained, "uid", true},
		"down":                         {powersave.NodeDown, "uid", true},
		"draining":                     {allocated | powersave.NodeDrain, "uid", false},
		"completing":                   {drained | powersave.NodeCompleting, "uid", false},
		"another's, idle":              {idle, "other", true},
		"another's, with a job":        {allocated, "other", false},
		"another's, with parts of one": {powersave.NodeMixed, "other", false},
		"nobody's, completing":         {idle | powersave.NodeCompleting, "", false},
	} {
		assert.Equal(t, tc.want, MayGo(powersave.SlurmNode{State: tc.state, InstanceID: tc.id}, "uid"), name)
	}
}

func TestMayForget(t *testing.T) {
	const drained = powersave.NodeIdle | powersave.NodeDrain
	for name, tc := range map[string]struct {
		state powersave.NodeState
		id    string
		want  bool
	}{
		"drained":                {drained, "uid", true},
		"down":                   {powersave.NodeDown, "uid", true},
		"idle":                   {powersave.NodeIdle, "uid", false},
		"with a job":             {powersave.NodeAllocated | powersave.NodeDrain, "uid", false},
		"completing":             {drained | powersave.NodeCompleting, "uid", false},
		"reserved":               {drained | powersave.NodeReserved, "uid", false},
		"another has registered": {drained, "other", false},
	} {
		assert.Equal(t, tc.want, DeleteRecord{Node: "n", InstanceID: "uid"}.MayForget(powersave.SlurmNode{State: tc.state, InstanceID: tc.id}), name)
	}
}
